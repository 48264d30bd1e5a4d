/* The clocks of the simulated GPUs. Each one has an offset of up to 900 µs against CLOCK_REALTIME
 * and drifts by up to 12 ppm. Both depend on the seed of the run, so all its processes see the
 * same clocks. */
#include "channel.h"

enum { STEP_NS = 32, OFFSET_MAX_NS = 900000, DRIFT_MAX_PPB = 12000 };

static struct clock_facts clocks[MAX_DEVICES];

static int64_t spread(uint64_t random, int64_t most)
{
	return (int64_t)(random % (uint64_t)(2 * most + 1)) - most;
}

void clock_open(const struct device_file *file)
{
	for (int i = 0; i < MAX_DEVICES; i++)
		clocks[i] = (struct clock_facts){
			.offset_ns = spread(hash_mix(file->seed + 2 * (uint64_t)i), OFFSET_MAX_NS),
			.drift_ppb = spread(hash_mix(file->seed + 2 * (uint64_t)i + 1), DRIFT_MAX_PPB),
			.origin_ns = file->origin_ns,
			.real_minus_monotonic_ns = file->real_minus_monotonic_ns,
		};
}

struct clock_facts clock_facts(int device)
{
	return clocks[device];
}

uint64_t clock_real_ns(uint64_t at)
{
	return at + (uint64_t)clocks[0].real_minus_monotonic_ns;
}

uint64_t clock_gpu_ns(int device, uint64_t at)
{
	const struct clock_facts *c = &clocks[device];
	int64_t drift = (int64_t)((double)(int64_t)(at - c->origin_ns) * (double)c->drift_ppb / 1e9);
	uint64_t gpu = clock_real_ns(at) + (uint64_t)(c->offset_ns + drift);
	return gpu / STEP_NS * STEP_NS;
}
