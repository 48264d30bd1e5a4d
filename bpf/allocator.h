/* SPDX-License-Identifier: GPL-2.0 */
/*
 * PyTorch's caching allocator. It tells everything it does to one of its own functions,
 * DeviceCachingAllocator::record_trace, which decides whether anybody wants to know. The
 * object that it is called on also holds the allocator's totals; where in it, is found by
 * comparing it with what c10::reportMemoryUsageToProfiler is told at the same moment.
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

/* Where in an allocator object the array of allocated bytes is. */
struct allocator_layout {
	__u64 allocated_at; /* bytes */
};

/* tgid -> layout, once user space has found it. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, __u32);
	__type(value, struct allocator_layout);
} allocator_layouts SEC(".maps");

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

/*
 * (this, action, address, bytes, stream, device, pool, context): grid[0] = action, src = pool,
 * grid[1] and [2] = allocated bytes, block[0] and [1] = reserved bytes as the object has them.
 */
static __always_inline void read_allocator(struct pt_regs *ctx, struct thread *t, int has_pool, struct event *e)
{
	__u64 object = call_arg(ctx, 0), allocated = ~0ULL, reserved = ~0ULL, pool = 0; /* totals: not known */
	__u64 *w = t->scratch.words;
	__u32 tgid = e->pid;
	struct allocator_layout *l = bpf_map_lookup_elem(&allocator_layouts, &tgid);

	if (has_pool) {
		pool = call_arg(ctx, 7); /* {0, n}: asked for by the program */
		if (!pool)
			pool = -call_arg(ctx, 6); /* {n, 0}: of a captured graph */
	}
	if (l && !bpf_probe_read_user(w, 8 * (STAT_ARRAY_WORDS + 1), (void *)(object + l->allocated_at))) {
		allocated = w[0];
		reserved = w[STAT_ARRAY_WORDS];
	}
	t->allocator = object;
	e->src = pool;
	e->device = (__s8)call_arg(ctx, 5);
	e->grid[0] = call_arg(ctx, 1);
	e->grid[1] = allocated;
	e->grid[2] = allocated >> 32;
	e->block[0] = reserved;
	e->block[1] = reserved >> 32;
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
