/*
 * Calls ncclGroupStart, ncclAllReduce and ncclGroupEnd on a communicator of one rank, as PyTorch does for each
 * collective, to measure the cost of recording them. It reads a number N per input line, makes N such calls with a
 * synchronize after every 200, and answers with a line. Needs NCCL and a GPU, or simnccl and simcuda.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

static void *open_library(const char *name)
{
	void *library = dlopen(name, RTLD_NOW | RTLD_GLOBAL);

	if (!library) {
		fprintf(stderr, "collectives: %s\n", dlerror());
		exit(1);
	}
	return library;
}

static void *find(void *library, const char *name)
{
	void *function = dlsym(library, name);

	if (!function) {
		fprintf(stderr, "collectives: no %s\n", name);
		exit(1);
	}
	return function;
}

static void check(int result, const char *call)
{
	if (result) {
		fprintf(stderr, "collectives: %s: error %d\n", call, result);
		exit(1);
	}
}
#define CALL(library, name, types, ...) check(((int (*) types)find(library, #name))(__VA_ARGS__), #name)

int main(void)
{
	enum { FLOATS = 7, SUM = 0, ELEMENTS = 256 };
	void *cuda = open_library("libcuda.so.1"), *nccl = open_library("libnccl.so.2");
	int device, (*group_start)(void), (*group_end)(void), (*wait)(void *);
	int (*all_reduce)(const void *, void *, size_t, int, int, void *, void *);
	void *context, *stream, *communicator, *buffer;
	char line[32];
	long n;

	CALL(cuda, cuInit, (unsigned), 0);
	CALL(cuda, cuDeviceGet, (int *, int), &device, 0);
	CALL(cuda, cuDevicePrimaryCtxRetain, (void **, int), &context, device);
	CALL(cuda, cuCtxSetCurrent, (void *), context);
	CALL(cuda, cuStreamCreate, (void **, unsigned), &stream, 1);
	CALL(cuda, cuMemAlloc_v2, (void **, size_t), &buffer, 4 * ELEMENTS);
	CALL(nccl, ncclCommInitAll, (void **, int, const int *), &communicator, 1, NULL);
	group_start = find(nccl, "ncclGroupStart");
	group_end = find(nccl, "ncclGroupEnd");
	all_reduce = find(nccl, "ncclAllReduce");
	wait = find(cuda, "cuStreamSynchronize");
	while (fgets(line, sizeof(line), stdin) && sscanf(line, "%ld", &n) == 1) {
		for (long i = 1; i <= n; i++) {
			check(group_start(), "ncclGroupStart");
			check(all_reduce(buffer, buffer, ELEMENTS, FLOATS, SUM, communicator, stream), "ncclAllReduce");
			check(group_end(), "ncclGroupEnd");
			if (i % 200 == 0 || i == n)
				check(wait(stream), "cuStreamSynchronize");
		}
		puts("done");
		fflush(stdout);
	}
	return 0;
}
