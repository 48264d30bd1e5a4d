//go:build linux

package record

import (
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/record/clock"
	"github.com/gpurec/gpurec/record/overhead"
	"github.com/gpurec/gpurec/record/privilege"
	"github.com/gpurec/gpurec/record/probe"
)

// Result is what a recording came to.
type Result struct {
	Output string
	// Unfinished is the folder of segments if the file could not be made.
	Unfinished string
	Meta       format.Meta
	Elapsed    time.Duration
}

// Finish ends the recording, writes what is left and makes the file. The Result is valid
// also with an error: then Unfinished says where the finished segments are. Perf uprobes are
// still there afterwards, and see nothing; Close must be called in every case.
func (s *Session) Finish() (Result, error) {
	close(s.stop)
	begin := time.Now()
	s.endAllocators()
	endErr := s.probes.WaitForOpenCalls(probe.DetachGrace)
	s.endNs = clock.Ns(unix.CLOCK_MONOTONIC)
	s.scribe.EndAt(s.clock.NowNs())
	endErr = errors.Join(endErr, s.probes.StopEvents())
	detachNs := time.Since(begin).Nanoseconds()
	if s.probes.How == privilege.AttachPerf {
		detachNs = 0 // not known yet: Close detaches
	}
	s.helpers.Wait()
	s.endMachine()
	if rows := s.lastFacts(); len(rows) > 0 {
		s.scribe.Send(rows)
	}
	err := errors.Join(endErr, s.drainRest(), s.scribe.Wait())
	open, openErr := s.probes.OpenCalls() // their state stayed in the kernel when the probes went, or were silenced
	probe.MarkOpen(open, s.endNs)
	s.scribe.Settle(open)
	meta := s.finalMeta(detachNs)
	result := Result{Output: s.output, Meta: meta, Elapsed: time.Duration(meta.EndNs - s.startNs)}
	if err = s.scribe.Finish(meta, errors.Join(err, openErr)); err != nil {
		result.Unfinished = s.scribe.Segments()
		return result, err
	}
	s.finished.Store(true)
	if info, serr := os.Stat(s.output); serr == nil {
		result.Meta.Cost.FileBytes = info.Size()
	}
	return result, nil
}

// Finished reports whether the file is complete; safe for concurrent use.
func (s *Session) Finished() bool { return s.finished.Load() }

// Close removes the probes that are still there, perf uprobes one after the other, and frees
// what the session holds.
func (s *Session) Close() error {
	if s.scribe != nil {
		s.scribe.Close()
	}
	s.family.close()
	s.cache.Close()
	if s.nvml != nil {
		s.nvml.Close()
		s.nvml = nil
	}
	if s.unwinder != nil {
		s.unwinder.Close()
		s.unwinder = nil
	}
	if s.probes == nil {
		return nil
	}
	err := s.probes.Close()
	s.probes = nil
	return err
}

// drainRest empties the ring buffer; of processes that come with it the facts are noted.
func (s *Session) drainRest() error {
	done := make(chan error, 1)
	go func() { done <- s.drain.Finish() }()
	for {
		select {
		case birth := <-s.births:
			s.noteUnseen(birth)
		case err := <-done:
			return err
		}
	}
}

// finalMeta closes the books.
func (s *Session) finalMeta(detachNs int64) format.Meta {
	meta := s.scribe.MetaNow()
	meta.EndNs = s.scribe.EndedNs()
	meta.ClockStepNs = s.clock.StepNs()
	cost := overhead.OwnCost()
	meta.Cost.CPUNs, meta.Cost.RSSBytes = cost.CPUNs-s.costBase.CPUNs, cost.RSSBytes
	meta.Cost.DetachNs = detachNs
	meta.Cost.BPFRunNs, meta.Cost.BPFRuns = s.probes.RunTimes()
	return meta
}
