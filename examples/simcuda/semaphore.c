/* External semaphores, checkpoints of processes, and flushes of GPUDirect RDMA writes. simcuda
 * checks the arguments and does nothing. */
#include "graph.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

static CUresult import(struct call *call, CUexternalSemaphore *out, const CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC *desc)
{
	if (!out || !desc || desc->flags || fcntl(desc->handle.fd, F_GETFD) < 0)
		return CUDA_ERROR_INVALID_VALUE;
	if (desc->type != CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD)
		return CUDA_ERROR_NOT_SUPPORTED;
	struct object *o = object_new(SEMAPHORE, NULL);
	if (!o)
		return CUDA_ERROR_OUT_OF_MEMORY;
	o->semaphore.fd = desc->handle.fd; /* the driver owns the descriptor from now on */
	*out = (CUexternalSemaphore)o;
	call->ptr = H(o);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuImportExternalSemaphore(CUexternalSemaphore *extSem_out, const CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC *semHandleDesc)
{
	BEGIN(cuImportExternalSemaphore, NEEDS_CONTEXT);
	DO(import(&call, extSem_out, semHandleDesc));
	return END();
}

static CUresult destroy(struct object *o)
{
	if (!o)
		return CUDA_ERROR_INVALID_HANDLE;
	close(o->semaphore.fd);
	object_free(o);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuDestroyExternalSemaphore(CUexternalSemaphore extSem)
{
	BEGIN(cuDestroyExternalSemaphore, NEEDS_CONTEXT, .ptr = H(extSem));
	DO(destroy(object_of(extSem, SEMAPHORE)));
	return END();
}

/* Signals or waits for external semaphores. Waits end at once, like cuStreamWaitValue. */
static CUresult signal_or_wait(struct lane *lane, const CUexternalSemaphore *list, const void *params, unsigned int n)
{
	struct op op = {.kind = OP_EMPTY};
	uint64_t over;
	CUresult result = list && params && n ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	for (unsigned int i = 0; i < n && !result; i++)
		result = object_of(list[i], SEMAPHORE) ? op_submit(lane, &op, &over) : CUDA_ERROR_INVALID_HANDLE;
	return result;
}

#define ON_SEMAPHORES(fn, zero, type)                                                                                           \
	EXPORT CUresult fn(const CUexternalSemaphore *extSemArray, const type *paramsArray, unsigned int numExtSems, CUstream stream) \
	{                                                                                                                       \
		BEGIN(fn, NEEDS_CONTEXT, .ptr = extSemArray && numExtSems ? H(extSemArray[0]) : 0, .stream = H(stream),         \
		      .value = numExtSems);                                                                                     \
		struct lane lane;                                                                                               \
		DO(lane_of(&call, stream, zero, &lane));                                                                        \
		DO(signal_or_wait(&lane, extSemArray, paramsArray, numExtSems));                                                          \
		return END();                                                                                                   \
	}
ON_SEMAPHORES(cuSignalExternalSemaphoresAsync, LEGACY, CUDA_EXTERNAL_SEMAPHORE_PARAMS)
ON_SEMAPHORES(cuSignalExternalSemaphoresAsync_ptsz, PER_THREAD, CUDA_EXTERNAL_SEMAPHORE_PARAMS)
ON_SEMAPHORES(cuWaitExternalSemaphoresAsync, LEGACY, CUDA_EXTERNAL_SEMAPHORE_PARAMS)
ON_SEMAPHORES(cuWaitExternalSemaphoresAsync_ptsz, PER_THREAD, CUDA_EXTERNAL_SEMAPHORE_PARAMS)

EXPORT CUresult cuFlushGPUDirectRDMAWrites(int target, int scope)
{
	enum { CURRENT_CONTEXT = 0, TO_OWNER = 100, TO_ALL_DEVICES = 200 };
	BEGIN(cuFlushGPUDirectRDMAWrites, NEEDS_CONTEXT, .value = scope);
	DO(target == CURRENT_CONTEXT && (scope == TO_OWNER || scope == TO_ALL_DEVICES) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
	return END();
}

#define CHECKPOINT(fn)                                                                           \
	EXPORT CUresult fn(int pid, void *args)                                                  \
	{                                                                                        \
		BEGIN(fn, NEEDS_NOTHING, .value = pid);                                          \
		(void)args;                                                                      \
		DO(pid > 0 && !kill(pid, 0) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);          \
		return END();                                                                    \
	}
CHECKPOINT(cuCheckpointProcessLock)
CHECKPOINT(cuCheckpointProcessCheckpoint)
CHECKPOINT(cuCheckpointProcessRestore)
CHECKPOINT(cuCheckpointProcessUnlock)
