/* Programs that leak at one or two call sites, and a program whose leak ends. */
#include "verdicts.h"

static void fast(void)
{
	use_device();
	weights(8, 64 * MiB);
	for (long step = 0; next(&step, STEPS);) {
		temporaries(step);
		leak(MiB);
	}
}

static void slow(void)
{
	use_device();
	weights(8, 64 * MiB);
	for (long step = 0; next(&step, STEPS);) {
		temporaries(step);
		if (step % 5 == 0)
			leak(4 * KiB);
	}
}

/* The growth in a minute is less than a hundredth of the weights, but it is steady. */
static void next_to_a_large_model(void)
{
	use_device();
	weights(12, 512 * MiB);
	for (long step = 0; next(&step, STEPS);) {
		temporaries(step);
		leak(4 * KiB);
	}
}

/* Each request allocates three blocks and frees only two. */
static void per_request(void)
{
	use_device();
	for (long step = 0; next(&step, STEPS);)
		if (step % 10 == 0) {
			CUdeviceptr in = buffer(256 * KiB), out = buffer(64 * KiB);
			leak(128 * KiB);
			drop(&in);
			drop(&out);
		}
}

/* A full cache overwrites its oldest entry without freeing it. */
static void behind_a_cache(void)
{
	CUdeviceptr *entries = calloc(32, sizeof *entries);
	use_device();
	weights(4, 32 * MiB);
	for (long step = 0; next(&step, STEPS);) {
		temporaries(step);
		entries[step % 32] = cached(64 * KiB);
	}
	free(entries);
}

/* One in sixteen blocks is not freed. All blocks have the same call site. */
static void one_of_many(void)
{
	use_device();
	for (long step = 0; next(&step, STEPS);)
		for (int i = 0; i < 4; i++) {
			CUdeviceptr p = buffer(64 * KiB);
			if (chance() % 16)
				drop(&p);
		}
}

static void from_the_middle(void)
{
	use_device();
	weights(8, 16 * MiB);
	for (long step = 0; next(&step, STEPS);) {
		temporaries(step);
		if (step > STEPS / 2)
			leak(64 * KiB);
	}
}

/* A call site that keeps some memory on purpose starts to leak late. */
static void from_two_thirds(void)
{
	use_device();
	for (int i = 0; i < 4; i++)
		cached(4 * MiB);
	for (long step = 0; next(&step, STEPS);) {
		temporaries(step);
		if (step > STEPS * 3 / 5)
			cached(64 * KiB);
	}
}

static void until_the_middle(void)
{
	use_device();
	for (long step = 0; next(&step, STEPS);) {
		temporaries(step);
		if (step < STEPS / 2)
			leak(128 * KiB);
	}
}

/* One call site allocates blocks for 40 steps, and a leaked block in every fourth step. */
static void under_a_sawtooth(void)
{
	CUdeviceptr work[40] = {0};
	use_device();
	for (long step = 0; next(&step, STEPS);) {
		work[step % 40] = buffer(256 * KiB);
		if (step % 4 == 0)
			buffer(128 * KiB);
		for (int i = 0; step % 40 == 0 && i < 40; i++)
			drop(&work[i]);
	}
}

static void of_varying_size(void)
{
	use_device();
	for (long step = 0; next(&step, STEPS);) {
		temporaries(step);
		leak((1 + chance() % 255) * KiB);
	}
}

/* The program leaks ten blocks at the end of every epoch of 40 steps. */
static void in_bursts(void)
{
	use_device();
	for (long step = 0; next(&step, STEPS);) {
		temporaries(step);
		for (int i = 0; step % 40 == 0 && i < 10; i++)
			leak(256 * KiB);
	}
}

/* A growing list in one block: every step allocates a longer block and frees the old one. */
static void in_one_block(void)
{
	CUdeviceptr list = 0;
	use_device();
	for (long step = 0; next(&step, STEPS);) {
		CUdeviceptr longer = buffer((size_t)step * 64 * KiB);
		drop(&list);
		list = longer;
	}
}

static void faster_and_faster(void)
{
	use_device();
	for (long step = 0; next(&step, STEPS);) {
		temporaries(step);
		leak((size_t)step * KiB);
	}
}

SITE static void second_leak(void) { (void)DEVICE(32 * KiB); }

static void in_two_places(void)
{
	use_device();
	for (long step = 0; next(&step, STEPS);) {
		temporaries(step);
		leak(64 * KiB);
		second_leak();
	}
}

/* After half of the run, the leak slows to three quarters of its rate. */
static void slowing_down(void)
{
	use_device();
	for (long step = 0; next(&step, STEPS);) {
		temporaries(step);
		if (step < STEPS / 2 || step % 4)
			leak(64 * KiB);
	}
}

const struct scenario leaks[] = {
	{"fast", fast}, {"slow", slow}, {"next-to-a-large-model", next_to_a_large_model}, {"per-request", per_request},
	{"behind-a-cache", behind_a_cache}, {"one-of-many", one_of_many}, {"from-the-middle", from_the_middle},
	{"from-two-thirds", from_two_thirds}, {"until-the-middle", until_the_middle}, {"under-a-sawtooth", under_a_sawtooth},
	{"of-varying-size", of_varying_size}, {"in-bursts", in_bursts}, {"in-one-block", in_one_block},
	{"faster-and-faster", faster_and_faster}, {"in-two-places", in_two_places}, {"slowing-down", slowing_down}, {NULL, NULL},
};
