//go:build linux

package record

import (
	"github.com/gpurec/gpurec/bpf"
	"github.com/gpurec/gpurec/format"
)

// send hands over rows of one class; it waits while the scribe is behind.
func (s *scribe) send(rows []format.Row) { s.rows <- rows }

// sender returns what hands over rows without waiting.
func (s *scribe) sender() *rowSender { return newRowSender(s.rows) }

// addOpen hands over calls that will not return.
func (s *scribe) addOpen(calls []bpf.CudaEvent) { s.orphans <- calls }

// askRates returns the hits of the busiest thread since it was asked last; false if stop
// was closed.
func (s *scribe) askRates(stop <-chan struct{}) (hitRates, bool) {
	reply := make(chan hitRates, 1)
	select {
	case s.asks <- reply:
		return <-reply, true
	case <-stop:
		return hitRates{}, false
	}
}

// endedNs returns when the recording ended, in Unix ns; 0: it has not. Safe for concurrent use.
func (s *scribe) endedNs() int64 { return s.accounts.endNs.Load() }

// soFar returns how far the recording is; safe for concurrent use.
func (s *scribe) soFar() Progress { return *s.progress.Load() }

// launchesPerSecond returns the rate of the process that launches most; safe for concurrent use.
func (s *scribe) launchesPerSecond() int64 { return s.launchRate.Load() }
