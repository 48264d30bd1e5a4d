/* storm: makes a given number of random calls to nearly all simulated functions, from several
 * threads. Most calls are valid, some fail on purpose. Tests compare a recording with the
 * ledger; benchmarks measure the recorder's overhead. */
#include "storm.h"

#include <dlfcn.h>
#include <getopt.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { THREADS_MAX = 256, DEVICES_MAX = 8 };

struct api api;

/* Passed twice: after the set-up of all threads, and at the start of the calls. */
static pthread_barrier_t barrier;
static CUcontext contexts[DEVICES_MAX];
static int devices;
static double ns_per_call; /* per thread; 0 = no rate limit */

static void usage(void)
{
	fprintf(stderr, "usage: storm --calls N [--threads T] [--seed S] [--rate CALLS_PER_S] [--wait]\n");
	exit(2);
}

static void find_cuda(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW);
	if (!library) {
		fprintf(stderr, "storm: %s\n", dlerror());
		exit(1);
	}
#define X(name, type)                                                    \
	api.name = (__typeof__(api.name))dlsym(library, #name);          \
	if (!api.name) {                                                 \
		fprintf(stderr, "storm: no %s in libcuda.so.1\n", #name); \
		exit(1);                                                 \
	}
	STORM_FUNCTIONS(X)
#undef X
}

static double now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

/* Limits the rate of calls. Short sleeps are inaccurate, so a thread sleeps only when it is 1 ms
 * or more ahead. */
static void limit_rate(const struct worker *w, double start)
{
	double ahead = start + (double)w->calls_made * ns_per_call - now_ns();
	if (ahead < 1e6)
		return;
	struct timespec t = {.tv_sec = (time_t)(ahead / 1e9)};
	t.tv_nsec = (long)(ahead - (double)t.tv_sec * 1e9);
	nanosleep(&t, NULL);
}

static void *run(void *argument)
{
	struct worker *w = argument;
	worker_set_up(w, w->device, contexts[w->device]);
	pthread_barrier_wait(&barrier);
	pthread_barrier_wait(&barrier);
	double start = now_ns();
	while (w->left > 0) {
		worker_act(w);
		if (ns_per_call > 0)
			limit_rate(w, start);
	}
	return NULL;
}

/* Waits until stdin has a byte or is closed. */
static void wait_for_stdin(void)
{
	char byte;
	fflush(stdout);
	while (read(STDIN_FILENO, &byte, 1) < 0)
		;
}

static void set_up_devices(void)
{
	CUresult result = api.cuInit(0);
	if (!result)
		result = api.cuDeviceGetCount(&devices);
	if (devices > DEVICES_MAX)
		devices = DEVICES_MAX;
	for (int i = 0; i < devices && !result; i++)
		result = api.cuDevicePrimaryCtxRetain(&contexts[i], i);
	if (result) {
		fprintf(stderr, "storm: cannot initialise: error %d\n", (int)result);
		exit(1);
	}
}

static long number(const char *text)
{
	char *end;
	long n = strtol(text, &end, 0);
	if (!*text || *end || n < 0)
		usage();
	return n;
}

int main(int argc, char **argv)
{
	static const struct option options[] = {
		{"calls", required_argument, NULL, 'c'}, {"threads", required_argument, NULL, 't'},
		{"seed", required_argument, NULL, 's'},  {"rate", required_argument, NULL, 'r'},
		{"wait", no_argument, NULL, 'w'},        {NULL, 0, NULL, 0},
	};
	static struct worker workers[THREADS_MAX];
	static pthread_t threads[THREADS_MAX];
	long calls = -1, n = 1, seed = 1, rate = 0, made = 0, unexpected = 0;
	bool wait = false;
	for (int option; (option = getopt_long(argc, argv, "", options, NULL)) != -1;) {
		switch (option) {
		case 'c': calls = number(optarg); break;
		case 't': n = number(optarg); break;
		case 's': seed = number(optarg); break;
		case 'r': rate = number(optarg); break;
		case 'w': wait = true; break;
		default: usage();
		}
	}
	if (calls < 0 || n < 1 || n > THREADS_MAX || optind != argc)
		usage();
	ns_per_call = rate ? 1e9 * (double)n / (double)rate : 0;

	find_cuda();
	set_up_devices();
	pthread_barrier_init(&barrier, NULL, (unsigned)n + 1);
	for (long i = 0; i < n; i++) {
		struct worker *w = &workers[i];
		/* An odd multiplier makes neighbouring seeds and threads differ. The lowest bit is
		 * set, because the random state must not be 0. */
		w->random = ((uint64_t)seed * 1000003 + (uint64_t)i + 1) * 0x9e3779b97f4a7c15ull | 1;
		w->left = calls / n + (i < calls % n);
		w->device = (CUdevice)(i % devices);
		if (pthread_create(&threads[i], NULL, run, w)) {
			fprintf(stderr, "storm: cannot start thread %ld\n", i);
			return 1;
		}
	}
	pthread_barrier_wait(&barrier);
	if (wait) {
		printf("ready %d\n", (int)getpid());
		wait_for_stdin();
	}
	double start = now_ns();
	pthread_barrier_wait(&barrier);
	for (long i = 0; i < n; i++) {
		pthread_join(threads[i], NULL);
		made += workers[i].calls_made;
		unexpected += workers[i].unexpected;
	}
	double seconds = (now_ns() - start) / 1e9;
	printf("done %ld\n", made);
	fflush(stdout);
	fprintf(stderr, "storm: %ld calls in %.3f s, %.0f calls/s\n", made, seconds, (double)made / seconds);
	if (wait)
		wait_for_stdin();
	if (unexpected && !getenv("SIMCUDA_FAIL")) {
		fprintf(stderr, "storm: error: %ld calls returned an unexpected result\n", unexpected);
		return 1;
	}
	return 0;
}
