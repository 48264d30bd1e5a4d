//go:build linux

package record

import (
	"errors"

	"golang.org/x/sys/unix"

	"github.com/gpurec/gpurec/bpf"
	"github.com/gpurec/gpurec/record/clock"
	"github.com/gpurec/gpurec/record/hold"
	"github.com/gpurec/gpurec/record/privilege"
)

// holds is the part of a Session that holds threads of a started command. The supervisor owns it;
// without a Holder nothing is held.
type holds struct {
	holder *hold.Holder
	// hasEnded says that no thread is held any more. stats is valid from then on.
	hasEnded bool
	stats    hold.Stats
}

// startHolder begins to hold threads of the command. Where that is not possible, the user is
// warned, because the beginning may be missing.
func (s *Session) startHolder() {
	if s.opt.Command == nil || s.opt.HoldMax == 0 {
		return
	}
	pid := s.opt.Command.Pid()
	holder, err := hold.Start(hold.Options{
		Targets: s.probes.Objects.Targets, Threads: s.probes.Objects.Threads,
		Max: s.opt.HoldMax, Child: pid, Multi: s.probes.How == privilege.AttachMulti,
	})
	if err != nil {
		s.warn("the command is not held while libraries are probed, so its first calls may be missing: " + err.Error())
		return
	}
	s.holds.holder = holder
	s.targets.UseHolds(holder.IsWatched)
	s.probeLoader(pid)
	s.probeDrivers()
}

// probeDrivers makes the first calls of targets wait, for all files of libcuda that are probed by now.
func (s *Session) probeDrivers() {
	for _, lib := range s.targets.Drivers() {
		if err := s.holds.holder.ProbeDriver(lib); err != nil {
			s.warn("first calls are not held: " + err.Error())
		}
	}
}

// probeLoader probes the dynamic loader of the program that a process runs.
func (s *Session) probeLoader(pid int) {
	p := s.targets.Get(pid)
	if s.holds.holder == nil || p == nil {
		return
	}
	loader, err := hold.OpenLoader(p)
	if errors.Is(err, hold.ErrStatic) {
		return // it loads no library
	}
	if err == nil {
		err = s.holds.holder.ProbeLoader(loader)
		loader.Close()
	}
	if err != nil && p.Alive() {
		s.warn("process " + p.Comm + " is not held while libraries are probed: " + err.Error())
	}
}

// requests returns the threads that are held.
func (h *holds) requests() <-chan hold.Request {
	if h.holder == nil {
		return nil
	}
	return h.holder.Requests()
}

// onHold probes the libraries that a held thread has loaded, and releases the thread when its stacks
// can be unwound.
func (s *Session) onHold(r hold.Request) {
	s.addHeld(r.Pid)
	code := s.targets.Cover(r.Pid)
	s.probeDrivers()
	s.probeFork(r)
	holder, unwinder := s.holds.holder, s.unwinder
	if len(code) == 0 || !r.ForTables {
		s.release(holder, r)
		return
	}
	s.helpers.Go(func() {
		unwinder.Sync(r.Pid, code, s.opt.HoldMax, s.stop)
		s.release(holder, r)
	})
}

// release lets a thread run. If it already runs again, calls of its process may be missing.
func (s *Session) release(holder *hold.Holder, r hold.Request) {
	if !holder.Release(r) {
		s.targets.NoteUncovered(r.Pid)
	}
}

// probeFork makes forked children of a process that has loaded CUDA wait. They may call CUDA at once,
// and may need unwind tables and probes of their own.
func (s *Session) probeFork(r hold.Request) {
	p := s.targets.Get(r.Pid)
	if p == nil || !r.ForTables {
		return
	}
	if err := s.holds.holder.ProbeFork(p); err != nil && p.Alive() {
		s.warn("forked children of process " + p.Comm + " are not held: " + err.Error())
	}
}

// addHeld adds a held process whose fork is still in the ring buffer.
func (s *Session) addHeld(pid int) {
	for s.targets.Get(pid) == nil {
		select {
		case e := <-s.pipeline.processEvents:
			s.onProcessEvent(e)
		default:
			s.onProcessEvent(bpf.CudaProcessEvent{
				Pid: uint32(pid), Change: uint16(bpf.CudaProcessChangePROCESS_FORK),
				StartNs: uint64(clock.ReadNs(unix.CLOCK_MONOTONIC)),
			})
			return
		}
	}
}

// onProcessEvent follows a fork or an exec.
func (s *Session) onProcessEvent(e bpf.CudaProcessEvent) {
	s.targets.OnProcessEvent(e)
	if e.Change == uint16(bpf.CudaProcessChangePROCESS_EXEC) {
		s.probeLoader(int(e.Pid))
	}
}

// end lets all threads run, and keeps the counts.
func (h *holds) end() {
	if h.holder != nil && !h.hasEnded {
		h.stats, h.hasEnded = h.holder.End(), true
	}
}

// close also removes the probes.
func (h *holds) close() {
	if h.holder == nil {
		return
	}
	h.end()
	h.holder.Close()
	h.holder = nil
}
