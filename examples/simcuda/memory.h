/* Functions shared by the files that allocate memory. */
#ifndef SIMCUDA_MEMORY_H
#define SIMCUDA_MEMORY_H

#include "sim.h"

/* How a block of device address space is used. A new block of the first two uses is charged to
 * the device. */
enum block_use {
	DEVICE_MEMORY,
	POOL_MEMORY,     /* block->backing is the pool */
	/* block->backing is a struct graph_memory, charged from a graph launch to the free */
	GRAPH_MEMORY,
	/* block->backing is a struct opened: memory of another process, see ipc.c */
	OPENED_MEMORY,
	EXTERNAL_MEMORY, /* memory of another API */
	GLOBAL_MEMORY,   /* a variable of a module */
	/* Memory of another process's pool; block->backing is the number of the export in the
	 * shared state. */
	IMPORTED_MEMORY,
};

bool memory_init(void);
void memory_of_context(struct object *context);
bool memory_is_on_device(uint64_t address); /* device memory, which holds no data */
bool memory_is_cuda(uint64_t address);      /* device, managed, pinned or registered */
/* Memory that is allocated, or mapped and accessible. Kernels can use it. */
bool memory_is_live(uint64_t address);
bool memory_is_managed(uint64_t address, uint64_t bytes);
/* Returns the device that the address belongs to. Returns NULL for addresses of virtual memory
 * management (VMM). */
struct device *device_at(uint64_t address);
CUresult memory_free(struct call *call, CUdeviceptr address);

/* memory_charge_locked counts bytes as used on the device without an address. The caller holds
 * the device's lock. */
bool memory_charge_locked(struct device *device, uint64_t bytes);
bool memory_charge(struct device *device, uint64_t bytes);
void memory_discharge_locked(struct device *device, uint64_t bytes);
void memory_discharge(struct device *device, uint64_t bytes);
/* Returns addresses without charging bytes: for memory that is free or charged elsewhere.
 * Returns 0 if no addresses are left. */
uint64_t memory_place(struct device *device, uint64_t bytes, enum block_use use, void *backing, struct object *owner);
CUresult memory_take(struct object *owner, uint64_t bytes, CUdeviceptr *out);
void memory_unplace(struct device *device, uint64_t address);

/* Defined in pool.c. pools_trim releases pool memory beyond the release threshold; synchronising
 * calls use it. */
bool pools_init(struct device *device);
struct object *pool_new(struct device *device, uint64_t max_size);
void pools_trim(struct device *device);
void pools_release_locked(struct device *device, bool all);
void pools_recount_locked(struct device *device);
/* Returns used pool memory directly to the device. */
void pool_forget_locked(struct object *pool, uint64_t bytes);
CUresult pool_take(struct object *owner, struct object *pool, size_t bytes, CUdeviceptr *out);
CUresult pool_free(CUdeviceptr address);

/* Defined in vmm.c: virtual memory management. */
bool vmm_covers(uint64_t address);   /* true for every VMM address */
bool vmm_is_usable(uint64_t address); /* mapped and accessible */
struct object *vmm_memory_at(uint64_t address); /* memory mapped at the address */
void physical_drop(struct object *physical);    /* frees physical memory after the last reference */
struct object *physical_of(CUmemGenericAllocationHandle handle);
enum { VMM_GRANULE = 2 << 20 };

/* Defined in register.c. */
bool registered_covers(uint64_t address);

void array_free(struct object *array);
void external_free(struct object *external);
void opened_of_context(struct object *context); /* closes IPC memory that the context opened */

/* Memory of a graph's allocation node. It gets addresses when the node is created, and bytes
 * when a graph launch reaches the node. */
struct graph_memory {
	struct device *device;
	uint64_t address, size;
	/* References from nodes and from steps of executable graphs. The device's lock guards
	 * refs and live. */
	int refs;
	bool live;
};
struct graph_memory *graph_memory_new(struct device *device, uint64_t bytes);
struct graph_memory *graph_memory_at(uint64_t address); /* adds a reference */
void graph_memory_retain(struct graph_memory *memory);
void graph_memory_release(struct graph_memory *memory);
CUresult graph_memory_begin(struct graph_memory *memory, bool allow_live);
bool graph_memory_end(struct graph_memory *memory); /* false if it was not allocated */

#endif
