//go:build linux

package record

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurec/gpurec/record/clock"
	"github.com/gpurec/gpurec/record/probe"
)

const (
	// aliveInterval is how often Run looks for processes that have ended.
	aliveInterval = 100 * time.Millisecond
	// mappedDelay lets a program map what belongs together before it is looked at.
	mappedDelay = 5 * time.Millisecond
)

// End says why Run returned.
type End string

// Reasons for the end of a recording.
const (
	EndDuration  End = "the time is over"
	EndProcesses End = "the process has ended"
	EndContext   End = "it was stopped"
	EndSize      End = "the recording has reached its greatest size"
)

var errDuration = errors.New("duration over")

// Run records until ctx is done, the duration is over or all processes have ended.
// An error means that the recording cannot go on, a full disk for example; what was
// written before is kept. Finish must be called in every case.
func (s *Session) Run(ctx context.Context) (End, error) {
	if s.opt.Duration > 0 {
		timeout, cancel := context.WithTimeoutCause(ctx, s.opt.Duration, errDuration)
		defer cancel()
		ctx = timeout
	}
	alive := time.NewTicker(aliveInterval)
	defer alive.Stop()
	scan := time.NewTimer(0)
	defer scan.Stop()
	mapped := time.NewTimer(0)
	defer mapped.Stop()
	for {
		select {
		case <-ctx.Done():
			if errors.Is(context.Cause(ctx), errDuration) {
				return EndDuration, nil
			}
			return EndContext, nil
		case err := <-s.pipeline.failures:
			return "", err
		case <-s.pipeline.full:
			return EndSize, nil
		case <-s.targets.News():
			mapped.Reset(mappedDelay)
		case <-mapped.C:
			s.targets.OnMapped()
		case <-alive.C:
			s.targets.FinishSearches()
			if left := s.targets.ReapExited(); !left && !s.opt.All {
				return EndProcesses, nil
			}
		case e := <-s.pipeline.processEvents:
			s.onProcessEvent(e)
		case r := <-s.holds.requests():
			s.cover(r)
		case <-scan.C:
			scan.Reset(s.targets.Scan())
		}
	}
}

// reapThreads deletes the state of threads that are gone, until stop is closed. The calls
// that they were in are handed to the row writer, as open.
func (s *Session) reapThreads(stop <-chan struct{}) {
	for !clock.Sleep(stop, probe.ReapInterval) {
		if open := s.probes.Reap(); len(open) > 0 {
			probe.MarkOpen(open, clock.Ns(unix.CLOCK_MONOTONIC))
			s.pipeline.writer.AddOpen(open)
		}
	}
}
