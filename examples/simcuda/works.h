/* Declarations shared by the source files of the program works. */
#ifndef WORKS_H
#define WORKS_H

#include "cuda_sim.h"

#include <stdbool.h>

#define WORKS_FUNCTIONS(X)                                                                                                 \
	X(cuInit) X(cuDeviceGetCount) X(cuDevicePrimaryCtxRetain) X(cuDevicePrimaryCtxReset_v2) X(cuCtxSetCurrent)         \
	X(cuCtxSynchronize) X(cuModuleLoadData)                                                                            \
	X(cuModuleGetFunction) X(cuMemAlloc_v2) X(cuMemHostAlloc) X(cuStreamCreateWithPriority) X(cuStreamDestroy_v2)      \
	X(cuStreamSynchronize) X(cuStreamWaitEvent) X(cuEventCreate) X(cuEventDestroy_v2) X(cuEventRecord)                 \
	X(cuEventSynchronize) X(cuLaunchKernel) X(cuLaunchKernelEx) X(cuMemcpyHtoDAsync_v2) X(cuMemcpyDtoHAsync_v2) X(cuMemcpyDtoDAsync_v2)    \
	X(cuMemcpyDtoH_v2) X(cuMemcpyHtoD_v2) X(cuMemsetD8Async) X(cuGraphLaunch) X(cuStreamBeginCapture_v2) X(cuStreamEndCapture)            \
	X(cuGraphInstantiateWithFlags) X(cuGraphDestroy)

struct works_api {
#define X(name) __typeof__(name) *name;
	WORKS_FUNCTIONS(X)
#undef X
};
extern struct works_api api;

enum { STREAMS_MAX = 64, EVENTS = 16, GRAPHS = 3, KERNELS = 24, GRIDS = 3 };

/* What the threads of a process share on one device. */
struct program {
	CUdevice device;
	CUcontext context;
	CUfunction kernels[KERNELS];
	CUgraphExec graphs[GRAPHS];
	bool plain_graphs; /* no graph copies */
};

/* A thread. It submits operations until none are left. */
struct worker {
	const struct program *program;
	uint64_t random;   /* never 0 */
	long left;         /* operations to submit */
	int pageable;      /* percentage of submissions that copy memory which is not pinned */
	bool uses_default; /* stream 0 is the default stream */
	int streams_len;
	CUstream streams[STREAMS_MAX];
	CUevent events[EVENTS];
	bool recorded[EVENTS];
	CUdeviceptr device;
	void *host, *unpinned;
};

void check(CUresult result, const char *call);
#define CALL(fn, ...) check(api.fn(__VA_ARGS__), #fn)

void program_set_up(struct program *program);
/* shared is a worker whose streams this one uses too, or NULL. */
void worker_set_up(struct worker *worker, const struct worker *shared);
/* Submits a kernel to each stream and a copy in each direction. They are no part of the operations. */
void worker_warm_up(struct worker *worker);
/* Submits operations in one random phase: many operations at once, few at a time, or on a new stream. */
void worker_run_phase(struct worker *worker);

#endif
