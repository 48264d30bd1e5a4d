package threadstate

import "github.com/gpurec/gpurec/analyze/model/stack"

// StackWaits finds from stacks what the threads with these stacks wait for, outside of the driver. It examines each stack
// once. It is not safe for concurrent use.
type StackWaits struct {
	stacks *stack.StackTable
	known  map[int32]stackWait // by stack
}

// stackWait describes the wait of a thread.
type stackWait struct {
	collective string // "": none
	inBackward bool   // a thread of Python waits for the end of a backward pass
}

// NewStackWaits returns StackWaits for the stacks of a recording.
func NewStackWaits(stacks *stack.StackTable) *StackWaits {
	return &StackWaits{stacks: stacks, known: make(map[int32]stackWait)}
}

// Collective returns the collective in which a thread with a stack waits for other ranks, "" for none.
func (w *StackWaits) Collective(stack int32) string { return w.of(stack).collective }

// InBackward reports whether a thread of Python waits until threads of autograd have done a backward pass.
func (w *StackWaits) InBackward(stack int32) bool { return w.of(stack).inBackward }

// of returns what a thread with a stack waits for.
func (w *StackWaits) of(stack int32) stackWait {
	found, ok := w.known[stack]
	if !ok {
		frames := w.stacks.FramesOf(stack)
		found = stackWait{collectiveOf(frames, false), hasPython(frames) && inAutograd(frames)}
		w.known[stack] = found
	}
	return found
}
