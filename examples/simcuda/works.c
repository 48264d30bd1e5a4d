/*
 * works: submits random GPU operations by a seed: kernels, graphs, copies, memory sets and events on
 * several streams with priorities. Phases alternate in which the GPU is the limit, and in which
 * the program is. Tests compare GPU times with the ledger of operations.
 *
 * --rounds R resets the contexts R - 1 times in between. Each time, all channels end and new ones
 * begin. --warm-up submits operations to each stream before its round, so its channels exist when the
 * program is ready.
 *
 * Thread N uses device N modulo the number of devices. With --share-streams, the threads of a
 * device use the same streams, one thread at a time, as the threads of PyTorch do.
 * Otherwise only one of them uses the default stream.
 *
 * With one process, it prints "ready PID" after its set-up. With several, it starts them as
 * children after the wait, and makes no CUDA call itself. It prints "done OPERATIONS" at the end.
 */
#include "works.h"

#include <dlfcn.h>
#include <getopt.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { DEVICES_MAX = 8, THREADS_MAX = 16, PROCESSES_MAX = 64, WORKS = 10000 };

struct works_api api;

static struct options {
	long works, seed, processes, threads, streams, rounds, child, pageable;
	bool wait, warm_up, shared, plain_graphs;
} options = {.works = WORKS, .seed = 1, .processes = 1, .threads = 1, .streams = 6, .rounds = 1, .child = -1};

static struct program programs[DEVICES_MAX];
static struct worker workers[THREADS_MAX];
/* Threads that share streams take turns, one phase at a time. */
static pthread_mutex_t turn_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t turn_changed = PTHREAD_COND_INITIALIZER;
static long turn;

void check(CUresult result, const char *call)
{
	if (result == CUDA_SUCCESS)
		return;
	fprintf(stderr, "works: %s: error %d\n", call, (int)result);
	exit(1);
}

static void find_cuda(void)
{
	void *library = dlopen("libcuda.so.1", RTLD_NOW);
	if (!library) {
		fprintf(stderr, "works: %s\n", dlerror());
		exit(1);
	}
#define X(name)                                                          \
	api.name = (__typeof__(api.name))dlsym(library, #name);          \
	if (!api.name) {                                                 \
		fprintf(stderr, "works: no %s in libcuda.so.1\n", #name); \
		exit(1);                                                 \
	}
	WORKS_FUNCTIONS(X)
#undef X
}

static void wait_for_stdin(void)
{
	char byte;
	fflush(stdout);
	while (options.wait && read(STDIN_FILENO, &byte, 1) < 0)
		;
}

static void pass_turn(long worker)
{
	pthread_mutex_lock(&turn_lock);
	for (long i = 1; i <= options.threads && turn == worker; i++)
		if (workers[(worker + i) % options.threads].left > 0)
			turn = (worker + i) % options.threads;
	pthread_cond_broadcast(&turn_changed);
	pthread_mutex_unlock(&turn_lock);
}

static void await_turn(long worker)
{
	pthread_mutex_lock(&turn_lock);
	while (turn != worker)
		pthread_cond_wait(&turn_changed, &turn_lock);
	pthread_mutex_unlock(&turn_lock);
}

static void *run_thread(void *argument)
{
	struct worker *w = argument;
	CALL(cuCtxSetCurrent, w->program->context);
	while (w->left > 0) {
		if (options.shared)
			await_turn(w - workers);
		worker_run_phase(w);
		if (options.shared)
			pass_turn(w - workers);
	}
	CALL(cuCtxSynchronize);
	return NULL;
}

static long share(long total, long parts, long i)
{
	return total / parts + (i < total % parts);
}

static int count_devices(void)
{
	int devices;
	CALL(cuInit, 0);
	CALL(cuDeviceGetCount, &devices);
	return devices < options.threads ? devices : (int)options.threads;
}

static void set_up(long round)
{
	long child = options.child < 0 ? 0 : options.child;
	long works = share(share(options.works, options.processes, child), options.rounds, round);
	int devices = count_devices();
	for (int i = 0; i < devices; i++) {
		programs[i].device = i;
		programs[i].plain_graphs = options.plain_graphs;
		program_set_up(&programs[i]);
	}
	for (long i = 0; i < options.threads; i++) {
		struct worker *w = &workers[i];
		uint64_t number = (uint64_t)options.seed * 1000003 + (uint64_t)((round * PROCESSES_MAX + child) * THREADS_MAX + i) + 1;
		*w = (struct worker){.program = &programs[i % devices], .streams_len = (int)options.streams};
		w->pageable = (int)options.pageable;
		w->uses_default = options.shared || i < devices;
		w->random = number * 0x9e3779b97f4a7c15ull | 1;
		w->left = share(works, options.threads, i);
		worker_set_up(w, options.shared && i >= devices ? &workers[i % devices] : NULL);
		if (options.warm_up)
			worker_warm_up(w);
	}
}

static void run_threads(void)
{
	turn = 0;
	pthread_t threads[THREADS_MAX];
	for (long i = 0; i < options.threads; i++) {
		if (pthread_create(&threads[i], NULL, run_thread, &workers[i])) {
			fprintf(stderr, "works: cannot start thread %ld\n", i);
			exit(1);
		}
	}
	for (long i = 0; i < options.threads; i++)
		pthread_join(threads[i], NULL);
}

static void run_rounds(void)
{
	run_threads();
	for (long round = 1; round < options.rounds; round++) {
		for (int i = 0; i < count_devices(); i++)
			CALL(cuDevicePrimaryCtxReset_v2, i);
		set_up(round);
		run_threads();
	}
}

static int run_children(char **argv, int argc)
{
	char number[24], *arguments[argc + 3];
	int failed = 0, status;
	for (int i = 0; i < argc; i++)
		arguments[i] = argv[i];
	arguments[argc] = "--child";
	arguments[argc + 1] = number;
	arguments[argc + 2] = NULL;
	for (long i = 0; i < options.processes; i++) {
		snprintf(number, sizeof(number), "%ld", i);
		pid_t pid = fork();
		if (pid < 0) {
			perror("works: fork");
			return 1;
		}
		if (!pid) {
			execv("/proc/self/exe", arguments);
			_exit(127);
		}
	}
	while (wait(&status) > 0)
		failed += status != 0;
	if (failed)
		fprintf(stderr, "works: %d processes failed\n", failed);
	return failed > 0;
}

static long number(const char *text, long least, long most)
{
	char *end;
	long n = strtol(text, &end, 0);
	if (*text && !*end && n >= least && n <= most)
		return n;
	fprintf(stderr, "usage: works [--works N] [--seed S] [--processes P] [--threads T] [--streams N]\n"
			"             [--rounds R] [--share-streams] [--pageable PERCENT] [--plain-graphs]\n"
			"             [--warm-up] [--wait]\n");
	exit(2);
}

static void read_options(int argc, char **argv)
{
	static const struct option list[] = {
		{"works", required_argument, NULL, 'w'},   {"seed", required_argument, NULL, 's'},
		{"processes", required_argument, NULL, 'p'}, {"threads", required_argument, NULL, 't'},
		{"streams", required_argument, NULL, 'n'}, {"wait", no_argument, NULL, 'W'},
		{"child", required_argument, NULL, 'c'},   {"warm-up", no_argument, NULL, 'u'},
		{"rounds", required_argument, NULL, 'r'},  {"share-streams", no_argument, NULL, 'S'},
		{"pageable", required_argument, NULL, 'P'}, {"plain-graphs", no_argument, NULL, 'g'},
		{NULL, 0, NULL, 0},
	};
	for (int option; (option = getopt_long(argc, argv, "", list, NULL)) != -1;) {
		switch (option) {
		case 'w': options.works = number(optarg, 0, 1000000000); break;
		case 's': options.seed = number(optarg, 0, 1000000000); break;
		case 'p': options.processes = number(optarg, 1, PROCESSES_MAX); break;
		case 't': options.threads = number(optarg, 1, THREADS_MAX); break;
		case 'n': options.streams = number(optarg, 1, STREAMS_MAX); break;
		case 'r': options.rounds = number(optarg, 1, 1000); break;
		case 'c': options.child = number(optarg, 0, PROCESSES_MAX); break;
		case 'P': options.pageable = number(optarg, 0, 100); break;
		case 'S': options.shared = true; break;
		case 'g': options.plain_graphs = true; break;
		case 'W': options.wait = true; break;
		case 'u': options.warm_up = true; break;
		default: number("", 0, 0);
		}
	}
	if (optind != argc)
		number("", 0, 0);
}

int main(int argc, char **argv)
{
	read_options(argc, argv);
	bool is_parent = options.processes > 1 && options.child < 0;
	int failed = 0;
	find_cuda(); /* also in the parent, so that a recorder finds the library there */
	if (!is_parent)
		set_up(0);
	if (options.child >= 0) {
		run_rounds();
		return 0;
	}
	if (options.wait)
		printf("ready %d\n", (int)getpid());
	wait_for_stdin();
	if (is_parent)
		failed = run_children(argv, argc);
	else
		run_rounds();
	printf("done %ld\n", options.works);
	wait_for_stdin();
	return failed;
}
