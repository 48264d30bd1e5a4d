//go:build linux

package rowwriter

import (
	"github.com/gpurec/gpurec/bpf"
	"github.com/gpurec/gpurec/record/stack"
)

// keptEngineCalls is the number of calls of PyTorch's autograd engine whose stacks are kept, over all processes. An
// event is written soon after its call of the engine, and a program makes a few such calls in a step.
const keptEngineCalls = 1 << 14

// engineCalls has the stacks of the last calls of torch::autograd::Engine::execute, by number modulo keptEngineCalls.
// bpf/autograd.h numbers the calls of all processes together.
type engineCalls []engineCall

type engineCall struct {
	number, pid uint32
	stack       *stack.KnownStack
}

// add keeps the stack of a call.
func (c *engineCalls) add(e *bpf.CudaEvent, s *stack.KnownStack) {
	if *c == nil {
		*c = make(engineCalls, keptEngineCalls)
	}
	(*c)[e.Extra%keptEngineCalls] = engineCall{e.Extra, e.Pid, s}
}

// stackOf returns the number of the stack of the call for which an event's thread works. It returns 0 if there is no
// such call, or its stack is unknown.
func (c engineCalls) stackOf(e *bpf.CudaEvent) int32 {
	if e.Extra == 0 || c == nil {
		return 0
	}
	call := &c[e.Extra%keptEngineCalls]
	if call.number != e.Extra || call.pid != e.Pid {
		return 0 // its record was lost, or it is too long ago
	}
	return call.stack.ID
}

// hasEngineCall reports whether CudaEvent.Extra of a class is the number of a call of the engine: has_engine_call of
// autograd.h.
func hasEngineCall(class bpf.CudaCallClass) bool {
	return class == bpf.CudaCallClassCLASS_MEMORY || class == bpf.CudaCallClassCLASS_LAUNCH ||
		class == bpf.CudaCallClassCLASS_ALLOCATOR
}
