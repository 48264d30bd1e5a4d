/* Calls that fail, and programs made to be recorded badly. */
#include "verdicts.h"

#include <unistd.h>

/* A cache takes what it can get, and asks for more in every step all the same. */
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

/* Failing frees free nothing. */
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

/* A program that was running before anybody looked frees what it had, and leaks. */
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

/* More calls at once than a small buffer has room for. */
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
	{"running-leak", running_leak}, {"running-ring", running_ring}, {"storm", storm_without_leak},
	{"storm-and-leak", storm_with_leak}, {"stormy-ring", stormy_ring}, {NULL, NULL},
};
