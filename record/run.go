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
	// aliveInterval is the interval at which Run checks for exited processes.
	aliveInterval = 100 * time.Millisecond
	// mappedDelay is the delay before new mappings are read: programs map libraries in groups.
	mappedDelay = 5 * time.Millisecond
)

// End is the reason why Run returned.
type End string

// Reasons for the end of a recording.
const (
	EndDuration  End = "the duration is over"
	EndProcesses End = "the process has ended"
	EndContext   End = "the recording was stopped"
	EndSize      End = "the recording has reached its maximum size"
)

var errDuration = errors.New("duration over")

// Run records until ctx is done, the duration is over or all processes have exited. An error means
// that recording cannot continue, for example because the disk is full. Rows written before are
// kept. Finish must be called in every case.
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
		case <-s.targets.MappedSignal():
			mapped.Reset(mappedDelay)
		case <-mapped.C:
			s.targets.AttachMapped()
		case <-alive.C:
			s.targets.FinishTotalsSearches()
			if left := s.targets.ReapExited(); !left && !s.opt.All {
				return EndProcesses, nil
			}
		case e := <-s.pipeline.processEvents:
			s.onProcessEvent(e)
		case r := <-s.holds.requests():
			s.onHold(r)
		case <-scan.C:
			scan.Reset(s.targets.Scan())
		}
	}
}

// reapThreads deletes the kernel state of exited threads, until stop is closed. It writes their
// unfinished calls as open calls.
func (s *Session) reapThreads(stop <-chan struct{}) {
	for !clock.Sleep(stop, probe.ThreadReapInterval) {
		if open := s.probes.ReapThreads(); len(open) > 0 {
			probe.MarkCallsOpen(open, clock.ReadNs(unix.CLOCK_MONOTONIC))
			s.pipeline.writer.SendOpenCalls(open)
		}
	}
}
