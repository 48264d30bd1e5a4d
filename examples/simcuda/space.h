/* A range of addresses that is handed out in blocks and taken back. */
#ifndef SIMCUDA_SPACE_H
#define SIMCUDA_SPACE_H

#include <stdbool.h>
#include <stdint.h>

struct object;

struct block {
	uint64_t address, size;
	struct object *owner;      /* the context, while taken */
	void *of;                  /* see enum use in memory.h; NULL in a block just taken, like the next two */
	uint64_t exported;         /* its number in the shared state, 0 = none */
	int use;
	struct block *below, *above;      /* by address, free or not */
	struct block *previous, *next;    /* of the same bin when free, of the same hash chain when not */
	bool taken;
};

struct space {
	uint64_t base, size, granule;
	struct block *lowest;
	struct block *bins[64];    /* free blocks of 2^i to 2^(i+1)-1 granules */
	uint64_t bins_used;        /* bit i: bins[i] is not empty */
	struct block **taken;      /* hash by address */
	uint64_t taken_len, taken_size;
};

/* The caller locks. granule is a power of two; addresses and sizes are multiples of it. */
struct space *space_new(uint64_t size, uint64_t granule);
struct block *space_take(struct space *space, uint64_t size); /* NULL if nothing fits */
struct block *space_find(const struct space *space, uint64_t address);
void space_give(struct space *space, struct block *block);

static inline bool space_covers(const struct space *space, uint64_t address)
{
	return space && address - space->base < space->size;
}

#endif
