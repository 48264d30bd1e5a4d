/* CUDA IPC: device memory of other processes. An IPC handle contains the number of an export in
 * the shared state. Opening a handle maps addresses and charges no bytes, because the exporter
 * owns the memory. Opening a handle again gives the same address and needs one more close. */
#include "memory.h"

#include "space.h"
#include "state.h"

#include <stdlib.h>
#include <string.h>

#define HANDLE_MAGIC 0x6370496d6953ull /* "SimIpc" */

struct handle {
	uint64_t magic, id;
};
_Static_assert(sizeof(struct handle) <= sizeof(CUipcMemHandle), "the simulated IPC handle fits into CUipcMemHandle");

struct opened {
	uint64_t id, address;
	struct object *context;
	int times;
	struct opened *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct opened *all;

static CUresult get(CUipcMemHandle *out, CUdeviceptr address)
{
	struct device *d = device_at(address);
	if (!out || !d)
		return CUDA_ERROR_INVALID_VALUE;
	struct handle handle = {.magic = HANDLE_MAGIC};
	pthread_mutex_lock(&d->lock);
	struct block *b = space_find(d->space, address);
	if (b && b->use == DEVICE_MEMORY) {
		if (!b->exported)
			b->exported = state_export(d->ordinal, b->size);
		handle.id = b->exported;
	}
	pthread_mutex_unlock(&d->lock);
	if (!b || b->use != DEVICE_MEMORY)
		return CUDA_ERROR_INVALID_VALUE;
	if (!handle.id)
		return CUDA_ERROR_OUT_OF_MEMORY;
	memset(out, 0, sizeof(*out));
	memcpy(out, &handle, sizeof(handle));
	return CUDA_SUCCESS;
}

EXPORT CUresult cuIpcGetMemHandle(CUipcMemHandle *pHandle, CUdeviceptr dptr)
{
	BEGIN(cuIpcGetMemHandle, NEEDS_CONTEXT, .src_ptr = dptr);
	DO(get(pHandle, dptr));
	return END();
}

static CUresult open_new(struct object *context, uint64_t id, uint64_t size, struct opened **out)
{
	struct opened *o = calloc(1, sizeof(*o));
	if (!o)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*o = (struct opened){.id = id, .context = context, .next = all};
	o->address = memory_place(context->ctx.device, size, OPENED_MEMORY, o, context);
	if (!o->address) {
		free(o);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*out = all = o;
	return CUDA_SUCCESS;
}

static CUresult open_handle(struct call *call, CUdeviceptr *out, const CUipcMemHandle *from, unsigned int flags)
{
	struct handle handle;
	pid_t pid;
	int device;
	uint64_t size;
	CUresult result = CUDA_SUCCESS;
	memcpy(&handle, from, sizeof(handle));
	if (!out || flags != CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS || handle.magic != HANDLE_MAGIC)
		return CUDA_ERROR_INVALID_VALUE;
	if (!state_exported(handle.id, &pid, &device, &size))
		return CUDA_ERROR_INVALID_HANDLE;
	if (pid == process_pid)
		/* The real driver returns this result for a handle of the process's own memory. */
		return CUDA_ERROR_INVALID_CONTEXT;
	pthread_mutex_lock(&lock);
	struct opened *o = all;
	while (o && !(o->id == handle.id && o->context == call->current))
		o = o->next;
	if (!o)
		result = open_new(call->current, handle.id, size, &o);
	if (!result) {
		o->times++;
		*out = call->ptr = o->address;
	}
	pthread_mutex_unlock(&lock);
	return result;
}

#define IPC_OPEN_MEM_HANDLE(fn)                                                                  \
	EXPORT CUresult fn(CUdeviceptr *pdptr, CUipcMemHandle handle, unsigned int Flags)        \
	{                                                                                        \
		BEGIN(fn, NEEDS_CONTEXT, .value = Flags);                                        \
		DO(unsafe_in_capture(&call));                                                    \
		DO(open_handle(&call, pdptr, &handle, Flags));                                   \
		return END();                                                                    \
	}
IPC_OPEN_MEM_HANDLE(cuIpcOpenMemHandle)
IPC_OPEN_MEM_HANDLE(cuIpcOpenMemHandle_v2)

static struct opened *unlink_locked(struct opened **link)
{
	struct opened *o = *link;
	*link = o->next;
	return o;
}

static void end(struct opened *o)
{
	memory_unplace(device_at(o->address), o->address);
	free(o);
}

void opened_of_context(struct object *context)
{
	pthread_mutex_lock(&lock);
	for (struct opened **link = &all; *link;) {
		if ((*link)->context == context)
			end(unlink_locked(link));
		else
			link = &(*link)->next;
	}
	pthread_mutex_unlock(&lock);
}

static CUresult close_address(CUdeviceptr address)
{
	pthread_mutex_lock(&lock);
	struct opened **link = &all;
	while (*link && (*link)->address != address)
		link = &(*link)->next;
	bool found = *link;
	if (found && --(*link)->times == 0)
		end(unlink_locked(link));
	pthread_mutex_unlock(&lock);
	return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuIpcCloseMemHandle(CUdeviceptr dptr)
{
	BEGIN(cuIpcCloseMemHandle, NEEDS_CONTEXT, .ptr = dptr);
	DO(unsafe_in_capture(&call));
	DO(close_address(dptr));
	return END();
}
