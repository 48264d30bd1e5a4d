/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Probes on PyTorch's caching allocator. The allocator reports each action to its own function
 * DeviceCachingAllocator::record_trace, even if no history is recorded. The C++ object of that
 * call also holds the allocator's statistics. Their offset in the object is found by comparing
 * its words with the totals passed to c10::reportMemoryUsageToProfiler.
 *
 * c10::reportMemoryUsageToProfiler reports each block that is allocated or freed. It is the
 * source of events where record_trace cannot be probed, or where fewer probe hits are wanted.
 */
#ifndef GPUREC_ALLOCATOR_H
#define GPUREC_ALLOCATOR_H

#include "state.h"
#include "regs.h"

/*
 * PyTorch keeps a statistic as an array of 12 words: current, peak, allocated and freed bytes, for
 * all, the small and the large pools. The array of reserved bytes follows the array of
 * allocated bytes (c10::CachingDeviceAllocator::DeviceStats).
 */
#define STAT_ARRAY_WORDS 12

/*
 * tgid -> state of the process's allocators. User space or the first allocator event inserts
 * it. User space deletes it when the process exits, process_exec when it calls exec. If the
 * map is full, a process's events may be recorded from both sources.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, __u32);
	__type(value, struct process_allocator);
} allocators SEC(".maps");

/* c10::DeviceType, the low byte of a c10::Device passed by value. The high byte is the index. */
#define DEVICE_TYPE_CUDA 1

/* Returns true for a report about memory that is not CUDA's, mostly the CPU's. */
static __always_inline int is_other_device(struct pt_regs *ctx, const struct call_spec *spec)
{
	return spec->decode == DECODE_REPORT && (__u8)call_arg(ctx, 4) != DEVICE_TYPE_CUDA;
}

/*
 * Returns true if this probe is the process's chosen allocator source, and stores the process's
 * allocator state in *of. The first source that reports an event is chosen: recording both
 * sources would count every block twice.
 */
static __always_inline int matches_source(const struct call_spec *spec, __u32 tgid, struct process_allocator **of)
{
	struct process_allocator *a, first = {
		.stats_offset = OFFSET_UNKNOWN, .source = spec->decode == DECODE_REPORT ? SOURCE_REPORTS : SOURCE_TRACE,
	};

	a = bpf_map_lookup_elem(&allocators, &tgid);
	if (!a) {
		bpf_map_update_elem(&allocators, &tgid, &first, BPF_NOEXIST);
		a = bpf_map_lookup_elem(&allocators, &tgid); /* another thread may have inserted first */
	}
	*of = a;
	return !a || a->source == first.source;
}

/* How much of an allocator object is searched for its statistics: 4 pieces of 64 words. */
#define SEARCH_PIECES 4

/* A search for the statistics: bit i of a mask is set while word i has matched every total. */
struct allocator_search {
	__u64 allocated[SEARCH_PIECES];
	__u64 reserved[SEARCH_PIECES];
	__u64 last_allocated; /* allocated bytes at the last comparison; equal ones are skipped */
	__u64 comparisons;
};

/* tgid -> search for the statistics of that process. LRU: an evicted search starts again. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, struct allocator_search);
} allocator_searches SEC(".maps");

/* tgid<<32|device -> the beginning of its events. User space deletes an entry when it has read it. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 4096);
	__type(key, __u64);
	__type(value, struct allocator_beginning);
} allocator_beginnings SEC(".maps");

/* Devices with a bit in process_allocator.counted. */
#define COUNTED_DEVICES 32

/*
 * Words from the statistics that stats_offset names, allocated bytes, back to the number of
 * allocations. The numbers of segments and of active blocks follow. Of a statistic's array, word 2
 * is how often it has increased, word 3 how often it has decreased.
 */
#define COUNT_ARRAYS 4
#define COUNT_WORDS (STAT_ARRAY_WORDS * (COUNT_ARRAYS - 1))

/*
 * Reads the numbers of events before this one from the statistics of an allocator object. When an
 * allocation is recorded, the statistics include all earlier events, and not the allocation.
 */
static __always_inline int read_happened(struct thread *t, struct allocator_beginning *b, __u64 counts)
{
	__u64 *w = t->scratch.words;

	if (bpf_probe_read_user(w, 8 * COUNT_WORDS, (void *)counts))
		return 0;
	b->happened[ACTION_ALLOC] = w[2];
	b->happened[ACTION_FREE_REQUESTED] = w[3];
	b->happened[ACTION_SEGMENT_ALLOC] = w[STAT_ARRAY_WORDS + 2];
	b->happened[ACTION_SEGMENT_FREE] = w[STAT_ARRAY_WORDS + 3];
	b->happened[ACTION_FREE_COMPLETED] = w[2 * STAT_ARRAY_WORDS + 3];
	return 1;
}

/* Counts the events of a device until its allocator's statistics can be read. */
static __always_inline void count_beginning(struct thread *t, struct process_allocator *a, const struct event *e)
{
	__u64 key = (__u64)e->pid << 32 | (__u32)e->device, object = t->last_allocator;
	struct allocator_beginning first = {.first_ns = e->start_ns}, *b;
	__u32 action = e->grid[0];

	if (!a || e->device < 0 || e->device >= COUNTED_DEVICES || action >= ACTIONS || action == ACTION_SNAPSHOT ||
	    a->counted & 1U << e->device)
		return;
	b = bpf_map_lookup_elem(&allocator_beginnings, &key);
	if (!b) {
		bpf_map_update_elem(&allocator_beginnings, &key, &first, BPF_NOEXIST);
		b = bpf_map_lookup_elem(&allocator_beginnings, &key);
		if (!b)
			return;
	}
	if (action == ACTION_ALLOC && a->stats_offset != OFFSET_UNKNOWN &&
	    read_happened(t, b, object + a->stats_offset - 8 * COUNT_ARRAYS * STAT_ARRAY_WORDS)) {
		b->is_read = 1;
		__sync_fetch_and_or(&a->counted, 1U << e->device);
		return;
	}
	b->recorded[action]++;
}

/* Stores the totals of an allocator event in its grid and block, as 64-bit values. */
static __always_inline void set_totals(struct event *e, __u64 allocated, __u64 reserved)
{
	e->grid[1] = allocated;
	e->grid[2] = allocated >> 32;
	e->block[0] = reserved;
	e->block[1] = reserved >> 32;
}

/*
 * Decodes record_trace(this, action, address, bytes, stream, device, pool, context):
 * grid[0] = action, src = pool, grid[1] and [2] = allocated bytes, block[0] and [1] = reserved
 * bytes, both from the object's statistics.
 */
static __always_inline void read_trace(struct pt_regs *ctx, struct thread *t, int has_pool, const struct process_allocator *a, const struct stack_top *top, struct event *e)
{
	__u64 object = ARG(ctx, top, 0), allocated = ~0ULL, reserved = ~0ULL, pool = 0; /* ~0: total unknown */
	__u64 *w = t->scratch.words;

	if (has_pool) {
		pool = ARG(ctx, top, 7); /* pool id {0, n}: a pool that the program created */
		if (!pool)
			pool = -ARG(ctx, top, 6); /* pool id {n, 0}: the private pool of a captured graph */
	}
	if (a && a->stats_offset != OFFSET_UNKNOWN && !bpf_probe_read_user(w, 8 * (STAT_ARRAY_WORDS + 1), (void *)(object + a->stats_offset))) {
		allocated = w[0];
		reserved = w[STAT_ARRAY_WORDS];
	}
	t->last_allocator = object;
	e->ptr = ARG(ctx, top, 2);
	e->bytes = ARG(ctx, top, 3);
	e->stream = ARG(ctx, top, 4);
	e->src = pool;
	e->device = (__s8)ARG(ctx, top, 5);
	e->grid[0] = ARG(ctx, top, 1);
	set_totals(e, allocated, reserved);
}

/* Decodes a report: (address, bytes, < 0 for a free, allocated and reserved bytes, device). */
static __always_inline void read_report(struct pt_regs *ctx, const struct stack_top *top, struct event *e)
{
	e->ptr = ARG(ctx, top, 0);
	e->bytes = ARG(ctx, top, 1);
	e->device = (__s8)(ARG(ctx, top, 4) >> 8);
	set_totals(e, ARG(ctx, top, 2), ARG(ctx, top, 3));
}

/* Decodes the arguments of an allocator event; a is the state of the process's allocators. */
static __always_inline void read_allocator(struct pt_regs *ctx, struct thread *t, const struct call_spec *spec, struct process_allocator *a, const struct stack_top *top, struct event *e)
{
	if (spec->decode == DECODE_REPORT) {
		read_report(ctx, top, e);
		return;
	}
	read_trace(ctx, t, spec->decode == DECODE_ALLOCATOR_POOL, a, top, e);
	count_beginning(t, a, e);
}

/* Compares one piece of the allocator object with the totals and clears mask bits that differ. */
static __always_inline void search_piece(struct thread *t, struct allocator_search *s, __u32 piece, __u64 allocated, __u64 reserved)
{
	__u64 *w = t->scratch.words, is_allocated = 0, is_reserved = 0;

	if (bpf_probe_read_user(w, 512, (void *)(t->last_allocator + 512 * piece)))
		__builtin_memset(w, 0, 512);
	for (__u32 i = 0; i < 64; i++) {
		is_allocated |= (__u64)(w[i] == allocated) << i;
		is_reserved |= (__u64)(w[i] == reserved) << i;
	}
	s->allocated[piece] &= is_allocated;
	s->reserved[piece] &= is_reserved;
}

#endif
