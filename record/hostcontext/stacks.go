//go:build linux

package hostcontext

import (
	"slices"
	"sync"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/record/hostcontext/switches"
	"github.com/gpurec/gpurec/record/hoststack"
)

// Limits of the stacks that are kept of one thread.
const (
	maxPlaces = 64
	// maxRecent is enough for the waits between two reads of ended waits: a snapshot takes one at a time.
	maxRecent = 64
)

// place is where a thread entered the kernel, and by which system call; "": an unknown one. Calls by one instruction,
// as in the function syscall of the C library, differ in the call alone.
type place struct {
	pc, sp uint64
	call   string
}

// waitStack is the stack of a wait that a snapshot has found. It is immutable.
type waitStack struct {
	count  uint64 // the kernel's number of switches of the thread, which identifies the wait
	frames []format.Frame
	status string // StackComplete or StackTruncated
	fact   format.WaitFact
}

// stackCache has the stacks of one thread's waits. It is safe for concurrent use.
type stackCache struct {
	mu      sync.Mutex
	recent  []*waitStack // the newest last
	byPlace map[place]*waitStack
}

// add adds the stack of a snapshot.
func (c *stackCache) add(t *hoststack.Thread) {
	s := &waitStack{
		count:  t.VoluntarySwitches + t.InvoluntarySwitches,
		frames: t.Frames,
		status: format.StackComplete,
		fact:   t.Wait,
	}
	if t.Status == hoststack.StatusTruncated {
		s.status = format.StackTruncated
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.byPlace == nil || len(c.byPlace) >= maxPlaces {
		c.byPlace = make(map[place]*waitStack)
	}
	c.byPlace[place{t.PC, t.SP, s.fact.SystemCall}] = s
	if len(c.recent) == maxRecent {
		c.recent = slices.Delete(c.recent, 0, maxRecent/2)
	}
	c.recent = append(c.recent, s)
}

// find returns the stack of a wait, nil if there is none. isOwn is false if it is that of another wait in
// the same place and the same system call.
func (c *stackCache) find(w *switches.Wait) (s *waitStack, isOwn bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	// A thread that has not switched since it is watched is still in its first wait.
	isFirst := w.IsPartial != 0 && w.Count == 0
	for _, s := range slices.Backward(c.recent) {
		if s.count == w.Count || isFirst {
			return s, true
		}
	}
	if w.State == 0 {
		return nil, false // it was preempted: most stacks of such places differ
	}
	return c.byPlace[place{w.Pc, w.Sp, hoststack.SystemCallName(int64(w.Call))}], false
}

// setStack sets the stack of a wait's row. It returns the facts of the wait, completed by those of the stack.
func (c *stackCache) setStack(row *format.Row, w *switches.Wait, fact format.WaitFact) format.WaitFact {
	s, isOwn := c.find(w)
	switch {
	case s == nil:
	case isOwn && w.State != 0 && s.fact.Reason != format.ReasonRunQueue: // else it saw the end of the wait
		row.Frames, row.StackStatus = s.frames, s.status
		own := s.fact
		if fact.Reason == format.ReasonGIL {
			own.Reason = format.ReasonGIL // by the address of its own futex
		}
		fact = own
	case isOwn:
		row.Frames, row.StackStatus = s.frames, s.status
		fact.CUDACall = s.fact.CUDACall
	default:
		row.Frames, row.StackStatus = s.frames, format.StackInferred
		fact = inferFact(fact, s.fact)
	}
	return fact
}

// inferFact returns the facts of a wait in the place of another one. Who holds a lock may differ.
func inferFact(fact, other format.WaitFact) format.WaitFact {
	if other.Reason != "" && fact.Reason != format.ReasonGIL {
		fact.Reason = other.Reason
	}
	fact.CUDACall, fact.Target = other.CUDACall, other.Target
	if fact.Reason == format.ReasonChild {
		fact.Target = ""
	}
	return fact
}
