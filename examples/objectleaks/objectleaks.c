/*
 * objectleaks --seed N: creates objects of the CUDA driver. Of twenty seeds in a row, the first ten have
 * a leak: one function creates objects of one kind, and does not destroy them. The seed draws kinds,
 * functions and numbers. At the end it prints the truth as a line of JSON.
 */
#include "objectleaks.h"

#include <dlfcn.h>
#include <errno.h>
#include <string.h>
#include <time.h>

enum { TASKS = SITE_COUNT };

struct cuda cuda;
static uint64_t random_state;

void check(CUresult result, const char *call)
{
	if (result == CUDA_SUCCESS)
		return;
	fprintf(stderr, "objectleaks: %s: error %d\n", call, (int)result);
	exit(1);
}

void set_seed(uint64_t seed)
{
	random_state = seed * 0x9e3779b97f4a7c15ull + 1;
	for (int i = 0; i < 8; i++)
		below(2);
}

int below(int n)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return (int)(random_state % (uint64_t)n);
}

int between(int from, int to) { return from + below(to - from + 1); }

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
		fprintf(stderr, "objectleaks: %s\n", error);
		exit(1);
	}
}

/* References and openings have no identity: only one task may use such a kind. */
static bool is_counted(enum kind kind) { return kind == PRIMARY || kind == IPC; }

static enum kind draw_kind(const struct task *tasks, int n, enum pattern pattern)
{
	for (;;) {
		enum kind kind = (enum kind)below(KIND_COUNT);
		bool taken = pattern == RENEW && !ends_with_context(kind);
		for (int i = 0; i < n && is_counted(kind); i++)
			taken = taken || tasks[i].kind == kind;
		if (!taken)
			return kind;
	}
}

static void draw(struct task *tasks, int seed)
{
	enum site order[SITE_COUNT];
	int number = (seed - 1) % 20;
	for (int i = 0; i < (int)SITE_COUNT; i++) {
		int at = below(i + 1);
		order[i] = order[at];
		order[at] = (enum site)i;
	}
	for (int i = 0; i < TASKS; i++) {
		struct task *t = &tasks[i];
		*t = (struct task){.site = order[i], .every = 1};
		/* Each pattern without a leak occurs, then some occur again. */
		t->pattern = (enum pattern)(i > 0 && i < PATTERN_COUNT ? i : between(FILL, STEP));
		if (i == 0 && number < 10) {
			t->pattern = LEAK;
			t->kind = (enum kind)((seed * 7 + seed / 20) % KIND_COUNT);
		} else {
			t->kind = draw_kind(tasks, i, t->pattern);
		}
		bool context = t->kind == CONTEXT;
		switch (t->pattern) {
		case LEAK:
			t->every = context ? between(4, 8) : between(1, 3);
			t->from = between(0, STEPS * 4 / 10);
			t->size = is_counted(t->kind) ? 1 : between(1, 3);
			break;
		case FILL:
			t->from = between(0, STEPS / 10);
			t->to = between(STEPS * 2 / 10, STEPS * 6 / 10);
			t->size = context ? between(4, 12) : between(20, 120);
			break;
		case CACHE:
			t->size = context ? between(4, 8) : between(10, 24);
			t->keys = t->size * between(2, 3);
			break;
		case BURST:
			t->from = between(STEPS * 2 / 10, STEPS * 7 / 10);
			t->to = t->from + between(2, 8);
			t->size = context ? 1 : between(5, 30);
			t->kept = between(0, 2) * 50;
			break;
		case STEP: t->size = between(1, 4); break;
		case RENEW:
			t->every = between(10, 40);
			t->size = between(3, 10);
			break;
		case PATTERN_COUNT: break;
		}
	}
}

static void wait_for_step(int step)
{
	static struct timespec due;
	if (step == 0)
		clock_gettime(CLOCK_MONOTONIC, &due);
	due.tv_nsec += STEP_US * 1000L;
	due.tv_sec += due.tv_nsec / 1000000000;
	due.tv_nsec %= 1000000000;
	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &due, NULL) == EINTR)
		;
}

static void print_truth(const struct task *tasks, int seed)
{
	printf("{\"seed\":%d,\"tasks\":[", seed);
	for (int i = 0; i < TASKS; i++)
		printf("%s{\"kind\":\"%s\",\"site\":\"%s\",\"pattern\":\"%s\"}", i ? "," : "", kind_names[tasks[i].kind],
		       sites[tasks[i].site].name, pattern_names[tasks[i].pattern]);
	printf("]}\n");
}

int main(int argc, char **argv)
{
	static struct task tasks[TASKS];
	int seed = argc == 3 && strcmp(argv[1], "--seed") == 0 ? atoi(argv[2]) : 0;
	if (seed < 1) {
		fprintf(stderr, "usage: objectleaks --seed N\n");
		return 2;
	}
	find_cuda();
	set_seed((uint64_t)seed);
	draw(tasks, seed);
	set_up_objects();
	for (int step = 0; step < STEPS; step++) {
		wait_for_step(step);
		for (int i = 0; i < TASKS; i++)
			run_task(&tasks[i], step);
	}
	print_truth(tasks, seed);
	return 0;
}
