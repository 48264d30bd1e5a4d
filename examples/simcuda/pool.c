/* Memory pools and stream-ordered allocation. Memory freed in stream order stays in its pool. A
 * synchronising call releases the pool's idle memory beyond the release threshold, which is 0 by
 * default. */
#include "graph.h"

#include "memory.h"
#include "space.h"
#include "state.h"

/* ---- accounting of bytes ---- */

static uint64_t reserved(const struct object *pool)
{
	return pool->pool.used + pool->pool.idle;
}

static uint64_t excess(const struct object *pool, uint64_t keep)
{
	uint64_t over = reserved(pool) > keep ? reserved(pool) - keep : 0;
	return over < pool->pool.idle ? over : pool->pool.idle;
}

void pools_recount_locked(struct device *d)
{
	uint64_t sum = 0;
	for (struct object *p = d->pools; p; p = p->next)
		sum += excess(p, p->pool.threshold);
	__atomic_store_n(&d->excess, sum, __ATOMIC_RELAXED);
}

static void release(struct device *d, struct object *pool, uint64_t keep)
{
	uint64_t bytes = excess(pool, keep);
	pool->pool.idle -= bytes;
	d->used -= bytes;
}

void pools_release_locked(struct device *d, bool all)
{
	for (struct object *p = d->pools; p; p = p->next)
		release(d, p, all ? 0 : p->pool.threshold);
	pools_recount_locked(d);
	state_used(d->ordinal, d->used);
}

void pools_trim(struct device *d)
{
	/* Skip the lock in the usual case of nothing to release. */
	if (!__atomic_load_n(&d->excess, __ATOMIC_RELAXED))
		return;
	pthread_mutex_lock(&d->lock);
	pools_release_locked(d, false);
	pthread_mutex_unlock(&d->lock);
}

/* Frees a destroyed pool after its last allocation. */
static void end_if_empty(struct object *pool)
{
	struct device *d = pool->pool.device;
	if (!pool->pool.destroyed || pool->pool.used)
		return;
	release(d, pool, 0);
	struct object **link = &d->pools;
	while (*link != pool)
		link = &(*link)->next;
	*link = pool->next;
	object_free(pool);
}

void pool_forget_locked(struct object *pool, uint64_t bytes)
{
	struct device *d = pool->pool.device;
	pool->pool.used -= bytes;
	end_if_empty(pool);
	pools_recount_locked(d);
}

static bool charge(struct device *d, struct object *pool, uint64_t size)
{
	uint64_t reused = size < pool->pool.idle ? size : pool->pool.idle;
	if (pool->pool.max_size && (size > pool->pool.max_size || pool->pool.used > pool->pool.max_size - size))
		return false;
	/* Reserve the idle bytes first: the charge below may release the pool's idle memory. */
	pool->pool.idle -= reused;
	if (!memory_charge_locked(d, size - reused)) {
		pool->pool.idle += reused;
		pools_recount_locked(d);
		return false;
	}
	pool->pool.used += size;
	if (pool->pool.used > pool->pool.used_high)
		pool->pool.used_high = pool->pool.used;
	if (reserved(pool) > pool->pool.reserved_high)
		pool->pool.reserved_high = reserved(pool);
	pools_recount_locked(d);
	return true;
}

/* Allocates from the given pool, or from the device's current pool if pool is NULL. A request of
 * 0 bytes succeeds and gives address 0. */
CUresult pool_take(struct object *owner, struct object *pool, size_t bytes, CUdeviceptr *out)
{
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	*out = 0;
	if (bytes == 0)
		return CUDA_SUCCESS;
	struct device *d = pool ? pool->pool.device : owner->ctx.device;
	uint64_t size = ((uint64_t)bytes + 511) & ~511ull;
	struct block *b = NULL;
	pthread_mutex_lock(&d->lock);
	if (!pool)
		pool = d->current_pool;
	if (size >= bytes && charge(d, pool, size)) {
		b = space_take(d->space, size);
		if (!b) {
			pool->pool.used -= size;
			pool->pool.idle += size;
			pools_recount_locked(d);
		}
	}
	if (b) {
		b->owner = owner;
		b->use = POOL_MEMORY;
		b->backing = pool;
		*out = b->address;
	}
	pthread_mutex_unlock(&d->lock);
	return b ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

/* Frees memory in stream order. Accepts plain allocations too, as the real driver does. Their
 * bytes also stay reserved until the next synchronisation. */
CUresult pool_free(CUdeviceptr address)
{
	if (!address)
		return CUDA_SUCCESS;
	struct device *d = device_at(address);
	if (!d)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&d->lock);
	struct block *b = space_find(d->space, address);
	struct graph_memory *of_graph = b && b->use == GRAPH_MEMORY ? b->backing : NULL;
	bool ok = b && (b->use == DEVICE_MEMORY || b->use == POOL_MEMORY);
	if (b && b->use == IMPORTED_MEMORY) {
		space_give(d->space, b);
		ok = true;
	} else if (ok) {
		struct object *pool = b->use == POOL_MEMORY ? b->backing : d->default_pool;
		if (b->use == POOL_MEMORY)
			pool->pool.used -= b->size;
		pool->pool.idle += b->size;
		if (b->exported)
			state_unexport(b->exported);
		space_give(d->space, b);
		end_if_empty(pool);
		pools_recount_locked(d);
	}
	pthread_mutex_unlock(&d->lock);
	if (of_graph)
		ok = graph_memory_end(of_graph);
	return ok ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* ---- stream-ordered calls; on a capturing stream they add graph nodes ---- */

static CUresult capture_take(struct lane *lane, size_t bytes, CUdeviceptr *out)
{
	if (!out || bytes == 0)
		return CUDA_ERROR_INVALID_VALUE;
	struct op op = {.kind = OP_ALLOC, .memory = graph_memory_new(lane->context->ctx.device, bytes)};
	if (!op.memory)
		return CUDA_ERROR_OUT_OF_MEMORY;
	CUresult result = capture_op(lane, &op);
	if (result)
		graph_memory_release(op.memory);
	else
		*out = op.memory->address;
	return result;
}

static CUresult capture_give(struct lane *lane, CUdeviceptr address)
{
	struct op op = {.kind = OP_FREE, .memory = graph_memory_at(address)};
	if (!op.memory)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult result = capture_op(lane, &op);
	if (result)
		graph_memory_release(op.memory);
	return result;
}

static CUresult take(struct call *call, struct lane *lane, struct object *pool, size_t bytes, CUdeviceptr *out)
{
	CUresult result = lane->capture ? capture_take(lane, bytes, out) : pool_take(lane->context, pool, bytes, out);
	if (!result)
		call->ptr = *out;
	return result;
}

static struct object *pool_of(CUmemoryPool pool)
{
	struct object *o = object_of(pool, POOL);
	return o && !o->pool.destroyed ? o : NULL;
}

/* Returns false for an imported pool: only its exporter may allocate from it. */
static bool can_allocate(const struct object *pool)
{
	return pool && !pool->pool.imported;
}

#define MEM_ALLOC_ASYNC(fn, zero)                                                          \
	EXPORT CUresult fn(CUdeviceptr *dptr, size_t bytesize, CUstream hStream)           \
	{                                                                                  \
		BEGIN(fn, NEEDS_CONTEXT, .bytes = bytesize, .stream = H(hStream));         \
		struct lane lane;                                                          \
		DO(lane_of(&call, hStream, zero, &lane));                                  \
		DO(take(&call, &lane, NULL, bytesize, dptr));                              \
		return END();                                                              \
	}
MEM_ALLOC_ASYNC(cuMemAllocAsync, LEGACY)
MEM_ALLOC_ASYNC(cuMemAllocAsync_ptsz, PER_THREAD)

#define MEM_ALLOC_FROM_POOL_ASYNC(fn, zero)                                                             \
	EXPORT CUresult fn(CUdeviceptr *dptr, size_t bytesize, CUmemoryPool pool, CUstream hStream)     \
	{                                                                                               \
		BEGIN(fn, NEEDS_CONTEXT, .bytes = bytesize, .src_ptr = H(pool), .stream = H(hStream));  \
		struct lane lane;                                                                       \
		DO(lane_of(&call, hStream, zero, &lane));                                               \
		DO(can_allocate(pool_of(pool)) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);              \
		DO(take(&call, &lane, pool_of(pool), bytesize, dptr));                                  \
		return END();                                                                           \
	}
MEM_ALLOC_FROM_POOL_ASYNC(cuMemAllocFromPoolAsync, LEGACY)
MEM_ALLOC_FROM_POOL_ASYNC(cuMemAllocFromPoolAsync_ptsz, PER_THREAD)

#define MEM_FREE_ASYNC(fn, zero)                                                       \
	EXPORT CUresult fn(CUdeviceptr dptr, CUstream hStream)                         \
	{                                                                              \
		BEGIN(fn, NEEDS_CONTEXT, .ptr = dptr, .stream = H(hStream));           \
		struct lane lane;                                                      \
		DO(lane_of(&call, hStream, zero, &lane));                              \
		DO(lane.capture ? capture_give(&lane, dptr) : pool_free(dptr));        \
		return END();                                                          \
	}
MEM_FREE_ASYNC(cuMemFreeAsync, LEGACY)
MEM_FREE_ASYNC(cuMemFreeAsync_ptsz, PER_THREAD)

/* ---- pool objects ---- */

struct object *pool_new(struct device *d, uint64_t max_size)
{
	struct object *o = object_new(POOL, NULL);
	if (!o)
		return NULL;
	o->pool.device = d;
	o->pool.max_size = max_size;
	for (int i = 0; i < 3; i++)
		o->pool.reuse[i] = 1;
	pthread_mutex_lock(&d->lock);
	o->next = d->pools;
	d->pools = o;
	pthread_mutex_unlock(&d->lock);
	return o;
}

bool pools_init(struct device *d)
{
	struct object *o = pool_new(d, 0);
	if (!o)
		return false;
	o->pool.is_default = true;
	d->default_pool = d->current_pool = o;
	return true;
}

static CUresult create(struct call *call, CUmemoryPool *out, const CUmemPoolProps *props)
{
	if (!out || !props || props->allocType != CU_MEM_ALLOCATION_TYPE_PINNED ||
	    props->handleTypes & ~CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR ||
	    props->location.type != CU_MEM_LOCATION_TYPE_DEVICE || !device_of(props->location.id))
		return CUDA_ERROR_INVALID_VALUE;
	struct object *o = pool_new(device_of(props->location.id), props->maxSize);
	if (!o)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*out = (CUmemoryPool)o;
	call->ptr = H(o);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuMemPoolCreate(CUmemoryPool *pool, const CUmemPoolProps *poolProps)
{
	BEGIN(cuMemPoolCreate, NEEDS_INIT, .value = poolProps ? poolProps->location.id : 0);
	DO(create(&call, pool, poolProps));
	return END();
}

static CUresult destroy(struct object *pool)
{
	if (!pool || pool->pool.is_default)
		return CUDA_ERROR_INVALID_VALUE;
	struct device *d = pool->pool.device;
	pthread_mutex_lock(&d->lock);
	pool->pool.destroyed = true;
	if (d->current_pool == pool)
		d->current_pool = d->default_pool;
	release(d, pool, 0);
	end_if_empty(pool);
	pools_recount_locked(d);
	state_used(d->ordinal, d->used);
	pthread_mutex_unlock(&d->lock);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuMemPoolDestroy(CUmemoryPool pool)
{
	BEGIN(cuMemPoolDestroy, NEEDS_INIT, .ptr = H(pool));
	DO(destroy(pool_of(pool)));
	return END();
}

static CUresult trim_to(struct object *pool, size_t keep)
{
	if (!pool)
		return CUDA_ERROR_INVALID_VALUE;
	struct device *d = pool->pool.device;
	pthread_mutex_lock(&d->lock);
	release(d, pool, keep);
	pools_recount_locked(d);
	state_used(d->ordinal, d->used);
	pthread_mutex_unlock(&d->lock);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuMemPoolTrimTo(CUmemoryPool pool, size_t minBytesToKeep)
{
	BEGIN(cuMemPoolTrimTo, NEEDS_INIT, .ptr = H(pool), .bytes = minBytesToKeep);
	DO(trim_to(pool_of(pool), minBytesToKeep));
	return END();
}

/* Sets an attribute. The first three attributes are ints, the others are 64-bit. Of the
 * statistics, only high-water marks can be set, and only to 0. */
static CUresult set_attribute(struct object *pool, CUmemPool_attribute which, const void *value, uint64_t wide)
{
	CUresult result = CUDA_SUCCESS;
	if (!pool || !value)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&pool->pool.device->lock);
	switch (which) {
	case CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES: case CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
	case CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES: pool->pool.reuse[which - 1] = *(const int *)value; break;
	case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD: pool->pool.threshold = wide; break;
	case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH: case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
		if (wide)
			result = CUDA_ERROR_INVALID_VALUE;
		else if (which == CU_MEMPOOL_ATTR_USED_MEM_HIGH)
			pool->pool.used_high = pool->pool.used;
		else
			pool->pool.reserved_high = reserved(pool);
		break;
	default: result = CUDA_ERROR_INVALID_VALUE;
	}
	pools_recount_locked(pool->pool.device);
	pthread_mutex_unlock(&pool->pool.device->lock);
	return result;
}

static bool is_wide(CUmemPool_attribute attribute)
{
	return attribute >= CU_MEMPOOL_ATTR_RELEASE_THRESHOLD;
}

static uint64_t attribute_value(CUmemPool_attribute attribute, const void *value)
{
	return !value ? 0 : is_wide(attribute) ? *(const uint64_t *)value : *(const unsigned int *)value;
}

EXPORT CUresult cuMemPoolSetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value)
{
	BEGIN(cuMemPoolSetAttribute, NEEDS_INIT, .ptr = H(pool), .value = attr, .bytes = attribute_value(attr, value));
	DO(set_attribute(pool_of(pool), attr, value, call.bytes));
	return END();
}

static CUresult get_attribute(struct object *pool, CUmemPool_attribute which, void *out)
{
	if (!pool || !out || which < CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES || which > CU_MEMPOOL_ATTR_USED_MEM_HIGH)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&pool->pool.device->lock);
	if (is_wide(which)) {
		const uint64_t all[] = {pool->pool.threshold, reserved(pool), pool->pool.reserved_high, pool->pool.used,
					pool->pool.used_high};
		*(uint64_t *)out = all[which - CU_MEMPOOL_ATTR_RELEASE_THRESHOLD];
	} else {
		*(int *)out = pool->pool.reuse[which - 1];
	}
	pthread_mutex_unlock(&pool->pool.device->lock);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuMemPoolGetAttribute(CUmemoryPool pool, CUmemPool_attribute attr, void *value)
{
	BEGIN(cuMemPoolGetAttribute, NEEDS_INIT, .ptr = H(pool), .value = attr);
	DO(get_attribute(pool_of(pool), attr, value));
	if (!call.result)
		call.bytes = attribute_value(attr, value);
	return END();
}

static CUresult pool_of_device(struct call *call, CUmemoryPool *out, CUdevice dev, bool current)
{
	struct device *d = device_of(dev);
	if (!out || !d)
		return out ? CUDA_ERROR_INVALID_DEVICE : CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&d->lock);
	struct object *pool = current ? d->current_pool : d->default_pool;
	pthread_mutex_unlock(&d->lock);
	*out = (CUmemoryPool)pool;
	call->ptr = H(pool);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetDefaultMemPool(CUmemoryPool *pool_out, CUdevice dev)
{
	BEGIN(cuDeviceGetDefaultMemPool, NEEDS_INIT, .value = dev);
	DO(pool_of_device(&call, pool_out, dev, false));
	return END();
}

EXPORT CUresult cuDeviceGetMemPool(CUmemoryPool *pool, CUdevice dev)
{
	BEGIN(cuDeviceGetMemPool, NEEDS_INIT, .value = dev);
	DO(pool_of_device(&call, pool, dev, true));
	return END();
}

static CUresult choose(CUdevice dev, struct object *pool)
{
	struct device *d = device_of(dev);
	if (!d)
		return CUDA_ERROR_INVALID_DEVICE;
	if (!pool || pool->pool.device != d)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&d->lock);
	d->current_pool = pool;
	pthread_mutex_unlock(&d->lock);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceSetMemPool(CUdevice dev, CUmemoryPool pool)
{
	BEGIN(cuDeviceSetMemPool, NEEDS_INIT, .ptr = H(pool), .value = dev);
	DO(choose(dev, pool_of(pool)));
	return END();
}
