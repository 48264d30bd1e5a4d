//go:build linux

package hoststack

import (
	"errors"
	"strings"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/record/hoststack/snapshot"
	"github.com/gpurec/gpurec/record/unwind/remote"
)

// missedThread returns a thread without user frames.
func (r *rounds) missedThread(s *snapshot.Snapshot) Thread {
	t := newThread(s, r.pid)
	t.Frames, t.Rounds = r.snapshotter.nameKernelFrames(s), maxRounds
	t.SystemCall = findSystemCall(t.Frames, t.number)
	switch {
	case r.timedOut:
		t.Reason = reasonTimeout
	case t.State == snapshot.StateRunning:
		t.Reason = reasonNotSampled
	default:
		t.Reason = reasonMoving
	}
	return t
}

// thread returns the thread of a stack.
func (r *rounds) thread(c *candidate) Thread {
	t := newThread(c.snapshot, r.pid)
	t.Rounds, t.memory = c.rounds, c.memory
	t.Frames = r.snapshotter.nameKernelFrames(c.snapshot)
	t.SystemCall = findSystemCall(t.Frames, t.number)
	t.CUDACall = findCUDACall(c.native)
	t.Status = StatusComplete
	// A thread that has not begun is in clone, which has no rule for the first frame.
	if c.err != nil && (!errors.Is(c.err, remote.ErrNoTable) || hasBegun(t.Frames)) {
		t.Status, t.Reason = StatusTruncated, c.err.Error()
	}
	user := c.native
	switch {
	case !c.isPython:
	case c.isMoving:
		t.Status, t.Reason = StatusTruncated, reasonPythonMoving
	default:
		var ok bool
		user, ok = mergePython(c.native, c.isLoop, c.python, c.err == nil, c.pythonErr == nil)
		if c.pythonErr != nil {
			t.Status, t.Reason = StatusTruncated, c.pythonErr.Error()
		}
		if !ok {
			t.Status, t.Reason = StatusTruncated, reasonMismatch
		}
	}
	t.Frames = append(t.Frames, user...)
	return t
}

// hasBegun reports whether a thread has run user code. Before, its kernel stack begins in ret_from_fork.
func hasBegun(kernel []format.Frame) bool {
	return len(kernel) == 0 || !strings.HasPrefix(kernel[len(kernel)-1].Func, "ret_from_fork")
}
