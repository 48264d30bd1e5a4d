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

// Finish detaches, writes what is left and makes the file. The Result is valid also
// with an error: then Unfinished says where the finished segments are.
func (s *Session) Finish() (Result, error) {
	close(s.stop)
	begin := time.Now()
	s.endAllocators()
	detachErr := s.probes.end(detachGrace)
	s.endNs = clockNs(unix.CLOCK_MONOTONIC)
	s.scribe.accounts.endNs.CompareAndSwap(0, s.scribe.accounts.clock.now()) // or it was full before
	detachErr = errors.Join(detachErr, s.probes.detach())
	detachNs := time.Since(begin).Nanoseconds()
	s.helpers.Wait()
	s.endMachine()
	if rows := s.lastFacts(); len(rows) > 0 {
		s.scribe.rows <- rows
	}
	err := errors.Join(detachErr, s.drainRest())
	close(s.scribe.rows)
	<-s.scribe.done
	err = errors.Join(err, s.scribe.pool.close(), s.addOpenCalls())
	s.scribe.look()
	s.scribe.renameThreads()
	s.scribe.flush()
	s.scribe.settle()
	meta := s.finalMeta(detachNs)
	result := Result{Output: s.output, Meta: meta, Elapsed: time.Duration(meta.EndNs - s.startNs)}
	err = errors.Join(err, s.scribe.failed)
	if err == nil {
		err = s.scribe.writer.Finish(meta)
	} else {
		_ = s.scribe.writer.Rotate(meta) // what can be saved; the cause is in err
	}
	if err != nil {
		result.Unfinished = s.scribe.writer.Dir()
	} else if info, serr := os.Stat(s.output); serr == nil {
		result.Meta.Cost.FileBytes = info.Size()
	}
	s.scribe.stacks.close()
	s.release()
	return result, err
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
// kernel when the probes went.
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

// release frees what the session holds; it can be called twice.
func (s *Session) release() {
	s.family.close()
	s.cache.close()
	if s.nvml != nil {
		s.nvml.close()
		s.nvml = nil
	}
	if s.probes != nil {
		_ = s.probes.close() // all links are gone already, or we are giving up
		s.probes = nil
	}
	if s.unwinder != nil {
		s.unwinder.Close()
		s.unwinder = nil
	}
}
