/* Reader of the shared state: memory use and load of the devices by the CUDA processes of this
 * host. */
#ifndef SIMCUDA_WATCH_H
#define SIMCUDA_WATCH_H

#include <stdint.h>

struct process_use {
	uint32_t pid;
	uint64_t bytes;
	double busy;      /* share of the last 150 ms, 0 to 1 */
};

struct device_use {
	uint64_t memory;   /* capacity, bytes */
	uint64_t used;     /* used by all living processes, bytes */
	double busy;       /* share of the last 150 ms, 0 to 1 */
	uint64_t busy_ns;  /* total busy time, ns */
	int processes;     /* processes with a context on the device */
};

/* Maps the available state files. Call it repeatedly: processes may create their file later. */
void watch_open(void);
void watch_close(void);
int watch_devices(void);
/* Fills *use and lists at most max processes. use->processes is the total number. */
void watch_device(int device, struct device_use *use, struct process_use *list, int max);

#endif
