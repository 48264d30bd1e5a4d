/*
 * changing: a training loop on a simulated GPU. One value moves to another level at a known time. The
 * program also plays the GPU: it writes the answers of simcuda's NVML to the file that SIMCUDA_NVML
 * names.
 *
 *   changing FAULT QUIET [--seconds S] [--seed N] [--times F] [--wait]
 *
 * FAULT is none, clock, steps, launches, memory, temperature, pcie or errors. QUIET is noise,
 * checkpoints, epochs or plateau: these are no change. The fault begins between 0.4 and 0.7 of S.
 * With the fault steps, a step takes F times as long, 1.4 times by default.
 *
 * It prints "ready PID" after its set-up, "fault NS" (CLOCK_MONOTONIC) when the fault begins, and
 * "done STEPS". With --wait it begins at a byte of stdin, and exits after another byte. Steps begin at
 * planned times, so that a busy machine delays single steps only.
 */
#include "cuda_sim.h"

#include <dlfcn.h>
#include <getopt.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define CHANGING_FUNCTIONS(X)                                                                            \
	X(cuInit) X(cuDevicePrimaryCtxRetain) X(cuCtxSetCurrent) X(cuModuleLoadData) X(cuModuleGetFunction) \
	X(cuMemAlloc_v2) X(cuStreamCreate) X(cuStreamSynchronize) X(cuLaunchKernel)

static struct {
#define X(name) __typeof__(name) *name;
	CHANGING_FUNCTIONS(X)
#undef X
} api;

static void check(CUresult result, const char *call)
{
	if (result == CUDA_SUCCESS)
		return;
	fprintf(stderr, "changing: %s: error %d\n", call, (int)result);
	exit(1);
}
#define CALL(fn, ...) check(api.fn(__VA_ARGS__), #fn)

static const char *fault = "none", *quiet = "noise";
static double times = 1.4;
static double seconds = 20, fault_at; /* seconds from the first step */
static uint64_t random_state = 1;
static bool waits;

/* Returns a random number from 0 to 1. */
static double random_share(void)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return (double)(random_state >> 11) / (double)(1ull << 53);
}

/* Returns noise with mean 0 and standard deviation 1: a sum of uniform numbers. */
static double noise(void)
{
	double sum = 0;
	for (int i = 0; i < 12; i++)
		sum += random_share();
	return sum - 6;
}

static bool is_faulty(const char *name, double at)
{
	return at >= fault_at && !strcmp(fault, name);
}

static bool in_epoch(double at)
{
	return !strcmp(quiet, "epochs") && fmod(at, 3) < 0.8;
}

/* Writes the answers of NVML for a time in seconds from the first step. */
static void answer(double at)
{
	const char *path = getenv("SIMCUDA_NVML");
	if (!path)
		return;
	char new_path[4096];
	snprintf(new_path, sizeof(new_path), "%s.new", path);
	FILE *file = fopen(new_path, "we");
	if (!file) {
		fprintf(stderr, "changing: %s: cannot be written\n", new_path);
		exit(1);
	}
	bool is_slow = is_faulty("clock", at);
	double celsius = 65;
	if (!strcmp(quiet, "plateau"))
		celsius = 45 + 25 * (1 - exp(-at / 6));
	if (is_faulty("temperature", at))
		celsius += 15 * fmin(1, (at - fault_at) / 2);
	double errors = is_faulty("errors", at) ? floor(30 * (at - fault_at)) : 0;
	fprintf(file, "nvmlDeviceGetClockInfo:1 %.0f\n", (is_slow ? 1410 : in_epoch(at) ? 1800 : 1980) - 15 * floor(3 * random_share()));
	fprintf(file, "nvmlDeviceGetCurrentClocksEventReasons %d\n", is_slow ? 4 : 0);
	fprintf(file, "nvmlDeviceGetPowerUsage %.0f\n", (in_epoch(at) ? 400000 : 600000) * (1 + 0.02 * noise()));
	fprintf(file, "nvmlDeviceGetTemperature %.0f\n", celsius + 0.3 * noise());
	fprintf(file, "nvmlGpmMetricsGet:21 %.1f\n", (is_faulty("pcie", at) ? 1500 : 4000) * (1 + 0.04 * noise()));
	fprintf(file, "nvmlDeviceGetNvLinkErrorCounter:0 3\nnvmlDeviceGetNvLinkErrorCounter:30 %.0f\n", errors);
	if (fclose(file) || rename(new_path, path)) {
		fprintf(stderr, "changing: %s: cannot be written\n", path);
		exit(1);
	}
}

static double now(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void sleep_until(double at)
{
	struct timespec t = {.tv_sec = (time_t)at, .tv_nsec = (long)((at - floor(at)) * 1e9)};
	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL))
		;
}

enum { KERNELS = 10 };
static CUfunction kernels[KERNELS];
static CUstream stream;

static void find_cuda(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW);
	if (!library) {
		fprintf(stderr, "changing: %s\n", dlerror());
		exit(1);
	}
#define X(name)                                                              \
	api.name = (__typeof__(api.name))dlsym(library, #name);              \
	if (!api.name) {                                                     \
		fprintf(stderr, "changing: no %s in libcuda.so.1\n", #name); \
		exit(1);                                                     \
	}
	CHANGING_FUNCTIONS(X)
#undef X
}

static void set_up(void)
{
	static char ptx[4096];
	size_t n = (size_t)sprintf(ptx, ".version 7.0\n.target sm_52\n.address_size 64\n");
	for (int i = 0; i < KERNELS; i++)
		n += (size_t)snprintf(ptx + n, sizeof(ptx) - n, ".visible .entry layer_%d() { ret; }\n", i);
	CUcontext context;
	CUmodule module;
	CUdeviceptr weights;
	CALL(cuInit, 0);
	CALL(cuDevicePrimaryCtxRetain, &context, 0);
	CALL(cuCtxSetCurrent, context);
	CALL(cuModuleLoadData, &module, ptx);
	for (int i = 0; i < KERNELS; i++) {
		char name[16];
		snprintf(name, sizeof(name), "layer_%d", i);
		CALL(cuModuleGetFunction, &kernels[i], module, name);
	}
	CALL(cuMemAlloc_v2, &weights, 1u << 30);
	CALL(cuStreamCreate, &stream, CU_STREAM_NON_BLOCKING);
}

static void wait_for_stdin(void)
{
	char byte;
	fflush(stdout);
	while (waits && read(STDIN_FILENO, &byte, 1) < 0)
		;
}

/* Launches the kernels of a step. */
__attribute__((noinline)) static void train_step(double at)
{
	int launches = is_faulty("launches", at) ? KERNELS * 6 / 10 : KERNELS;
	for (int i = 0; i < launches; i++)
		CALL(cuLaunchKernel, kernels[i], 128, 1, 1, 128, 1, 1, 0, stream, NULL, NULL);
	CALL(cuStreamSynchronize, stream);
}

/* Returns the planned duration of a step in seconds. */
static double plan(int step, double at)
{
	double planned = 0.04 * (1 + 0.03 * noise());
	if (is_faulty("steps", at))
		planned *= times;
	if (is_faulty("clock", at))
		planned *= 1.25;
	if (!strcmp(quiet, "checkpoints") && step % 20 == 19)
		planned *= 3;
	return in_epoch(at) ? planned / 2 : planned;
}

static int train(void)
{
	bool has_fault = !strcmp(fault, "none"); /* or needs none */
	int step = 0;
	double begin = now(), next = begin;
	while (next < begin + seconds) {
		double at = next - begin;
		if (!has_fault && at >= fault_at) {
			has_fault = true;
			printf("fault %.0f\n", now() * 1e9);
			fflush(stdout);
			CUdeviceptr more;
			if (!strcmp(fault, "memory"))
				CALL(cuMemAlloc_v2, &more, 1u << 30);
		}
		answer(at);
		train_step(at);
		next += plan(step++, at);
		sleep_until(next);
	}
	return step;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{"seconds", required_argument, NULL, 's'}, {"seed", required_argument, NULL, 'r'},
		{"times", required_argument, NULL, 't'}, {"wait", no_argument, NULL, 'w'}, {0},
	};
	for (int option; (option = getopt_long(argc, argv, "", options, NULL)) != -1;) {
		if (option == 's')
			seconds = strtod(optarg, NULL);
		else if (option == 'r')
			random_state = strtoull(optarg, NULL, 10) * 0x9e3779b97f4a7c15ull | 1;
		else if (option == 't')
			times = strtod(optarg, NULL);
		else if (option == 'w')
			waits = true;
		else
			return 2;
	}
	if (argc - optind != 2) {
		fprintf(stderr, "usage: changing FAULT QUIET [--seconds S] [--seed N] [--times F] [--wait]\n");
		return 2;
	}
	fault = argv[optind];
	quiet = argv[optind + 1];
	for (int i = 0; i < 100; i++) /* a small seed needs some rounds */
		random_share();
	fault_at = seconds * (0.4 + 0.3 * random_share());
	find_cuda();
	set_up();
	answer(0);
	printf("ready %d\n", getpid());
	wait_for_stdin();
	printf("done %d\n", train());
	wait_for_stdin();
	return 0;
}
