/*
 * What NVML can know of CUDA processes: a file that every process of the simulated driver maps and writes, and that the NVML
 * stand-in, usually in another process, maps and reads. There are no locks, since a process may die at any moment: every
 * field is one atomic word with one writer process, and a slot counts only while its pid lives.
 */
#ifndef SIMCUDA_STATE_H
#define SIMCUDA_STATE_H

#include "config.h"

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define STATE_MAGIC 0x53696d4355444131ull /* "SimCUDA1": the last byte is the version of this layout */
#define STATE_DEFAULT_PATH "/dev/shm/simcuda-state-"

enum {
	STATE_SLOTS = 128,
	/* Work is booked into buckets of 10 ms when it is submitted, so the ring holds the recent past and the queued future:
	 * 256 x 10 ms = 2.56 s. */
	BUCKETS = 256,
	BUCKET_NS = 10 * 1000 * 1000,
	BUCKET_BUSY_BITS = 24, /* 10 ms in ns needs 24 bits, the other 40 say which 10 ms since boot it is */
	STATE_EXPORTS = 1024,
};

enum { SLOT_FREE = 0, SLOT_CHANGING = -1 };

struct state_device {
	_Atomic uint64_t used;        /* bytes */
	_Atomic uint64_t busy_ns;     /* all work ever submitted */
	_Atomic uint64_t busy_until;  /* CLOCK_MONOTONIC */
	_Atomic uint32_t contexts;
	_Atomic uint64_t buckets[BUCKETS];
};

struct state_slot {
	_Atomic int32_t pid;          /* SLOT_FREE, SLOT_CHANGING or the owner */
	_Atomic uint64_t born;        /* start time of that pid: pids are used again */
	struct state_device devices[MAX_DEVICES];
};

/* Memory that other processes may open. Entries of processes that are gone count as free. */
struct state_export {
	_Atomic uint64_t id;          /* 0 = free; numbers are never used again */
	_Atomic int32_t pid;
	_Atomic uint32_t device;
	_Atomic uint64_t born, size;
};

struct state {
	_Atomic uint64_t magic;
	_Atomic uint32_t devices;     /* as the process that initialised last was told */
	_Atomic uint64_t memory;
	_Atomic uint32_t slots_used;  /* slots beyond have never been used: saves walking over untouched pages */
	_Atomic uint64_t retired_busy_ns[MAX_DEVICES]; /* of processes that are gone: energy never falls */
	struct state_slot slots[STATE_SLOTS];
	/* Behind everything else: a file of an older simulator grows when it is opened, and its readers do not mind. */
	_Atomic uint64_t last_export;
	struct state_export exports[STATE_EXPORTS];
};

/* The birth of a running process in clock ticks since boot, 0 if there is none. */
uint64_t state_birth(pid_t pid);
bool state_slot_alive(const struct state_slot *slot);

/* busy_ns counts queued work too; what lies beyond now has not happened yet. */
static inline uint64_t state_busy_done(const struct state_device *d, uint64_t now)
{
	uint64_t busy = atomic_load(&d->busy_ns), until = atomic_load(&d->busy_until);
	uint64_t queued = until > now ? until - now : 0;
	return busy > queued ? busy - queued : 0;
}

/* The writer's half, only for the driver. */
void state_join(const struct config *config);
void state_leave(void);
void state_after_fork(void);
void state_busy(int device, uint64_t start_ns, uint64_t end_ns);
void state_used(int device, uint64_t bytes);
void state_contexts(int device, int change);
uint64_t state_used_by_others(int device);
void state_reap(void);

/* state_export.c. Returns the number others open it by, 0 if there is no room or no shared file. */
uint64_t state_export(int device, uint64_t size);
void state_unexport(uint64_t id);
/* False if there is no such export or its process is gone. */
bool state_exported(uint64_t id, pid_t *pid, int *device, uint64_t *size);
struct state *state_shared(void);

#endif
