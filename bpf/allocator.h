/* SPDX-License-Identifier: GPL-2.0 */
/*
 * PyTorch's caching allocator. It tells everything it does to one of its own functions,
 * DeviceCachingAllocator::record_trace, which decides whether anybody wants to know. The
 * object that it is called on also holds the allocator's totals; where in it, is found by
 * comparing it with what c10::reportMemoryUsageToProfiler is told at the same moment.
 *
 * That function is told of every block that is handed out or given back, and where
 * record_trace cannot be probed, or for fewer probe hits, it is what is recorded instead.
 */
#ifndef GPUREC_ALLOCATOR_H
#define GPUREC_ALLOCATOR_H

#include "state.h"
#include "regs.h"

/*
 * PyTorch keeps a total as an array: current, peak, allocated and freed, of all, the small
 * and the large pools. That of reserved bytes follows that of allocated bytes
 * (c10::CachingDeviceAllocator::DeviceStats).
 */
#define STAT_ARRAY_WORDS 12

/*
 * tgid -> its allocators. Inserted by user space or by the first event, whichever comes
 * first; deleted by user space when the process has ended, by process_exec when it becomes
 * another program. Full: a process may be recorded by both functions.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, __u32);
	__type(value, struct process_allocator);
} allocators SEC(".maps");

/* c10::DeviceType, the lower byte of a c10::Device passed by value; the upper one is its index. */
#define DEVICE_TYPE_CUDA 1

/* Whether this is a report about memory of another kind of device, the CPU's above all. */
static __always_inline int is_of_other_device(struct pt_regs *ctx, const struct call_spec *spec)
{
	return spec->decode == DECODE_REPORT && (__u8)call_arg(ctx, 4) != DEVICE_TYPE_CUDA;
}

/*
 * Whether an event is told by the function that tells of the process's allocator, of which it
 * says what is known. The first one that does goes on to: both would count everything twice.
 */
static __always_inline int is_of_source(const struct call_spec *spec, __u32 tgid, struct process_allocator **of)
{
	struct process_allocator *a, first = {
		.allocated_at = NOT_FOUND, .source = spec->decode == DECODE_REPORT ? SOURCE_REPORTS : SOURCE_TRACE,
	};

	a = bpf_map_lookup_elem(&allocators, &tgid);
	if (!a) {
		bpf_map_update_elem(&allocators, &tgid, &first, BPF_NOEXIST);
		a = bpf_map_lookup_elem(&allocators, &tgid); /* another thread may have been faster */
	}
	*of = a;
	return !a || a->source == first.source;
}

/* The part of an object that is searched: pieces of 64 words. */
#define SEARCH_PIECES 4

/* Which words of an allocator object were equal to its totals at every look so far. */
struct allocator_search {
	__u64 allocated[SEARCH_PIECES];
	__u64 reserved[SEARCH_PIECES];
	__u64 last; /* allocated bytes at the last look: one that changes nothing tells nothing */
	__u64 looks;
};

/* tgid -> search. LRU: one that falls out begins again. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, struct allocator_search);
} allocator_searches SEC(".maps");

static __always_inline void set_totals(struct event *e, __u64 allocated, __u64 reserved)
{
	e->grid[1] = allocated;
	e->grid[2] = allocated >> 32;
	e->block[0] = reserved;
	e->block[1] = reserved >> 32;
}

/*
 * (this, action, address, bytes, stream, device, pool, context): grid[0] = action, src = pool,
 * grid[1] and [2] = allocated bytes, block[0] and [1] = reserved bytes as the object has them.
 */
static __always_inline void read_trace(struct pt_regs *ctx, struct thread *t, int has_pool, const struct process_allocator *a, const struct stack_top *top, struct event *e)
{
	__u64 object = ARG(ctx, top, 0), allocated = ~0ULL, reserved = ~0ULL, pool = 0; /* totals: not known */
	__u64 *w = t->scratch.words;

	if (has_pool) {
		pool = ARG(ctx, top, 7); /* {0, n}: asked for by the program */
		if (!pool)
			pool = -ARG(ctx, top, 6); /* {n, 0}: of a captured graph */
	}
	if (a && a->allocated_at != NOT_FOUND && !bpf_probe_read_user(w, 8 * (STAT_ARRAY_WORDS + 1), (void *)(object + a->allocated_at))) {
		allocated = w[0];
		reserved = w[STAT_ARRAY_WORDS];
	}
	t->allocator = object;
	e->ptr = ARG(ctx, top, 2);
	e->bytes = ARG(ctx, top, 3);
	e->stream = ARG(ctx, top, 4);
	e->src = pool;
	e->device = (__s8)ARG(ctx, top, 5);
	e->grid[0] = ARG(ctx, top, 1);
	set_totals(e, allocated, reserved);
}

/* (address, bytes, negative if they are given back, allocated and reserved bytes after it, device). */
static __always_inline void read_report(struct pt_regs *ctx, const struct stack_top *top, struct event *e)
{
	e->ptr = ARG(ctx, top, 0);
	e->bytes = ARG(ctx, top, 1);
	e->device = (__s8)(ARG(ctx, top, 4) >> 8);
	set_totals(e, ARG(ctx, top, 2), ARG(ctx, top, 3));
}

/* The arguments of an event of a caching allocator, of which a says what is known. */
static __always_inline void read_allocator(struct pt_regs *ctx, struct thread *t, const struct call_spec *spec, const struct process_allocator *a, const struct stack_top *top, struct event *e)
{
	if (spec->decode == DECODE_REPORT)
		read_report(ctx, top, e);
	else
		read_trace(ctx, t, spec->decode == DECODE_ALLOCATOR_POOL, a, top, e);
}

/* Compares one piece of the object with the totals. */
static __always_inline void search_piece(struct thread *t, struct allocator_search *s, __u32 piece, __u64 allocated, __u64 reserved)
{
	__u64 *w = t->scratch.words, is_allocated = 0, is_reserved = 0;

	if (bpf_probe_read_user(w, 512, (void *)(t->allocator + 512 * piece)))
		__builtin_memset(w, 0, 512);
	for (__u32 i = 0; i < 64; i++) {
		is_allocated |= (__u64)(w[i] == allocated) << i;
		is_reserved |= (__u64)(w[i] == reserved) << i;
	}
	s->allocated[piece] &= is_allocated;
	s->reserved[piece] &= is_reserved;
}

#endif
