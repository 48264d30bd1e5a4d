/*
 * verdicts --scenario NAME: runs a small program with a known leak, or without a leak.
 * verdicts --list prints the names of the scenarios; scenarios.txt describes them.
 *
 * With --wait the program initializes CUDA, prints "ready PID" and waits for a byte on standard input.
 */
#include "verdicts.h"

#include <dlfcn.h>
#include <errno.h>
#include <string.h>
#include <unistd.h>

struct cuda cuda;

void check(CUresult result, const char *call)
{
	if (result == CUDA_SUCCESS)
		return;
	fprintf(stderr, "verdicts: %s: error %d\n", call, (int)result);
	exit(1);
}

static void find_cuda(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW);
#define X(name) \
	if (library) \
		cuda.name = (__typeof__(name) *)dlsym(library, #name);
	CUDA_FUNCTIONS(X)
#undef X
	const char *error = dlerror();
	if (error) {
		fprintf(stderr, "verdicts: %s\n", error);
		exit(1);
	}
}

void use_device(void)
{
	CUcontext context;
	CUDA(cuInit, 0);
	CUDA(cuDevicePrimaryCtxRetain, &context, 0);
	CUDA(cuCtxSetCurrent, context);
}

bool next(long *step, long steps)
{
	static _Thread_local struct timespec due;
	if (*step == 0)
		clock_gettime(CLOCK_MONOTONIC, &due);
	due.tv_nsec += STEP_US * 1000L;
	due.tv_sec += due.tv_nsec / 1000000000;
	due.tv_nsec %= 1000000000;
	while (*step > 0 && clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &due, NULL) == EINTR)
		;
	return (*step)++ < steps;
}

unsigned chance(void)
{
	static unsigned state = 1;
	state = state * 1664525 + 1013904223;
	return state >> 8;
}

SITE void weights(long count, size_t bytes)
{
	while (count-- > 0)
		(void)DEVICE(bytes);
}

SITE void temporaries(long step)
{
	CUdeviceptr a = DEVICE((size_t)(64 + step * 37 % 192) * KiB), b = DEVICE(MiB);
	CUDA(cuMemFree_v2, a);
	CUDA(cuMemFree_v2, b);
}

SITE CUdeviceptr leak(size_t bytes) { return DEVICE(bytes); }
SITE CUdeviceptr cached(size_t bytes) { return DEVICE(bytes); }
SITE CUdeviceptr buffer(size_t bytes) { return DEVICE(bytes); }

SITE void drop(CUdeviceptr *p)
{
	if (*p)
		CUDA(cuMemFree_v2, *p);
	*p = 0;
}

static const struct scenario *const all[] = {leaks, caches, kinds, processes, faults};

static const struct scenario *find(const char *name)
{
	for (size_t i = 0; i < sizeof all / sizeof *all; i++)
		for (const struct scenario *s = all[i]; s->name; s++) {
			if (!name)
				puts(s->name);
			else if (strcmp(s->name, name) == 0)
				return s;
		}
	return NULL;
}

int main(int argc, char **argv)
{
	const struct scenario *s = NULL;
	bool wait = argc == 4 && strcmp(argv[3], "--wait") == 0;
	if (argc == 2 && strcmp(argv[1], "--list") == 0) {
		find(NULL);
		return 0;
	}
	if ((argc == 3 || wait) && strcmp(argv[1], "--scenario") == 0)
		s = find(argv[2]);
	if (!s) {
		fprintf(stderr, "usage: verdicts --list | --scenario NAME [--wait]\n");
		return 2;
	}
	find_cuda();
	if (wait) {
		use_device();
		printf("ready %d\n", getpid());
		fflush(stdout);
		getchar();
	}
	s->run();
	return 0;
}
