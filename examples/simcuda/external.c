/* External memory: memory of another API, for example Vulkan, behind a file descriptor. Only its
 * size is known. The other API owns the bytes, so no process is charged for them. */
#include "memory.h"

#include <fcntl.h>
#include <unistd.h>

static CUresult import(struct call *call, CUexternalMemory *out, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *desc)
{
	enum { DEDICATED = 1 };
	if (!out || !desc || !desc->size || desc->flags & ~(unsigned)DEDICATED)
		return CUDA_ERROR_INVALID_VALUE;
	if (desc->type != CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD)
		return CUDA_ERROR_NOT_SUPPORTED;
	if (fcntl(desc->handle.fd, F_GETFD) < 0)
		return CUDA_ERROR_INVALID_VALUE;
	struct object *o = object_new(EXTERNAL, call->current);
	if (!o)
		return CUDA_ERROR_OUT_OF_MEMORY;
	o->external.size = desc->size;
	o->external.fd = desc->handle.fd; /* the driver owns the descriptor from now on */
	*out = (CUexternalMemory)o;
	call->ptr = H(o);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuImportExternalMemory(CUexternalMemory *extMem_out, const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *memHandleDesc)
{
	BEGIN(cuImportExternalMemory, NEEDS_CONTEXT, .bytes = memHandleDesc ? memHandleDesc->size : 0);
	DO(import(&call, extMem_out, memHandleDesc));
	return END();
}

/* Maps a range of external memory to an address. cuMemFree unmaps it. */
static CUresult map(struct call *call, CUdeviceptr *out, struct object *o, const CUDA_EXTERNAL_MEMORY_BUFFER_DESC *desc)
{
	if (!o)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!out || !desc || !desc->size || desc->offset > o->external.size || desc->size > o->external.size - desc->offset ||
	    desc->flags)
		return CUDA_ERROR_INVALID_VALUE;
	uint64_t address = memory_place(call->current->ctx.device, desc->size, EXTERNAL_MEMORY, NULL, call->current);
	if (!address)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*out = call->ptr = address;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuExternalMemoryGetMappedBuffer(CUdeviceptr *devPtr, CUexternalMemory extMem,
						const CUDA_EXTERNAL_MEMORY_BUFFER_DESC *bufferDesc)
{
	BEGIN(cuExternalMemoryGetMappedBuffer, NEEDS_CONTEXT, .src_ptr = H(extMem), .bytes = bufferDesc ? bufferDesc->size : 0);
	DO(map(&call, devPtr, object_of(extMem, EXTERNAL), bufferDesc));
	return END();
}

void external_free(struct object *o)
{
	close(o->external.fd);
	object_free(o);
}

static CUresult destroy(struct object *o)
{
	if (!o)
		return CUDA_ERROR_INVALID_HANDLE;
	external_free(o);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuDestroyExternalMemory(CUexternalMemory extMem)
{
	BEGIN(cuDestroyExternalMemory, NEEDS_CONTEXT, .ptr = H(extMem));
	DO(destroy(object_of(extMem, EXTERNAL)));
	return END();
}
