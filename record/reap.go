//go:build linux

package record

import (
	"golang.org/x/sys/unix"

	"github.com/gpurec/gpurec/record/clock"
	"github.com/gpurec/gpurec/record/probe"
)

// reapThreads deletes the state of threads that are gone, until stop is closed. The calls
// that they were in are handed to the scribe, as open.
func (s *Session) reapThreads(stop <-chan struct{}) {
	for !clock.Sleep(stop, probe.ReapInterval) {
		if open := s.probes.Reap(); len(open) > 0 {
			probe.MarkOpen(open, clock.Ns(unix.CLOCK_MONOTONIC))
			s.scribe.AddOpen(open)
		}
	}
}
