/*
 * hostwaits: a training loop whose launching thread is held up on the host, with a known cause. The seed
 * draws functions, places in the step, lengths, the program's kernels, and names of other threads.
 *
 *   hostwaits KIND[,KIND] [--seed N] [--steps N] [--truth FILE] [--wait] [--hang] [--normal-priority]
 *   hostwaits --serve FOLDER
 *
 * It writes the truth as JSON lines. It prints "ready PID" after its set-up, and "done STEPS CHECKSUM" at
 * the end. The checksum depends on what the faults read, and on interrupted system calls.
 *
 * With --wait it waits for a byte of stdin after "ready". Then it warms up, with pauses, until the next
 * byte, so that a recorder can find the progress words. It exits after another byte.
 *
 * With --hang one delay never ends. The program prints "stuck TID" before it. The next byte of stdin ends
 * the delay, and the program continues.
 */
#include "hostwaits.h"

#include "cuda_sim.h"

#include <dlfcn.h>
#include <getopt.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { CHAIN_STEPS = 60, BATCH = 256 << 10, RESULT = 4096, PRIORITY = -15, MS = 1000000, US = 1000 };

#define FUNCTIONS(X)                                                                                              \
	X(cuInit) X(cuDevicePrimaryCtxRetain) X(cuCtxSetCurrent) X(cuCtxSynchronize) X(cuModuleLoadData)          \
	X(cuModuleGetFunction) X(cuMemAlloc_v2) X(cuMemHostAlloc) X(cuStreamCreate) X(cuStreamSynchronize)        \
	X(cuLaunchKernel) X(cuMemcpyHtoDAsync_v2) X(cuMemcpyDtoH_v2)

static struct {
#define X(name) __typeof__(name) *name;
	FUNCTIONS(X)
#undef X
} api;

static struct {
	CUcontext context;
	CUstream stream;
	CUfunction forward, backward;
	CUdeviceptr device;
	void *host;
} gpu;

static bool waits;

void fail(const char *what)
{
	fprintf(stderr, "hostwaits: ");
	perror(what);
	exit(1);
}

static void check(CUresult result, const char *call)
{
	if (result == CUDA_SUCCESS)
		return;
	fprintf(stderr, "hostwaits: %s: error %d\n", call, (int)result);
	exit(1);
}
#define CALL(fn, ...) check(api.fn(__VA_ARGS__), #fn)

uint64_t now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

void sleep_ns(uint64_t ns)
{
	struct timespec t = {.tv_sec = (time_t)(ns / 1000000000), .tv_nsec = (long)(ns % 1000000000)};
	nanosleep(&t, NULL);
}

int draw(struct loop *l, int from, int to)
{
	l->random ^= l->random << 13;
	l->random ^= l->random >> 7;
	l->random ^= l->random << 17;
	return from + (int)(l->random % (uint64_t)(to - from + 1));
}

/* ---- what the seed draws ---- */

static void draw_fault(struct loop *l, struct fault *f)
{
	do
		f->function = draw(l, 0, place_count() - 1);
	while (f->number == 1 && f->function == l->faults[0].function);
	f->place = draw(l, 0, PLACES - 1);
	f->percent = draw(l, 60, 90);
	f->least_ns = (uint64_t)draw(l, 15, 20) * MS;
	f->most_ns = f->least_ns + (uint64_t)draw(l, 0, 20) * MS;
	if (f->kind == CGROUP || f->kind == OVERSUBSCRIBED) { /* CPU time: pauses make the delay longer */
		f->least_ns = (uint64_t)draw(l, 3, 5) * MS;
		f->most_ns = f->least_ns + (uint64_t)draw(l, 0, 3) * MS;
	}
}

static void draw_program(struct loop *l)
{
	l->launches = draw(l, 4, 20);
	l->kernel_ns = (uint64_t)draw(l, 2000, 4000) * US / (uint64_t)l->launches / PLACES;
	l->copies_back = draw(l, 0, 1);
	for (int i = 0; i < l->fault_count; i++)
		draw_fault(l, &l->faults[i]);
	if (!l->steps) {
		l->steps = draw(l, 90, 110);
		for (int i = 0; i < l->fault_count; i++)
			if (l->faults[i].kind >= CONDITION)
				l->steps += CHAIN_STEPS; /* a recorder finds one thread after the other */
	}
	l->stuck_step = draw(l, 5, l->steps / 2);
}

/* ---- set-up ---- */

static void find_cuda(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW);
	if (!library) {
		fprintf(stderr, "hostwaits: %s\n", dlerror());
		exit(1);
	}
#define X(name)                                                               \
	api.name = (__typeof__(api.name))dlsym(library, #name);               \
	if (!api.name) {                                                      \
		fprintf(stderr, "hostwaits: no %s in libcuda.so.1\n", #name); \
		exit(1);                                                      \
	}
	FUNCTIONS(X)
#undef X
}

static void set_up(void)
{
	static const char ptx[] = ".version 7.0\n.target sm_52\n.address_size 64\n"
				  ".visible .entry _Z7forwardPKfPf(.param .u64 duration_ns) { ret; }\n"
				  ".visible .entry _Z8backwardPKfPf(.param .u64 duration_ns) { ret; }\n";
	CUmodule module;
	CALL(cuInit, 0);
	CALL(cuDevicePrimaryCtxRetain, &gpu.context, 0);
	CALL(cuCtxSetCurrent, gpu.context);
	CALL(cuModuleLoadData, &module, ptx);
	CALL(cuModuleGetFunction, &gpu.forward, module, "_Z7forwardPKfPf");
	CALL(cuModuleGetFunction, &gpu.backward, module, "_Z8backwardPKfPf");
	CALL(cuMemAlloc_v2, &gpu.device, BATCH);
	CALL(cuMemHostAlloc, &gpu.host, BATCH, 0);
	CALL(cuStreamCreate, &gpu.stream, CU_STREAM_NON_BLOCKING);
}

/* ---- a step ---- */

__attribute__((noinline)) static void come(struct loop *l, int place)
{
	for (int i = 0; i < l->fault_count; i++) {
		struct fault *f = &l->faults[i];
		bool is_stuck = l->hangs && i == l->fault_count - 1 && l->step == l->stuck_step;
		if (f->place == place && f->kind != NONE && (draw(l, 1, 100) <= f->percent || is_stuck))
			delay(l, f);
	}
}

__attribute__((noinline)) static void launch(struct loop *l, CUfunction function)
{
	uint64_t ns = l->kernel_ns;
	void *arguments[] = {&ns};
	for (int i = 0; i < l->launches; i++)
		CALL(cuLaunchKernel, function, 64, 1, 1, 128, 1, 1, 0, gpu.stream, arguments, NULL);
}

__attribute__((noinline)) static void finish_step(struct loop *l)
{
	if (!l->copies_back) {
		CALL(cuStreamSynchronize, gpu.stream);
		return;
	}
	CALL(cuStreamSynchronize, gpu.stream);
	CALL(cuMemcpyDtoH_v2, gpu.host, gpu.device, RESULT);
}

__attribute__((noinline)) static void step(struct loop *l)
{
	come(l, 0);
	CALL(cuMemcpyHtoDAsync_v2, gpu.device, gpu.host, BATCH, gpu.stream);
	launch(l, gpu.forward);
	come(l, 1);
	launch(l, gpu.backward);
	come(l, 2);
	launch(l, gpu.forward);
	finish_step(l);
}

/* ---- stdin ---- */

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

static void warm_up_until_input(struct loop *l)
{
	enum { PAUSE_NS = 60000000 };
	do {
		CALL(cuMemcpyHtoDAsync_v2, gpu.device, gpu.host, RESULT, gpu.stream);
		launch(l, gpu.forward);
		CALL(cuCtxSynchronize);
		sleep_ns(PAUSE_NS);
	} while (!has_input());
	wait_for_stdin();
}

/* Ends the endless delay at the next byte of stdin. */
static void *release(void *argument)
{
	struct loop *l = argument;
	char byte;
	prctl(PR_SET_NAME, "release");
	if (read(STDIN_FILENO, &byte, 1) == 1)
		fault_release(&l->faults[l->fault_count - 1]);
	return NULL;
}

static void run(struct loop *l)
{
	pthread_t thread;
	if (l->hangs && pthread_create(&thread, NULL, release, l))
		fail("start of a thread");
	for (l->step = 0; l->step < l->steps; l->step++) {
		uint64_t from_ns = now_ns();
		step(l);
		truth_step(l, from_ns);
	}
	if (l->hangs)
		pthread_join(thread, NULL);
}

/* ---- command line ---- */

static void refuse(void)
{
	fprintf(stderr, "usage: hostwaits KIND[,KIND] [--seed N] [--steps N] [--truth FILE] [--wait] [--hang] [--normal-priority]\n"
			"       hostwaits --serve FOLDER\nkinds:");
	for (int i = 0; i < KINDS; i++)
		fprintf(stderr, " %s", kind_names[i]);
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

static enum kind kind_of(const char *name)
{
	for (int i = 0; i < KINDS; i++)
		if (!strcmp(name, kind_names[i]))
			return (enum kind)i;
	refuse();
	return NONE;
}

static void ignore_signal(int signal)
{
	(void)signal; /* its arrival interrupts a system call */
}

static void read_options(struct loop *l, int argc, char **argv)
{
	static const struct option list[] = {
		{"seed", required_argument, NULL, 's'}, {"steps", required_argument, NULL, 'n'},
		{"truth", required_argument, NULL, 't'}, {"serve", required_argument, NULL, 'S'},
		{"wait", no_argument, NULL, 'W'}, {"hang", no_argument, NULL, 'h'},
		{"normal-priority", no_argument, NULL, 'p'}, {NULL, 0, NULL, 0},
	};
	for (int option; (option = getopt_long(argc, argv, "", list, NULL)) != -1;) {
		switch (option) {
		case 's': l->seed = (uint64_t)number(optarg, 0, 1000000000); break;
		case 'n': l->steps = (int)number(optarg, 20, 1000000); break;
		case 't': truth_open(optarg); break;
		case 'S': serve_slow_file(optarg);
		case 'W': waits = true; break;
		case 'h': l->hangs = true; break;
		case 'p': l->normal_priority = true; break;
		default: refuse();
		}
	}
	if (optind != argc - 1)
		refuse();
	for (char *name = strtok(argv[optind], ","); name; name = strtok(NULL, ",")) {
		if (l->fault_count == FAULTS_MAX)
			refuse();
		l->faults[l->fault_count].number = l->fault_count;
		l->faults[l->fault_count++].kind = kind_of(name);
	}
}

int main(int argc, char **argv)
{
	struct sigaction interrupt = {.sa_handler = ignore_signal};
	static struct loop loop = {.seed = 1};
	sigaction(SIGUSR1, &interrupt, NULL);
	read_options(&loop, argc, argv);
	uint64_t kinds = loop.faults[0].kind + (uint64_t)KINDS * loop.faults[1].kind;
	loop.random = (loop.seed * 1000003 + kinds + 1) * 0x9e3779b97f4a7c15ull | 1;
	draw_program(&loop);
	for (int i = 0; i < loop.fault_count; i++) {
		loop.normal_priority |= loop.faults[i].kind == CGROUP || loop.faults[i].kind == OVERSUBSCRIBED;
		fault_start(&loop, &loop.faults[i]);
	}
	if (!loop.normal_priority)
		setpriority(PRIO_PROCESS, 0, PRIORITY); /* other programs shall not delay this one; needs root */
	find_cuda();
	set_up();
	truth_program(&loop);
	printf("ready %d\n", (int)getpid());
	wait_for_stdin();
	if (waits)
		warm_up_until_input(&loop);
	run(&loop);
	truth_flush();
	printf("done %d %llx\n", loop.steps, (unsigned long long)loop.checksum);
	wait_for_stdin();
	return 0;
}
