/* What the files that hand out memory share. */
#ifndef SIMCUDA_MEMORY_H
#define SIMCUDA_MEMORY_H

#include "sim.h"

/* What a block of device address space is. Only the first two are charged to the device when they are taken. */
enum use {
	DEVICE_MEMORY,
	POOL_MEMORY,     /* block->of is the pool */
	GRAPH_MEMORY,    /* block->of is a struct graph_memory: charged while a launched graph uses it */
	OPENED_MEMORY,   /* block->of is a struct opened: another process's, see ipc.c */
	EXTERNAL_MEMORY, /* another API's */
	GLOBAL_MEMORY,   /* a variable of a module */
	IMPORTED_MEMORY, /* of another process's pool; block->of is its number in the shared state */
};

bool memory_init(void);
void memory_of_context(struct object *context);
bool memory_is_on_device(uint64_t address); /* has an address only: there is no data behind it */
bool memory_is_cuda(uint64_t address);      /* device, managed, pinned or registered */
bool memory_is_managed(uint64_t address, uint64_t bytes);
struct device *device_at(uint64_t address); /* whose address space it is in; VMM addresses are in none */
CUresult memory_free(struct call *call, CUdeviceptr address);

/* Books bytes on the device without an address; the device's lock is held. */
bool memory_charge_locked(struct device *device, uint64_t bytes);
bool memory_charge(struct device *device, uint64_t bytes);
void memory_discharge_locked(struct device *device, uint64_t bytes);
void memory_discharge(struct device *device, uint64_t bytes);
/* Addresses for something that costs nothing or is charged elsewhere; 0 if there are none left. */
uint64_t memory_place(struct device *device, uint64_t bytes, enum use use, void *of, struct object *owner);
CUresult memory_take(struct object *owner, uint64_t bytes, CUdeviceptr *out);
void memory_unplace(struct device *device, uint64_t address);

/* pool.c. Synchronising gives back what pools hold beyond their thresholds. */
bool pools_init(struct device *device);
struct object *pool_new(struct device *device, uint64_t max_size);
void pools_trim(struct device *device);
void pools_release_locked(struct device *device, bool all);
void pools_recount_locked(struct device *device);
void pool_forget_locked(struct object *pool, uint64_t bytes); /* the memory goes straight back to the device */
CUresult pool_take(struct object *owner, struct object *pool, size_t bytes, CUdeviceptr *out);
CUresult pool_free(CUdeviceptr address);

/* vmm.c */
bool vmm_covers(uint64_t address);   /* is it a VMM address at all? */
bool vmm_is_usable(uint64_t address); /* mapped and accessible */
struct object *vmm_memory_at(uint64_t address); /* what is mapped there */
void physical_drop(struct object *physical);    /* frees it when nothing refers to it any more */
struct object *physical_of(CUmemGenericAllocationHandle handle);
enum { VMM_GRANULE = 2 << 20 };

/* register.c */
bool registered_covers(uint64_t address);

void array_free(struct object *array);
void external_free(struct object *external);
void opened_of_context(struct object *context); /* closes what the context has opened */

/* Memory of graph nodes: addresses are given when the node is made, bytes when a launched graph comes to it. */
struct graph_memory {
	struct device *device;
	uint64_t address, size;
	int refs; /* nodes and steps of executable graphs; the device's lock for this and live */
	bool live;
};
struct graph_memory *graph_memory_new(struct device *device, uint64_t bytes);
struct graph_memory *graph_memory_at(uint64_t address); /* with one more reference */
void graph_memory_retain(struct graph_memory *memory);
void graph_memory_release(struct graph_memory *memory);
CUresult graph_memory_begin(struct graph_memory *memory, bool again_is_fine);
bool graph_memory_end(struct graph_memory *memory); /* false if it was not in use */

#endif
