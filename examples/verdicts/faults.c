/* Programs with failing calls, running programs, and programs that overflow the ring buffer. */
#include "verdicts.h"

#include <unistd.h>

/* Every step requests more memory than the GPU has, and handles the error. */
static void failed_allocations(void)
{
	use_device();
	weights(15, 512 * MiB);
	for (long step = 0; next(&step, STEPS);) {
		CUdeviceptr p;
		temporaries(step);
		if (cuda.cuMemAlloc_v2(&p, 1ull << 40) == CUDA_SUCCESS)
			exit(1);
	}
}

/* The program frees wrong addresses: the frees fail, so the memory leaks. */
static void failed_frees(void)
{
	use_device();
	for (long step = 0; next(&step, STEPS);) {
		CUdeviceptr p = leak(64 * KiB);
		if (cuda.cuMemFree_v2(p + 512) == CUDA_SUCCESS)
			exit(1);
	}
}

static void double_free(void)
{
	use_device();
	for (long step = 0; next(&step, STEPS);) {
		CUdeviceptr p = buffer(256 * KiB), same = p;
		drop(&p);
		(void)cuda.cuMemFree_v2(same);
	}
}

/* Invalid frees, each kind in its own function: the test compares the function names in the report. */
static void refused(CUresult result, const char *what)
{
	if (result == CUDA_SUCCESS)
		check(CUDA_ERROR_UNKNOWN, what);
}

SITE static void *pinned_buffer(void)
{
	void *p;
	CUDA(cuMemHostAlloc, &p, 64 * KiB, 0);
	return p;
}

SITE static void drop_pinned(void *p) { CUDA(cuMemFreeHost, p); }
SITE static void free_again(CUdeviceptr p) { refused(cuda.cuMemFree_v2(p), "free_again"); }
SITE static void free_pinned_again(void *p) { refused(cuda.cuMemFreeHost(p), "free_pinned_again"); }
SITE static void free_inside(CUdeviceptr p) { refused(cuda.cuMemFree_v2(p + 512), "free_inside"); }
SITE static void free_as_host(CUdeviceptr p) { refused(cuda.cuMemFreeHost((void *)(uintptr_t)p), "free_as_host"); }
SITE static void free_as_device(void *p) { refused(cuda.cuMemFree_v2((CUdeviceptr)(uintptr_t)p), "free_as_device"); }
SITE static void free_after_context(CUdeviceptr p) { refused(cuda.cuMemFree_v2(p), "free_after_context"); }
SITE static void free_wild(void) { refused(cuda.cuMemFree_v2(0x1234000), "free_wild"); }

SITE static CUdeviceptr context_buffer(void) { return DEVICE(64 * KiB); }

static CUdeviceptr ended_with_context(void)
{
	CUcontext context;
	CUDA(cuCtxCreate_v2, &context, 0, 0);
	CUdeviceptr p = context_buffer();
	CUDA(cuCtxDestroy_v2, context);
	use_device();
	return p;
}

/* Only valid frees: null, an old block, and a new block. */
SITE static void harmless(CUdeviceptr *old)
{
	CUdeviceptr p = DEVICE(64 * KiB);
	CUDA(cuMemFree_v2, 0);
	CUDA(cuMemFreeHost, NULL);
	drop(old);
	CUDA(cuMemFree_v2, p);
}

static void invalid_frees(void)
{
	enum { TIMES = 20 };
	CUdeviceptr old[TIMES];
	use_device();
	for (int i = 0; i < TIMES; i++)
		old[i] = DEVICE(4 * KiB);
	for (long step = 0; next(&step, TIMES);) {
		CUdeviceptr p = buffer(256 * KiB), same = p;
		void *host = pinned_buffer();
		free_inside(p);
		free_as_host(p);
		free_as_device(host);
		drop(&p);
		free_again(same);
		drop_pinned(host);
		free_pinned_again(host);
		free_after_context(ended_with_context());
		free_wild();
		harmless(&old[step - 1]);
	}
}

/* A running program: it frees blocks from before the recording, and leaks new blocks. */
static void running_leak(void)
{
	CUdeviceptr old[100];
	for (int i = 0; i < 100; i++)
		old[i] = buffer(512 * KiB);
	for (long step = 0; next(&step, STEPS + 200);) {
		temporaries(step);
		if (step > 150 && step <= 250)
			drop(&old[step - 151]);
		leak(64 * KiB);
	}
}

static void running_ring(void)
{
	CUdeviceptr slots[64] = {0};
	for (long step = 0; next(&step, STEPS + 200);) {
		temporaries(step);
		drop(&slots[step % 64]);
		slots[step % 64] = cached(256 * KiB);
	}
}

/* Bursts of calls that overflow a small ring buffer. */
static void storm(bool leaks)
{
	enum { BURST = 3000 };
	CUdeviceptr *burst = calloc(BURST, sizeof *burst);
	use_device();
	for (long step = 0; next(&step, STEPS);) {
		for (int i = 0; step % 5 == 0 && i < BURST; i++)
			burst[i] = buffer(2 * KiB);
		for (int i = 0; step % 5 == 0 && i < BURST; i++)
			drop(&burst[i]);
		if (leaks)
			leak(64 * KiB);
	}
	free(burst);
}

static void stormy_ring(void)
{
	enum { RING = 20000 };
	CUdeviceptr *slots = calloc(RING, sizeof *slots);
	use_device();
	for (long step = 0, at = 0; next(&step, STEPS);)
		for (int i = 0; step % 5 == 0 && i < 3000; i++, at = (at + 1) % RING) {
			drop(&slots[at]);
			slots[at] = cached(4 * KiB);
		}
	free(slots);
}

static void storm_without_leak(void) { storm(false); }
static void storm_with_leak(void) { storm(true); }

const struct scenario faults[] = {
	{"failed-allocations", failed_allocations}, {"failed-frees", failed_frees}, {"double-free", double_free},
	{"invalid-frees", invalid_frees},
	{"running-leak", running_leak}, {"running-ring", running_ring}, {"storm", storm_without_leak},
	{"storm-and-leak", storm_with_leak}, {"stormy-ring", stormy_ring}, {NULL, NULL},
};
