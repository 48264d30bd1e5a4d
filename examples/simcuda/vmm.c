/* Virtual memory management (cuMemAddressReserve, cuMemCreate, cuMemMap). Reservations are
 * ranges of addresses, physical objects are memory, and mappings connect the two. Physical
 * memory lives while it has a handle or is mapped. */
#include "memory.h"

#include "space.h"
#include "state.h"

#include <stdlib.h>

struct mapping {
	uint64_t address, size, offset;
	struct object *physical;
	bool accessible;
	struct mapping *next; /* next mapping by address */
};

struct reservation {
	uint64_t address, size;
	struct block *block;
	struct mapping *mappings;
	struct reservation *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards everything in this file */
static struct space *space;                              /* created at the first reservation */
static struct reservation *reservations;
static _Atomic uint64_t base, end; /* range of space, readable without the lock */

static bool aligned(uint64_t n)
{
	return n % VMM_GRANULE == 0;
}

bool vmm_covers(uint64_t address)
{
	uint64_t from = atomic_load_explicit(&base, memory_order_relaxed), to = atomic_load_explicit(&end, memory_order_relaxed);
	return address >= from && address < to;
}

static struct reservation *reservation_at(uint64_t address)
{
	struct reservation *r = reservations;
	while (r && address - r->address >= r->size)
		r = r->next;
	return r;
}

static struct mapping *mapping_at(uint64_t address)
{
	struct reservation *r = reservation_at(address);
	struct mapping *m = r ? r->mappings : NULL;
	while (m && address - m->address >= m->size)
		m = m->next;
	return m;
}

bool vmm_is_usable(uint64_t address)
{
	if (!vmm_covers(address))
		return false;
	pthread_mutex_lock(&lock);
	struct mapping *m = mapping_at(address);
	bool usable = m && m->accessible;
	pthread_mutex_unlock(&lock);
	return usable;
}

/* ---- address reservations ---- */

static bool space_ready(void)
{
	/* Address space as a multiple of the capacity. Programs reserve more addresses than
	 * memory, several times: PyTorch does once per stream and block size. */
	enum { TIMES_MEMORY = 16 };
	if (space)
		return true;
	space = space_new(config.memory * TIMES_MEMORY, VMM_GRANULE);
	if (space) {
		atomic_store(&end, space->base + space->size);
		atomic_store(&base, space->base);
	}
	return space != NULL;
}

/* Reserves addresses. The requested address is a hint, which simcuda ignores. */
static CUresult reserve_locked(CUdeviceptr *out, size_t size, size_t alignment)
{
	struct reservation *r = calloc(1, sizeof(*r));
	if (!r || !space_ready())
		goto fail;
	uint64_t slack = alignment > VMM_GRANULE ? alignment : 0;
	r->block = size + slack > size || !slack ? space_take(space, size + slack) : NULL;
	if (!r->block)
		goto fail;
	r->address = slack ? (r->block->address + alignment - 1) & ~(uint64_t)(alignment - 1) : r->block->address;
	r->size = size;
	r->next = reservations;
	reservations = r;
	*out = r->address;
	return CUDA_SUCCESS;
fail:
	free(r);
	return CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult reserve(struct call *call, CUdeviceptr *out, size_t size, size_t alignment, unsigned long long flags)
{
	if (!out || !size || !aligned(size) || alignment & (alignment - 1) || flags)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&lock);
	CUresult result = reserve_locked(out, size, alignment);
	pthread_mutex_unlock(&lock);
	if (!result)
		call->ptr = *out;
	return result;
}

EXPORT CUresult cuMemAddressReserve(CUdeviceptr *ptr, size_t size, size_t alignment, CUdeviceptr addr, unsigned long long flags)
{
	BEGIN(cuMemAddressReserve, NEEDS_INIT, .bytes = size);
	(void)addr;
	DO(reserve(&call, ptr, size, alignment, flags));
	return END();
}

/* Releases a reservation. The range must be the whole reservation, without mappings. */
static CUresult unreserve(CUdeviceptr address, size_t size)
{
	CUresult result = CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&lock);
	struct reservation **link = &reservations, *r;
	while ((r = *link) && r->address != address)
		link = &r->next;
	if (r && r->size == size && !r->mappings) {
		*link = r->next;
		space_give(space, r->block);
		free(r);
		result = CUDA_SUCCESS;
	}
	pthread_mutex_unlock(&lock);
	return result;
}

EXPORT CUresult cuMemAddressFree(CUdeviceptr ptr, size_t size)
{
	BEGIN(cuMemAddressFree, NEEDS_INIT, .ptr = ptr, .bytes = size);
	DO(unreserve(ptr, size));
	return END();
}

/* ---- physical memory ---- */

struct object *physical_of(CUmemGenericAllocationHandle handle)
{
	struct object *o = object_of((const void *)(uintptr_t)handle, PHYSICAL);
	return o && o->physical.refs > 0 ? o : NULL;
}

static void drop_locked(struct object *o)
{
	if (o->physical.refs > 0 || o->physical.maps > 0)
		return;
	if (o->physical.exported)
		state_unexport(o->physical.exported);
	if (o->physical.device)
		memory_discharge(o->physical.device, o->physical.size);
	object_free(o);
}

void physical_drop(struct object *o)
{
	pthread_mutex_lock(&lock);
	drop_locked(o);
	pthread_mutex_unlock(&lock);
}

static bool is_valid(const CUmemAllocationProp *p)
{
	if (!p || p->type != CU_MEM_ALLOCATION_TYPE_PINNED)
		return false;
	if (p->location.type == CU_MEM_LOCATION_TYPE_DEVICE)
		return device_of(p->location.id);
	return p->location.type == CU_MEM_LOCATION_TYPE_HOST || p->location.type == CU_MEM_LOCATION_TYPE_HOST_NUMA;
}

static CUresult granularity(size_t *out, const CUmemAllocationProp *prop, CUmemAllocationGranularity_flags option)
{
	enum { RECOMMENDED = 1 };
	if (!out || !is_valid(prop) || (unsigned)option > RECOMMENDED)
		return CUDA_ERROR_INVALID_VALUE;
	*out = VMM_GRANULE;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuMemGetAllocationGranularity(size_t *granularity_out, const CUmemAllocationProp *prop,
					      CUmemAllocationGranularity_flags option)
{
	BEGIN(cuMemGetAllocationGranularity, NEEDS_INIT, .value = prop ? prop->location.id : 0);
	DO(granularity(granularity_out, prop, option));
	if (!call.result)
		call.bytes = *granularity_out;
	return END();
}

static CUresult create(struct call *call, CUmemGenericAllocationHandle *out, size_t size, const CUmemAllocationProp *prop,
		       unsigned long long flags)
{
	if (!out || !size || !aligned(size) || !is_valid(prop) || flags)
		return CUDA_ERROR_INVALID_VALUE;
	struct device *d = prop->location.type == CU_MEM_LOCATION_TYPE_DEVICE ? device_of(prop->location.id) : NULL;
	struct object *o = object_new(PHYSICAL, NULL);
	if (!o || (d && !memory_charge(d, size))) {
		if (o)
			object_free(o);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	o->physical.device = d;
	o->physical.size = size;
	o->physical.refs = 1;
	*out = call->ptr = H(o);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *prop,
			    unsigned long long flags)
{
	BEGIN(cuMemCreate, NEEDS_INIT, .bytes = size, .value = prop ? prop->location.id : 0);
	DO(create(&call, handle, size, prop, flags));
	return END();
}

static CUresult release(CUmemGenericAllocationHandle handle)
{
	pthread_mutex_lock(&lock);
	struct object *o = physical_of(handle);
	if (o) {
		o->physical.refs--;
		drop_locked(o);
	}
	pthread_mutex_unlock(&lock);
	return o ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuMemRelease(CUmemGenericAllocationHandle handle)
{
	BEGIN(cuMemRelease, NEEDS_INIT, .ptr = handle);
	DO(release(handle));
	return END();
}

struct object *vmm_memory_at(uint64_t address)
{
	pthread_mutex_lock(&lock);
	struct mapping *m = mapping_at(address);
	pthread_mutex_unlock(&lock);
	return m ? m->physical : NULL;
}

static CUresult retain(struct call *call, CUmemGenericAllocationHandle *out, uint64_t address)
{
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&lock);
	struct mapping *m = mapping_at(address);
	if (m) {
		m->physical->physical.refs++;
		*out = call->ptr = H(m->physical);
	}
	pthread_mutex_unlock(&lock);
	return m ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *handle, void *addr)
{
	BEGIN(cuMemRetainAllocationHandle, NEEDS_INIT, .src_ptr = H(addr));
	DO(retain(&call, handle, H(addr)));
	return END();
}

/* ---- mappings ---- */

static CUresult map_locked(CUdeviceptr address, size_t size, size_t offset, struct object *o)
{
	struct reservation *r = reservation_at(address);
	if (!r || size > r->size - (address - r->address) || !o || offset > o->physical.size || size > o->physical.size - offset)
		return CUDA_ERROR_INVALID_VALUE;
	struct mapping **link = &r->mappings;
	while (*link && (*link)->address + (*link)->size <= address)
		link = &(*link)->next;
	if (*link && (*link)->address < address + size)
		return CUDA_ERROR_INVALID_VALUE;
	struct mapping *m = calloc(1, sizeof(*m));
	if (!m)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*m = (struct mapping){address, size, offset, o, false, *link};
	*link = m;
	o->physical.maps++;
	return CUDA_SUCCESS;
}

static CUresult map(CUdeviceptr address, size_t size, size_t offset, CUmemGenericAllocationHandle handle, unsigned long long flags)
{
	if (!size || !aligned(address) || !aligned(size) || !aligned(offset) || flags)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&lock);
	CUresult result = map_locked(address, size, offset, physical_of(handle));
	pthread_mutex_unlock(&lock);
	return result;
}

EXPORT CUresult cuMemMap(CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle, unsigned long long flags)
{
	BEGIN(cuMemMap, NEEDS_INIT, .ptr = ptr, .bytes = size, .src_ptr = handle, .value = (int64_t)offset);
	DO(map(ptr, size, offset, handle, flags));
	return END();
}

/* Returns the link to the first of the mappings that exactly fill the range. Returns NULL if the
 * range has a gap or contains part of a mapping. */
static struct mapping **mappings_in(uint64_t address, uint64_t size)
{
	struct reservation *r = reservation_at(address);
	struct mapping **first = r ? &r->mappings : NULL;
	while (first && *first && (*first)->address < address)
		first = &(*first)->next;
	uint64_t at = address;
	for (struct mapping *m = first ? *first : NULL; m && at < address + size; m = m->next) {
		if (m->address != at)
			return NULL;
		at += m->size;
	}
	return size > 0 && at == address + size ? first : NULL;
}

static CUresult unmap(uint64_t address, uint64_t size)
{
	pthread_mutex_lock(&lock);
	struct mapping **link = mappings_in(address, size), *m;
	bool found = link != NULL;
	while (found && (m = *link) && m->address < address + size) {
		*link = m->next;
		m->physical->physical.maps--;
		drop_locked(m->physical);
		free(m);
	}
	pthread_mutex_unlock(&lock);
	return found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuMemUnmap(CUdeviceptr ptr, size_t size)
{
	BEGIN(cuMemUnmap, NEEDS_INIT, .ptr = ptr, .bytes = size);
	DO(unmap(ptr, size));
	return END();
}

/* Sets the access of a range. simcuda does not distinguish devices: access from one device is
 * enough. */
static CUresult set_access(uint64_t address, uint64_t size, const CUmemAccessDesc *desc, size_t count)
{
	bool accessible = false;
	if (!desc || !count)
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < count; i++) {
		if (desc[i].location.type == CU_MEM_LOCATION_TYPE_DEVICE && !device_of(desc[i].location.id))
			return CUDA_ERROR_INVALID_DEVICE;
		if (desc[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE && desc[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READ &&
		    desc[i].flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
			return CUDA_ERROR_INVALID_VALUE;
		accessible |= desc[i].flags != CU_MEM_ACCESS_FLAGS_PROT_NONE;
	}
	pthread_mutex_lock(&lock);
	struct mapping **link = mappings_in(address, size);
	for (struct mapping *m = link ? *link : NULL; m && m->address < address + size; m = m->next)
		m->accessible = accessible;
	pthread_mutex_unlock(&lock);
	return link ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuMemSetAccess(CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc, size_t count)
{
	BEGIN(cuMemSetAccess, NEEDS_INIT, .ptr = ptr, .bytes = size);
	DO(set_access(ptr, size, desc, count));
	return END();
}
