/* Registered memory: the program's own host memory, pinned by cuMemHostRegister. */
#include "memory.h"

#include <stdlib.h>
#include <sys/mman.h>

struct range {
	uint64_t address, size;
	struct range *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct range *ranges;
static atomic_uint ranges_len; /* usually 0: then lookups do not take the lock */

bool registered_covers(uint64_t address)
{
	if (!atomic_load_explicit(&ranges_len, memory_order_relaxed))
		return false;
	pthread_mutex_lock(&lock);
	struct range *r = ranges;
	while (r && address - r->address >= r->size)
		r = r->next;
	pthread_mutex_unlock(&lock);
	return r;
}

/* Returns true if all pages of the range are mapped. The driver pins whole pages, but ranges
 * that share a page with a pinned range may still be registered. */
static bool is_mapped(uint64_t address, uint64_t size)
{
	const uint64_t page = 4096;
	uint64_t from = address & ~(page - 1);
	return !msync((void *)(uintptr_t)from, address + size - from, MS_ASYNC);
}

static CUresult add(uint64_t address, uint64_t size, unsigned int flags)
{
	enum { ALL = 15 /* the flags portable, device map, IO memory and read only */ };
	CUresult result = CUDA_SUCCESS;
	if (!address || !size || flags & ~(unsigned)ALL || address + size < address || !is_mapped(address, size))
		return CUDA_ERROR_INVALID_VALUE;
	struct range *new = malloc(sizeof(*new));
	if (!new)
		return CUDA_ERROR_OUT_OF_MEMORY;
	pthread_mutex_lock(&lock);
	for (struct range *r = ranges; r; r = r->next)
		if (address < r->address + r->size && r->address < address + size)
			result = CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
	if (!result) {
		*new = (struct range){address, size, ranges};
		ranges = new;
		ranges_len++;
	}
	pthread_mutex_unlock(&lock);
	if (result)
		free(new);
	return result;
}

#define MEM_HOST_REGISTER(fn)                                                                             \
	EXPORT CUresult fn(void *p, size_t bytesize, unsigned int Flags)                                  \
	{                                                                                                 \
		BEGIN(fn, NEEDS_CONTEXT, .ptr = H(p), .bytes = bytesize, .value = Flags);                 \
		DO(unsafe_in_capture(&call));                                                             \
		DO(add(H(p), bytesize, Flags));                                                           \
		return END();                                                                             \
	}
MEM_HOST_REGISTER(cuMemHostRegister)
MEM_HOST_REGISTER(cuMemHostRegister_v2)

static CUresult take_away(uint64_t address)
{
	if (!address)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&lock);
	struct range **link = &ranges, *r;
	while ((r = *link) && r->address != address)
		link = &r->next;
	if (r) {
		*link = r->next;
		ranges_len--;
	}
	pthread_mutex_unlock(&lock);
	free(r);
	return r ? CUDA_SUCCESS : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
}

EXPORT CUresult cuMemHostUnregister(void *p)
{
	BEGIN(cuMemHostUnregister, NEEDS_CONTEXT, .ptr = H(p));
	DO(unsafe_in_capture(&call));
	DO(take_away(H(p)));
	return END();
}
