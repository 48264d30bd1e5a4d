//go:build ignore

/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Probes on the CUDA driver API. Two programs serve every function: call_enter at
 * its entry, call_exit at its return; the attach cookie is an index into the table
 * of calls, which says where arguments are and what they mean.
 *
 * Life of an event: call_enter fills it in the state of its thread, in order of the
 * nesting; call_exit adds duration, result and out pointers and copies it to the
 * ring buffer. What cannot be stored is counted, per class and reason. A call still
 * open when recording ends is read from the thread's state by user space.
 *
 * Needs Linux 5.15 (bpf_get_attach_cookie), with uprobe_multi links 6.6.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "event.h"
#include "regs.h"

char _license[] SEC("license") = "GPL";

/* Set before load. */
const volatile __u8 take_stacks = 1;
const volatile __u8 record_all = 0; /* every process, not only targets ... */
const volatile char only_comm[16] = {}; /* ... but of this name; empty: any */
const volatile __u64 only_cgroup = 0; /* ... but below this cgroup v2; 0: any */
const volatile __u32 only_cgroup_level = 0;
const volatile __u64 wakeup_bytes = 16 << 20; /* wake user space above this much data */

/* Everything that goes to user space. Full: the record is counted as lost. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 64 << 20);
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

/* Stacks that user space has been sent. LRU: one that falls out is sent again. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 65536);
	__type(key, __u64);
	__type(value, __u8);
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

/* Puts the types that user space shares into BTF for bpf2go. */
const struct event *unused_event __attribute__((unused));
const struct stack_event *unused_stack __attribute__((unused));
const struct name_event *unused_name __attribute__((unused));
const enum record_kind *unused_kind __attribute__((unused));
const enum event_flags *unused_flags __attribute__((unused));
const enum stack_state *unused_state __attribute__((unused));
const enum arg_from *unused_from __attribute__((unused));
const enum call_class *unused_class __attribute__((unused));
const enum call_decode *unused_decode __attribute__((unused));
const enum call_effect *unused_effect __attribute__((unused));
const struct process_event *unused_process __attribute__((unused));
const enum process_change *unused_change __attribute__((unused));
const enum name_source *unused_source __attribute__((unused));
const enum name_check *unused_check __attribute__((unused));
const enum loss_reason *unused_reason __attribute__((unused));

static __always_inline struct class_stats *stats_of(const struct call_spec *spec)
{
	__u32 class = spec->class;

	return bpf_map_lookup_elem(&stats, &class);
}

/* Whatever loses a call returns through here. */
static __always_inline int lost(struct class_stats *s, enum loss_reason why)
{
	__u64 now = bpf_ktime_get_ns();

	if (!s || why >= LOSS_REASONS)
		return 0;
	s->lost[why]++;
	if (!s->first_lost_ns)
		s->first_lost_ns = now;
	s->last_lost_ns = now;
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

static __always_inline __u64 read_user(struct event *e, __u64 addr, __u8 size)
{
	__u64 v = 0;
	__u32 v32 = 0;
	long err;

	if (size == 4) {
		err = bpf_probe_read_user(&v32, sizeof(v32), (void *)addr);
		v = v32;
	} else {
		err = bpf_probe_read_user(&v, sizeof(v), (void *)addr);
	}
	if (err)
		e->flags |= EVENT_UNREADABLE;
	return v;
}

/* The value at entry; for an out pointer the pointer itself, see arg_at_return. */
static __always_inline __u64 arg_at_entry(struct pt_regs *ctx, struct event *e, const struct arg_spec *a)
{
	__u64 v;

	if (a->from == ARG_NONE)
		return 0;
	v = call_arg(ctx, a->index);
	if (a->from == ARG_POINTEE)
		return read_user(e, v + a->offset, a->size);
	if (a->from == ARG_OUT)
		return v;
	return a->size == 4 ? (__u32)v : v;
}

static __always_inline __u64 arg_at_return(struct event *e, const struct arg_spec *a, __u64 v)
{
	if (a->from != ARG_OUT)
		return v;
	return e->result == 0 && v ? read_user(e, v + a->offset, a->size) : 0;
}

static __always_inline void set_value(struct event *e, __u64 v)
{
	e->grid[0] = v;
	e->grid[1] = v >> 32;
}

/* Copies a structure of the caller into the thread's scratch; 0 if it cannot be read. */
static __always_inline __u64 *read_structure(struct thread *t, struct event *e, __u64 from, __u32 size)
{
	if (bpf_probe_read_user(t->scratch.words, size, (void *)from)) {
		e->flags |= EVENT_UNREADABLE;
		return 0;
	}
	return t->scratch.words;
}

/* Of host, device and array (words 0, 1, 2) the address that a CUmemorytype names. */
static __always_inline __u64 by_memory_type(__u32 type, const __u64 *where)
{
	if (type == 1) /* CU_MEMORYTYPE_HOST */
		return where[0];
	return type == 3 ? where[2] : where[1]; /* ARRAY; DEVICE and UNIFIED */
}

/* The part of a copy structure that 2D and 3D share: w[0] memory type, w[1..3] where. */
static __always_inline void copy_ends(struct event *e, const __u64 *source, const __u64 *target)
{
	e->grid[2] = source[0];
	e->block[0] = target[0];
	e->src = by_memory_type(source[0], source + 1);
	e->ptr = by_memory_type(target[0], target + 1);
}

#define BATCH_PIECE 64 /* words of scratch */
#define BATCH_PIECES 16

/* Adds up the sizes of a batch of copies, as far as 1,024 go. */
static __always_inline void batch_bytes(struct thread *t, struct event *e, __u64 sizes, __u64 count)
{
	e->bytes = 0;
	for (__u32 piece = 0; piece < BATCH_PIECES; piece++) {
		__u64 at = piece * BATCH_PIECE, *w;
		__u64 n = count - at;

		if (at >= count)
			return;
		if (n > BATCH_PIECE)
			n = BATCH_PIECE;
		asm volatile("" : "+r"(n));
		if (n > BATCH_PIECE)
			return;
		w = read_structure(t, e, sizes + at * 8, n * 8);
		if (!w)
			return;
		for (__u32 i = 0; i < BATCH_PIECE; i++)
			if (i < n)
				e->bytes += w[i];
	}
	e->flags |= EVENT_UNREADABLE;
}

static __always_inline void decode_structure(struct pt_regs *ctx, struct thread *t, __u8 decode, struct event *e)
{
	__u64 *w;

	switch (decode) {
	case DECODE_LAUNCH:
		e->src = call_arg(ctx, 0);
		e->grid[0] = call_arg(ctx, 1);
		e->grid[1] = call_arg(ctx, 2);
		e->grid[2] = call_arg(ctx, 3);
		e->block[0] = call_arg(ctx, 4);
		e->block[1] = call_arg(ctx, 5);
		e->block[2] = call_arg(ctx, 6);
		e->shared_bytes = call_arg(ctx, 7);
		e->stream = call_arg(ctx, 8);
		break;
	case DECODE_LAUNCH_EX:
		/* grid u32[3] @0, block u32[3] @12, shared u32 @24, stream @32 */
		e->src = call_arg(ctx, 1);
		w = read_structure(t, e, call_arg(ctx, 0), 40);
		if (!w)
			return;
		__builtin_memcpy(e->grid, w, 24);
		e->shared_bytes = w[3];
		e->stream = w[4];
		break;
	case DECODE_KERNEL_NODE:
		/* func @0, grid u32[3] @8, block u32[3] @20, shared u32 @32, kern @56 */
		w = read_structure(t, e, call_arg(ctx, 4), 64);
		if (!w)
			return;
		e->bytes = w[0] ? w[0] : w[7];
		__builtin_memcpy(e->grid, w + 1, 24);
		e->shared_bytes = w[4];
		break;
	case DECODE_ARRAY: /* width @0, height @8, format u32 @16, channels u32 @20 */
		w = read_structure(t, e, call_arg(ctx, 1), 24);
		if (!w)
			return;
		e->bytes = w[0];
		e->grid[0] = w[1];
		e->grid[2] = w[2];
		e->block[0] = w[2] >> 32;
		break;
	case DECODE_ARRAY_3D: /* width @0, height @8, depth @16, format @24, channels @28 */
		w = read_structure(t, e, call_arg(ctx, 1), 32);
		if (!w)
			return;
		e->bytes = w[0];
		e->grid[0] = w[1];
		e->grid[1] = w[2];
		e->grid[2] = w[3];
		e->block[0] = w[3] >> 32;
		break;
	case DECODE_COPY_2D: /* source type @16 .. array @40, target @72 .. @96, width @112, height @120 */
		w = read_structure(t, e, call_arg(ctx, 0), 128);
		if (!w)
			return;
		copy_ends(e, w + 2, w + 9);
		e->bytes = w[14] * w[15];
		break;
	case DECODE_COPY_3D: /* source @32 .. @56, target @120 .. @144, width @176, height @184, depth @192 */
		w = read_structure(t, e, call_arg(ctx, 0), 200);
		if (!w)
			return;
		copy_ends(e, w + 4, w + 15);
		e->bytes = w[22] * w[23] * w[24];
		break;
	case DECODE_BATCH:
		batch_bytes(t, e, call_arg(ctx, 2), call_arg(ctx, 3));
		break;
	case DECODE_UUID: /* the pointer, until the call has filled it */
		set_value(e, call_arg(ctx, 0));
		break;
	}
}

static __always_inline void read_args(struct pt_regs *ctx, struct thread *t, const struct call_spec *spec, struct event *e)
{
	e->ptr = arg_at_entry(ctx, e, &spec->ptr);
	e->bytes = arg_at_entry(ctx, e, &spec->bytes);
	e->stream = arg_at_entry(ctx, e, &spec->stream);
	e->src = arg_at_entry(ctx, e, &spec->src);
	if (spec->scale)
		e->bytes *= spec->scale;
	if (spec->times.from != ARG_NONE)
		e->bytes *= arg_at_entry(ctx, e, &spec->times);
	if (spec->value.from != ARG_NONE)
		set_value(e, arg_at_entry(ctx, e, &spec->value));
	decode_structure(ctx, t, spec->decode, e);
}

/* The thread's current context and its device; 0 and -1 until they are known. */
static __always_inline void read_context(struct thread *t, struct event *e)
{
	struct context_key key = {.pid = e->pid};
	__u64 *current = context_slot(t, t->contexts - 1);
	__s32 *device;

	e->context = 0;
	e->device = -1;
	if (!current)
		return;
	key.context = e->context = *current;
	device = bpf_map_lookup_elem(&contexts, &key);
	if (device)
		e->device = *device;
}

static __always_inline void set_device(struct event *e, __u64 context, __s32 device)
{
	struct context_key key = {.context = context, .pid = e->pid};

	bpf_map_update_elem(&contexts, &key, &device, BPF_ANY);
}

static __always_inline void push_context(struct thread *t, __u64 context)
{
	__u64 *slot;

	if (t->contexts >= MAX_CONTEXTS) { /* the oldest is forgotten, the current one stays right */
		for (int i = 1; i < MAX_CONTEXTS; i++)
			t->context[i - 1] = t->context[i];
		t->contexts = MAX_CONTEXTS - 1;
	}
	slot = context_slot(t, t->contexts);
	if (!slot)
		return;
	*slot = context;
	t->contexts++;
}

static __always_inline void set_context(struct thread *t, __u64 context)
{
	__u64 *current = context_slot(t, t->contexts - 1);

	if (current)
		*current = context;
	else if (context)
		push_context(t, context);
}

/* Sends the name that is at addr in user memory for a kernel handle. */
static __always_inline void send_name(struct thread *t, struct event *e, __u64 handle, __u64 addr, __u32 source)
{
	struct name_event *n = &t->scratch.name;
	long length = bpf_probe_read_user_str(n->name, sizeof(n->name), (void *)addr);

	if (length <= 1)
		return;
	n->kind = RECORD_NAME;
	n->length = length;
	n->pid = e->pid;
	n->handle = handle;
	n->start_ns = e->start_ns;
	n->source = source;
	length += sizeof(*n) - sizeof(n->name);
	if (length > sizeof(*n))
		return;
	/* A name that finds no room is sent again with the next launch. */
	if (!bpf_ringbuf_output(&events, n, length, wakeup())) {
		struct handle_key key = {.handle = handle, .pid = e->pid};
		__u32 tgid = e->pid, *epoch = bpf_map_lookup_elem(&targets, &tgid);

		if (epoch)
			bpf_map_update_elem(&handles, &key, epoch, BPF_ANY);
	}
}

/*
 * The driver keeps a pointer to the mangled name in the second word of what a kernel
 * handle points to (undocumented; seen in 580). User space takes such names only if
 * they look like names and name_checks do not speak against them.
 */
static __always_inline __u64 name_behind(__u64 handle)
{
	__u64 addr = 0;

	bpf_probe_read_user(&addr, sizeof(addr), (void *)(handle + 8));
	return addr;
}

/* Makes sure that user space knows the name of a kernel that is launched. */
static __always_inline void know_kernel(struct thread *t, struct event *e, __u64 handle)
{
	struct handle_key key = {.handle = handle, .pid = e->pid};
	__u32 *known = bpf_map_lookup_elem(&handles, &key);
	__u32 tgid = e->pid, *epoch = bpf_map_lookup_elem(&targets, &tgid);

	if (!epoch || (known && *known == *epoch))
		return;
	send_name(t, e, handle, name_behind(handle), NAME_FROM_HANDLE);
}

/* Compares what stands behind a handle with the name by which it was asked for. */
static __always_inline void check_name(struct event *e)
{
	char asked[32] = {}, behind[32] = {};
	__u32 which = NAME_CONFIRMED;
	__u64 *count;

	if (bpf_probe_read_user_str(asked, sizeof(asked), (void *)e->src) <= 0)
		return;
	bpf_probe_read_user_str(behind, sizeof(behind), (void *)name_behind(e->ptr));
	for (int i = 0; i < sizeof(asked); i++)
		if (asked[i] != behind[i])
			which = NAME_CONTRADICTED;
	count = bpf_map_lookup_elem(&name_checks, &which);
	if (count)
		(*count)++;
}

/* A module is gone: handles may from now on stand for other kernels. */
static __always_inline void new_epoch(struct event *e)
{
	__u32 tgid = e->pid, *epoch = bpf_map_lookup_elem(&targets, &tgid);

	if (epoch)
		__sync_fetch_and_add(epoch, 1);
}

static __always_inline void take_effect(struct thread *t, const struct call_spec *spec, struct event *e, struct class_stats *s)
{
	__u64 *current = context_slot(t, t->contexts - 1);

	if (e->result != 0)
		return;
	switch (spec->effect) {
	case EFFECT_NAME:
		check_name(e);
		send_name(t, e, e->ptr, e->src, NAME_FROM_CALL);
		break;
	case EFFECT_LAUNCH:
		know_kernel(t, e, e->src);
		break;
	case EFFECT_UNLOAD:
		new_epoch(e);
		break;
	case EFFECT_CONTEXT_SET:
	case EFFECT_CONTEXT_GET:
		set_context(t, e->ptr);
		break;
	case EFFECT_CONTEXT_PUSH:
		push_context(t, e->ptr);
		break;
	case EFFECT_CONTEXT_POP:
		if (current)
			t->contexts--;
		break;
	case EFFECT_CONTEXT_CREATE:
		push_context(t, e->ptr);
		set_device(e, e->ptr, e->bytes);
		break;
	case EFFECT_CONTEXT_RETAIN:
		set_device(e, e->ptr, e->bytes);
		break;
	case EFFECT_CONTEXT_DESTROY:
		if (current && *current == e->ptr)
			t->contexts--;
		break;
	case EFFECT_DEVICE_GET:
		if (current)
			set_device(e, *current, e->bytes);
		break;
	}
}

static __always_inline __u64 mix(__u64 h, __u64 word)
{
	h = (h ^ word) * 0x9e3779b97f4a7c15ULL; /* 2^64 / golden ratio */
	return h ^ h >> 29;
}

/*
 * Walks the user stack by frame pointers and names it by a hash of its addresses,
 * so that equal stacks are one; a stack not sent before goes to user space first.
 */
static __always_inline void take_stack(struct pt_regs *ctx, struct thread *t, struct event *e, __u64 caller_pc)
{
	struct stack_event *st = &t->scratch.stack;
	long size = bpf_get_stack(ctx, st->pc, sizeof(st->pc), BPF_F_USER_STACK);
	__u64 h = mix(e->pid, caller_pc);
	__u32 n = size > 0 ? (__u64)size / 8 : 0;
	__u8 one = 1;

	if (n > MAX_FRAMES)
		n = MAX_FRAMES;
	for (__u32 i = 0; i < MAX_FRAMES; i++) {
		if (i >= n)
			break;
		h = mix(h, st->pc[i]);
	}
	h &= 0x7fffffffffffffffULL; /* fits a signed column; 0 means none */
	e->stack = STACK_FRAME_POINTER;
	e->stack_id = h;
	if (bpf_map_lookup_elem(&stacks_sent, &h))
		return;
	st->kind = RECORD_STACK;
	st->frames = n;
	st->pid = e->pid;
	st->stack_id = h;
	st->caller_pc = caller_pc;
	size = sizeof(*st) - sizeof(st->pc) + n * 8;
	if (size > sizeof(*st))
		return;
	if (!bpf_ringbuf_output(&events, st, size, wakeup()))
		bpf_map_update_elem(&stacks_sent, &h, &one, BPF_ANY);
}

/* Emits an open call that will never return: the thread is past it. */
static __always_inline void abandon(struct event *e)
{
	__u32 call = e->call;
	struct call_spec *spec = bpf_map_lookup_elem(&calls, &call);

	if (!spec || spec->count_only)
		return;
	e->flags |= EVENT_ABANDONED;
	emit(stats_of(spec), e);
}

/*
 * Drops open calls that the stack pointer shows to be gone (an exception or longjmp
 * passed them). At an equal stack pointer the open call is gone if this call comes
 * from the same place; otherwise it jumped here (a tail call) and is still open: its
 * return address on the stack is then the kernel's trampoline.
 */
static __always_inline void drop_gone(struct thread *t, __u64 sp, __u64 caller_pc)
{
	for (int i = 0; i < MAX_OPEN; i++) {
		struct open_call *c = open_call(t, t->open - 1);

		if (!c || c->sp > sp || (c->sp == sp && c->caller_pc != caller_pc))
			return;
		abandon(&c->event);
		t->open--;
	}
}

/* Whether a process that nobody named is one of those to record. */
static __always_inline int is_wanted(void)
{
	char comm[16] = {};

	if (!record_all)
		return 0;
	if (only_cgroup && bpf_get_current_ancestor_cgroup_id(only_cgroup_level) != only_cgroup)
		return 0;
	if (!only_comm[0])
		return 1;
	bpf_get_current_comm(comm, sizeof(comm));
	for (int i = 0; i < sizeof(comm); i++)
		if (comm[i] != only_comm[i])
			return 0;
	return 1;
}

/* Recording everything: a process that calls for the first time becomes a target. */
static __always_inline int admit(__u32 tgid)
{
	struct process_event p = {.kind = RECORD_PROCESS, .change = PROCESS_FIRST, .pid = tgid};
	__u32 epoch = 1;

	if (!is_wanted())
		return 0;
	if (bpf_map_update_elem(&targets, &tgid, &epoch, BPF_NOEXIST))
		return 1; /* another thread was faster */
	p.start_ns = bpf_ktime_get_ns();
	bpf_ringbuf_output(&events, &p, sizeof(p), BPF_RB_FORCE_WAKEUP);
	return 1;
}

SEC("uprobe.multi/call_enter")
int call_enter(struct pt_regs *ctx)
{
	__u64 id = bpf_get_current_pid_tgid();
	__u32 tgid = id >> 32;
	__u32 call = bpf_get_attach_cookie(ctx);
	struct call_spec *spec;
	struct class_stats *s;
	struct open_call *c, *outer;
	struct thread *t;
	__u64 caller_pc;

	if (!bpf_map_lookup_elem(&targets, &tgid) && !admit(tgid))
		return 0;
	spec = bpf_map_lookup_elem(&calls, &call);
	if (!spec)
		return 0;
	if (spec->count_only) {
		__u64 *count = bpf_map_lookup_elem(&counts, &call);

		if (count)
			(*count)++;
		if (spec->effect == EFFECT_NONE)
			return 0;
	}
	s = stats_of(spec);
	if (!s)
		return 0;
	if (!spec->count_only)
		s->seen++;
	t = thread_state(id);
	if (!t)
		return spec->count_only ? 0 : lost(s, LOSS_THREADS);
	caller_pc = return_address(ctx);
	drop_gone(t, REG_SP(ctx), caller_pc);
	c = open_call(t, t->open);
	if (!c)
		return spec->count_only ? 0 : lost(s, LOSS_DEPTH);
	__builtin_memset(c, 0, sizeof(*c));
	c->sp = REG_SP(ctx);
	c->caller_pc = caller_pc;
	c->event.kind = RECORD_CALL;
	c->event.call = call;
	c->event.pid = tgid;
	c->event.tid = id;
	c->event.start_ns = bpf_ktime_get_ns();
	read_context(t, &c->event);
	read_args(ctx, t, spec, &c->event);
	outer = open_call(t, t->open - 1);
	if (outer) {
		c->event.parent_ns = outer->event.start_ns;
		c->event.stack_id = outer->event.stack_id;
		c->event.stack = outer->event.stack_id ? STACK_PARENT : STACK_NONE;
	} else if (take_stacks && !spec->count_only) {
		take_stack(ctx, t, &c->event, caller_pc);
	}
	t->open++;
	return 0;
}

/* Finds the open call that returns here, dropping what it had called and left open. */
static __always_inline struct open_call *returning(struct thread *t, __u32 call, __u64 sp)
{
	for (int i = 0; i < MAX_OPEN; i++) {
		struct open_call *c = open_call(t, t->open - 1);

		if (!c || SP_AT_RETURN(c->sp) > sp)
			return 0; /* the return of a call that began before we attached */
		t->open--;
		if (SP_AT_RETURN(c->sp) == sp && c->event.call == call)
			return c;
		abandon(&c->event);
	}
	return 0;
}

static __always_inline __u64 value_of(const struct event *e)
{
	return e->grid[0] | (__u64)e->grid[1] << 32;
}

static __always_inline void read_uuid(struct event *e)
{
	__u64 from = value_of(e), uuid[2] = {};

	if (e->result == 0 && bpf_probe_read_user(uuid, sizeof(uuid), (void *)from))
		e->flags |= EVENT_UNREADABLE;
	__builtin_memcpy(e->grid, uuid, sizeof(uuid));
}

SEC("uretprobe.multi/call_exit")
int call_exit(struct pt_regs *ctx)
{
	__u64 now = bpf_ktime_get_ns();
	__u64 id = bpf_get_current_pid_tgid();
	__u32 call = bpf_get_attach_cookie(ctx);
	struct thread *t = bpf_map_lookup_elem(&threads, &id);
	struct call_spec *spec;
	struct class_stats *s;
	struct open_call *c;
	struct event *e;

	if (!t)
		return 0;
	spec = bpf_map_lookup_elem(&calls, &call);
	c = returning(t, call, REG_SP(ctx));
	if (!spec || !c)
		return 0;
	s = stats_of(spec);
	e = &c->event;
	e->dur_ns = now - e->start_ns;
	e->result = REG_RESULT(ctx);
	e->cpu = bpf_get_smp_processor_id();
	e->ptr = arg_at_return(e, &spec->ptr, e->ptr);
	e->stream = arg_at_return(e, &spec->stream, e->stream);
	e->src = arg_at_return(e, &spec->src, e->src);
	if (spec->value.from == ARG_OUT)
		set_value(e, arg_at_return(e, &spec->value, value_of(e)));
	if (spec->decode == DECODE_UUID)
		read_uuid(e);
	e->bytes = arg_at_return(e, &spec->bytes, e->bytes);
	take_effect(t, spec, e, s);
	if (!spec->count_only)
		emit(s, e);
	return 0;
}
