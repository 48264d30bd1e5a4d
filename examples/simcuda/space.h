/* A range of addresses, allocated in blocks. */
#ifndef SIMCUDA_SPACE_H
#define SIMCUDA_SPACE_H

#include <stdbool.h>
#include <stdint.h>

struct object;

struct block {
	uint64_t address, size;
	struct object *owner;      /* owning context, while the block is taken */
	/* Depends on the use, see enum block_use in memory.h. NULL in a new block, like exported and
	 * use. */
	void *backing;
	uint64_t exported;         /* number of the export in the shared state, 0 = none */
	int use;
	struct block *below, *above;      /* neighbours by address, free or taken */
	struct block *previous, *next;    /* same bin if free, same hash chain if taken */
	bool taken;
};

struct space {
	uint64_t base, size, granule;
	struct block *lowest;
	struct block *bins[64];    /* free blocks of 2^i to 2^(i+1)-1 granules */
	uint64_t bins_used;        /* bit i: bins[i] is not empty */
	struct block **taken;      /* taken blocks, hashed by address */
	uint64_t taken_len, taken_size;
};

/* The caller locks the space. granule is a power of two. Addresses and sizes are multiples of
 * it. */
struct space *space_new(uint64_t size, uint64_t granule);
/* NULL: no free block is large enough */
struct block *space_take(struct space *space, uint64_t size);
struct block *space_find(const struct space *space, uint64_t address);
void space_give(struct space *space, struct block *block);

static inline bool space_covers(const struct space *space, uint64_t address)
{
	return space && address - space->base < space->size;
}

#endif
