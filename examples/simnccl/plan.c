/*
 * Plans: the kernel of one or several operations, and when it ends. A plan begins when its stream
 * reaches it. It ends when every rank that its operations need has begun an equal operation, plus
 * the time of the transfer. If a rank never comes, or comes with other arguments, it never ends.
 * Each rank computes the end from the same numbers, so all ranks have the same end.
 */
#include "sim.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { THREADS = 512, CHANNELS_MAX = 16, BYTES_PER_CHANNEL = 1 << 18 };

struct plan {
	struct communicator *of;
	bool begun;
	int len;
	struct task tasks[];
};

static _Atomic double network = 1;

void plan_network(double factor)
{
	network = factor;
}

static double setting(const char *name, double otherwise)
{
	const char *text = getenv(name);
	return text && *text ? atof(text) : otherwise;
}

uint64_t task_bytes(const struct task *t)
{
	return (uint64_t)t->count * (uint64_t)type_bytes[t->type];
}

/* Returns the time that an operation takes after its last rank has begun. */
static uint64_t transfer_ns(const struct task *t, double slowest)
{
	static double bytes_per_ns, latency_ns;
	if (bytes_per_ns == 0) {
		latency_ns = setting("SIMNCCL_LATENCY_US", 20) * 1000;
		bytes_per_ns = setting("SIMNCCL_GBPS", 20);
	}
	double bytes = (double)task_bytes(t), others = t->of->size - 1;
	switch (t->function) {
	case ALL_REDUCE: bytes *= 2 * others / t->of->size; break;
	case ALL_GATHER: case REDUCE_SCATTER: case ALL_TO_ALL: case GATHER: case SCATTER: bytes *= others; break;
	default: break;
	}
	return (uint64_t)((latency_ns + bytes / bytes_per_ns) * slowest);
}

/* Operators that programs create have other numbers on each rank. */
static uint64_t signature_of(const struct task *t)
{
	bool pair = t->function == SEND || t->function == RECV;
	uint64_t parts[5] = {
		pair ? SEND : t->function, t->count, t->type, t->op >= ncclNumOps ? ncclNumOps : t->op,
		pair ? 0 : (uint64_t)(int64_t)t->root,
	};
	return hash_bytes(parts, sizeof(parts));
}

/* Where a rank arrives for the operation of a task. */
static struct arrival *arrival_of(const struct task *t, int rank, bool counterpart)
{
	struct shared *s = t->of->shared;
	bool sends = (t->function == SEND) != counterpart;
	if (t->function != SEND && t->function != RECV)
		return &s->collectives[rank][t->number % ARRIVALS];
	int from = t->function == SEND ? t->of->rank : t->root, to = t->function == SEND ? t->root : t->of->rank;
	return &(sends ? s->sends : s->receives)[from][to][t->number % PAIR_ARRIVALS];
}

static void arrive(const struct task *t, uint64_t start)
{
	struct arrival *a = arrival_of(t, t->of->rank, false);
	a->signature = signature_of(t);
	a->start_ns = start;
	a->network = network;
	atomic_store_explicit(&a->number, t->number, memory_order_release);
}

/* Adds what one rank says to the last start and the slowest network. Returns false if it has not
 * come, or does something else. */
static bool take(const struct task *t, const struct arrival *a, uint64_t *last, double *slowest)
{
	if (atomic_load_explicit(&a->number, memory_order_acquire) != t->number || a->signature != signature_of(t))
		return false;
	*last = a->start_ns > *last ? a->start_ns : *last;
	*slowest = a->network > *slowest ? a->network : *slowest;
	return true;
}

static bool task_end(const struct task *t, uint64_t *end)
{
	bool pair = t->function == SEND || t->function == RECV;
	uint64_t last = 0;
	double slowest = 0;
	for (int r = 0; r < t->of->size && !pair; r++)
		if (!take(t, arrival_of(t, r, false), &last, &slowest))
			return false;
	if (pair && (!take(t, arrival_of(t, t->of->rank, false), &last, &slowest) ||
		     !take(t, arrival_of(t, t->root, true), &last, &slowest)))
		return false;
	last += transfer_ns(t, slowest);
	*end = last > *end ? last : *end;
	return true;
}

static void finish(struct plan *p, uint64_t end)
{
	for (int i = 0; i < p->len; i++)
		ledger_gpu("end", p->tasks[i].id, end);
	atomic_fetch_sub(&p->of->open, 1);
	free(p);
}

/* simcuda asks this again and again from the start of the kernel on, until it returns true. */
static bool plan_end(void *data, uint64_t start, uint64_t *end)
{
	struct plan *p = data;
	if (p->of->aborted) {
		*end = now_ns();
		*end = *end > start ? *end : start;
		atomic_fetch_sub(&p->of->open, 1);
		free(p);
		return true;
	}
	for (int i = 0; i < p->len && !p->begun; i++) {
		ledger_gpu("begin", p->tasks[i].id, start);
		arrive(&p->tasks[i], start);
	}
	p->begun = true;
	*end = start;
	for (int i = 0; i < p->len; i++)
		if (!task_end(&p->tasks[i], end))
			return false;
	finish(p, *end);
	return true;
}

static unsigned int channels_of(const struct task *t)
{
	uint64_t n = task_bytes(t) / BYTES_PER_CHANNEL + 1;
	return n < CHANNELS_MAX ? (unsigned int)n : CHANNELS_MAX;
}

static CUresult launch(const struct communicator *of, const struct task *t, CUfunction kernel)
{
	char arguments[4096] = {0};
	size_t size = sizeof(arguments);
	void *extra[] = {(void *)1 /* CU_LAUNCH_PARAM_BUFFER_POINTER */, arguments, (void *)2 /* _SIZE */, &size, NULL};
	CUlaunchConfig config = {
		.gridDimX = channels_of(t), .gridDimY = 1, .gridDimZ = 1, .blockDimX = THREADS, .blockDimY = 1, .blockDimZ = 1,
		.hStream = t->stream,
	};
	memcpy(arguments, &of->device_communicator, sizeof(of->device_communicator));
	return driver.cuLaunchKernelEx(&config, kernel, NULL, extra);
}

/* A communicator of one rank copies, and launches no kernel. */
static ncclResult_t copy(const struct task *tasks, int n)
{
	for (int i = 0; i < n; i++) {
		const struct task *t = &tasks[i];
		bool needed = t->send && t->receive && t->send != t->receive;
		if (needed && driver.cuMemcpyDtoDAsync_v2((CUdeviceptr)t->receive, (CUdeviceptr)t->send, task_bytes(t), t->stream))
			return ncclUnhandledCudaError;
	}
	return ncclSuccess;
}

/* Kernels of a graph run at its launches, which simnccl does not see: they need no other rank. */
static bool capturing(CUstream stream)
{
	CUstreamCaptureStatus status;
	return stream && !driver.cuStreamIsCapturing(stream, &status) && status != CU_STREAM_CAPTURE_STATUS_NONE;
}

ncclResult_t plan_launch(struct communicator *of, const struct task *tasks, int n)
{
	CUfunction kernel;
	if (of->size == 1)
		return copy(tasks, n);
	ncclResult_t result = kernel_of(tasks, &kernel);
	if (result)
		return result;
	if (capturing(tasks->stream))
		return launch(of, tasks, kernel) ? ncclUnhandledCudaError : ncclSuccess;
	struct plan *p = malloc(sizeof(*p) + (size_t)n * sizeof(*tasks));
	if (!p)
		return ncclSystemError;
	*p = (struct plan){.of = of, .len = n};
	memcpy(p->tasks, tasks, (size_t)n * sizeof(*tasks));
	for (int i = 0; i < n; i++)
		communicator_count(of, tasks[i].function);
	atomic_fetch_add(&of->open, 1);
	if (driver.simcudaGateNextKernel) {
		driver.simcudaGateNextKernel(plan_end, p);
	} else {
		of->open--; /* the kernel has a fixed duration, and waits for no rank */
		free(p);
	}
	return launch(of, tasks, kernel) ? ncclUnhandledCudaError : ncclSuccess;
}
