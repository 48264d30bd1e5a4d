/*
 * Shared declarations of the test programs with known leaks. Each scenario is a function. It
 * allocates memory in functions such as leak, cached and buffer. Stacks show these functions, so
 * their names describe the use of the memory.
 */
#pragma once
#include "cuda_sim.h" /* names and types as in NVIDIA's cuda.h */

#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

/* SITE marks a function that allocates. It must be the innermost program frame in a stack, so it is
 * not inlined, and CUDA and DEVICE are macros. */
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
void use_device(void); /* calls cuInit and makes the primary context current */

enum { KiB = 1 << 10, MiB = 1 << 20, STEPS = 500, STEP_US = 8000 }; /* 4 s, 125 steps a second */

/* for (long step = 0; next(&step, STEPS);) runs steps 1 to STEPS, one every STEP_US microseconds. */
bool next(long *step, long steps);

unsigned chance(void); /* returns a pseudo-random number; the sequence is the same in every run */

/* Memory without a leak: weights are kept to the end, temporaries are freed within the step. */
SITE void weights(long count, size_t bytes);
SITE void temporaries(long step);
/* Allocate device memory. They differ only by the name in the stack. */
SITE CUdeviceptr leak(size_t bytes);
SITE CUdeviceptr cached(size_t bytes);
SITE CUdeviceptr buffer(size_t bytes);
SITE void drop(CUdeviceptr *p); /* frees *p and sets it to 0; does nothing if it is 0 */

struct scenario {
	const char *name;
	void (*run)(void);
};
extern const struct scenario leaks[], caches[], kinds[], processes[], faults[];
