/*
 * Programs of which it is known what leaks: what every file of scenarios uses. A scenario is a function of its own; memory is
 * allocated in functions whose names say what they do with it, for they are what a stack shows.
 */
#pragma once
#include "cuda_sim.h" /* names and types as in NVIDIA's cuda.h */

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* A place that allocates must stay a function, and be the innermost one of the program: hence macros around the calls. */
#define SITE __attribute__((noinline))

#define CUDA_FUNCTIONS(X)                                                                                                          \
	X(cuInit) X(cuDevicePrimaryCtxRetain) X(cuCtxSetCurrent) X(cuCtxCreate_v2) X(cuCtxDestroy_v2) X(cuMemAlloc_v2)             \
	X(cuMemFree_v2) X(cuMemAllocAsync) X(cuMemFreeAsync) X(cuMemAllocManaged) X(cuMemHostAlloc) X(cuMemFreeHost)               \
	X(cuMemCreate) X(cuMemRelease) X(cuMemAddressReserve) X(cuMemAddressFree) X(cuMemMap) X(cuMemUnmap) X(cuArrayCreate_v2)    \
	X(cuArrayDestroy) X(cuCtxSynchronize)

struct cuda {
#define X(name) __typeof__(name) *name;
	CUDA_FUNCTIONS(X)
#undef X
};
extern struct cuda cuda;

#define CUDA(call, ...) check(cuda.call(__VA_ARGS__), #call)
#define DEVICE(size) ({ CUdeviceptr p_; CUDA(cuMemAlloc_v2, &p_, size); p_; })

void check(CUresult result, const char *call);
void use_device(void); /* cuInit and the primary context */

enum { KiB = 1 << 10, MiB = 1 << 20, STEPS = 500, STEP_US = 8000 }; /* 4 s, 125 steps a second */

/* for (long step = 0; next(&step, STEPS);): step is 1 at first, and steps begin every STEP_US whatever they take. */
bool next(long *step, long steps);

unsigned chance(void); /* the same numbers in every run */

/* What most programs do besides: weights for good, and temporaries that are given back within the step. */
SITE void weights(long count, size_t bytes);
SITE void temporaries(long step);
/* The same under another name than its caller's. */
SITE CUdeviceptr leak(size_t bytes);
SITE CUdeviceptr cached(size_t bytes);
SITE CUdeviceptr buffer(size_t bytes);
SITE void drop(CUdeviceptr *p); /* frees it, unless it is 0 already */

struct scenario {
	const char *name;
	void (*run)(void);
};
extern const struct scenario leaks[], caches[], kinds[], processes[], faults[];
