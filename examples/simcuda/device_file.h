/* The beginning of a simulated device file, which devfiles creates and simcuda maps. */
#ifndef SIMCUDA_DEVICE_FILE_H
#define SIMCUDA_DEVICE_FILE_H

#include <stdint.h>

enum { DEVICE_FILE_HEADER = 4096 };
#define DEVICE_FILE_MAGIC 0x65636976656d6973ull

struct device_file {
	uint64_t magic;
	uint64_t seed;      /* random; the clocks of the GPUs depend on it */
	uint64_t origin_ns; /* CLOCK_MONOTONIC at the creation */
	int64_t real_minus_monotonic_ns;
	uint64_t used;      /* bytes given to processes so far; guarded by flock */
};

#endif
