/* One step of the program ranks, and its faults. Each part of a step is a function, so stacks name it. */
#include "ranks.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define PART __attribute__((noinline)) static void

const char *const fault_names[FAULTS] = {
	"host", "kernels", "copies", "network", "stop", "skip", "extra", "count", "type", "op", "order", "send", "kill", "exit", "init",
};

enum { LIST_MAX = 64 };
static struct { int rank, step; enum fault_kind kind; double value; bool told; } faults[LIST_MAX];
static int faults_len;

void fault_add(const char *text)
{
	char what[32];
	double value = 0;
	int rank, step, kind = 0;
	if (sscanf(text, "%d %d %31s %lf", &rank, &step, what, &value) < 3 || faults_len == LIST_MAX) {
		fprintf(stderr, "ranks: fault \"%s\": want RANK STEP WHAT [VALUE]\n", text);
		exit(2);
	}
	while (kind < FAULTS && strcmp(what, fault_names[kind]))
		kind++;
	if (kind == FAULTS) {
		fprintf(stderr, "ranks: unknown fault %s\n", what);
		exit(2);
	}
	faults[faults_len].rank = rank;
	faults[faults_len].step = step;
	faults[faults_len].kind = (enum fault_kind)kind;
	faults[faults_len++].value = value;
}

void fault_read(const char *path)
{
	char line[256];
	FILE *file = fopen(path, "re");
	if (!file) {
		perror(path);
		exit(2);
	}
	while (fgets(line, sizeof(line), file))
		if (line[0] != '#' && line[0] != '\n')
			fault_add(line);
	fclose(file);
}

static void tell(const struct job *j, int i)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	if (!faults[i].told)
		printf("fault %d %d %s %lld\n", j->rank, j->step, fault_names[faults[i].kind], (long long)t.tv_sec * 1000000000 + t.tv_nsec);
	fflush(stdout);
	faults[i].told = true;
}

bool fault_acts(const struct job *j, enum fault_kind kind, bool lasting, double *value)
{
	for (int i = 0; i < faults_len; i++) {
		bool now = kind == INIT || (lasting ? j->step >= faults[i].step : j->step == faults[i].step);
		if (faults[i].kind != kind || faults[i].rank != j->rank || !now)
			continue;
		*value = faults[i].value;
		tell(j, i);
		return true;
	}
	return false;
}

static bool acts(const struct job *j, enum fault_kind kind)
{
	double value;
	return fault_acts(j, kind, false, &value);
}

static double factor(const struct job *j, enum fault_kind kind)
{
	double value;
	return fault_acts(j, kind, true, &value) ? value : 1;
}

static double jitter(struct job *j)
{
	return 1 + j->jitter * (2 * random_unit(j) - 1);
}

static void launch(struct job *j, CUfunction kernel, double times)
{
	uint64_t ns = (uint64_t)((double)j->kernel_ns * times * jitter(j) * factor(j, KERNELS));
	void *arguments[] = {&ns};
	CALL(cuLaunchKernel, kernel, 64, 1, 1, 256, 1, 1, 0, j->main, arguments, NULL);
}

PART augment(struct job *j)
{
	double ms;
	rank_sleep_ns((uint64_t)((double)j->host_ns * jitter(j)));
	if (fault_acts(j, HOST, true, &ms))
		rank_sleep_ns((uint64_t)(ms * 1e6 * jitter(j)));
}

/* The job stands still here: the rank reads from a pipe that gets no data. */
PART read_shard(struct job *j)
{
	int ends[2];
	char byte;
	if (acts(j, STOP) && !pipe(ends) && read(ends[0], &byte, 1) < 0)
		perror("ranks: read");
}

PART end_process(struct job *j)
{
	if (acts(j, KILL))
		kill(getpid(), SIGKILL);
	if (acts(j, EXIT))
		_exit(3);
}

PART upload_batch(struct job *j)
{
	double times = factor(j, COPIES);
	uint64_t bytes = (uint64_t)((double)j->batch_bytes * (times > 1 ? times * jitter(j) : 1));
	uint64_t room = j->batch_bytes * 16;
	for (uint64_t n; bytes > 0; bytes -= n) {
		n = bytes < room ? bytes : room;
		CALL(cuMemcpyHtoDAsync_v2, j->device, j->batch, n, j->main);
	}
}

static void all_reduce(struct job *j, ncclComm_t comm, size_t count, CUstream stream)
{
	void *at = (void *)(uintptr_t)j->gradients;
	CALL(ncclGroupStart);
	CALL(ncclAllReduce, at, at, count, ncclFloat32, ncclSum, comm, stream);
	CALL(ncclGroupEnd);
}

PART forward(struct job *j)
{
	for (int i = 0; i < FORWARD_KERNELS; i++)
		launch(j, j->forward, 1);
	if (j->pair)
		all_reduce(j, j->pair, 64 << 10, j->main);
}

/* A call that the other ranks do not make. */
PART log_stats(struct job *j)
{
	void *at = (void *)(uintptr_t)j->gradients;
	CALL(ncclAllReduce, at, at, 1, ncclFloat32, ncclSum, j->world, j->communication);
}

PART reduce_bucket(struct job *j, int bucket)
{
	void *at = (void *)(uintptr_t)j->gradients;
	size_t count = j->bucket_bytes / 4 / (bucket ? 1 : 4); /* the first bucket is small, as in PyTorch */
	ncclDataType_t type = ncclFloat32;
	ncclRedOp_t op = ncclSum;
	if (bucket == 0 && acts(j, SKIP))
		return;
	if (bucket == 0 && acts(j, EXTRA))
		log_stats(j);
	if (bucket == 0 && acts(j, COUNT))
		count /= 2;
	if (bucket == 0 && acts(j, TYPE))
		type = ncclFloat16;
	if (bucket == 0 && acts(j, OPERATOR))
		op = ncclMax;
	if (bucket == 0 && acts(j, SENDS))
		CALL(ncclSend, at, 1000, ncclFloat32, (j->rank + 1) % j->size, j->world, j->communication);
	CALL(ncclGroupStart);
	CALL(ncclAllReduce, at, at, count, type, op, j->world, j->communication);
	CALL(ncclGroupEnd);
}

/* The main stream continues after the last operation of the communication stream. */
static void wait_for_communication(struct job *j)
{
	CALL(cuEventRecord, j->reduced, j->communication);
	CALL(cuStreamWaitEvent, j->main, j->reduced, 0);
}

PART backward(struct job *j)
{
	bool swapped = j->pair && acts(j, ORDER);
	for (int bucket = 0; bucket < j->buckets; bucket++) {
		launch(j, j->backward, 2);
		CALL(cuEventRecord, j->ready, j->main);
		CALL(cuStreamWaitEvent, j->communication, j->ready, 0);
		if (bucket || !j->pair) {
			reduce_bucket(j, bucket);
			continue;
		}
		/* Two communicators on one stream: all ranks must use them in one order. */
		if (swapped)
			all_reduce(j, j->pair, 1024, j->communication);
		reduce_bucket(j, bucket);
		if (!swapped)
			all_reduce(j, j->pair, 1024, j->communication);
	}
	wait_for_communication(j);
}

PART gather_layer(struct job *j)
{
	void *at = (void *)(uintptr_t)j->gradients;
	CALL(ncclAllGather, at, at, j->bucket_bytes / 4 / (size_t)j->size, ncclFloat32, j->world, j->communication);
	wait_for_communication(j);
}

PART scatter_layer(struct job *j, int layer)
{
	void *at = (void *)(uintptr_t)j->gradients;
	size_t count = j->bucket_bytes / 4 / (size_t)j->size;
	CALL(cuEventRecord, j->ready, j->main);
	CALL(cuStreamWaitEvent, j->communication, j->ready, 0);
	if (layer == 0 && acts(j, COUNT))
		count /= 2;
	if (layer == 0 && acts(j, SKIP))
		return;
	if (layer == 0 && acts(j, EXTRA))
		log_stats(j);
	CALL(ncclReduceScatter, at, at, count, layer == 0 && acts(j, TYPE) ? ncclFloat16 : ncclFloat32,
	     layer == 0 && acts(j, OPERATOR) ? ncclMax : ncclSum, j->world, j->communication);
}

/* As FSDP does: each layer is gathered before its forward and its backward pass, and its gradients are scattered. */
PART sharded_pass(struct job *j)
{
	for (int layer = 0; layer < j->buckets; layer++) {
		gather_layer(j);
		launch(j, j->forward, 1);
	}
	for (int layer = j->buckets - 1; layer >= 0; layer--) {
		gather_layer(j);
		launch(j, j->backward, 2);
		scatter_layer(j, layer);
	}
	wait_for_communication(j);
}

PART optimizer(struct job *j)
{
	launch(j, j->update, 1);
}

/* The host is at most one step ahead of the GPU. */
PART limit_queue(struct job *j)
{
	CALL(cuEventRecord, j->ends[j->made % 2], j->main);
	if (j->made > 0)
		CALL(cuEventSynchronize, j->ends[(j->made - 1) % 2]);
}

/* Reading the loss waits for the step. */
PART read_loss(struct job *j)
{
	if (j->loss > 0 && j->made % j->loss == 0)
		CALL(cuStreamSynchronize, j->main);
}

__attribute__((noinline)) void job_step(struct job *j)
{
	double value;
	api.simncclNetwork(fault_acts(j, NETWORK, true, &value) ? value : 1);
	augment(j);
	read_shard(j);
	end_process(j);
	upload_batch(j);
	if (j->sharded) {
		sharded_pass(j);
	} else {
		forward(j);
		backward(j);
	}
	optimizer(j);
	limit_queue(j);
	read_loss(j);
}

void job_drain(struct job *j)
{
	CALL(cuStreamSynchronize, j->main);
	CALL(cuStreamSynchronize, j->communication);
	if (j->pair)
		CALL(ncclCommDestroy, j->pair);
	CALL(ncclCommDestroy, j->world);
}
