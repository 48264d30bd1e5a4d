/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the programs keep: settings, maps, the state of threads, and the books of what
 * was seen, sent and lost.
 */
#ifndef GPUREC_STATE_H
#define GPUREC_STATE_H

#include "event.h"

/*
 * A function that the verifier looks at once, for any arguments, and not again for each of the
 * states in which it is called; its pointers may be 0. What is seldom needed is kept out of
 * the way of the rest, too.
 */
#define SEPARATE __attribute__((noinline))

/* Set before load. */
const volatile __u8 take_stacks = STACKS_FRAME_POINTERS; /* enum stack_mode */
const volatile __u8 record_all = 0; /* every process, not only targets ... */
const volatile char only_comm[16] = {}; /* ... but of this name; empty: any */
const volatile __u64 only_cgroup = 0; /* ... but below this cgroup v2; 0: any */
const volatile __u32 only_cgroup_level = 0;
const volatile __u64 wakeup_bytes = 16 << 20; /* wake user space above this much data */

/*
 * Set while probes are placed and taken away: no call is seen. Perf uprobes come and go one by
 * one, for seconds, and a recording that has the allocations but not the frees would lie.
 */
volatile __u8 paused = 0;
/*
 * Set when the recording is over and probes are still there: no call is seen to return either,
 * so that the calls that are open stay what user space reads of them.
 */
volatile __u8 ended = 0;
/* Set while recording: calls that come too often are sent at their entry. */
volatile __u8 skip_returns = 0;
/* Set while recording: launches of kernels have no stack of their own. */
volatile __u8 skip_stacks = 0;
/*
 * Set while recording: launches of kernels that begin before or after this time are not
 * seen, as if they were not probed. So it is known to the nanosecond of which time all
 * launches are recorded, although links take milliseconds to come and go.
 */
volatile __u64 launches_from_ns = 0;
volatile __u64 launches_until_ns = ~0ULL;

/* Everything that goes to user space. Full: the record is counted as lost. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 32 << 20);
} events SEC(".maps");

/*
 * tgid -> epoch of its kernel handles, for processes being recorded. Unloading a
 * module begins a new epoch: a handle may then stand for another kernel. User space
 * inserts and deletes.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, __u32);
	__type(value, __u32);
} targets SEC(".maps");

/* The table of calls: attach cookie -> row. Filled before attaching. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, struct call_spec);
} calls SEC(".maps");

/*
 * tgid<<32|tid -> state of the thread. Allocated at a thread's first call (a probe
 * runs in the task's own context, where that is safe); user space deletes entries
 * of threads that are gone. Full: the thread's calls are lost with LOSS_THREADS.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 65536);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u64);
	__type(value, struct thread);
} threads SEC(".maps");

struct context_key {
	__u64 context;
	__u64 pid;
};

/* Context of a process -> device ordinal. LRU: contexts of dead processes fall out. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, struct context_key);
	__type(value, __s32);
} contexts SEC(".maps");

struct handle_key {
	__u64 handle;
	__u64 pid;
};

/*
 * Kernel handle of a process -> epoch in which user space was told its name. LRU: one
 * that falls out is looked up again.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, struct handle_key);
	__type(value, __u32);
} handles SEC(".maps");

/*
 * How often the name behind a handle was as the call that returned the handle had it
 * (NAME_CONFIRMED), and how often not (NAME_CONTRADICTED).
 */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, __u64);
} name_checks SEC(".maps");

/*
 * Stacks that user space has been sent -> when that was. LRU: one that falls out is sent
 * again, and so are broken ones now and then.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, __u64);
	__type(value, __u64);
} stacks_sent SEC(".maps");

/* Accounting per class of call. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, CLASS_COUNT);
	__type(key, __u32);
	__type(value, struct class_stats);
} stats SEC(".maps");

/* Calls that are only counted: attach cookie -> number. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, __u64);
} counts SEC(".maps");

/* What a new thread starts as: 4 KiB do not fit on the 512 byte BPF stack. */
static const struct thread new_thread;

static __always_inline struct class_stats *stats_of(__u32 class)
{
	return bpf_map_lookup_elem(&stats, &class);
}

/* Whatever loses a call returns through here. When it was, user space sees by polling. */
static __always_inline int lost(struct class_stats *s, enum loss_reason why)
{
	if (s && why < LOSS_REASONS)
		s->lost[why]++;
	return 0;
}

/*
 * A wake-up costs more than a probe (1,450 against 730 ns), so user space polls and
 * is woken only when the buffer fills faster than it polls.
 */
static __always_inline __u64 wakeup(void)
{
	return bpf_ringbuf_query(&events, BPF_RB_AVAIL_DATA) > wakeup_bytes ? BPF_RB_FORCE_WAKEUP : BPF_RB_NO_WAKEUP;
}

static __always_inline void emit(struct class_stats *s, struct event *e)
{
	if (bpf_ringbuf_output(&events, e, sizeof(*e), wakeup())) {
		lost(s, LOSS_RING_FULL);
		return;
	}
	if (!s)
		return;
	s->emitted++;
	if (e->flags & EVENT_ABANDONED)
		s->abandoned++;
}

static __always_inline struct thread *thread_state(__u64 id)
{
	struct thread *t = bpf_map_lookup_elem(&threads, &id);

	if (t)
		return t;
	bpf_map_update_elem(&threads, &id, &new_thread, BPF_NOEXIST);
	return bpf_map_lookup_elem(&threads, &id);
}

/*
 * The i-th open call, 0 if i is out of range. The empty asm ties the test to the
 * register that is used as index: clang 14 else tests a copy, and the verifier sees
 * an unbounded access (all kernels).
 */
static __always_inline struct open_call *open_call(struct thread *t, __u32 i)
{
	asm volatile("" : "+r"(i));
	if (i >= MAX_OPEN)
		return 0;
	return &t->calls[i];
}

static __always_inline __u64 *context_slot(struct thread *t, __u32 i)
{
	asm volatile("" : "+r"(i));
	if (i >= MAX_CONTEXTS)
		return 0;
	return &t->context[i];
}

#endif
