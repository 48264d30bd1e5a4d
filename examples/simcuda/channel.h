/*
 * Channels: the simulated GPU writes a progress word pair for each channel, as a real GPU does.
 * SIMCUDA_CHANNELS turns it on; without it, nothing in this file is used.
 *
 * A submission computes the start and the end of its operation at once, from the time of the call and
 * the end of earlier operations. The GPU thread publishes an operation when its start has come, or the end of a
 * copy: it writes the ledger line, then the slot. A late GPU thread makes a word visible late, and never makes it
 * wrong. All times are CLOCK_MONOTONIC in ns unless a name says otherwise.
 */
#ifndef SIMCUDA_CHANNEL_H
#define SIMCUDA_CHANNEL_H

#include "device_file.h"
#include "graph.h"

/* The pair of words that the GPU writes. Readers see the two words separately. */
struct slot {
	_Atomic uint64_t counter, gpu_ns;
};
_Static_assert(sizeof(struct slot) == 16, "slots are 16 bytes apart");

enum { CHANNELS_MAX = 512, CHANNEL_CONTEXTS_MAX = 32, QUEUE_MAX = 1024 /* operations that wait on a channel */ };
enum { CONNECTIONS_MAX = 32 };

/* Channel classes. A context has one channel of the legacy default stream, and two of each copy
 * engine: for the legacy default stream and for all others. Each of the first two classes has several, which streams use
 * in turn. */
enum channel_class { COMPUTE, COMPUTE_HIGH, COMPUTE_LEGACY, COPY_IN, COPY_OUT, CHANNEL_CLASSES };

/* ---- settings ---- */

enum reuse { REUSE_KEEP, REUSE_RESET };

struct channel_config {
	double kernel_min_us, kernel_max_us; /* durations of kernels */
	double jitter;                       /* largest relative deviation of a duration */
	double extra;                        /* share of operations with an extra operation */
	uint64_t tear_ns;                    /* pause between the two words of one write in 100 */
	int connections;                     /* compute channels of a context and priority */
	enum reuse reuse;                    /* what happens to a channel whose last stream is destroyed */
	bool slots;                          /* false: only decoys are in mappings */
	bool decoys;
};
extern struct channel_config channel_config;
/* Reads SIMCUDA_CHANNELS. An invalid value ends the process. Returns false if it is not set. */
bool channel_config_read(void);

/* ---- random numbers; the caller holds the lock of the channels ---- */

uint64_t random_next(void);
uint64_t random_below(uint64_t n);
double random_unit(void); /* 0 <= x < 1 */
uint64_t hash_mix(uint64_t x);

/* ---- clock of a GPU ---- */

void clock_open(const struct device_file *file);
/* Returns the time word of a GPU at a time. It advances in steps of 32 ns. */
uint64_t clock_gpu_ns(int device, uint64_t at);
uint64_t clock_real_ns(uint64_t at); /* CLOCK_REALTIME */
/* Returns the parameters of a GPU's clock:
 * real + offset_ns + (monotonic - origin_ns) * drift_ppb / 1e9 in steps of 32 ns. */
struct clock_facts {
	int64_t offset_ns, drift_ppb, real_minus_monotonic_ns;
	uint64_t origin_ns;
};
struct clock_facts clock_facts(int device);

/* ---- memory that the GPU writes ---- */

enum { MAPPINGS_MAX = 16, SLOTS = 2048, DECOYS = 12, HEARTBEATS = 4 };

struct slot_memory {
	struct { void *start; size_t bytes; } mappings[MAPPINGS_MAX];
	int mappings_len;
	struct slot *range;         /* SLOTS pairs, 16 bytes apart */
	uint16_t order[SLOTS];      /* order in which slots are given */
	int given;
	struct slot *free_slots[CHANNELS_MAX], *free_event_slots[SLOTS];
	int free_len, free_event_len;
	struct slot *decoys[DECOYS], *heartbeats[HEARTBEATS];
	struct slot *unmapped;      /* the range if no slots are in mappings */
	int device;
};

/* Reads the header of the device file. Ends the process if devfiles did not create it. */
void slot_memory_open(struct device_file *header);
void slot_memory_after_fork(void);
void slot_memory_map(struct slot_memory *m, int device);
void slot_memory_unmap(struct slot_memory *m);
struct slot *slot_take(struct slot_memory *m); /* NULL: all slots are taken */
/* Clears the slot of a channel that ended. A later channel may take it. */
void slot_give(struct slot_memory *m, struct slot *slot);
/* Takes the slot of a timed event, which keeps its words after its event. Returns NULL if events
 * have taken all of theirs. */
struct slot *event_slot_take(struct slot_memory *m);
void event_slot_give(struct slot_memory *m, struct slot *slot);
/* Writes a pair as the GPU does, in two steps. Returns the time in which readers may have seen one
 * new and one old word, ns. */
uint64_t slot_write(struct slot *slot, uint64_t counter, uint64_t gpu_ns);

/* Words that change without work begin or end to change. */
void noise_add(struct slot_memory *m);
void noise_remove(struct slot_memory *m);
void noise_after_fork(void);

/* ---- channels ---- */

/* An operation of one channel, with its computed times. */
struct work {
	uint64_t start_ns, end_ns, call_ns, submitted_ns, stream;
	uint64_t word_ns;    /* when the GPU writes the channel's words: the start, or the end of a copy */
	const char *kernel;  /* a permanent copy, or NULL */
	struct slot *event;  /* slot of the timed event that it records, or NULL */
	struct channel *channel;
	enum work_kind kind;
	pid_t tid;
	uint32_t grid[3];
};

struct channel {
	enum channel_class class;
	bool alive, ending;          /* ending: its slot is given back after its last operation */
	uint32_t number;             /* unique in the process, from 1 */
	int streams;                 /* streams that submit to it */
	struct slot *slot;
	struct channel_context *of;
	uint64_t until;              /* end of its last operation */
	const struct queue *last;    /* stream of its last operation, if that is a kernel; else NULL */
	uint64_t word_ns;            /* of its last operation */
	uint64_t counter;            /* operations published */
	struct work *queue;          /* ring of QUEUE_MAX operations in the order of their ends */
	uint32_t first, len;
};

struct channel_context {
	struct object *context;      /* NULL: free */
	struct slot_memory memory;
	struct channel *places[CHANNEL_CLASSES][CONNECTIONS_MAX]; /* NULL: had no work yet */
	uint32_t streams[CHANNEL_CLASSES]; /* streams so far that use the channels of a class in turn */
};

extern pthread_mutex_t channels_lock; /* guards everything below */
extern struct channel channels[CHANNELS_MAX];
extern struct channel_context channel_contexts[CHANNEL_CONTEXTS_MAX];
extern int channels_len;

struct channel *channel_of_queue(struct lane *lane);
/* Returns a channel of a class, which begins with its first operation. */
struct channel *channel_at(struct channel_context *of, enum channel_class class, int place);
void channel_end(struct channel *c);

/* ---- the GPU thread ---- */

/* Adds an operation to its channel's queue, and wakes the GPU thread if it must. */
void gpu_push(const struct work *w);
/* Publishes all operations that begin at or before a time. The caller holds the lock. */
void gpu_publish_locked(uint64_t until);
void gpu_after_fork(void);
/* Some unknown times have become known. */
void gpu_wake(void);

/* ---- ledger of operations ---- */

void works_open(void);
void works_clock(int device);
void works_channel(const char *event, const struct channel *c, uint64_t stream);
void works_write(const struct work *w);
/* Notes that readers may have seen one new and one old word of a channel for torn_ns. */
void works_torn(const struct channel *c, uint64_t torn_ns);
void works_flush(void);
void works_after_fork(void);

#endif
