/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Probes on NCCL, and on libraries with the same API. The kernel counts the collectives of each
 * communicator, so that numbers stay right if events are lost.
 */
#ifndef GPUREC_COLLECTIVE_H
#define GPUREC_COLLECTIVE_H

#include "state.h"
#include "decode.h"

/* Counts the operations of a communicator: its collectives, or those with one peer in one direction. */
struct number_key {
	__u64 communicator;
	__u64 epoch; /* of operations with a peer: that of the communicator */
	__u32 pid;
	__s32 slot; /* 2 * peer + 1 for receives, 2 * peer for sends; COLLECTIVES */
};

#define COLLECTIVES (-1)

struct number {
	__u64 last;  /* number of the last operation */
	__u64 counted; /* collectives that the library counts, too */
	__u64 thread;  /* pid_tgid that called the last of them */
	/*
	 * Counts the beginnings and ends of communicators at this address. An odd epoch is that of a
	 * communicator whose beginning was seen.
	 */
	__u64 epoch;
};

/* Set if the map of numbers was full: epochs may be too low from then on. */
volatile __u8 numbers_lost = 0;

/* User space deletes the entries of exited processes. A full map gives the number 0: unknown. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, struct number_key);
	__type(value, struct number);
} operation_numbers SEC(".maps");

/* Returns the counter of a key, which it inserts if it is new; 0: the map is full. */
static __always_inline struct number *number_of(const struct number_key *key)
{
	struct number *n = bpf_map_lookup_elem(&operation_numbers, key), none = {};

	if (n)
		return n;
	bpf_map_update_elem(&operation_numbers, key, &none, BPF_NOEXIST);
	n = bpf_map_lookup_elem(&operation_numbers, key);
	if (!n)
		numbers_lost = 1;
	return n;
}

/* Returns the epoch of the communicator at an address. */
static __always_inline __u32 epoch_of(const struct event *e, __u64 communicator)
{
	struct number_key key = {.communicator = communicator, .pid = e->pid, .slot = COLLECTIVES};
	struct number *n = bpf_map_lookup_elem(&operation_numbers, &key);

	return n ? n->epoch : 0;
}

/* Returns the counter of an operation; 0: the map is full. */
static __always_inline struct number *number_of_operation(const struct event *e, __u8 decode)
{
	struct number_key key = {.communicator = e->ptr, .pid = e->pid, .slot = COLLECTIVES};
	struct number *n = number_of(&key);

	if (!n || decode == DECODE_COLLECTIVE)
		return n;
	key.epoch = n->epoch;
	key.slot = 2 * (__s32)e->grid[2] + (decode == DECODE_RECV);
	return number_of(&key);
}

/* Stores the number of an operation in src, from 1 on or 0: unknown, and the epoch of its communicator. */
static __always_inline void take_number(struct event *e, __u8 decode, __u8 is_counted)
{
	struct number *n = number_of_operation(e, decode);

	/* One look-up gives both: keys of collectives have no epoch, and numbers with a peer keep none. */
	e->shared_bytes = decode == DECODE_COLLECTIVE ? (n ? n->epoch : 0) : epoch_of(e, e->ptr);
	e->src = 0;
	if (!n || (decode == DECODE_COLLECTIVE && !e->bytes)) /* NCCL does nothing without elements */
		return;
	if (is_counted) {
		n->thread = (__u64)e->pid << 32 | e->tid;
		__sync_fetch_and_add(&n->counted, 1);
	}
	e->src = __sync_fetch_and_add(&n->last, 1) + 1;
}

static __always_inline int is_operation(const struct call_spec *spec)
{
	return spec->decode == DECODE_COLLECTIVE || spec->decode == DECODE_SEND || spec->decode == DECODE_RECV;
}

static __always_inline int is_group_call(const struct call_spec *spec)
{
	return spec->decode == DECODE_GROUP_START || spec->decode == DECODE_GROUP_END;
}

#define NCCL_IN_PROGRESS 7

/* An operation that failed has no number: NCCL has not enqueued it. */
static __always_inline void take_back_number(const struct call_spec *spec, struct event *e)
{
	struct number *n;

	if (!is_operation(spec) || !e->result || e->result == NCCL_IN_PROGRESS || !e->src)
		return;
	n = number_of_operation(e, spec->decode);
	if (!n || n->last != e->src)
		return;
	n->last--;
	n->counted -= spec->scale;
	e->src = 0;
}

/*
 * Begins the epoch of a new communicator, or ends that of an old one. Numbers begin at 1 again.
 * Returns the epoch before.
 */
static __attribute__((noinline)) __u32 change_epoch(__u32 pid, __u64 communicator, __u32 begins)
{
	struct number_key key = {.communicator = communicator, .pid = pid, .slot = COLLECTIVES};
	struct number *n = number_of(&key);
	__u32 before;

	if (!n)
		return 0;
	before = n->epoch;
	n->last = n->counted = 0;
	n->epoch = begins ? (n->epoch + 1) | 1 : (n->epoch | 1) + 1;
	return before;
}

static __always_inline void start_numbers(struct event *e, __u64 communicator)
{
	change_epoch(e->pid, communicator, 1);
	e->shared_bytes = epoch_of(e, communicator);
}

/* One process has at most this many GPUs. */
#define COMMUNICATORS_MAX 32

/* The same for the communicators in an array. */
static __always_inline void start_numbers_of_array(struct event *e)
{
	for (__u32 i = 0; i < COMMUNICATORS_MAX && i < e->bytes; i++) {
		__u64 communicator = 0;

		if (!bpf_probe_read_user(&communicator, sizeof(communicator), (void *)(e->src + 8 * i)) && communicator)
			start_numbers(e, communicator);
	}
}

/* Counts ncclGroupStart. */
static __always_inline void start_group(struct thread *t)
{
	if (!t->group_depth++) {
		t->group++;
		t->group_operations = 0;
	}
}

/*
 * Returns 1 if a call has no event of its own: it is inside of another call of NCCL, such as
 * ncclBroadcast in ncclBcast, or it ends an inner group. Ends the group of ncclGroupEnd.
 */
static __always_inline int is_inside_nccl(struct thread *t, const struct call_spec *spec)
{
	struct open_call *outer = open_call(t, t->open - 1);
	struct call_spec *of;
	__u32 call;

	if (spec->decode == DECODE_GROUP_END) {
		if (!t->group_depth)
			start_group(t); /* it began before the recording */
		if (--t->group_depth)
			return 1;
	}
	if (!outer)
		return 0;
	call = outer->event.call;
	of = bpf_map_lookup_elem(&calls, &call);
	if (!of || of->class != CLASS_COLLECTIVE)
		return 0;
	if (of->return_probe == RETURN_OPTIONAL && is_operation(spec) && !nested_operations)
		nested_operations = 1;
	return 1;
}

/* Opens a call without an event. Calls inside of it belong to the call around it. */
static __always_inline void open_silently(struct thread *t, struct open_call *c)
{
	struct open_call *outer = open_call(t, t->open - 1);

	c->is_silent = 1;
	if (outer) {
		c->event.start_ns = outer->event.start_ns;
		c->event.stack_id = outer->event.stack_id;
	}
	t->open++;
}

/*
 * Stores the group of a call: block[0] and [1] = its number, 0: none, or -1: unknown; block[2] = its
 * operations so far.
 */
static __always_inline void set_group(struct thread *t, const struct call_spec *spec, struct event *e)
{
	if (skip_groups) {
		e->block[0] = e->block[1] = ~0U;
		return;
	}
	if (!t->group_depth && spec->decode != DECODE_GROUP_END)
		return;
	e->block[0] = t->group;
	e->block[1] = t->group >> 32;
	e->block[2] = t->group_operations;
}

#define NO_ARGUMENT (~0U)

static __always_inline __u32 argument_or_none(struct pt_regs *ctx, struct event *e, const struct arg_spec *a)
{
	return a->from == ARG_NONE ? NO_ARGUMENT : (__u32)arg_at_entry(ctx, e, a);
}

#define UNIQUE_ID_WORDS 16

/* Returns a hash of the ncclUniqueId at an address. It is equal on all ranks, and not NCCL's commHash. */
static __always_inline __u64 hash_unique_id(struct thread *t, struct event *e, __u64 at)
{
	__u64 hash = 0xcbf29ce484222325, *id = read_structure(t, e, at, 8 * UNIQUE_ID_WORDS);

	for (__u32 i = 0; id && i < UNIQUE_ID_WORDS; i++) {
		hash = (hash ^ id[i]) * 0x9e3779b97f4a7c15;
		hash ^= hash >> 29;
	}
	return id ? hash : 0;
}

/* Returns the address of the first ncclUniqueId of a call that makes a communicator. */
static __always_inline __u64 unique_id(struct pt_regs *ctx, __u8 decode)
{
	if (decode == DECODE_INIT_IDS)
		return call_arg(ctx, 4);
#if defined(__TARGET_ARCH_x86)
	return STACK_ARGS(ctx); /* passed by value, in memory */
#else
	return call_arg(ctx, 2); /* a pointer to a copy */
#endif
}

/*
 * Decodes a call of NCCL. Operations: ptr = communicator, bytes = elements, src = number, grid[0] =
 * ncclDataType_t, grid[1] = ncclRedOp_t, grid[2] = root or peer. The arg_specs times, src and value
 * locate these three. Scale is 1 for the collectives that the library counts. New communicators:
 * src = parent, or hash of the unique id; extra = epoch of the parent. All: shared_bytes = epoch
 * of the communicator.
 */
static __always_inline void read_collective(struct pt_regs *ctx, struct thread *t, const struct call_spec *spec, __u32 ended, struct event *e)
{
	e->ptr = arg_at_entry(ctx, e, &spec->ptr);
	e->bytes = arg_at_entry(ctx, e, &spec->bytes);
	e->stream = arg_at_entry(ctx, e, &spec->stream);
	if (is_operation(spec)) {
		e->grid[0] = argument_or_none(ctx, e, &spec->times);
		e->grid[1] = argument_or_none(ctx, e, &spec->src);
		e->grid[2] = argument_or_none(ctx, e, &spec->value);
		take_number(e, spec->decode, spec->scale);
		t->group_operations++;
	} else {
		e->src = arg_at_entry(ctx, e, &spec->src);
		e->shared_bytes = spec->effect == EFFECT_COMMUNICATOR_END ? ended : epoch_of(e, e->ptr);
		if (spec->effect == EFFECT_COMMUNICATOR && e->src)
			e->extra = epoch_of(e, e->src);
		if (spec->decode == DECODE_INIT_RANK || spec->decode == DECODE_INIT_IDS)
			e->src = hash_unique_id(t, e, unique_id(ctx, spec->decode));
		if (spec->value.from != ARG_NONE)
			set_value(e, arg_at_entry(ctx, e, &spec->value));
	}
	set_group(t, spec, e);
}

#endif
