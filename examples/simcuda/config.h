/* The simulator's settings, read from the environment. The driver and NVML read the same
 * variables, so both describe the same machine. */
#ifndef SIMCUDA_CONFIG_H
#define SIMCUDA_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

enum { MAX_DEVICES = 8 }; /* per host, as in the largest common servers */
enum { MAX_MIG = 7 }; /* MIG devices per GPU */

/* One MIG device: a partition of a GPU. */
struct mig_device {
	char profile[16];      /* for example 1g.10gb */
	uint64_t memory;       /* memory of the MIG device, bytes */
};

struct config {
	int devices;           /* SIMCUDA_DEVICES: number of devices */
	uint64_t memory;       /* SIMCUDA_MEMORY: bytes per device */
	/* Set in the environment; otherwise NVML uses the values in the state file. */
	bool devices_given;
	bool memory_given;
	bool instant;          /* SIMCUDA_TIME=off: all work takes 0 ns */
	uint64_t kernel_ns;    /* SIMCUDA_KERNEL_US, in ns */
	double bytes_per_ns;   /* SIMCUDA_GBPS; 1 GB/s is 1 byte/ns */
	const char *ledger;    /* SIMCUDA_LEDGER: file name; NULL = no ledger */
	bool ledger_sync;      /* SIMCUDA_LEDGER_SYNC=1: write each line at once */
	const char *fail;      /* SIMCUDA_FAIL: errors to inject; NULL = none */
	const char *state;     /* SIMCUDA_STATE: file name; NULL = one file per user */
	/* SIMCUDA_MIG: whether MIG is enabled on each device, and its MIG devices */
	bool mig[MAX_DEVICES];
	int migs[MAX_DEVICES];
	struct mig_device parts[MAX_DEVICES][MAX_MIG];
};

void config_read(struct config *config);

#endif
