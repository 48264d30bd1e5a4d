/* SPDX-License-Identifier: GPL-2.0 */
/*
 * State that the BPF programs share: settings, maps, the state of each thread, and the
 * counters of seen, sent and lost calls.
 */
#ifndef GPUREC_STATE_H
#define GPUREC_STATE_H

#include "event.h"

/*
 * A BPF-to-BPF global function: the verifier checks it once, for any arguments, and not again
 * at each call site. Its pointer arguments may be null. Also keeps rare code out of line.
 */
#define GLOBAL_FUNC __attribute__((noinline))

/* Settings that user space writes before it loads the programs. */
const volatile __u8 stack_capture = STACKS_FRAME_POINTERS; /* enum stack_mode */
const volatile __u8 record_all = 0; /* 1: record every process that passes the filters */
const volatile char only_comm[16] = {}; /* record_all: only processes with this name; empty: any */
const volatile __u64 only_cgroup = 0; /* record_all: only processes below this cgroup v2; 0: any */
const volatile __u32 only_cgroup_level = 0;
const volatile __u64 wakeup_bytes = 16 << 20; /* wake up user space when the ring buffer holds more */

/*
 * Set while probes are attached or detached: entry probes record no calls. Perf uprobes attach
 * one by one, for seconds. A recording of allocations without their frees would show leaks.
 */
volatile __u8 paused = 0;
/*
 * Set when recording has ended and probes are still attached. Return probes then do nothing, so
 * that the open calls stay in the thread states until user space has read them.
 */
volatile __u8 recording_ended = 0;
/* Set during recording: launches have no return probes now and are sent at their entry. */
volatile __u8 skip_returns = 0;
/* Set during recording, for good: the groups of NCCL are not recorded, and operations do not know theirs. */
volatile __u8 skip_groups = 0;
/* Set during recording, for good: operations of NCCL with RETURN_OPTIONAL are sent at their entry. */
volatile __u8 skip_operation_returns = 0;
/* Set if such an operation was called inside of another one. Without returns, both would be recorded. */
volatile __u8 nested_operations = 0;
/* Set during recording: kernel launches get no stack. */
volatile __u8 skip_stacks = 0;
/* Time that must pass for each ns of unwinding in a thread, in ns; 0: no limit (ration.h). */
volatile __u32 unwind_spacing = 0;
/*
 * Kernel launches and allocator events outside these time windows are ignored. User space detaches
 * their probes between windows, which takes milliseconds. The window bounds are exact to the
 * nanosecond.
 */
volatile __u64 launches_from_ns = 0;
volatile __u64 launches_until_ns = ~0ULL;
volatile __u64 allocator_from_ns = 0;
volatile __u64 allocator_until_ns = ~0ULL;

/* Carries all records to user space. A record that does not fit is counted as lost. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 32 << 20);
} events SEC(".maps");

/*
 * tgid of each target process -> epoch of its kernel handles. Unloading a module increments the
 * epoch, because the driver may reuse handles. User space and process.bpf.c add and delete.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, __u32);
	__type(value, __u32);
} targets SEC(".maps");

/* The call table: attach cookie -> row. User space fills it before it attaches probes. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, struct call_spec);
} calls SEC(".maps");

/*
 * tgid<<32|tid -> state of the thread. An entry is allocated at the thread's first call: an
 * uprobe runs in task context, where allocation is safe. User space deletes the entries of
 * exited threads. If the map is full, the thread's calls count as LOSS_THREADS.
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

/* Context and process -> device ordinal. LRU: entries of exited processes expire. */
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
 * Kernel handle and process -> epoch in which the kernel's name was sent to user space.
 * LRU: the name of an evicted handle is sent again.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, struct handle_key);
	__type(value, __u32);
} handles SEC(".maps");

/*
 * How often the name read through a handle matched the name in the call that returned the
 * handle (NAME_CONFIRMED), and how often it differed (NAME_CONTRADICTED).
 */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 2);
	__type(key, __u32);
	__type(value, __u64);
} name_checks SEC(".maps");

/*
 * Hash of a stack -> time at which the stack was sent to user space. LRU: an evicted stack is
 * sent again. Incomplete stacks are sent again after RESEND_NS.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, __u64);
	__type(value, __u64);
} stacks_sent SEC(".maps");

/* Counters per class of calls. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, CLASS_SLOTS);
	__type(key, __u32);
	__type(value, struct class_stats);
} stats SEC(".maps");

/* Attach cookie -> number of calls, for calls that are only counted and for getters. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, __u64);
} counts SEC(".maps");

/* Initial value of a thread's state: 4 KiB do not fit on the 512-byte BPF stack. */
static const struct thread new_thread;

/* Returns the counters of a class of calls. */
static __always_inline struct class_stats *stats_of(__u32 class)
{
	return bpf_map_lookup_elem(&stats, &class);
}

/* Counts a lost call and returns 0. User space finds the time of a loss by polling. */
static __always_inline int count_loss(struct class_stats *s, enum loss_reason why)
{
	if (s && why < LOSS_REASONS)
		s->lost[why]++;
	return 0;
}

/*
 * Returns the wake-up flag of a ring buffer write. A wake-up costs more than a probe hit (1,450
 * against 730 ns). So user space polls, and is woken only if the buffer fills between polls.
 */
static __always_inline __u64 wakeup(void)
{
	return bpf_ringbuf_query(&events, BPF_RB_AVAIL_DATA) > wakeup_bytes ? BPF_RB_FORCE_WAKEUP : BPF_RB_NO_WAKEUP;
}

/* Sends an event to user space and counts it as emitted or lost. */
static __always_inline void emit(struct class_stats *s, struct event *e)
{
	if (bpf_ringbuf_output(&events, e, sizeof(*e), wakeup())) {
		count_loss(s, LOSS_RING_FULL);
		return;
	}
	if (!s)
		return;
	s->emitted++;
	if (e->flags & EVENT_ABANDONED)
		s->abandoned++;
}

/* Returns 1 if the current thread has the name of a thread of PyTorch's autograd engine, pt_autograd_N. */
GLOBAL_FUNC int is_autograd_thread(void)
{
	const char prefix[] = "pt_autograd_";
	char comm[16] = {};

	bpf_get_current_comm(comm, sizeof(comm));
	for (int i = 0; i < sizeof(prefix) - 1; i++)
		if (comm[i] != prefix[i])
			return 0;
	return 1;
}

/* Returns the state of a thread, which it inserts at the thread's first call; 0: the map is full. */
static __always_inline struct thread *thread_state(__u64 id)
{
	struct thread *t = bpf_map_lookup_elem(&threads, &id);

	if (t)
		return t;
	bpf_map_update_elem(&threads, &id, &new_thread, BPF_NOEXIST);
	t = bpf_map_lookup_elem(&threads, &id);
	if (t && is_autograd_thread()) /* the engine names its threads before they call CUDA */
		t->engine = ENGINE_THREAD;
	return t;
}

/* Counts a probe hit of the thread. */
static __always_inline void count_hit(struct thread *t, const struct call_spec *spec)
{
	if (spec->class == CLASS_ALLOCATOR)
		t->hits[HIT_ALLOCATOR]++;
	else if (spec->return_probe == RETURN_SAMPLED)
		t->hits[HIT_LAUNCH]++;
	else if (spec->class == CLASS_COLLECTIVE)
		t->hits[HIT_COLLECTIVE]++;
	else
		t->hits[HIT_OTHER]++;
}

/*
 * Returns the i-th open call, or 0 if i is out of range. The empty asm keeps the range check and
 * the index in one register. Otherwise clang 14 checks a copy, and the verifier of every kernel
 * rejects the access as unbounded.
 */
static __always_inline struct open_call *open_call(struct thread *t, __u32 i)
{
	asm volatile("" : "+r"(i));
	if (i >= MAX_OPEN)
		return 0;
	return &t->calls[i];
}

/* Returns the i-th entry of the thread's stack of contexts, or 0 if i is out of range. */
static __always_inline __u64 *context_slot(struct thread *t, __u32 i)
{
	asm volatile("" : "+r"(i));
	if (i >= MAX_CONTEXTS)
		return 0;
	return &t->context[i];
}

#endif
