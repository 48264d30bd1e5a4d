/*
 * The shared state: what NVML knows of CUDA processes. Every process of the simulated driver maps
 * this file and writes it. The simulated NVML, usually in another process, maps and reads it.
 *
 * There are no locks, since a process may die at any time. Each field is an atomic word with one
 * writing process. A slot counts only while its process lives.
 */
#ifndef SIMCUDA_STATE_H
#define SIMCUDA_STATE_H

#include "config.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define STATE_MAGIC 0x53696d4355444131ull /* "SimCUDA1": the last byte is the layout version */
#define STATE_DEFAULT_PATH "/dev/shm/simcuda-state-"

enum {
	STATE_SLOTS = 128,
	/* Submitted work is counted in buckets of 10 ms. The ring of 256 buckets (2.56 s) holds
	 * recent and queued work. */
	BUCKETS = 256,
	BUCKET_NS = 10 * 1000 * 1000,
	/* Low bits of a bucket: busy ns, at most 10 ms. The high 40 bits: which 10 ms since
	 * boot. */
	BUCKET_BUSY_BITS = 24,
	STATE_EXPORTS = 1024,
};

enum { SLOT_FREE = 0, SLOT_CHANGING = -1 };

struct state_device {
	_Atomic uint64_t used;        /* bytes */
	_Atomic uint64_t busy_ns;     /* all submitted work, ns */
	_Atomic uint64_t busy_until;  /* CLOCK_MONOTONIC, ns */
	_Atomic uint32_t contexts;
	_Atomic uint64_t buckets[BUCKETS];
};

struct state_slot {
	_Atomic int32_t pid;          /* SLOT_FREE, SLOT_CHANGING or the owner's pid */
	_Atomic uint64_t start_ticks; /* the owner's start time, because pids are reused */
	struct state_device devices[MAX_DEVICES];
};

/* Memory that other processes may open. Entries of dead processes count as free. */
struct state_export {
	_Atomic uint64_t id;          /* 0 = free; ids are never reused */
	_Atomic int32_t pid;
	_Atomic uint32_t device;
	_Atomic uint64_t start_ticks, size;
};

struct state {
	_Atomic uint64_t magic;
	_Atomic uint32_t devices;     /* number of devices in the process that initialised last */
	_Atomic uint64_t memory;
	/* Slots beyond this index were never used, so readers skip them. */
	_Atomic uint32_t slots_used;
	/* Busy time of dead processes, so that the total energy never decreases. */
	_Atomic uint64_t retired_busy_ns[MAX_DEVICES];
	struct state_slot slots[STATE_SLOTS];
	/* New fields come last, so that a file of an older simulator stays valid: opening it
	 * extends it. */
	_Atomic uint64_t last_export;
	struct state_export exports[STATE_EXPORTS];
};

/* Returns the start time of a running process in clock ticks since boot, or 0 if there is none. */
uint64_t process_start_ticks(pid_t pid);
bool state_slot_alive(const struct state_slot *slot);

/* Returns the busy time up to now. busy_ns also counts queued work, which is subtracted here. */
static inline uint64_t state_busy_done(const struct state_device *d, uint64_t now)
{
	uint64_t busy = atomic_load(&d->busy_ns), until = atomic_load(&d->busy_until);
	uint64_t queued = until > now ? until - now : 0;
	return busy > queued ? busy - queued : 0;
}

/* Functions that write the state. Only the driver calls them. */
void state_join(const struct config *config);
void state_leave(void);
void state_after_fork(void);
void state_busy(int device, uint64_t start_ns, uint64_t end_ns);
void state_used(int device, uint64_t bytes);
void state_contexts(int device, int change);
uint64_t state_used_by_others(int device);
void state_reap(void);

/* Defined in state_export.c. Returns the export's number, by which other processes open the
 * memory. Returns 0 if no entry is free or there is no shared file. */
uint64_t state_export(int device, uint64_t size);
void state_unexport(uint64_t id);
/* Looks up an export. Returns false if it does not exist or its process is dead. */
bool state_exported(uint64_t id, pid_t *pid, int *device, uint64_t *size);
struct state *state_shared(void);

#endif
