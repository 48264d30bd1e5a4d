/* Pools of other processes. A pool is passed as a file descriptor. An allocation is passed as 64
 * bytes, which contain its export number in the shared state. Importing an allocation twice
 * gives the same address, and one cuMemFree ends both imports, as in driver 580. */
#include "memory.h"

#include "space.h"
#include "state.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define POOL_MAGIC 0x6c6f6f506d6953ull
#define POINTER_MAGIC 0x7274506d6953ull

struct ticket {
	uint64_t magic, id;
	int64_t device;
};
_Static_assert(sizeof(struct ticket) <= sizeof(CUmemPoolPtrExportData), "the ticket fits into CUmemPoolPtrExportData");

static CUresult export_pool(void *out, struct object *pool, CUmemAllocationHandleType type, unsigned long long flags)
{
	if (!out || !pool || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || flags)
		return CUDA_ERROR_INVALID_VALUE;
	struct ticket ticket = {POOL_MAGIC, 0, pool->pool.device->ordinal};
	int fd = memfd_create("simcuda-pool", MFD_CLOEXEC);
	if (fd < 0)
		return CUDA_ERROR_OUT_OF_MEMORY;
	if (pwrite(fd, &ticket, sizeof(ticket), 0) != sizeof(ticket)) {
		close(fd);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*(int *)out = fd;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuMemPoolExportToShareableHandle(void *handle_out, CUmemoryPool pool, CUmemAllocationHandleType handleType,
						 unsigned long long flags)
{
	BEGIN(cuMemPoolExportToShareableHandle, NEEDS_INIT, .ptr = H(pool));
	DO(export_pool(handle_out, object_of(pool, POOL), handleType, flags));
	return END();
}

static CUresult import_pool(struct call *call, CUmemoryPool *out, int fd, CUmemAllocationHandleType type)
{
	struct ticket ticket;
	if (!out || type != CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR || pread(fd, &ticket, sizeof(ticket), 0) != sizeof(ticket) ||
	    ticket.magic != POOL_MAGIC || !device_of((CUdevice)ticket.device))
		return CUDA_ERROR_INVALID_VALUE;
	struct object *o = pool_new(device_of((CUdevice)ticket.device), 0);
	if (!o)
		return CUDA_ERROR_OUT_OF_MEMORY;
	o->pool.imported = true;
	*out = (CUmemoryPool)o;
	call->ptr = H(o);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuMemPoolImportFromShareableHandle(CUmemoryPool *pool_out, void *handle, CUmemAllocationHandleType handleType,
						   unsigned long long flags)
{
	BEGIN(cuMemPoolImportFromShareableHandle, NEEDS_INIT);
	(void)flags;
	DO(import_pool(&call, pool_out, (int)(intptr_t)handle, handleType));
	return END();
}

static CUresult export_pointer(CUmemPoolPtrExportData *out, CUdeviceptr address)
{
	struct device *d = device_at(address);
	struct ticket ticket = {.magic = POINTER_MAGIC};
	if (!out || !d)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&d->lock);
	struct block *b = space_find(d->space, address);
	if (b && b->use == POOL_MEMORY) {
		if (!b->exported)
			b->exported = state_export(d->ordinal, b->size);
		ticket.id = b->exported;
	}
	pthread_mutex_unlock(&d->lock);
	if (!ticket.id)
		return CUDA_ERROR_INVALID_VALUE;
	memset(out, 0, sizeof(*out));
	memcpy(out, &ticket, sizeof(ticket));
	return CUDA_SUCCESS;
}

EXPORT CUresult cuMemPoolExportPointer(CUmemPoolPtrExportData *shareData_out, CUdeviceptr ptr)
{
	BEGIN(cuMemPoolExportPointer, NEEDS_INIT, .src_ptr = ptr);
	DO(export_pointer(shareData_out, ptr));
	return END();
}

static uint64_t imported_at(struct device *d, uint64_t id)
{
	uint64_t address = 0;
	pthread_mutex_lock(&d->lock);
	for (struct block *b = d->space->lowest; b && !address; b = b->above)
		if (b->taken && b->use == IMPORTED_MEMORY && b->backing == (void *)(uintptr_t)id)
			address = b->address;
	pthread_mutex_unlock(&d->lock);
	return address;
}

static CUresult import_pointer(struct call *call, CUdeviceptr *out, struct object *pool, const CUmemPoolPtrExportData *from)
{
	struct ticket ticket;
	pid_t pid;
	int device;
	uint64_t size;
	if (!out || !pool || !pool->pool.imported || !from)
		return CUDA_ERROR_INVALID_VALUE;
	memcpy(&ticket, from, sizeof(ticket));
	if (ticket.magic != POINTER_MAGIC || !state_exported(ticket.id, &pid, &device, &size) || pid == process_pid)
		return CUDA_ERROR_INVALID_VALUE;
	uint64_t address = imported_at(pool->pool.device, ticket.id);
	if (!address)
		address = memory_place(pool->pool.device, size, IMPORTED_MEMORY, (void *)(uintptr_t)ticket.id, NULL);
	if (!address)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*out = call->ptr = address;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuMemPoolImportPointer(CUdeviceptr *ptr_out, CUmemoryPool pool, CUmemPoolPtrExportData *shareData)
{
	BEGIN(cuMemPoolImportPointer, NEEDS_INIT, .src_ptr = H(pool));
	DO(import_pointer(&call, ptr_out, object_of(pool, POOL), shareData));
	return END();
}

EXPORT CUresult cuMemPoolSetAccess(CUmemoryPool pool, const CUmemAccessDesc *map, size_t count)
{
	BEGIN(cuMemPoolSetAccess, NEEDS_INIT, .ptr = H(pool), .value = (int64_t)count);
	DO(object_of(pool, POOL) && map && count ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
	return END();
}

/* ---- pools by location (since CUDA 13.0) ---- */

static struct device *located(const CUmemLocation *location, CUmemAllocationType type)
{
	bool is_device = location && location->type == CU_MEM_LOCATION_TYPE_DEVICE && type == CU_MEM_ALLOCATION_TYPE_PINNED;
	return is_device ? device_of(location->id) : NULL;
}

static CUresult pool_at(struct call *call, CUmemoryPool *out, struct device *d, bool current)
{
	if (!out || !d)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&d->lock);
	struct object *pool = current ? d->current_pool : d->default_pool;
	pthread_mutex_unlock(&d->lock);
	*out = (CUmemoryPool)pool;
	call->ptr = H(pool);
	return CUDA_SUCCESS;
}

#define MEM_POOL_AT(fn, current)                                                                             \
	EXPORT CUresult fn(CUmemoryPool *pool, CUmemLocation *location, CUmemAllocationType type)            \
	{                                                                                                    \
		BEGIN(fn, NEEDS_INIT, .src_ptr = location ? (uint64_t)location->type : 0,                    \
		      .value = location ? location->id : 0);                                                 \
		DO(pool_at(&call, pool, located(location, type), current));                                  \
		return END();                                                                                \
	}
MEM_POOL_AT(cuMemGetDefaultMemPool, false)
MEM_POOL_AT(cuMemGetMemPool, true)

static CUresult set_pool(struct device *d, struct object *pool)
{
	if (!d || !pool || pool->pool.device != d)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&d->lock);
	d->current_pool = pool;
	pthread_mutex_unlock(&d->lock);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuMemSetMemPool(CUmemLocation *location, CUmemAllocationType type, CUmemoryPool pool)
{
	BEGIN(cuMemSetMemPool, NEEDS_INIT, .ptr = H(pool), .src_ptr = location ? (uint64_t)location->type : 0,
	      .value = location ? location->id : 0);
	DO(set_pool(located(location, type), object_of(pool, POOL)));
	return END();
}

EXPORT CUresult cuDeviceGraphMemTrim(CUdevice device)
{
	BEGIN(cuDeviceGraphMemTrim, NEEDS_INIT, .value = device);
	/* simcuda's graphs keep no free memory */
	DO(device_of(device) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE);
	return END();
}
