//go:build linux

package rowwriter

import (
	"github.com/gpurec/gpurec/bpf"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/record/overhead"
	"github.com/gpurec/gpurec/record/rows"
)

// Send hands over rows of one class; it waits while the Writer is behind. Safe for concurrent use
// until Wait.
func (s *Writer) Send(rows []format.Row) { s.rows <- rows }

// Sender returns a Sender, which drops rows instead of waiting.
func (s *Writer) Sender() *rows.Sender { return rows.NewSender(s.rows) }

// SendOpenCalls hands over calls that will not return; it may wait. Safe for concurrent use until Wait.
func (s *Writer) SendOpenCalls(calls []bpf.CudaEvent) { s.orphans <- calls }

// BusiestThreadRates returns the hits of the busiest thread since the last call; false if stop was closed.
// Safe for concurrent use.
func (s *Writer) BusiestThreadRates(stop <-chan struct{}) (overhead.Rates, bool) {
	reply := make(chan overhead.Rates, 1)
	select {
	case s.asks <- reply:
		return <-reply, true
	case <-stop:
		return overhead.Rates{}, false
	}
}

// EndNs returns when the recording ended, in Unix ns; 0: it has not. Safe for concurrent use.
func (s *Writer) EndNs() int64 { return s.counters.endNs.Load() }

// Progress returns the progress of the recording, 100 ms old at most. Safe for concurrent use.
func (s *Writer) Progress() Progress { return *s.progress.Load() }

// LaunchesPerSecond returns the rate of the process that launches most kernels. Safe for
// concurrent use.
func (s *Writer) LaunchesPerSecond() int64 { return s.launchRate.Load() }
