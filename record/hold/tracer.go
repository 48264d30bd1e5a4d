//go:build linux

package hold

import (
	"runtime"
	"time"

	"github.com/cilium/ebpf"
	"github.com/gpurec/gpurec/bpf"
	"github.com/gpurec/gpurec/record/clock"
	"golang.org/x/sys/unix"
)

// trace is the goroutine of the tracer. It has an OS thread of its own, because only the thread that
// seized a thread may call ptrace(2) for it.
func (h *Holder) trace() {
	runtime.LockOSThread() // never unlocked, so that the thread ends with the goroutine
	held, own := make(map[int]*thread), newPriority()
	check := time.NewTicker(tick)
	defer check.Stop()
	check.Stop()
	alive := time.NewTicker(beat)
	defer alive.Stop()
	ending, ended, isEnding := h.ending, h.ended, false
	for {
		if isEnding && ended != nil && len(held) == 0 {
			close(ended)
			ended = nil
		}
		select {
		case r := <-h.asked:
			if isEnding {
				h.leaveKernel(r.Tid, bpf.HoldHoldStateHOLD_RELEASED)
				continue
			}
			own.raise(true)
			held[r.Tid] = h.begin(r)
			check.Reset(tick)
		case <-ending:
			ending, isEnding = nil, true
			h.finish(held)
		case r := <-h.released:
			t := held[r.Tid]
			r.wasHeld <- isEnding || t != nil && t.SinceNs == r.SinceNs && !t.isReleased && h.release(held, t)
		case <-check.C:
			h.releaseDue(held)
			if len(held) == 0 {
				check.Stop()
				own.raise(false)
			}
		case <-alive.C:
			if !isEnding {
				_ = h.showLife() // if it fails, no thread is held
			}
		case <-h.stop:
			own.raise(false)
			return
		}
	}
}

// begin seizes a thread that waits in the kernel, and reports it.
func (h *Holder) begin(r Request) *thread {
	t := &thread{Request: r, until: time.Now().Add(h.opt.Max)}
	if t.isTraced = !r.inKernel && seize(r.Tid); t.isTraced {
		t.hasRun = !h.leaveKernel(r.Tid, bpf.HoldHoldStateHOLD_SEIZED)
	}
	h.holds.Add(1)
	select {
	case h.requests <- r:
	default: // the session is far behind, and must not delay the thread
		t.isReleased = true
		h.late.Add(1)
	}
	return t
}

// leaveKernel ends the wait of the BPF program. It reports false if the wait has ended already, by
// its own limits, which the BPF program counts. A thread that is traced stops when it returns to user
// space.
func (h *Holder) leaveKernel(tid int, as bpf.HoldHoldState) (wasWaiting bool) {
	return h.objects.Holds.Update(uint32(tid), uint32(as), ebpf.UpdateExist) == nil
}

// releaseDue releases the threads that are held for too long, and those that were released before they
// had stopped.
func (h *Holder) releaseDue(held map[int]*thread) {
	now := time.Now()
	for tid, t := range held {
		if t.isTraced && hasEnded(tid, h.opt.Child) {
			delete(held, tid)
			continue
		}
		switch {
		case t.isReleased:
			h.release(held, t)
		case now.After(t.until):
			if h.release(held, t) {
				h.late.Add(1)
			}
		}
	}
}

// release lets a thread run on, or notes that it may once it has stopped. It reports whether the
// thread was held until now.
func (h *Holder) release(held map[int]*thread, t *thread) (wasHeld bool) {
	t.isReleased, wasHeld = true, !t.hasRun
	if !t.isTraced {
		wasHeld = h.leaveKernel(t.Tid, bpf.HoldHoldStateHOLD_RELEASED)
	} else {
		signal, isStopped := stoppedBy(t.Tid)
		if !isStopped {
			return wasHeld
		}
		h.excludeHold(t)
		letGo(t.Tid, signal)
	}
	h.heldNs.Add(clock.ReadNs(unix.CLOCK_MONOTONIC) - t.SinceNs)
	delete(held, t.Tid)
	return wasHeld
}

// excludeHold subtracts the time of a hold from the calls of a stopped thread that have not returned:
// a call may load a library. Until a call returns, the BPF programs keep that time in its duration.
func (h *Holder) excludeHold(t *thread) {
	var state bpf.CudaThread
	id := uint64(t.Pid)<<32 | uint64(t.Tid)
	if h.opt.Threads.Lookup(id, &state) != nil || state.Open == 0 {
		return // the thread is in no call
	}
	now := uint64(clock.ReadNs(unix.CLOCK_MONOTONIC))
	for i := range min(int(state.Open), len(state.Calls)) {
		call := &state.Calls[i].Event
		if !t.hasRun { // otherwise it is unknown since when the thread has been stopped
			call.DurNs += now - max(uint64(t.SinceNs), call.StartNs)
		}
	}
	_ = h.opt.Threads.Update(id, &state, ebpf.UpdateExist) // on an error, durations contain the hold
}

// finish lets all threads run. releaseDue releases a thread that has not stopped yet, or the kernel does when
// the tracer's thread ends.
func (h *Holder) finish(held map[int]*thread) {
	for _, t := range held {
		h.release(held, t)
	}
}

// showLife writes the current time to alive_ns of the BPF programs.
func (h *Holder) showLife() error {
	return h.objects.AliveNs.Set(uint64(clock.ReadNs(unix.CLOCK_MONOTONIC)))
}
