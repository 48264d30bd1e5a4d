/*
 * ncclcalls: calls each function of NCCL, valid and failing, with sizes and types that differ.
 *
 *   ncclcalls [--ranks N] [--rounds N] [--remake N] [--processes] [--older]
 *             [--nonblocking] [--wait]
 *
 * The ranks (2) are threads of one process, or processes with --processes. After its set-up it prints
 * "ready PID". With --wait it then waits for a byte of stdin, and for another one before it exits.
 * With --nonblocking, the init of the first communicator returns ncclInProgress.
 * --older makes the first communicator and 5 operations on it before "ready". --remake makes and
 * destroys N communicators, mostly at one address. It prints "done" at the end, and exits with 1 if a call has another result than expected.
 */
#include "nccl_sim.h"

#include <dlfcn.h>
#include <getopt.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define CUDA_FUNCTIONS(X)                                                                                                  \
	X(cuInit) X(cuDeviceGetCount) X(cuDevicePrimaryCtxRetain) X(cuCtxSetCurrent) X(cuMemAlloc_v2)                      \
	X(cuStreamCreateWithPriority) X(cuStreamSynchronize)

enum { RANKS_MAX = 8, BUFFER = 64 << 20, OLDER = 5, CALM_US = 400000 };

static struct {
#define X(name) __typeof__(name) *name;
	CUDA_FUNCTIONS(X)
#undef X
#define X(result, name, parameters) result(*name) parameters;
	NCCL_FUNCTIONS(X)
#undef X
} api;

static int ranks = 2, rounds = 1, remakes;
static bool processes, older, nonblocking, waits;
static ncclUniqueId ids[4];
static pthread_barrier_t *ready;

static void check(int result, int expected, const char *call)
{
	if (result == expected)
		return;
	fprintf(stderr, "ncclcalls: %s: result %d, want %d\n", call, result, expected);
	_exit(1);
}
#define CALL(fn, ...) check((int)api.fn(__VA_ARGS__), 0, #fn)
#define FAIL(fn, ...) check((int)api.fn(__VA_ARGS__), ncclInvalidArgument, #fn)

static void *open_library(const char *name)
{
	void *library = dlopen(name, RTLD_NOW | RTLD_GLOBAL);
	if (!library) {
		fprintf(stderr, "ncclcalls: %s\n", dlerror());
		exit(1);
	}
	return library;
}

static void find(void **out, void *library, const char *name)
{
	*out = dlsym(library, name);
	if (*out)
		return;
	fprintf(stderr, "ncclcalls: no %s\n", name);
	exit(1);
}

#ifdef LINKED /* NCCL is a part of the program */
static void find_unique_id(ncclResult_t (**out)(ncclUniqueId *))
{
	*out = ncclGetUniqueId;
}
#else
static void *open_nccl(void)
{
	const char *name = getenv("SIMNCCL_LIBRARY");
	void *nccl = open_library(name ? name : "libnccl.so.2");
	return getenv("SIMNCCL_PRELOADED") ? RTLD_DEFAULT : nccl; /* a wrapper comes first */
}

static void find_unique_id(ncclResult_t (**out)(ncclUniqueId *))
{
	find((void **)out, open_nccl(), "ncclGetUniqueId");
}
#endif

static void find_libraries(void)
{
	void *cuda = open_library("libcuda.so.1");
#define X(name) find((void **)&api.name, cuda, #name);
	CUDA_FUNCTIONS(X)
#undef X
#ifdef LINKED
#define X(result, name, parameters) api.name = name;
#else
	void *nccl = open_nccl();
#define X(result, name, parameters) find((void **)&api.name, nccl, #name);
#endif
	NCCL_FUNCTIONS(X)
#undef X
}

struct rank {
	int rank;
	ncclComm_t comm;
	CUstream stream;
	char *send, *receive;
};

static void set_up(struct rank *r)
{
	CUcontext context;
	CUdeviceptr at;
	int devices;
	CALL(cuInit, 0);
	CALL(cuDeviceGetCount, &devices);
	CALL(cuDevicePrimaryCtxRetain, &context, r->rank % devices);
	CALL(cuCtxSetCurrent, context);
	CALL(cuStreamCreateWithPriority, &r->stream, CU_STREAM_NON_BLOCKING, 0);
	CALL(cuMemAlloc_v2, &at, BUFFER);
	r->send = (char *)(uintptr_t)at;
	CALL(cuMemAlloc_v2, &at, BUFFER);
	r->receive = (char *)(uintptr_t)at;
}

static void join(struct rank *r)
{
	ncclConfig_t config = {.size = sizeof(config), .magic = CONFIG_MAGIC};
	ncclResult_t state = ncclInProgress;
	if (!nonblocking) {
		CALL(ncclCommInitRank, &r->comm, ranks, ids[0], r->rank);
		return;
	}
	check((int)api.ncclCommInitRankConfig(&r->comm, ranks, ids[0], r->rank, &config), ncclInProgress, "ncclCommInitRankConfig");
	for (; state == ncclInProgress; usleep(1000))
		CALL(ncclCommGetAsyncError, r->comm, &state);
}

static void reduce_some(struct rank *r, int n)
{
	for (int i = 0; i < n; i++)
		CALL(ncclAllReduce, r->send, r->receive, 1000 + (size_t)i, ncclFloat32, ncclSum, r->comm, r->stream);
	CALL(cuStreamSynchronize, r->stream);
}

static void ask(struct rank *r)
{
	int value;
	ncclResult_t error;
	CALL(ncclGetVersion, &value);
	check(value, NCCL_VERSION_CODE, "ncclGetVersion: version");
	CALL(ncclCommCount, r->comm, &value);
	check(value, ranks, "ncclCommCount: count");
	CALL(ncclCommUserRank, r->comm, &value);
	check(value, r->rank, "ncclCommUserRank: rank");
	CALL(ncclCommCuDevice, r->comm, &value);
	CALL(ncclCommGetAsyncError, r->comm, &error);
	api.ncclGetErrorString(ncclInvalidUsage);
	api.ncclGetLastError(r->comm);
	api.ncclResetDebugInit();
}

/* Each type and reduction. */
static void reduce_all(struct rank *r)
{
	for (int type = 0; type < ncclNumTypes; type++)
		for (int op = 0; op < ncclNumOps; op++)
			CALL(ncclAllReduce, r->send, r->receive, 1 + (size_t)(type * ncclNumOps + op), (ncclDataType_t)type,
			     (ncclRedOp_t)op, r->comm, r->stream);
}

static void operate(struct rank *r)
{
	int last = ranks - 1;
	CALL(ncclBroadcast, r->send, r->receive, 301, ncclBfloat16, 0, r->comm, r->stream);
	CALL(ncclBcast, r->send, 302, ncclInt8, last, r->comm, r->stream);
	CALL(ncclReduce, r->send, r->receive, 303, ncclFloat64, ncclMax, last, r->comm, r->stream);
	CALL(ncclReduceScatter, r->send, r->receive, 304, ncclFloat16, ncclAvg, r->comm, r->stream);
	CALL(ncclAllGather, r->send, r->receive, 305, ncclUint8, r->comm, r->stream);
	CALL(ncclAlltoAll, r->send, r->receive, 306, ncclInt64, r->comm, r->stream);
	CALL(ncclGather, r->send, r->receive, 307, ncclInt32, 0, r->comm, r->stream);
	CALL(ncclScatter, r->send, r->receive, 308, ncclUint32, last, r->comm, r->stream);
	CALL(ncclAllReduce, r->send, r->receive, 0, ncclFloat32, ncclSum, r->comm, r->stream);
	CALL(ncclAllReduce, r->send, r->receive, 4 << 20, ncclFloat32, ncclSum, r->comm, r->stream);
}

static void custom(struct rank *r)
{
	float scalar = 0.5f;
	ncclRedOp_t op, local;
	if (r->rank) /* so the numbers of operators differ by rank */
		CALL(ncclRedOpCreatePreMulSum, &local, &scalar, ncclFloat32, ncclScalarHostImmediate, r->comm);
	CALL(ncclRedOpCreatePreMulSum, &op, &scalar, ncclFloat32, ncclScalarHostImmediate, r->comm);
	CALL(ncclAllReduce, r->send, r->receive, 401, ncclFloat32, op, r->comm, r->stream);
	CALL(ncclRedOpDestroy, op, r->comm);
}

static void exchange(struct rank *r)
{
	int next = (r->rank + 1) % ranks, previous = (r->rank + ranks - 1) % ranks;
	CALL(ncclGroupStart);
	CALL(ncclSend, r->send, 501, ncclFloat32, next, r->comm, r->stream);
	CALL(ncclRecv, r->receive, 501, ncclFloat32, previous, r->comm, r->stream);
	CALL(ncclGroupEnd);
	if (r->rank == 0)
		CALL(ncclSend, r->send, 502, ncclFloat16, 1, r->comm, r->stream);
	else if (r->rank == 1)
		CALL(ncclRecv, r->receive, 502, ncclFloat16, 0, r->comm, r->stream);
}

static void group(struct rank *r)
{
	ncclSimInfo_t info = {.size = sizeof(info)};
	CALL(ncclGroupStart);
	for (size_t i = 0; i < 3; i++) {
		CALL(ncclGroupStart);
		CALL(ncclAllReduce, r->send, r->receive, 601 + i, ncclFloat32, ncclSum, r->comm, r->stream);
		CALL(ncclGroupEnd);
	}
	CALL(ncclGroupEnd);
	CALL(ncclGroupStart);
	CALL(ncclGroupEnd);
	CALL(ncclGroupStart);
	CALL(ncclGroupSimulateEnd, &info);
}

static void memory(struct rank *r)
{
	void *at, *handle;
	ncclWindow_t window;
	CALL(ncclMemAlloc, &at, 1 << 20);
	CALL(ncclCommRegister, r->comm, at, 1 << 20, &handle);
	CALL(ncclCommDeregister, r->comm, handle);
	CALL(ncclCommWindowRegister, r->comm, at, 1 << 20, &window, 0);
	CALL(ncclCommWindowDeregister, r->comm, window);
	CALL(ncclMemFree, at);
}

/* Communicators that come and go, with one operation each. */
static void children(struct rank *r)
{
	ncclConfig_t config = {.size = sizeof(config), .commName = "tensor_parallel"};
	ncclComm_t split, none, shrunk = NULL, scalable;
	CALL(ncclCommSplit, r->comm, r->rank % 2, -r->rank, &split, &config);
	CALL(ncclAllReduce, r->send, r->receive, 701, ncclFloat32, ncclSum, split, r->stream);
	CALL(ncclCommSplit, r->comm, r->rank ? 0 : NCCL_SPLIT_NOCOLOR, 0, &none, NULL);
	check(none != NULL, r->rank != 0, "ncclCommSplit: communicator");
	if (r->rank != ranks - 1) {
		int without[] = {ranks - 1};
		CALL(ncclCommShrink, r->comm, without, 1, &shrunk, &config, 0);
		CALL(ncclAllReduce, r->send, r->receive, 702, ncclFloat32, ncclSum, shrunk, r->stream);
	}
	CALL(ncclCommInitRankScalable, &scalable, ranks, r->rank, 1, &ids[2], &config);
	CALL(ncclAllReduce, r->send, r->receive, 703, ncclFloat32, ncclSum, scalable, r->stream);
	CALL(cuStreamSynchronize, r->stream);
	CALL(ncclCommFinalize, split);
	CALL(ncclCommDestroy, split);
	CALL(ncclCommDestroy, none);
	CALL(ncclCommAbort, shrunk);
	CALL(ncclCommRevoke, scalable, 0);
	CALL(ncclCommAbort, scalable);
}

/* Two ranks in one thread. */
static void pair(struct rank *r)
{
	ncclComm_t both[2];
	int devices[2] = {0, 0};
	CUstream streams[2];
	CALL(ncclCommInitAll, both, 2, devices);
	CALL(ncclGroupStart);
	for (int i = 0; i < 2; i++) {
		CALL(cuStreamCreateWithPriority, &streams[i], CU_STREAM_NON_BLOCKING, 0);
		CALL(ncclAllGather, r->send, r->receive, 801, ncclFloat32, both[i], streams[i]);
	}
	CALL(ncclGroupEnd);
	for (int i = 0; i < 2; i++)
		CALL(cuStreamSynchronize, streams[i]);
	for (int i = 0; i < 2; i++)
		CALL(ncclCommDestroy, both[i]);
}

static void fail(struct rank *r)
{
	FAIL(ncclAllReduce, r->send, r->receive, 901, ncclNumTypes, ncclSum, r->comm, r->stream);
	FAIL(ncclBroadcast, r->send, r->receive, 902, ncclFloat32, ranks, r->comm, r->stream);
	FAIL(ncclCommInitRank, &(ncclComm_t){NULL}, 2, ids[0], 2);
}

/* Another communicator soon has the address of the destroyed one. */
static void remake(struct rank *r)
{
	ncclComm_t split;
	CALL(ncclCommSplit, r->comm, 0, -r->rank, &split, NULL);
	CALL(ncclAllReduce, r->send, r->receive, 704, ncclFloat32, ncclSum, split, r->stream);
	CALL(cuStreamSynchronize, r->stream);
	CALL(ncclCommDestroy, split);
}

static void one_round(struct rank *r)
{
	ask(r);
	reduce_all(r);
	operate(r);
	custom(r);
	exchange(r);
	group(r);
	memory(r);
	fail(r);
	CALL(cuStreamSynchronize, r->stream);
}

static void wait_for_stdin(void)
{
	char byte;
	fflush(stdout);
	while (waits && read(STDIN_FILENO, &byte, 1) < 0)
		;
}

static void *run(void *argument)
{
	struct rank *r = argument;
	ncclComm_t second;
	ncclConfig_t config = {.size = sizeof(config), .commName = "second"};
	set_up(r);
	if (older) {
		join(r);
		reduce_some(r, OLDER);
	}
	pthread_barrier_wait(ready); /* the set-up is over */
	pthread_barrier_wait(ready); /* the test has attached */
	if (older) {
		reduce_some(r, 1);
		usleep(CALM_US); /* a recorder can compare its counts with the library's between two calls only */
	} else {
		join(r);
	}
	for (int i = 0; i < rounds; i++)
		one_round(r);
	for (int i = 0; i < remakes; i++)
		remake(r);
	CALL(ncclCommInitRankConfig, &second, ranks, ids[1], r->rank, &config);
	children(r);
	pair(r);
	CALL(ncclCommDestroy, second);
	CALL(ncclCommFinalize, r->comm);
	CALL(ncclCommDestroy, r->comm);
	return NULL;
}

static void make_barrier(void)
{
	pthread_barrierattr_t attributes;
	static pthread_barrier_t own;
	pthread_barrierattr_init(&attributes);
	pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
	/* Processes map a page that they inherit. */
	ready = processes ? mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0) : &own;
	pthread_barrier_init(ready, &attributes, (unsigned)ranks + 1);
}

static void start(struct rank *r, pthread_t *thread)
{
	if (!processes) {
		check(pthread_create(thread, NULL, run, r), 0, "pthread_create");
		return;
	}
	pid_t pid = fork();
	check(pid < 0, 0, "fork");
	if (pid)
		return;
	find_libraries();
	run(r);
	exit(0);
}

static int finish(pthread_t *threads)
{
	int status, worst = 0;
	for (int i = 0; i < ranks; i++) {
		if (!processes)
			pthread_join(threads[i], NULL);
		else if (wait(&status) > 0 && status)
			worst = 1;
	}
	return worst;
}

static void refuse(void)
{
	fprintf(stderr, "usage: ncclcalls [--ranks N] [--rounds N] [--remake N] [--processes] [--older] [--nonblocking] [--wait]\n");
	exit(2);
}

static void read_options(int argc, char **argv)
{
	static const struct option list[] = {
		{"ranks", required_argument, NULL, 'n'}, {"rounds", required_argument, NULL, 'r'}, {"remake", required_argument, NULL, 'm'},
		{"processes", no_argument, NULL, 'p'},
		{"older", no_argument, NULL, 'o'}, {"nonblocking", no_argument, NULL, 'b'}, {"wait", no_argument, NULL, 'W'}, {NULL, 0, NULL, 0},
	};
	for (int option; (option = getopt_long(argc, argv, "", list, NULL)) != -1;) {
		switch (option) {
		case 'n': ranks = atoi(optarg); break;
		case 'r': rounds = atoi(optarg); break;
		case 'm': remakes = atoi(optarg); break;
		case 'p': processes = true; break;
		case 'o': older = true; break;
		case 'b': nonblocking = true; break;
		case 'W': waits = true; break;
		default: refuse();
		}
	}
	if (optind != argc || ranks < 2 || ranks > RANKS_MAX || rounds < 1)
		refuse();
}

int main(int argc, char **argv)
{
	static struct rank all[RANKS_MAX];
	pthread_t threads[RANKS_MAX];
	read_options(argc, argv);
	if (!processes)
		find_libraries();
	/* ncclGetUniqueId needs no CUDA, so a parent may call it before its children use CUDA. */
	ncclResult_t (*unique_id)(ncclUniqueId *);
	find_unique_id(&unique_id);
	for (int i = 0; i < 4; i++)
		check(unique_id(&ids[i]), 0, "ncclGetUniqueId");
	make_barrier();
	for (int i = 0; i < ranks; i++) {
		all[i].rank = i;
		start(&all[i], &threads[i]);
	}
	pthread_barrier_wait(ready);
	printf("ready %d\n", (int)getpid());
	wait_for_stdin();
	pthread_barrier_wait(ready);
	int worst = finish(threads);
	if (!worst)
		printf("done\n");
	wait_for_stdin();
	return worst;
}
