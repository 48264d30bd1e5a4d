/* The first and last step of every exported driver function: call_begin and call_end. */
#include "sim.h"

#include <string.h>

/* Returns the error of a context whose GPU work has failed: every later call has it. */
static CUresult sticky_error(const struct call *call)
{
	struct device *d = call->current ? call->current->ctx.device : NULL;
	if (!d || atomic_load_explicit(&d->failed, memory_order_relaxed) != call->current)
		return CUDA_SUCCESS;
	return now_ns() >= d->failed_at ? CUDA_ERROR_ILLEGAL_ADDRESS : CUDA_SUCCESS;
}

/* Reports whether a call returns only after the work before it. */
static bool waits(const char *name)
{
	return strstr(name, "Synchronize") || (!strncmp(name, "cuMemcpy", 8) && !strstr(name, "Async"));
}

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
	else if (needs == NEEDS_CONTEXT)
		call->result = sticky_error(call);
}

CUresult call_end(struct call *call)
{
	if (!call->result && sticky_error(call) && waits(call->name))
		call->result = sticky_error(call);
	if (!ledger_off) {
		call->end_ns = now_ns();
		ledger_write(call);
	}
	return call->result;
}
