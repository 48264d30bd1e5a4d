/*
 * Shared declarations of objectleaks: a program that creates objects of the driver, with a known leak or
 * without one.
 */
#pragma once
#include "cuda_sim.h" /* names and types as in NVIDIA's cuda.h */

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define CUDA_FUNCTIONS(X)                                                                                                       \
	X(cuInit) X(cuDevicePrimaryCtxRetain) X(cuDevicePrimaryCtxRelease_v2) X(cuCtxSetCurrent) X(cuCtxCreate_v2)              \
	X(cuCtxPopCurrent_v2) X(cuCtxPushCurrent_v2) X(cuCtxDestroy_v2) X(cuMemAlloc_v2) X(cuEventCreate) X(cuEventDestroy_v2)  \
	X(cuStreamCreate) X(cuStreamDestroy_v2) X(cuStreamBeginCapture_v2) X(cuStreamEndCapture) X(cuGraphCreate)               \
	X(cuGraphClone) X(cuGraphDestroy) X(cuGraphAddEmptyNode) X(cuGraphInstantiateWithFlags) X(cuGraphExecDestroy)           \
	X(cuModuleLoadData) X(cuModuleUnload) X(cuLibraryLoadData) X(cuLibraryUnload) X(cuLinkCreate_v2) X(cuLinkDestroy)       \
	X(cuIpcGetMemHandle) X(cuIpcOpenMemHandle_v2) X(cuIpcCloseMemHandle) X(cuMemPoolCreate) X(cuMemPoolDestroy)             \
	X(cuTexObjectCreate) X(cuTexObjectDestroy) X(cuSurfObjectCreate) X(cuSurfObjectDestroy) X(cuArrayCreate_v2)

struct cuda {
#define X(name) __typeof__(name) *name;
	CUDA_FUNCTIONS(X)
#undef X
};
extern struct cuda cuda;
#define CUDA(call, ...) check(cuda.call(__VA_ARGS__), #call)
void check(CUresult result, const char *call);

/* Kinds of objects. Graphs are created in three ways, which a report does not distinguish. */
#define KINDS(X)                                                                                                                 \
	X(EVENT, "event") X(STREAM, "stream") X(GRAPH, "graph") X(CAPTURED, "graph") X(CLONE, "graph") X(EXEC, "graph exec")     \
	X(MODULE, "module") X(LIBRARY, "library") X(LINK, "linker") X(CONTEXT, "context") X(PRIMARY, "primary context")          \
	X(IPC, "ipc memory") X(POOL, "memory pool") X(TEXTURE, "texture") X(SURFACE, "surface")
enum kind {
#define X(kind, name) kind,
	KINDS(X)
#undef X
	KIND_COUNT
};
extern const char *const kind_names[KIND_COUNT];
bool ends_with_context(enum kind kind);
void destroy(enum kind kind, uint64_t handle);

/* The functions that create objects. Each is the innermost frame of the program in a stack. */
#define SITES(X)                                                                                                   \
	X(load_model) X(train_step) X(capture_step) X(evaluate) X(log_metrics) X(prefetch_batch) X(save_checkpoint) X(decode_frame)
enum site {
#define X(site) SITE_##site,
	SITES(X)
#undef X
	SITE_COUNT
};
struct site_functions {
	const char *name;
	uint64_t (*create)(enum kind kind);
};
extern const struct site_functions sites[SITE_COUNT];
CUcontext worker_context(void); /* creates a context, and makes it current */

void set_up_objects(void); /* what the creation of some objects needs */

/* Patterns of use. Only the first leaks. */
#define PATTERNS(X) X(LEAK, "leak") X(FILL, "pool") X(CACHE, "cache") X(BURST, "burst") X(STEP, "step") X(RENEW, "contexts")
enum pattern {
#define X(pattern, name) pattern,
	PATTERNS(X)
#undef X
	PATTERN_COUNT
};
extern const char *const pattern_names[PATTERN_COUNT];

enum { STEPS = 400, STEP_US = 8000, HELD_MAX = 256 }; /* 3.2 s, 125 steps a second */

/* A task creates objects of one kind in one function. */
struct task {
	enum kind kind;
	enum site site;
	enum pattern pattern;
	int from, to;   /* steps in which it creates objects */
	int every;      /* it acts in every such step */
	int size;       /* how many objects it creates at once, or keeps */
	int kept;       /* percent of the objects that it does not destroy */
	int keys;       /* number of keys of a cache */
	uint64_t held[HELD_MAX];
	int key[HELD_MAX];
	int count, next;
	CUcontext context;
};
void run_task(struct task *task, int step);

/* Random numbers that depend on the seed only. */
void set_seed(uint64_t seed);
int below(int n);
int between(int from, int to);
