/* The reader's half of the shared state: what the CUDA processes of this host are doing to the devices. */
#ifndef SIMCUDA_WATCH_H
#define SIMCUDA_WATCH_H

#include <stdint.h>

struct process_use {
	uint32_t pid;
	uint64_t bytes;
	double busy;      /* share of the last 150 ms, 0 to 1 */
};

struct device_use {
	uint64_t memory;   /* bytes it has */
	uint64_t used;     /* of these, by all living processes */
	double busy;       /* share of the last 150 ms, 0 to 1 */
	uint64_t busy_ns;  /* since ever */
	int processes;     /* with a context on the device */
};

/* Maps what can be mapped; call it as often as you like, since processes may create their file later. */
void watch_open(void);
void watch_close(void);
int watch_devices(void);
/* Lists at most max processes and returns how many there are in use->processes. */
void watch_device(int device, struct device_use *use, struct process_use *list, int max);

#endif
