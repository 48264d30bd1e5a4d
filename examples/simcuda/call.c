/* The first and last step of every exported driver function: call_begin and call_end. */
#include "sim.h"

void call_begin(struct call *call, enum needs needs)
{
	struct thread *self = thread_self();
	call->thread = self;
	if (self->depth > 0) {
		call->current = self->stack[self->depth - 1];
		call->context = H(call->current);
		call->device = call->current->ctx.device->ordinal;
	}
	if (faults_any) {
		call->result = fault_of(call->name);
		if (call->result)
			return;
	}
	if (needs == NEEDS_NOTHING)
		return;
	if (!process_initialised())
		call->result = CUDA_ERROR_NOT_INITIALIZED;
	else if (needs == NEEDS_CONTEXT && !call->current)
		call->result = CUDA_ERROR_INVALID_CONTEXT;
	else if (needs == NEEDS_CONTEXT && !context_alive(call->current))
		call->result = CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

CUresult call_end(struct call *call)
{
	if (!ledger_off) {
		call->end_ns = now_ns();
		ledger_write(call);
	}
	return call->result;
}
