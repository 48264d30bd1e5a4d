/* Memory allocation. Device memory has addresses and accounting but holds no data. Managed and
 * pinned memory are real host memory. */
#include "memory.h"

#include "space.h"
#include "state.h"

#include <sys/mman.h>

/* Managed and pinned memory belong to the process, not to a device. */
static struct space *managed, *pinned;
static pthread_mutex_t host_lock = PTHREAD_MUTEX_INITIALIZER;

bool memory_init(void)
{
	enum { HOST_GRANULE = 4096 };
	/* Four times the capacity of a device. More would be as cheap, but valgrind could not
	 * reserve it. */
	managed = space_new(config.memory * 4, HOST_GRANULE);
	pinned = space_new(config.memory * 4, HOST_GRANULE);
	return managed && pinned;
}

struct device *device_at(uint64_t address)
{
	for (int i = 0; i < config.devices; i++)
		if (space_covers(device_of(i)->space, address))
			return device_of(i);
	return NULL;
}

bool memory_is_on_device(uint64_t address)
{
	return device_at(address) || vmm_covers(address);
}

bool memory_is_cuda(uint64_t address)
{
	return device_at(address) || space_covers(managed, address) || space_covers(pinned, address) || vmm_is_usable(address) ||
	       registered_covers(address);
}

/* Reports whether an address is in a taken block of a space. The caller holds the lock of the space. */
static bool taken_at(const struct space *space, uint64_t address)
{
	for (const struct block *b = space->lowest; b && b->address <= address; b = b->above)
		if (b->taken && address - b->address < b->size)
			return true;
	return false;
}

bool memory_is_live(uint64_t address)
{
	struct device *d = device_at(address);
	bool live;
	if (d) {
		pthread_mutex_lock(&d->lock);
		live = taken_at(d->space, address);
		pthread_mutex_unlock(&d->lock);
		return live;
	}
	pthread_mutex_lock(&host_lock);
	live = taken_at(managed, address) || taken_at(pinned, address);
	pthread_mutex_unlock(&host_lock);
	return live || vmm_is_usable(address) || registered_covers(address);
}

bool memory_is_managed(uint64_t address, uint64_t bytes)
{
	return space_covers(managed, address) && bytes > 0 && bytes <= managed->size - (address - managed->base);
}

static bool fits(const struct device *d, uint64_t more)
{
	uint64_t used = d->used + state_used_by_others(d->ordinal);
	return used <= config.memory && more <= config.memory - used;
}

bool memory_charge_locked(struct device *d, uint64_t bytes)
{
	if (!fits(d, bytes)) {
		pools_release_locked(d, true);
		if (!fits(d, bytes))
			state_reap(); /* the memory of killed processes is free again */
		if (!fits(d, bytes))
			return false;
	}
	d->used += bytes;
	state_used(d->ordinal, d->used);
	return true;
}

bool memory_charge(struct device *d, uint64_t bytes)
{
	pthread_mutex_lock(&d->lock);
	bool ok = memory_charge_locked(d, bytes);
	pthread_mutex_unlock(&d->lock);
	return ok;
}

void memory_discharge_locked(struct device *d, uint64_t bytes)
{
	d->used -= bytes;
	state_used(d->ordinal, d->used);
}

void memory_discharge(struct device *d, uint64_t bytes)
{
	pthread_mutex_lock(&d->lock);
	memory_discharge_locked(d, bytes);
	pthread_mutex_unlock(&d->lock);
}

CUresult memory_take(struct object *owner, uint64_t bytes, CUdeviceptr *out)
{
	if (!out || bytes == 0)
		return CUDA_ERROR_INVALID_VALUE;
	struct device *d = owner->ctx.device;
	uint64_t size = (bytes + 511) & ~511ull;
	if (size < bytes)
		return CUDA_ERROR_OUT_OF_MEMORY;
	struct block *b = NULL;
	pthread_mutex_lock(&d->lock);
	if (memory_charge_locked(d, size)) {
		b = space_take(d->space, size);
		if (!b)
			d->used -= size;
	}
	if (b) {
		b->owner = owner;
		*out = b->address;
	}
	state_used(d->ordinal, d->used);
	pthread_mutex_unlock(&d->lock);
	return b ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

uint64_t memory_place(struct device *d, uint64_t bytes, enum block_use use, void *backing, struct object *owner)
{
	pthread_mutex_lock(&d->lock);
	struct block *b = space_take(d->space, bytes);
	if (b) {
		b->use = (int)use;
		b->backing = backing;
		b->owner = owner;
	}
	pthread_mutex_unlock(&d->lock);
	return b ? b->address : 0;
}

void memory_unplace(struct device *d, uint64_t address)
{
	pthread_mutex_lock(&d->lock);
	struct block *b = space_find(d->space, address);
	if (b)
		space_give(d->space, b);
	pthread_mutex_unlock(&d->lock);
}

/* Returns a block to its device. Memory of a pool bypasses the pool. */
static void device_give(struct device *d, struct block *b)
{
	if (b->use == POOL_MEMORY)
		pool_forget_locked(b->backing, b->size);
	if (b->use == DEVICE_MEMORY || b->use == POOL_MEMORY)
		d->used -= b->size;
	if (b->exported)
		state_unexport(b->exported);
	space_give(d->space, b);
	state_used(d->ordinal, d->used);
}

/* Sets the protection of managed or pinned memory. PROT_READ and PROT_WRITE give fresh pages,
 * PROT_NONE removes them. Free memory is reserved address space only. */
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

/* Frees device or managed memory. Waits for the context's work first and accepts address 0, as
 * the real cuMemFree does. */
CUresult memory_free(struct call *call, CUdeviceptr address)
{
	if (!address)
		return CUDA_SUCCESS;
	struct device *d = device_at(address);
	if (!d)
		return space_covers(managed, address) ? host_give(managed, address) : CUDA_ERROR_INVALID_VALUE;
	wait_until(call->current->ctx.until);
	pthread_mutex_lock(&d->lock);
	struct block *b = space_find(d->space, address);
	struct graph_memory *of_graph = b && b->use == GRAPH_MEMORY ? b->backing : NULL;
	bool ok = b && (b->use == DEVICE_MEMORY || b->use == POOL_MEMORY || b->use == EXTERNAL_MEMORY ||
			 b->use == IMPORTED_MEMORY);
	if (ok)
		device_give(d, b);
	pthread_mutex_unlock(&d->lock);
	if (of_graph)
		ok = graph_memory_end(of_graph);
	return ok ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
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
		/* Find the next block before freeing b: free neighbours of b merge with it,
		 * taken ones remain. */
		next = next_of(b->above, owner);
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
	pools_release_locked(d, false);
	pthread_mutex_unlock(&d->lock);
	host_give_all(managed, context);
	host_give_all(pinned, context);
}

EXPORT CUresult cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytesize)
{
	BEGIN(cuMemAlloc_v2, NEEDS_CONTEXT, .bytes = bytesize);
	DO(unsafe_in_capture(&call));
	DO(memory_take(call.current, bytesize, dptr));
	if (!call.result)
		call.ptr = *dptr;
	return END();
}

static CUresult pitched(struct call *call, CUdeviceptr *out, size_t *pitch, size_t width, size_t height, unsigned int element)
{
	if (!pitch || (element != 4 && element != 8 && element != 16))
		return CUDA_ERROR_INVALID_VALUE;
	size_t row = (width + 511) & ~(size_t)511, total;
	if (row < width || __builtin_mul_overflow(row, height, &total))
		return CUDA_ERROR_OUT_OF_MEMORY;
	CUresult result = memory_take(call->current, total, out);
	if (!result) {
		call->ptr = *out;
		*pitch = row;
		call->bytes = total;
	}
	return result;
}

EXPORT CUresult cuMemAllocPitch_v2(CUdeviceptr *dptr, size_t *pPitch, size_t WidthInBytes, size_t Height,
				   unsigned int ElementSizeBytes)
{
	BEGIN(cuMemAllocPitch_v2, NEEDS_CONTEXT, .bytes = WidthInBytes * Height);
	DO(unsafe_in_capture(&call));
	DO(pitched(&call, dptr, pPitch, WidthInBytes, Height, ElementSizeBytes));
	return END();
}

EXPORT CUresult cuMemFree_v2(CUdeviceptr dptr)
{
	BEGIN(cuMemFree_v2, NEEDS_CONTEXT, .ptr = dptr);
	DO(unsafe_in_capture(&call));
	DO(memory_free(&call, dptr));
	return END();
}

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
	DO(unsafe_in_capture(&call));
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
		/* The real driver also accepts 0 bytes for pinned and pool memory, and rejects
		 * them elsewhere. */
		return CUDA_SUCCESS;
	uint64_t address = 0;
	CUresult result = host_take(call, pinned, bytes, &address);
	if (!result)
		*out = (void *)(uintptr_t)address;
	return result;
}

EXPORT CUresult cuMemHostAlloc(void **pp, size_t bytesize, unsigned int Flags)
{
	BEGIN(cuMemHostAlloc, NEEDS_CONTEXT, .bytes = bytesize, .value = Flags);
	DO(unsafe_in_capture(&call));
	DO(pinned_take(&call, pp, bytesize, Flags));
	return END();
}

#define MEM_ALLOC_HOST(fn, type)                                    \
	EXPORT CUresult fn(void **pp, type bytesize)                \
	{                                                           \
		BEGIN(fn, NEEDS_CONTEXT, .bytes = bytesize);        \
		DO(unsafe_in_capture(&call));                       \
		DO(pinned_take(&call, pp, bytesize, 0));            \
		return END();                                       \
	}
MEM_ALLOC_HOST(cuMemAllocHost, unsigned int)
MEM_ALLOC_HOST(cuMemAllocHost_v2, size_t)

EXPORT CUresult cuMemFreeHost(void *p)
{
	BEGIN(cuMemFreeHost, NEEDS_CONTEXT, .ptr = H(p));
	DO(unsafe_in_capture(&call));
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
