//go:build linux

package record

import (
	"errors"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurec/gpurec/bpf"
	"github.com/gpurec/gpurec/format"
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
	endErr := s.probes.end(detachGrace)
	s.endNs = clockNs(unix.CLOCK_MONOTONIC)
	s.scribe.endAt(s.clock.now())
	endErr = errors.Join(endErr, s.probes.silence())
	detachNs := time.Since(begin).Nanoseconds()
	if s.probes.how == AttachPerf {
		detachNs = 0 // not known yet: Close detaches
	}
	s.helpers.Wait()
	s.endMachine()
	if rows := s.lastFacts(); len(rows) > 0 {
		s.scribe.send(rows)
	}
	err := errors.Join(endErr, s.drainRest(), s.scribe.wait())
	open, openErr := s.probes.openCalls() // their state stayed in the kernel when the probes went, or were silenced
	markOpen(open, s.endNs)
	s.scribe.settle(open)
	meta := s.finalMeta(detachNs)
	result := Result{Output: s.output, Meta: meta, Elapsed: time.Duration(meta.EndNs - s.startNs)}
	if err = s.scribe.finish(meta, errors.Join(err, openErr)); err != nil {
		result.Unfinished = s.scribe.segments()
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
		s.scribe.close()
	}
	s.family.close()
	s.cache.close()
	if s.nvml != nil {
		s.nvml.close()
		s.nvml = nil
	}
	if s.unwinder != nil {
		s.unwinder.Close()
		s.unwinder = nil
	}
	if s.probes == nil {
		return nil
	}
	err := s.probes.close()
	s.probes = nil
	return err
}

// drainRest empties the ring buffer; of processes that come with it the facts are noted.
func (s *Session) drainRest() error {
	done := make(chan error, 1)
	go func() { done <- s.drain.finish() }()
	for {
		select {
		case birth := <-s.births:
			s.noteUnseen(birth)
		case err := <-done:
			return err
		}
	}
}

// markOpen makes of calls as they were entered calls that are open at a time, on CLOCK_MONOTONIC.
func markOpen(calls []bpf.CudaEvent, atNs int64) {
	for i := range calls {
		e := &calls[i]
		e.Flags |= uint8(bpf.CudaEventFlagsEVENT_OPEN)
		e.DurNs = uint64(atNs) - e.StartNs
		e.Ptr, e.Bytes = knownWhileOpen(e)
	}
}

// knownWhileOpen returns pointer and bytes of a call that has not returned: not
// those that come back through an out pointer.
func knownWhileOpen(e *bpf.CudaEvent) (ptr, bytes uint64) {
	call, _, _, ok := bpf.ByCookie(e.Call)
	if !ok {
		return 0, 0
	}
	if call.Ptr.From != uint8(bpf.CudaArgFromARG_OUT) {
		ptr = e.Ptr
	}
	if call.Bytes.From != uint8(bpf.CudaArgFromARG_OUT) {
		bytes = e.Bytes
	}
	return ptr, bytes
}

// finalMeta closes the books.
func (s *Session) finalMeta(detachNs int64) format.Meta {
	meta := s.scribe.metaNow()
	meta.EndNs = s.scribe.endedNs()
	meta.ClockStepNs = s.clock.stepNs()
	cost := ownCost()
	meta.Cost.CPUNs, meta.Cost.RSSBytes = cost.CPUNs-s.costBase.CPUNs, cost.RSSBytes
	meta.Cost.DetachNs = detachNs
	meta.Cost.BPFRunNs, meta.Cost.BPFRuns = s.probes.runTimes()
	return meta
}
