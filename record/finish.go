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
	s.scribe.accounts.endNs.CompareAndSwap(0, s.scribe.accounts.clock.now()) // or it was full before
	endErr = errors.Join(endErr, s.probes.silence())
	detachNs := time.Since(begin).Nanoseconds()
	if s.probes.how == AttachPerf {
		detachNs = 0 // not known yet: Close detaches
	}
	s.helpers.Wait()
	s.endMachine()
	if rows := s.lastFacts(); len(rows) > 0 {
		s.scribe.rows <- rows
	}
	err := errors.Join(endErr, s.drainRest())
	close(s.scribe.rows)
	<-s.scribe.done
	err = errors.Join(err, s.scribe.pool.close(), s.addOpenCalls())
	s.scribe.look()
	s.scribe.renameThreads()
	s.scribe.settle()
	meta := s.finalMeta(detachNs)
	result := Result{Output: s.output, Meta: meta, Elapsed: time.Duration(meta.EndNs - s.startNs)}
	err = errors.Join(err, s.scribe.failed)
	if err == nil {
		err = s.scribe.writer.Finish(meta)
	} else {
		s.scribe.leave(meta, err)
	}
	if err != nil {
		result.Unfinished = s.scribe.writer.Dir()
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
		s.scribe.stacks.close()
		_ = s.scribe.writer.Close() // only a folder
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

// addOpenCalls writes the calls that have not returned; their state stayed in the
// kernel when the probes went, or were silenced.
func (s *Session) addOpenCalls() error {
	open, err := s.probes.openCalls()
	markOpen(open, s.endNs)
	for i := range open {
		s.scribe.add(&open[i])
	}
	return err
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
	meta := s.metaNow()
	meta.EndNs = s.scribe.accounts.endNs.Load()
	meta.ClockStepNs = s.scribe.accounts.clock.stepNs()
	cost := ownCost()
	meta.Cost.CPUNs, meta.Cost.RSSBytes = cost.CPUNs-s.costBase.CPUNs, cost.RSSBytes
	meta.Cost.DetachNs = detachNs
	meta.Cost.BPFRunNs, meta.Cost.BPFRuns = s.probes.runTimes()
	return meta
}
