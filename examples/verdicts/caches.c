/* Programs that do not leak, although their memory grows for some time. */
#include "verdicts.h"

/* Keeps the last `size` blocks: every step allocates a block and frees the oldest one. */
static void ring(size_t size, size_t bytes)
{
	CUdeviceptr *slots = calloc(size, sizeof *slots);
	use_device();
	weights(4, 16 * MiB);
	for (long step = 0; next(&step, STEPS);) {
		temporaries(step);
		drop(&slots[(size_t)step % size]);
		slots[(size_t)step % size] = cached(bytes);
	}
	free(slots);
}

static void short_ring(void) { ring(32, 256 * KiB); }
static void long_ring(void) { ring(300, 128 * KiB); }

/* Live memory grows up to a step, then stays constant. */
static void fill_until(long steps)
{
	use_device();
	for (long step = 0; next(&step, STEPS);) {
		temporaries(step);
		if (step < steps)
			cached(128 * KiB);
	}
}

static void warm_up(void) { fill_until(STEPS / 4); }
static void long_warm_up(void) { fill_until(STEPS * 7 / 10); }

/* A cache of 128 random keys: it grows ever more slowly because most lookups hit. */
static void random_keys(void)
{
	bool seen[128] = {false};
	use_device();
	for (long step = 0; next(&step, STEPS);) {
		temporaries(step);
		unsigned key = chance() % 128;
		if (!seen[key])
			cached(256 * KiB);
		seen[key] = true;
	}
}

static void double_buffering(void)
{
	CUdeviceptr pair[2] = {0};
	use_device();
	for (long step = 0; next(&step, STEPS);) {
		CUdeviceptr fresh = buffer((size_t)(512 + step * 31 % 256) * KiB);
		drop(&pair[step % 2]);
		pair[step % 2] = fresh;
	}
}

static void only_weights(void)
{
	use_device();
	weights(64, 32 * MiB);
	for (long step = 0; next(&step, STEPS);)
		temporaries(step);
}

/* The program loads a second model after 60 % of the run. */
static void late_weights(void)
{
	use_device();
	weights(8, 32 * MiB);
	for (long step = 0; next(&step, STEPS);) {
		temporaries(step);
		if (step == STEPS * 6 / 10)
			weights(16, 32 * MiB);
	}
}

/* A pool grows by a chunk when the demand reaches a new maximum: often at first, then rarely. */
static void lazy_pool(void)
{
	unsigned most = 0;
	use_device();
	for (long step = 0; next(&step, STEPS);) {
		unsigned need = 0;
		for (int i = 0; i < 16; i++)
			need += chance() % 16;
		for (; most < need; most += 4)
			cached(4 * MiB);
	}
}

/* A buffer that doubles its size when it is full, for 70 % of the run. */
static void doubling(void)
{
	CUdeviceptr block = 0;
	size_t size = 64 * KiB;
	use_device();
	for (long step = 0; next(&step, STEPS);) {
		temporaries(step);
		if ((size_t)step * 16 * KiB > size && step < STEPS * 7 / 10) {
			CUdeviceptr longer = buffer(size *= 2);
			drop(&block);
			block = longer;
		}
	}
}

/* Keeps a block per step for `period` steps, then frees all of them. */
static void purge_every(long period)
{
	CUdeviceptr *kept = calloc((size_t)period, sizeof *kept);
	use_device();
	for (long step = 0; next(&step, STEPS);) {
		temporaries(step);
		kept[step % period] = cached(128 * KiB);
		for (long i = 0; step % period == period - 1 && i < period; i++)
			drop(&kept[i]);
	}
	free(kept);
}

static void sawtooth(void) { purge_every(60); }
static void two_purges(void) { purge_every(200); }
static void one_purge(void) { purge_every(290); }

/* Every block lives for a random time, up to a fifth of the run. */
static void random_lifetimes(void)
{
	CUdeviceptr *due = calloc(STEPS + 101, sizeof *due);
	use_device();
	for (long step = 0; next(&step, STEPS);) {
		drop(&due[step]);
		CUdeviceptr p = buffer((1 + chance() % 512) * KiB);
		long end = step + 1 + (long)(chance() % 100);
		drop(&due[end]); /* keep at most one block per end step */
		due[end] = p;
	}
	free(due);
}

static void varying_batches(void)
{
	use_device();
	for (long step = 0; next(&step, STEPS);) {
		CUdeviceptr parts[8] = {0};
		for (unsigned i = 0, n = 1 + chance() % 8; i < n; i++)
			parts[i] = buffer((1 + chance() % 1024) * KiB);
		for (int i = 0; i < 8; i++)
			drop(&parts[i]);
	}
}

/* Two buffers grow with the sequence length until half of the run, then stay the same size. */
static void growing_batches(void)
{
	CUdeviceptr pair[2] = {0};
	use_device();
	for (long step = 0; next(&step, STEPS);) {
		size_t length = (size_t)(step < STEPS / 2 ? step : STEPS / 2);
		CUdeviceptr fresh = buffer(length * 16 * KiB);
		drop(&pair[step % 2]);
		pair[step % 2] = fresh;
	}
}

/* Two evaluations during the run, each for a tenth of it. */
static void evaluation(void)
{
	CUdeviceptr p[16] = {0};
	use_device();
	for (long step = 0; next(&step, STEPS);) {
		temporaries(step);
		for (int i = 0; i < 16; i++) {
			if (step % 250 == 180)
				p[i] = buffer(8 * MiB);
			else if (step % 250 == 230)
				drop(&p[i]);
		}
	}
}

const struct scenario caches[] = {
	{"short-ring", short_ring}, {"long-ring", long_ring}, {"warm-up", warm_up}, {"long-warm-up", long_warm_up},
	{"random-keys", random_keys}, {"double-buffering", double_buffering}, {"only-weights", only_weights},
	{"late-weights", late_weights}, {"lazy-pool", lazy_pool}, {"doubling", doubling}, {"sawtooth", sawtooth},
	{"two-purges", two_purges}, {"one-purge", one_purge}, {"random-lifetimes", random_lifetimes},
	{"varying-batches", varying_batches}, {"growing-batches", growing_batches}, {"evaluation", evaluation}, {NULL, NULL},
};
