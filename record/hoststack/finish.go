//go:build linux

package hoststack

import (
	"github.com/gpurec/gpurec/record/hoststack/snapshot"
)

// missedThread returns a thread without user frames.
func (r *rounds) missedThread(s *snapshot.Snapshot) Thread {
	t := newThread(s, r.pid)
	t.Frames, t.Rounds = r.looker.nameKernelFrames(s), maxRounds
	t.SystemCall = findSystemCall(t.Frames)
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
	t.Rounds = c.rounds
	t.Frames = r.looker.nameKernelFrames(c.snapshot)
	t.SystemCall = findSystemCall(t.Frames)
	t.CUDACall = findCUDACall(c.native)
	t.Status = StatusComplete
	if c.err != nil {
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
