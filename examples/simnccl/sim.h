/*
 * Internals of the simulated NCCL. A communicator has an object in the process, with NCCL's layout,
 * and a file that its ranks map. Each rank writes its own places of the file only, with atomic
 * stores, so a rank that dies leaves no lock behind.
 */
#ifndef SIMNCCL_SIM_H
#define SIMNCCL_SIM_H

#include "nccl_sim.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>

enum { RANKS_MAX = 64, ARRIVALS = 1024, PAIR_ARRIVALS = 64, SPLITS = 16, NAME_BYTES = 96 };

/* The first five have NCCL's order of seqNumber. */
enum function { BROADCAST, REDUCE, ALL_GATHER, REDUCE_SCATTER, ALL_REDUCE, COUNTED, ALL_TO_ALL = COUNTED, GATHER, SCATTER, SEND, RECV };

/* ---- the file of a communicator ---- */

/* What one rank does in one operation. number is written last. */
struct arrival {
	_Atomic uint64_t number; /* from 1 */
	uint64_t signature;      /* must be equal on all ranks */
	uint64_t start_ns;       /* its kernel began: CLOCK_MONOTONIC */
	double network;          /* factor of simncclNetwork */
};

struct shared {
	_Atomic uint32_t joined;
	struct arrival collectives[RANKS_MAX][ARRIVALS];
	struct arrival sends[RANKS_MAX][RANKS_MAX][PAIR_ARRIVALS]; /* by sender, then receiver */
	struct arrival receives[RANKS_MAX][RANKS_MAX][PAIR_ARRIVALS];
	struct split {
		_Atomic uint32_t entered;
		struct { _Atomic int ready, color, key; } ranks[RANKS_MAX];
	} splits[SPLITS];
};

/* Maps the file of that name in SIMNCCL_DIR. Returns NULL on failure. */
struct shared *shared_open(const char *name);
void shared_close(struct shared *shared);
void shared_remove(const char *name);
/* Adds 1 to a counter, and wakes its waiters. */
void counter_add(_Atomic uint32_t *counter);
/* Waits until the counter is at least n, or *stop. */
void counter_wait(_Atomic uint32_t *counter, uint32_t n, const _Atomic uint32_t *stop);

/* ---- communicators ---- */

struct communicator {
	ncclComm_t handle;
	char name[NAME_BYTES]; /* of its file */
	struct shared *shared;
	uint64_t hash;
	int rank, size, device;
	CUdeviceptr device_communicator;
	uint64_t collectives;  /* operations so far, with all functions that have a number */
	uint64_t sent[RANKS_MAX], received[RANKS_MAX];
	uint32_t splits, shrinks;
	int custom_operators;
	_Atomic uint32_t open; /* plans that have not ended */
	_Atomic uint32_t aborted;
	/* Until it is ready: what the init still waits for. */
	struct { bool pending; int color; struct communicator *parent; uint32_t split; } init;
};

/* Returns NULL unless the handle is a communicator of this process. */
struct communicator *communicator_of(ncclComm_t handle);
/* Begins an init. communicator_ready waits for the other ranks. */
ncclResult_t communicator_join(ncclComm_t *out, const char *name, uint64_t hash, int rank, int size);
/* The new communicator of a split or shrink is in *child, also if the rank gets none. */
ncclResult_t communicator_split(struct communicator *parent, int color, int key, ncclComm_t *out, struct communicator **child);
ncclResult_t communicator_shrink(struct communicator *parent, const int *without, int n, ncclComm_t *out,
				 struct communicator **child);
/* Waits until all operations have ended. */
void communicator_drain(struct communicator *c);
ncclResult_t communicator_ready(struct communicator *c);
void communicator_free(struct communicator *c);
/* Counts a collective in the communicator's seqNumber. */
void communicator_count(struct communicator *c, enum function function);
uint64_t hash_bytes(const void *bytes, size_t n);

/* ---- operations, groups and plans ---- */

struct task {
	enum function function;
	struct communicator *of;
	CUstream stream;
	const void *send;
	void *receive;
	size_t count;
	ncclDataType_t type;
	bool reduces;
	ncclRedOp_t op;
	int root;       /* or peer; -1: none */
	uint64_t number, id;
};

extern const int type_bytes[];

ncclResult_t group_start(void);
ncclResult_t group_end(uint64_t *group, uint64_t *operations);
/* Ends the group without its operations. */
ncclResult_t group_drop(uint64_t *group, uint64_t *operations);
bool group_is_outermost(void);
/* Number of the thread's group, or 0. */
uint64_t group_number(void);
ncclResult_t group_add_task(const struct task *task);
ncclResult_t group_add_init(struct communicator *c);
uint64_t task_bytes(const struct task *task);

/* Launches the tasks of one communicator as one kernel. */
ncclResult_t plan_launch(struct communicator *of, const struct task *tasks, int n);
void plan_network(double factor);

/* ---- the driver ---- */

#define DRIVER_FUNCTIONS(X)                                                                                        \
	X(cuInit) X(cuCtxGetCurrent) X(cuCtxSetCurrent) X(cuCtxGetDevice) X(cuDevicePrimaryCtxRetain)              \
	X(cuMemAlloc_v2) X(cuMemFree_v2) X(cuMemcpyDtoDAsync_v2) X(cuModuleLoadData) X(cuModuleGetFunction)        \
	X(cuLaunchKernelEx) X(cuStreamIsCapturing)

struct driver {
#define X(name) __typeof__(name) *name;
	DRIVER_FUNCTIONS(X)
#undef X
	/* Gives the next kernel of this thread an end that `end` finds. NULL: an older simcuda. */
	void (*simcudaGateNextKernel)(bool (*end)(void *data, uint64_t start_ns, uint64_t *end_ns), void *data);
};
extern struct driver driver;
/* Loads libcuda.so.1 and makes sure that the thread has a context. */
ncclResult_t driver_ready(int *device);
/* Returns the kernel of a task. */
ncclResult_t kernel_of(const struct task *task, CUfunction *out);

/* ---- ledger ---- */

struct line {
	const char *name;
	uint64_t entry_ns, group, number, operations, id;
	ncclResult_t result;
	ncclComm_t handle;
	uint64_t hash;
	int rank, size;
	const struct task *task;
};

uint64_t now_ns(void);
uint64_t ledger_next_id(void);
void ledger_call(const struct line *line);
/* Notes the start (event "begin") or the end of an operation on the GPU. */
void ledger_gpu(const char *event, uint64_t id, uint64_t at_ns);

#endif
