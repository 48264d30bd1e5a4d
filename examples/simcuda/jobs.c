/*
 * jobs: a training program with a known cause of its idle GPU, of slow steps, or of a hang. The
 * seed draws layers, kernels, durations, the place of outliers and the function of the late host.
 *
 *   jobs SCENARIO [--seed N] [--steps N] [--truth FILE] [--wait]
 *
 * It writes the truth as JSON lines: one for the job, one for each step, and one for each event that
 * a report must find. It prints "ready PID" after its set-up, and "done STEPS" at the end. With the
 * scenario stuck it prints "stuck" before the wait that never returns.
 *
 * With --wait it waits for a byte of stdin after "ready". Then it warms up, with pauses, until the
 * next byte, so that a recorder can find the progress words. It exits after another byte.
 */
#include "jobs.h"

#include <dlfcn.h>
#include <getopt.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { BATCH_MAX = 64 << 20, STEPS_MAX = 1000000, PRIORITY = -15 };

struct jobs_api api;
static bool waits;

void check(CUresult result, const char *call)
{
	if (result == CUDA_SUCCESS)
		return;
	fprintf(stderr, "jobs: %s: error %d\n", call, (int)result);
	exit(1);
}

uint64_t job_now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

void job_sleep_ns(uint64_t ns)
{
	struct timespec t = {.tv_sec = (time_t)(ns / 1000000000), .tv_nsec = (long)(ns % 1000000000)};
	nanosleep(&t, NULL);
}

int job_below(struct job *j, int n)
{
	j->random ^= j->random << 13;
	j->random ^= j->random >> 7;
	j->random ^= j->random << 17;
	return (int)(j->random % (uint64_t)n);
}

int job_between(struct job *j, int from, int to)
{
	return from + job_below(j, to - from + 1);
}

static void find_cuda(void)
{
	/* Slow copies, so that a short buffer keeps the GPU waiting. */
	setenv("SIMCUDA_GBPS", "4", 0);
	void *library = dlopen("libcuda.so.1", RTLD_NOW);
	if (!library) {
		fprintf(stderr, "jobs: %s\n", dlerror());
		exit(1);
	}
#define X(name)                                                          \
	api.name = (__typeof__(api.name))dlsym(library, #name);          \
	if (!api.name) {                                                 \
		fprintf(stderr, "jobs: no %s in libcuda.so.1\n", #name); \
		exit(1);                                                 \
	}
	JOBS_FUNCTIONS(X)
#undef X
}

static void load_kernels(struct job *j)
{
	static char ptx[16 << 10];
	size_t n = (size_t)sprintf(ptx, ".version 7.0\n.target sm_52\n.address_size 64\n");
	for (int i = 0; i < ROLES; i++)
		n += (size_t)snprintf(ptx + n, sizeof(ptx) - n, ".visible .entry %s(.param .u64 duration_ns) { ret; }\n",
				      j->kernels[i].name);
	CUmodule module;
	CALL(cuModuleLoadData, &module, ptx);
	for (int i = 0; i < ROLES; i++)
		CALL(cuModuleGetFunction, &j->kernels[i].function, module, j->kernels[i].name);
}

static void set_up(struct job *j)
{
	CALL(cuInit, 0);
	CALL(cuDevicePrimaryCtxRetain, &j->context, 0);
	CALL(cuCtxSetCurrent, j->context);
	load_kernels(j);
	CALL(cuMemAlloc_v2, &j->device, BATCH_MAX);
	CALL(cuMemHostAlloc, &j->host, BATCH_MAX, 0);
	CALL(cuStreamCreateWithPriority, &j->main, CU_STREAM_NON_BLOCKING, 0);
	CALL(cuStreamCreateWithPriority, &j->side, CU_STREAM_NON_BLOCKING, 0);
	CALL(cuEventCreate, &j->copied, CU_EVENT_DISABLE_TIMING);
	CALL(cuEventCreate, &j->side_done, CU_EVENT_DISABLE_TIMING);
	for (size_t i = 0; i < sizeof(j->ends) / sizeof(*j->ends); i++)
		CALL(cuEventCreate, &j->ends[i], CU_EVENT_DISABLE_TIMING);
}

static void wait_for_stdin(void)
{
	char byte;
	fflush(stdout);
	while (waits && read(STDIN_FILENO, &byte, 1) < 0)
		;
}

static bool has_input(void)
{
	struct pollfd input = {.fd = STDIN_FILENO, .events = POLLIN};
	return !waits || poll(&input, 1, 0) > 0;
}

/* Uses all streams and pauses, again and again. */
static void warm_up_until_input(struct job *j)
{
	enum { PAUSE_NS = 120000000 };
	do {
		job_warm_up(j);
		job_sleep_ns(PAUSE_NS);
	} while (!has_input());
	wait_for_stdin();
}

static void run(struct job *j)
{
	for (j->step = 0; j->step < j->steps; j->step++) {
		uint64_t start_ns = job_now_ns();
		j->launches = 0;
		job_plan_step(j);
		job_step(j);
		truth_step(j, start_ns);
	}
	job_drain(j);
}

static void refuse(void)
{
	fprintf(stderr, "usage: jobs SCENARIO [--seed N] [--steps N] [--truth FILE] [--wait]\nscenarios:");
	for (int i = 0; i < SCENARIOS; i++)
		fprintf(stderr, " %s", scenario_names[i]);
	fprintf(stderr, "\n");
	exit(2);
}

static long number(const char *text, long least, long most)
{
	char *end;
	long n = strtol(text, &end, 0);
	if (!*text || *end || n < least || n > most)
		refuse();
	return n;
}

/* Returns the number of steps that the command line asks for, or 0. */
static int read_options(struct job *j, int argc, char **argv)
{
	static const struct option list[] = {
		{"seed", required_argument, NULL, 's'}, {"steps", required_argument, NULL, 'n'},
		{"truth", required_argument, NULL, 't'}, {"wait", no_argument, NULL, 'W'}, {NULL, 0, NULL, 0},
	};
	int steps = 0;
	for (int option; (option = getopt_long(argc, argv, "", list, NULL)) != -1;) {
		switch (option) {
		case 's': j->seed = (uint64_t)number(optarg, 0, 1000000000); break;
		case 'n': steps = (int)number(optarg, 1, STEPS_MAX); break;
		case 't': truth_open(optarg); break;
		case 'W': waits = true; break;
		default: refuse();
		}
	}
	for (j->scenario = 0; optind == argc - 1 && j->scenario < SCENARIOS; j->scenario++)
		if (!strcmp(argv[optind], scenario_names[j->scenario]))
			return steps;
	refuse();
	return 0;
}

int main(int argc, char **argv)
{
	struct job job = {.seed = 1};
	int steps = read_options(&job, argc, argv);
	job.random = (job.seed * SCENARIOS + job.scenario + 1) * 0x9e3779b97f4a7c15ull | 1;
	setpriority(PRIO_PROCESS, 0, PRIORITY); /* other programs shall not delay this one; needs root */
	find_cuda();
	job_draw(&job);
	if (steps)
		job.steps = steps;
	set_up(&job);
	truth_job(&job);
	printf("ready %d\n", (int)getpid());
	wait_for_stdin();
	warm_up_until_input(&job);
	run(&job);
	truth_flush();
	printf("done %d\n", job.steps);
	wait_for_stdin();
	return 0;
}
