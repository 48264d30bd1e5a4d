/* Shared declarations of pointers: a program with a known error in its use of device memory, or without. */
#ifndef POINTERS_H
#define POINTERS_H

#include "cuda_sim.h"

#include <stdbool.h>
#include <stdint.h>

#define CUDA_FUNCTIONS(X)                                                                                            \
	X(cuInit) X(cuDevicePrimaryCtxRetain) X(cuCtxSetCurrent) X(cuMemAlloc_v2) X(cuMemFree_v2) X(cuMemAllocAsync)  \
	X(cuMemFreeAsync) X(cuMemAllocManaged) X(cuModuleLoadData) X(cuModuleGetFunction) X(cuStreamCreate)           \
	X(cuStreamSynchronize) X(cuCtxSynchronize) X(cuLaunchKernel) X(cuMemsetD8Async)

struct cuda {
#define X(name) __typeof__(name) *name;
	CUDA_FUNCTIONS(X)
#undef X
};
extern struct cuda cuda;

/* How a block was allocated; it must be freed accordingly. */
enum memory { PLAIN, ORDERED, MANAGED, MEMORY_COUNT };

struct block {
	CUdeviceptr address;
	uint64_t bytes;
	enum memory memory;
	const char *allocated, *freed; /* functions */
};

enum { STREAMS = 3 };
extern CUstream streams[STREAMS];
extern const char pointers_ptx[];

/* The functions that allocate, free and launch. Each is the innermost frame of the program in its calls. */
struct allocate_site { const char *name; CUresult (*run)(struct block *block); };
struct free_site { const char *name; CUresult (*run)(const struct block *block); };
struct launch_site { const char *name, *kernel; CUresult (*run)(CUdeviceptr a, CUdeviceptr b, int stream); };
enum { SITES = 6, LAUNCH_SITES = 4 };
extern const struct allocate_site allocate_sites[SITES];
extern const struct free_site free_sites[SITES];
extern const struct launch_site launch_sites[LAUNCH_SITES];
void load_kernels(void);

/* Random numbers that depend on the seed only. */
int below(int n);

#endif
