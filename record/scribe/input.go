//go:build linux

package scribe

import (
	"github.com/gpurec/gpurec/bpf"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/record/overhead"
	"github.com/gpurec/gpurec/record/rows"
)

// Send hands over rows of one class; it waits while the scribe is behind.
func (s *Scribe) Send(rows []format.Row) { s.rows <- rows }

// Sender returns what hands over rows without waiting.
func (s *Scribe) Sender() *rows.Sender { return rows.NewSender(s.rows) }

// AddOpen hands over calls that will not return.
func (s *Scribe) AddOpen(calls []bpf.CudaEvent) { s.orphans <- calls }

// AskRates returns the hits of the busiest thread since it was asked last; false if stop
// was closed.
func (s *Scribe) AskRates(stop <-chan struct{}) (overhead.Rates, bool) {
	reply := make(chan overhead.Rates, 1)
	select {
	case s.asks <- reply:
		return <-reply, true
	case <-stop:
		return overhead.Rates{}, false
	}
}

// EndedNs returns when the recording ended, in Unix ns; 0: it has not. Safe for concurrent use.
func (s *Scribe) EndedNs() int64 { return s.accounts.endNs.Load() }

// Progress returns how far the recording is; safe for concurrent use.
func (s *Scribe) Progress() Progress { return *s.progress.Load() }

// LaunchesPerSecond returns the rate of the process that launches most; safe for concurrent use.
func (s *Scribe) LaunchesPerSecond() int64 { return s.launchRate.Load() }
