/* An allocator of address ranges. Free blocks are in bins by size and merge with free
 * neighbours. The block freed last is reused first, so freed addresses return quickly, as
 * recorders must expect. */
#include "space.h"

#include <stdlib.h>
#include <sys/mman.h>

static int bin_of(const struct space *s, uint64_t size)
{
	return 63 - __builtin_clzll(size / s->granule);
}

static void bin_push(struct space *s, struct block *b)
{
	int bin = bin_of(s, b->size);
	b->taken = false;
	b->previous = NULL;
	b->next = s->bins[bin];
	if (b->next)
		b->next->previous = b;
	s->bins[bin] = b;
	s->bins_used |= 1ull << bin;
}

static void bin_remove(struct space *s, struct block *b)
{
	int bin = bin_of(s, b->size);
	if (b->next)
		b->next->previous = b->previous;
	if (b->previous)
		b->previous->next = b->next;
	else
		s->bins[bin] = b->next;
	if (!s->bins[bin])
		s->bins_used &= ~(1ull << bin);
}

static struct block **chain_of(const struct space *s, uint64_t address)
{
	return &s->taken[(address / s->granule * 0x9e3779b97f4a7c15ull) >> 32 & (s->taken_size - 1)];
}

static void chain_push(struct space *s, struct block *b)
{
	struct block **chain = chain_of(s, b->address);
	b->previous = NULL;
	b->next = *chain;
	if (b->next)
		b->next->previous = b;
	*chain = b;
	b->taken = true;
}

static bool grow(struct space *s)
{
	struct block **old = s->taken;
	uint64_t size = s->taken_size;
	struct block **bigger = calloc(size * 2, sizeof(*bigger));
	if (!bigger)
		return false;
	s->taken = bigger;
	s->taken_size = size * 2;
	for (uint64_t i = 0; i < size; i++) {
		for (struct block *b = old[i], *next; b; b = next) {
			next = b->next;
			chain_push(s, b);
		}
	}
	free(old);
	return true;
}

/* Creates a space with reserved, inaccessible addresses. So no host memory has the same address,
 * and a host access faults, as with a real device pointer. The start is aligned to 2 MiB, like
 * the real driver's blocks. */
struct space *space_new(uint64_t size, uint64_t granule)
{
	const uint64_t align = 2 << 20;
	struct space *s = calloc(1, sizeof(*s));
	struct block *all = calloc(1, sizeof(*all));
	void *at = mmap(NULL, size + align, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (!s || !all || at == MAP_FAILED)
		goto fail;
	s->granule = granule;
	s->base = ((uint64_t)(uintptr_t)at + align - 1) & ~(align - 1);
	s->size = size & ~(granule - 1);
	s->taken_size = 1024;
	s->taken = calloc(s->taken_size, sizeof(*s->taken));
	if (!s->taken)
		goto fail;
	all->address = s->base;
	all->size = s->size;
	s->lowest = all;
	bin_push(s, all);
	return s;
fail:
	if (at != MAP_FAILED)
		munmap(at, size + align);
	free(all);
	free(s);
	return NULL;
}

static struct block *fitting(const struct space *s, uint64_t size)
{
	int bin = bin_of(s, size);
	for (struct block *b = s->bins[bin]; b; b = b->next)
		if (b->size >= size)
			return b;
	/* Every block in a higher bin is large enough. */
	uint64_t higher = bin < 63 ? s->bins_used >> (bin + 1) << (bin + 1) : 0;
	return higher ? s->bins[__builtin_ctzll(higher)] : NULL;
}

struct block *space_take(struct space *s, uint64_t size)
{
	if (size == 0 || size > s->size)
		return NULL;
	size = (size + s->granule - 1) & ~(s->granule - 1);
	if (s->taken_len >= s->taken_size && !grow(s))
		return NULL;
	struct block *b = fitting(s, size);
	if (!b)
		return NULL;
	struct block *rest = NULL;
	if (b->size > size && !(rest = calloc(1, sizeof(*rest))))
		return NULL;
	bin_remove(s, b);
	if (rest) {
		rest->address = b->address + size;
		rest->size = b->size - size;
		rest->below = b;
		rest->above = b->above;
		if (rest->above)
			rest->above->below = rest;
		b->above = rest;
		b->size = size;
		bin_push(s, rest);
	}
	chain_push(s, b);
	s->taken_len++;
	b->backing = NULL;
	b->exported = 0;
	b->use = 0;
	return b;
}

struct block *space_find(const struct space *s, uint64_t address)
{
	for (struct block *b = *chain_of(s, address); b; b = b->next)
		if (b->address == address)
			return b;
	return NULL;
}

/* Merges the free block above b into b. */
static void merge(struct space *s, struct block *b)
{
	struct block *above = b->above;
	bin_remove(s, above);
	b->size += above->size;
	b->above = above->above;
	if (b->above)
		b->above->below = b;
	free(above);
}

void space_give(struct space *s, struct block *b)
{
	if (b->next)
		b->next->previous = b->previous;
	if (b->previous)
		b->previous->next = b->next;
	else
		*chain_of(s, b->address) = b->next;
	s->taken_len--;
	b->taken = false;
	b->owner = NULL;
	if (b->above && !b->above->taken)
		merge(s, b);
	if (b->below && !b->below->taken) {
		bin_remove(s, b->below);
		b = b->below;
		/* merge() removes the upper block from its bin, so put it into one first. */
		bin_push(s, b->above);
		merge(s, b);
	}
	bin_push(s, b);
}
