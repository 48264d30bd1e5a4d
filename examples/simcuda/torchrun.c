/*
 * torchrun: a launcher like PyTorch's. The parent starts four workers and makes no CUDA call. Each
 * worker executes this program again, makes exactly --calls driver calls, and leaks one block per
 * step. All workers write the same ledger, and the calls are the same in every run. A recorder sees
 * calls only if it follows the children.
 */
#include "cuda_sim.h"

#include <dlfcn.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Functions that must appear as stack frames. */
#define STACK_FRAME __attribute__((noinline))

enum { WORKERS = 4, CALLS = 2000, CALLS_MIN = 20, ACTIVATION_BYTES = 8 << 10, WEIGHT_BYTES = 1 << 20 };

static void *library;
static long left; /* remaining calls of this worker */

static void *find(const char *name)
{
	void *function = dlsym(library, name);
	if (function)
		return function;
	fprintf(stderr, "torchrun: no %s in libcuda.so.1\n", name);
	exit(1);
}

static void check(CUresult result, const char *name)
{
	left--;
	if (result == CUDA_SUCCESS)
		return;
	fprintf(stderr, "torchrun: %s: error %d\n", name, (int)result);
	exit(1);
}

/* Makes a driver call, unless the worker has used up its calls. */
#define CALL(fn, ...)                                                                       \
	do {                                                                                \
		if (left > 0)                                                               \
			check(((__typeof__(fn) *)find(#fn))(__VA_ARGS__), #fn);             \
	} while (0)

static const char ptx[] =
	".version 7.0\n.target sm_52\n.address_size 64\n"
	".visible .entry _Z7forwardPKfPf() { ret; }\n"
	".visible .entry _Z8backwardPKfPf() { ret; }\n"
	".visible .entry _Z8allreducePfi() { ret; }\n";

static struct {
	int rank;
	CUfunction forward, backward, allreduce;
	CUstream stream;
	CUdeviceptr weights, gradients;
} worker;

STACK_FRAME static void load_model(void)
{
	CUcontext context = NULL;
	CUmodule module = NULL;
	CUdevice device = 0;
	int devices = 1;
	CALL(cuInit, 0);
	CALL(cuDeviceGetCount, &devices);
	CALL(cuDeviceGet, &device, worker.rank % devices);
	CALL(cuDevicePrimaryCtxRetain, &context, device);
	CALL(cuCtxSetCurrent, context);
	CALL(cuModuleLoadData, &module, ptx);
	CALL(cuModuleGetFunction, &worker.forward, module, "_Z7forwardPKfPf");
	CALL(cuModuleGetFunction, &worker.backward, module, "_Z8backwardPKfPf");
	CALL(cuModuleGetFunction, &worker.allreduce, module, "_Z8allreducePfi");
	CALL(cuStreamCreate, &worker.stream, CU_STREAM_NON_BLOCKING);
	CALL(cuMemAlloc_v2, &worker.weights, WEIGHT_BYTES + 4096 * (size_t)worker.rank);
	CALL(cuMemAlloc_v2, &worker.gradients, WEIGHT_BYTES);
}

/* The leak. The leaked size differs between ranks. */
STACK_FRAME static void cache_activations(void)
{
	CUdeviceptr forgotten = 0;
	CALL(cuMemAlloc_v2, &forgotten, ACTIVATION_BYTES * ((size_t)worker.rank + 1));
}

STACK_FRAME static void train_step(unsigned int step)
{
	CUdeviceptr batch = 0;
	void *arguments[1] = {NULL};
	CALL(cuMemAllocAsync, &batch, 64 << 10, worker.stream);
	CALL(cuMemsetD32Async, batch, step, 1024, worker.stream);
	CALL(cuLaunchKernel, worker.forward, step % 64 + 1, 1, 1, 128, 1, 1, 0, worker.stream, arguments, NULL);
	cache_activations();
	CALL(cuLaunchKernel, worker.backward, step % 64 + 1, 2, 1, 128, 1, 1, 0, worker.stream, arguments, NULL);
	CALL(cuLaunchKernel, worker.allreduce, 16, 1, 1, 256, 1, 1, 1024, worker.stream, arguments, NULL);
	CALL(cuMemcpyDtoDAsync_v2, worker.gradients, worker.weights, 4096, worker.stream);
	CALL(cuMemFreeAsync, batch, worker.stream);
	CALL(cuStreamSynchronize, worker.stream);
}

static int work(int rank, long calls)
{
	worker.rank = rank;
	left = calls;
	load_model();
	for (unsigned int step = 0; left > 0; step++)
		train_step(step);
	return 0;
}

static pid_t start_worker(int rank, long calls)
{
	char number[16], count[32];
	pid_t pid = fork();
	if (pid)
		return pid;
	snprintf(number, sizeof(number), "%d", rank);
	snprintf(count, sizeof(count), "%ld", calls);
	setenv("RANK", number, 1);
	setenv("LOCAL_RANK", number, 1);
	execl("/proc/self/exe", "torchrun", "--worker", number, "--calls", count, (char *)NULL);
	_exit(127);
}

static int run(long calls)
{
	int failed = 0, status;
	setenv("WORLD_SIZE", "4", 1);
	for (int rank = 0; rank < WORKERS; rank++) {
		if (start_worker(rank, calls) < 0) {
			perror("torchrun: fork");
			return 1;
		}
	}
	while (wait(&status) > 0)
		failed += status != 0;
	printf("done\n");
	fflush(stdout);
	if (failed)
		fprintf(stderr, "torchrun: %d of %d workers failed\n", failed, WORKERS);
	return failed > 0;
}

static void wait_for_stdin(void)
{
	char byte;
	fflush(stdout);
	while (read(STDIN_FILENO, &byte, 1) < 0)
		;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{"calls", required_argument, NULL, 'c'}, {"wait", no_argument, NULL, 'w'}, {"worker", required_argument, NULL, 'r'},
		{NULL, 0, NULL, 0},
	};
	long calls = CALLS;
	int rank = -1, waits = 0;
	for (int option; (option = getopt_long(argc, argv, "", options, NULL)) != -1;) {
		switch (option) {
		case 'c': calls = atol(optarg); break;
		case 'w': waits = 1; break;
		case 'r': rank = atoi(optarg); break;
		default: calls = 0;
		}
	}
	if (calls < CALLS_MIN || optind != argc) {
		fprintf(stderr, "usage: torchrun [--calls N] [--wait]\n");
		return 2;
	}
	/* The parent loads the library too, so that a recorder finds it in the parent. */
	library = dlopen("libcuda.so.1", RTLD_NOW);
	if (!library) {
		fprintf(stderr, "torchrun: %s\n", dlerror());
		return 1;
	}
	if (rank >= 0)
		return work(rank, calls);
	if (waits) {
		printf("ready %d\n", (int)getpid());
		wait_for_stdin();
	}
	int result = run(calls);
	if (waits)
		wait_for_stdin();
	return result;
}
