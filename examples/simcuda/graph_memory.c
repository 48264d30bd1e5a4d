/* Memory that graphs allocate and free. Each allocation node has a struct graph_memory. */
#include "memory.h"

#include "space.h"

#include <stdlib.h>

struct graph_memory *graph_memory_new(struct device *d, uint64_t bytes)
{
	struct graph_memory *m = calloc(1, sizeof(*m));
	if (!m)
		return NULL;
	*m = (struct graph_memory){.device = d, .size = (bytes + 511) & ~511ull, .refs = 1};
	m->address = m->size >= bytes ? memory_place(d, bytes, GRAPH_MEMORY, m, NULL) : 0;
	if (m->address)
		return m;
	free(m);
	return NULL;
}

struct graph_memory *graph_memory_at(uint64_t address)
{
	struct device *d = device_at(address);
	struct graph_memory *m = NULL;
	if (!d)
		return NULL;
	pthread_mutex_lock(&d->lock);
	struct block *b = space_find(d->space, address);
	if (b && b->use == GRAPH_MEMORY) {
		m = b->backing;
		m->refs++;
	}
	pthread_mutex_unlock(&d->lock);
	return m;
}

void graph_memory_retain(struct graph_memory *m)
{
	pthread_mutex_lock(&m->device->lock);
	m->refs++;
	pthread_mutex_unlock(&m->device->lock);
}

/* Unlocks the device. Frees m if no node refers to it and no launch left it allocated. An
 * allocation that no node or call freed outlives its graphs. */
static void unlock_and_end(struct graph_memory *m)
{
	bool over = !m->refs && !m->live;
	pthread_mutex_unlock(&m->device->lock);
	if (!over)
		return;
	memory_unplace(m->device, m->address);
	free(m);
}

void graph_memory_release(struct graph_memory *m)
{
	pthread_mutex_lock(&m->device->lock);
	m->refs--;
	unlock_and_end(m);
}

CUresult graph_memory_begin(struct graph_memory *m, bool allow_live)
{
	CUresult result = CUDA_SUCCESS;
	pthread_mutex_lock(&m->device->lock);
	if (m->live)
		result = allow_live ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	else if (memory_charge_locked(m->device, m->size))
		m->live = true;
	else
		result = CUDA_ERROR_OUT_OF_MEMORY;
	pthread_mutex_unlock(&m->device->lock);
	return result;
}

bool graph_memory_end(struct graph_memory *m)
{
	pthread_mutex_lock(&m->device->lock);
	bool was = m->live;
	m->live = false;
	if (was)
		memory_discharge_locked(m->device, m->size);
	unlock_and_end(m);
	return was;
}
