/*
 * Memory. On the device it is addresses and accounting, with no data behind; managed and pinned memory is real. Stream-ordered
 * frees keep their bytes in the device's pool until the next synchronisation, as with the real default release threshold of 0.
 */
#include "sim.h"

#include "space.h"
#include "state.h"

#include <sys/mman.h>

enum use { DEVICE_MEMORY, POOL_MEMORY };

/* Managed and pinned memory belong to the process, not to a device. */
static struct space *managed, *pinned;
static pthread_mutex_t host_lock = PTHREAD_MUTEX_INITIALIZER;

bool memory_init(void)
{
	enum { HOST_GRANULE = 4096 };
	/* As much as a device has; far more would be as cheap, but valgrind could not reserve it. */
	managed = space_new(config.memory * 4, HOST_GRANULE);
	pinned = space_new(config.memory * 4, HOST_GRANULE);
	return managed && pinned;
}

static struct device *device_at(uint64_t address)
{
	for (int i = 0; i < config.devices; i++)
		if (space_covers(device_of(i)->space, address))
			return device_of(i);
	return NULL;
}

bool memory_is_on_device(uint64_t address)
{
	return device_at(address) != NULL;
}

bool memory_is_cuda(uint64_t address)
{
	return space_covers(managed, address) || space_covers(pinned, address) || device_at(address);
}

static void trim_pool_locked(struct device *d)
{
	d->used -= d->pool_idle;
	__atomic_store_n(&d->pool_idle, 0, __ATOMIC_RELAXED);
	state_used(d->ordinal, d->used);
}

void memory_trim_pool(struct device *d)
{
	/* Nearly always there is nothing to do, and synchronising threads should not queue for that. */
	if (!__atomic_load_n(&d->pool_idle, __ATOMIC_RELAXED))
		return;
	pthread_mutex_lock(&d->lock);
	trim_pool_locked(d);
	pthread_mutex_unlock(&d->lock);
}

static bool fits(const struct device *d, uint64_t more)
{
	uint64_t used = d->used + state_used_by_others(d->ordinal);
	return used <= config.memory && more <= config.memory - used;
}

/* Books size bytes on the device, for the pool's own allocations first out of what lies idle in the pool. */
static bool charge(struct device *d, uint64_t size, enum use use)
{
	uint64_t reused = use != POOL_MEMORY ? 0 : size < d->pool_idle ? size : d->pool_idle;
	if (!fits(d, size - reused)) {
		trim_pool_locked(d);
		reused = 0;
		if (!fits(d, size))
			state_reap(); /* a process that was killed holds no memory */
		if (!fits(d, size))
			return false;
	}
	__atomic_store_n(&d->pool_idle, d->pool_idle - reused, __ATOMIC_RELAXED);
	d->used += size - reused;
	return true;
}

static CUresult device_take(struct call *call, struct object *owner, uint64_t bytes, enum use use, CUdeviceptr *out)
{
	if (!out || bytes == 0)
		return CUDA_ERROR_INVALID_VALUE;
	struct device *d = owner->ctx.device;
	uint64_t size = (bytes + 511) & ~511ull;
	if (size < bytes)
		return CUDA_ERROR_OUT_OF_MEMORY;
	struct block *b = NULL;
	pthread_mutex_lock(&d->lock);
	if (charge(d, size, use)) {
		b = space_take(d->space, size);
		if (!b)
			d->used -= size;
	}
	if (b) {
		b->owner = owner;
		*out = b->address;
		call->ptr = b->address;
	}
	state_used(d->ordinal, d->used);
	pthread_mutex_unlock(&d->lock);
	return b ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static void device_give(struct device *d, struct block *b)
{
	d->used -= b->size;
	space_give(d->space, b);
}

/* Managed and pinned memory gets pages while it is allocated and is address space only before and after. */
static bool populate(struct block *b, int protection)
{
	return mmap((void *)(uintptr_t)b->address, b->size, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1,
		    0) != MAP_FAILED;
}

static CUresult host_take(struct call *call, struct space *space, uint64_t bytes, uint64_t *out)
{
	if (bytes == 0)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
	pthread_mutex_lock(&host_lock);
	struct block *b = space_take(space, bytes);
	if (b && populate(b, PROT_READ | PROT_WRITE)) {
		b->owner = call->current;
		*out = call->ptr = b->address;
		result = CUDA_SUCCESS;
	} else if (b) {
		space_give(space, b);
	}
	pthread_mutex_unlock(&host_lock);
	return result;
}

static CUresult host_give(struct space *space, uint64_t address)
{
	pthread_mutex_lock(&host_lock);
	struct block *b = space_find(space, address);
	if (b) {
		populate(b, PROT_NONE);
		space_give(space, b);
	}
	pthread_mutex_unlock(&host_lock);
	return b ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* Like the real cuMemFree, it first waits for the context's work, and takes 0. */
static CUresult memory_free(struct call *call, CUdeviceptr address)
{
	if (!address)
		return CUDA_SUCCESS;
	struct device *d = device_at(address);
	if (!d)
		return space_covers(managed, address) ? host_give(managed, address) : CUDA_ERROR_INVALID_VALUE;
	wait_until(call->current->ctx.until);
	pthread_mutex_lock(&d->lock);
	struct block *b = space_find(d->space, address);
	if (b)
		device_give(d, b);
	state_used(d->ordinal, d->used);
	pthread_mutex_unlock(&d->lock);
	return b ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* Takes plain allocations too, as the real driver does: their bytes come back at the next synchronisation all the same. */
static CUresult pool_free(CUdeviceptr address)
{
	if (!address)
		return CUDA_SUCCESS;
	struct device *d = device_at(address);
	if (!d)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&d->lock);
	struct block *b = space_find(d->space, address);
	if (b) {
		__atomic_store_n(&d->pool_idle, d->pool_idle + b->size, __ATOMIC_RELAXED);
		space_give(d->space, b);
	}
	pthread_mutex_unlock(&d->lock);
	return b ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static struct block *next_of(struct block *b, struct object *owner)
{
	while (b && !(b->taken && b->owner == owner))
		b = b->above;
	return b;
}

static void host_give_all(struct space *space, struct object *owner)
{
	pthread_mutex_lock(&host_lock);
	for (struct block *b = next_of(space->lowest, owner), *next; b; b = next) {
		next = next_of(b->above, owner); /* before giving: free neighbours of b go away, taken ones stay */
		populate(b, PROT_NONE);
		space_give(space, b);
	}
	pthread_mutex_unlock(&host_lock);
}

void memory_of_context(struct object *context)
{
	struct device *d = context->ctx.device;
	pthread_mutex_lock(&d->lock);
	for (struct block *b = next_of(d->space->lowest, context), *next; b; b = next) {
		next = next_of(b->above, context);
		device_give(d, b);
	}
	trim_pool_locked(d);
	pthread_mutex_unlock(&d->lock);
	host_give_all(managed, context);
	host_give_all(pinned, context);
}

EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytesize)
{
	BEGIN(cuMemAlloc_v2, NEEDS_CONTEXT, .bytes = bytesize);
	DO(device_take(&call, call.current, bytesize, DEVICE_MEMORY, dptr));
	return END();
}

static CUresult pitched(struct call *call, CUdeviceptr *out, size_t *pitch, size_t width, size_t height, unsigned int element)
{
	if (!pitch || (element != 4 && element != 8 && element != 16))
		return CUDA_ERROR_INVALID_VALUE;
	size_t row = (width + 511) & ~(size_t)511, total;
	if (row < width || __builtin_mul_overflow(row, height, &total))
		return CUDA_ERROR_OUT_OF_MEMORY;
	CUresult result = device_take(call, call->current, total, DEVICE_MEMORY, out);
	if (!result) {
		*pitch = row;
		call->bytes = total;
	}
	return result;
}

EXPORT CUresult cuMemAllocPitch_v2(CUdeviceptr *dptr, size_t *pPitch, size_t WidthInBytes, size_t Height,
				   unsigned int ElementSizeBytes)
{
	BEGIN(cuMemAllocPitch_v2, NEEDS_CONTEXT, .bytes = WidthInBytes * Height);
	DO(pitched(&call, dptr, pPitch, WidthInBytes, Height, ElementSizeBytes));
	return END();
}

EXPORT CUresult cuMemFree_v2(CUdeviceptr dptr)
{
	BEGIN(cuMemFree_v2, NEEDS_CONTEXT, .ptr = dptr);
	DO(memory_free(&call, dptr));
	return END();
}

static CUresult pool_take(struct call *call, struct object *owner, size_t bytes, CUdeviceptr *out)
{
	if (!out || bytes > 0)
		return device_take(call, owner, bytes, POOL_MEMORY, out);
	*out = 0;
	return CUDA_SUCCESS;
}

#define MEM_ALLOC_ASYNC(fn, zero)                                                          \
	EXPORT CUresult fn(CUdeviceptr *dptr, size_t bytesize, CUstream hStream)           \
	{                                                                                  \
		BEGIN(fn, NEEDS_CONTEXT, .bytes = bytesize, .stream = H(hStream));         \
		struct lane lane;                                                          \
		DO(lane_of(&call, hStream, zero, &lane));                                  \
		DO(pool_take(&call, lane.context, bytesize, dptr));                        \
		return END();                                                              \
	}
MEM_ALLOC_ASYNC(cuMemAllocAsync, LEGACY)
MEM_ALLOC_ASYNC(cuMemAllocAsync_ptsz, PER_THREAD)

#define MEM_FREE_ASYNC(fn, zero)                                              \
	EXPORT CUresult fn(CUdeviceptr dptr, CUstream hStream)                \
	{                                                                     \
		BEGIN(fn, NEEDS_CONTEXT, .ptr = dptr, .stream = H(hStream));  \
		struct lane lane;                                             \
		DO(lane_of(&call, hStream, zero, &lane));                     \
		DO(pool_free(dptr));                                          \
		return END();                                                 \
	}
MEM_FREE_ASYNC(cuMemFreeAsync, LEGACY)
MEM_FREE_ASYNC(cuMemFreeAsync_ptsz, PER_THREAD)

static CUresult managed_take(struct call *call, CUdeviceptr *out, size_t bytes, unsigned int flags)
{
	if (!out || (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST))
		return CUDA_ERROR_INVALID_VALUE;
	uint64_t address = 0;
	CUresult result = host_take(call, managed, bytes, &address);
	if (!result)
		*out = address;
	return result;
}

EXPORT CUresult cuMemAllocManaged(CUdeviceptr *dptr, size_t bytesize, unsigned int flags)
{
	BEGIN(cuMemAllocManaged, NEEDS_CONTEXT, .bytes = bytesize, .value = flags);
	DO(managed_take(&call, dptr, bytesize, flags));
	return END();
}

static CUresult pinned_take(struct call *call, void **out, size_t bytes, unsigned int flags)
{
	enum { PORTABLE = 1, DEVICE_MAP = 2, WRITE_COMBINED = 4 };
	if (!out || flags & ~(unsigned)(PORTABLE | DEVICE_MAP | WRITE_COMBINED))
		return CUDA_ERROR_INVALID_VALUE;
	*out = NULL;
	if (bytes == 0)
		return CUDA_SUCCESS; /* so the real driver here and for the pool, while it refuses 0 bytes elsewhere */
	uint64_t address = 0;
	CUresult result = host_take(call, pinned, bytes, &address);
	if (!result)
		*out = (void *)(uintptr_t)address;
	return result;
}

EXPORT CUresult cuMemHostAlloc(void **pp, size_t bytesize, unsigned int Flags)
{
	BEGIN(cuMemHostAlloc, NEEDS_CONTEXT, .bytes = bytesize, .value = Flags);
	DO(pinned_take(&call, pp, bytesize, Flags));
	return END();
}

EXPORT CUresult cuMemAllocHost_v2(void **pp, size_t bytesize)
{
	BEGIN(cuMemAllocHost_v2, NEEDS_CONTEXT, .bytes = bytesize);
	DO(pinned_take(&call, pp, bytesize, 0));
	return END();
}

EXPORT CUresult cuMemFreeHost(void *p)
{
	BEGIN(cuMemFreeHost, NEEDS_CONTEXT, .ptr = H(p));
	DO(p ? host_give(pinned, H(p)) : CUDA_SUCCESS);
	return END();
}

static CUresult info(struct call *call, size_t *free_bytes, size_t *total)
{
	if (!free_bytes || !total)
		return CUDA_ERROR_INVALID_VALUE;
	struct device *d = call->current->ctx.device;
	state_reap();
	pthread_mutex_lock(&d->lock);
	uint64_t used = d->used + state_used_by_others(d->ordinal);
	pthread_mutex_unlock(&d->lock);
	*free_bytes = used < config.memory ? config.memory - used : 0;
	*total = config.memory;
	call->bytes = *free_bytes;
	call->value = (int64_t)*total;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuMemGetInfo_v2(size_t *free, size_t *total)
{
	BEGIN(cuMemGetInfo_v2, NEEDS_CONTEXT);
	DO(info(&call, free, total));
	return END();
}
