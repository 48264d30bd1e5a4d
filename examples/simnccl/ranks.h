/* Declarations shared by the source files of the program ranks. */
#ifndef RANKS_H
#define RANKS_H

#include "nccl_sim.h"

#include <stdbool.h>
#include <stdio.h>

#define CUDA_FUNCTIONS(X)                                                                                                   \
	X(cuInit) X(cuDevicePrimaryCtxRetain) X(cuCtxSetCurrent) X(cuModuleLoadData) X(cuModuleGetFunction) X(cuMemAlloc_v2) \
	X(cuMemHostAlloc) X(cuStreamCreateWithPriority) X(cuStreamSynchronize) X(cuStreamWaitEvent) X(cuEventCreate)         \
	X(cuEventRecord) X(cuEventSynchronize) X(cuLaunchKernel) X(cuMemcpyHtoDAsync_v2)

struct ranks_api {
#define X(name) __typeof__(name) *name;
	CUDA_FUNCTIONS(X)
#undef X
#define X(result, name, parameters) result(*name) parameters;
	NCCL_FUNCTIONS(X)
#undef X
	void (*simncclNetwork)(double factor);
};
extern struct ranks_api api;

void check(int result, const char *call);
#define CALL(fn, ...) check((int)api.fn(__VA_ARGS__), #fn)

enum fault_kind { HOST, KERNELS, COPIES, NETWORK, STOP, SKIP, EXTRA, COUNT, TYPE, OPERATOR, ORDER, SENDS, KILL, EXIT, INIT, FAULTS };
extern const char *const fault_names[FAULTS];

enum { FORWARD_KERNELS = 4, BUCKETS_MAX = 8 };

struct job {
	int rank, size, local_rank;
	int steps, buckets;
	int loss;                /* the host waits for the GPU after so many steps; 0: it only limits the queue */
	bool split;              /* a second communicator of pairs of ranks */
	bool sharded;            /* steps as of FSDP: layers are gathered and scattered */
	double jitter;           /* of host and kernels, relative */
	uint64_t host_ns, kernel_ns, bucket_bytes, batch_bytes;
	uint64_t random;         /* never 0 */
	const char *start;       /* the job begins when this file exists; NULL: at once */
	const char *count;       /* the steps of faults count when this file exists; NULL: at once */

	CUfunction forward, backward, update;
	CUstream main, communication;
	CUevent ready, reduced, copied, ends[2];
	CUdeviceptr device, gradients;
	void *batch;
	ncclComm_t world, pair;
	int made; /* steps */
	int step; /* number of the step for faults, -1: none */
};

/* Reports whether a fault of this rank acts now: from its step on (lasting), or in its step only. */
bool fault_acts(const struct job *j, enum fault_kind kind, bool lasting, double *value);
void fault_add(const char *text);
void fault_read(const char *path);

void job_step(struct job *j);
void job_drain(struct job *j);
void rank_sleep_ns(uint64_t ns);
double random_unit(struct job *j);

#endif
