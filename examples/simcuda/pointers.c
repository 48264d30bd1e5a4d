/*
 * pointers --seed N [--wait]: allocates, frees and uses device memory. Of twenty seeds in a row, the first ten have
 * one error at a random place: a double free, a free of a pointer that CUDA did not return, or a kernel that
 * uses memory after its free. The others have none, but free addresses that are then used again. At the end
 * it prints the truth as a line of JSON. SIMCUDA_CHECK=arguments makes the GPU fail at a use after free.
 */
#include "pointers.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { STEPS = 300, LIVE_MAX = 24, OPERATIONS_AFTER = 6 };
enum fault { NONE, DOUBLE_FREE, FOREIGN_FREE, INSIDE_FREE, USE_AFTER_FREE };
static const char *const fault_names[] = {"none", "double-free", "foreign-free", "inside-free", "use-after-free"};

struct cuda cuda;
CUstream streams[STREAMS];
static struct block live[LIVE_MAX];
static int live_len;
static uint64_t random_state;
static struct { const char *allocated, *freed, *site, *kernel; uint64_t bytes, offset; } truth;

int below(int n)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return (int)(random_state % (uint64_t)n);
}

static void check(CUresult result, const char *what)
{
	if (!result)
		return;
	fprintf(stderr, "pointers: %s: error %d\n", what, (int)result);
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
		fprintf(stderr, "pointers: %s\n", error);
		exit(1);
	}
}

static void set_up(void)
{
	CUcontext context = NULL;
	check(cuda.cuInit(0), "cuInit");
	check(cuda.cuDevicePrimaryCtxRetain(&context, 0), "cuDevicePrimaryCtxRetain");
	check(cuda.cuCtxSetCurrent(context), "cuCtxSetCurrent");
	for (int i = 0; i < STREAMS; i++)
		check(cuda.cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING), "cuStreamCreate");
	load_kernels();
}

static void allocate_one(void)
{
	const struct allocate_site *site = &allocate_sites[below(SITES)];
	struct block *b = &live[live_len];
	if (live_len == LIVE_MAX)
		return;
	*b = (struct block){.bytes = 512u * (unsigned)(1 + below(64)), .memory = (enum memory)below(MEMORY_COUNT), .allocated = site->name};
	check(site->run(b), site->name);
	live_len++;
}

/* Frees a block, and returns it. */
static struct block free_one(int i)
{
	const struct free_site *site = &free_sites[below(SITES)];
	struct block b = live[i];
	for (int s = 0; s < STREAMS && b.memory == ORDERED; s++) /* only the free of other memory waits for kernels */
		check(cuda.cuStreamSynchronize(streams[s]), "cuStreamSynchronize");
	check(site->run(&b), site->name);
	b.freed = site->name;
	live[i] = live[--live_len];
	return b;
}

static void launch_one(void)
{
	const struct block *a = &live[below(live_len)], *b = &live[below(live_len)];
	const struct launch_site *site = &launch_sites[below(LAUNCH_SITES)];
	check(site->run(a->address + (unsigned)below(2) * 256, b->address, below(STREAMS)), site->name);
}

static void do_something(void)
{
	switch (below(8)) {
	case 0: case 1: allocate_one(); break;
	case 2: if (live_len > 2) free_one(below(live_len)); break;
	case 3: check(cuda.cuStreamSynchronize(streams[below(STREAMS)]), "cuStreamSynchronize"); break;
	case 4: check(cuda.cuMemsetD8Async(live[below(live_len)].address, 1, 16, streams[0]), "cuMemsetD8Async"); break;
	default: launch_one(); break;
	}
}

/* Launches a few kernels: work that does not change which memory is allocated. */
static void go_on(void)
{
	for (int n = below(OPERATIONS_AFTER); n > 0; n--)
		launch_one();
}

static void expect(CUresult got, CUresult want, const char *what)
{
	if (got == want)
		return;
	fprintf(stderr, "pointers: %s: error %d, not %d\n", what, (int)got, (int)want);
	exit(1);
}

static void free_twice(void)
{
	struct block b = free_one(below(live_len));
	const struct free_site *again = &free_sites[below(SITES)];
	go_on();
	expect(again->run(&b), CUDA_ERROR_INVALID_VALUE, again->name);
	truth.allocated = b.allocated, truth.freed = b.freed, truth.site = again->name, truth.bytes = b.bytes;
}

static void free_foreign(bool inside)
{
	static char not_cuda[4096];
	const struct free_site *site = &free_sites[below(SITES)];
	struct block b = live[below(live_len)];
	if (inside) {
		truth.allocated = b.allocated, truth.bytes = b.bytes, truth.offset = 256;
		b.address += 256;
	} else {
		b.address = below(2) ? (CUdeviceptr)(uintptr_t)not_cuda : 0x500000000000 + (CUdeviceptr)below(1 << 20) * 512;
		b.memory = PLAIN;
	}
	expect(site->run(&b), CUDA_ERROR_INVALID_VALUE, site->name);
	truth.site = site->name;
}

static void use_after_free(void)
{
	const struct block *other = &live[below(live_len)];
	struct block b;
	do
		b = live[below(live_len)];
	while (b.memory != PLAIN || b.address == other->address);
	for (int i = 0; i < live_len; i++)
		if (live[i].address == b.address) {
			b = free_one(i);
			break;
		}
	go_on();
	const struct launch_site *site = &launch_sites[below(LAUNCH_SITES)];
	truth.offset = (unsigned)below(2) * 256;
	check(site->run(b.address + truth.offset, live[below(live_len)].address, below(STREAMS)), site->name);
	truth.allocated = b.allocated, truth.freed = b.freed, truth.site = site->name, truth.kernel = site->kernel;
	truth.bytes = b.bytes;
	for (int n = below(OPERATIONS_AFTER); n > 0; n--) { /* they may fail: the GPU may have noticed */
		const struct launch_site *later = &launch_sites[below(LAUNCH_SITES)];
		later->run(live[below(live_len)].address, live[below(live_len)].address, below(STREAMS));
	}
	expect(cuda.cuCtxSynchronize(), CUDA_ERROR_ILLEGAL_ADDRESS, "cuCtxSynchronize");
}

static void make_fault(enum fault fault)
{
	while (live_len < 4 || !(live[0].memory == PLAIN || live[1].memory == PLAIN || live[2].memory == PLAIN) ||
	       !(live[1].memory == PLAIN || live[2].memory == PLAIN || live[3].memory == PLAIN))
		do_something();
	switch (fault) {
	case DOUBLE_FREE: free_twice(); break;
	case FOREIGN_FREE: free_foreign(false); break;
	case INSIDE_FREE: free_foreign(true); break;
	case USE_AFTER_FREE: use_after_free(); break;
	case NONE: break;
	}
}

static void wait_for_stdin(const char *line)
{
	char byte;
	printf("%s\n", line);
	fflush(stdout);
	if (read(STDIN_FILENO, &byte, 1) < 0)
		exit(1);
}

static void print_text(const char *key, const char *text)
{
	printf(",\"%s\":\"%s\"", key, text ? text : "");
}

int main(int argc, char **argv)
{
	int seed = argc >= 3 && !strcmp(argv[1], "--seed") ? atoi(argv[2]) : 0;
	bool wait = argc == 4 && !strcmp(argv[3], "--wait");
	if (seed < 1 || argc > 3 + wait) {
		fprintf(stderr, "usage: pointers --seed N [--wait]\n");
		return 2;
	}
	random_state = (uint64_t)seed * 0x9e3779b97f4a7c15ull + 1;
	for (int i = 0; i < 8; i++)
		below(2);
	int number = (seed - 1) % 20, at = below(STEPS);
	enum fault fault = number < 10 ? (enum fault)(1 + (number + (seed - 1) / 20) % 4) : NONE;
	find_cuda();
	if (wait)
		wait_for_stdin("ready");
	set_up();
	for (int i = 0; i < 4; i++)
		allocate_one();
	for (int step = 0; step < STEPS; step++) {
		do_something();
		if (step == at && fault)
			make_fault(fault);
		if (step == at && fault == USE_AFTER_FREE)
			break; /* the context cannot be used any more */
	}
	printf("{\"seed\":%d,\"fault\":\"%s\"", seed, fault_names[fault]);
	print_text("allocated", truth.allocated);
	print_text("freed", truth.freed);
	print_text("site", truth.site);
	print_text("kernel", truth.kernel);
	printf(",\"bytes\":%llu,\"offset\":%llu}\n", (unsigned long long)truth.bytes, (unsigned long long)truth.offset);
	if (wait)
		wait_for_stdin("finished");
	return 0;
}
