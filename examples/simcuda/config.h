/* What the environment asks of the simulator. The driver and NVML read the same variables, so both see the same machine. */
#ifndef SIMCUDA_CONFIG_H
#define SIMCUDA_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

enum { MAX_DEVICES = 8 }; /* of one host, as in the largest common servers */
enum { MAX_MIG = 7 }; /* MIG devices of a GPU */

/* A part of a divided GPU. */
struct mig_device {
	char profile[16];      /* 1g.10gb */
	uint64_t memory;       /* bytes */
};

struct config {
	int devices;           /* SIMCUDA_DEVICES */
	uint64_t memory;       /* SIMCUDA_MEMORY: bytes per device */
	bool devices_given;    /* NVML prefers what the environment says, then what a CUDA process has published */
	bool memory_given;
	bool instant;          /* SIMCUDA_TIME=off */
	uint64_t kernel_ns;    /* SIMCUDA_KERNEL_US */
	double bytes_per_ns;   /* SIMCUDA_GBPS: 1 GB/s is 1 byte/ns */
	const char *ledger;    /* SIMCUDA_LEDGER; NULL = none */
	bool ledger_sync;      /* SIMCUDA_LEDGER_SYNC=1 */
	const char *fail;      /* SIMCUDA_FAIL; NULL = none */
	const char *state;     /* SIMCUDA_STATE; NULL = one file per user */
	bool mig[MAX_DEVICES]; /* SIMCUDA_MIG: which devices are divided, and into what */
	int migs[MAX_DEVICES];
	struct mig_device parts[MAX_DEVICES][MAX_MIG];
};

void config_read(struct config *config);

#endif
