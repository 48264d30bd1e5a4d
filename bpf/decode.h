/* SPDX-License-Identifier: GPL-2.0 */
/*
 * From the arguments of a call to the members of its event, as its row of the table
 * says.
 */
#ifndef GPUREC_DECODE_H
#define GPUREC_DECODE_H

#include "state.h"
#include "regs.h"

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

/* The arguments of a launch of a kernel. */
static __always_inline void read_launch(struct pt_regs *ctx, struct thread *t, const struct call_spec *spec, const struct stack_top *top, struct event *e)
{
	__u64 *w;

	if (spec->decode == DECODE_LAUNCH) {
		e->src = ARG(ctx, top, 0);
		e->grid[0] = ARG(ctx, top, 1);
		e->grid[1] = ARG(ctx, top, 2);
		e->grid[2] = ARG(ctx, top, 3);
		e->block[0] = ARG(ctx, top, 4);
		e->block[1] = ARG(ctx, top, 5);
		e->block[2] = ARG(ctx, top, 6);
		e->shared_bytes = ARG(ctx, top, 7);
		e->stream = ARG(ctx, top, 8);
		return;
	}
	/* DECODE_LAUNCH_EX: grid u32[3] @0, block u32[3] @12, shared u32 @24, stream @32 */
	e->src = ARG(ctx, top, 1);
	w = read_structure(t, e, ARG(ctx, top, 0), 40);
	if (!w)
		return;
	__builtin_memcpy(e->grid, w, 24);
	e->shared_bytes = w[3];
	e->stream = w[4];
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

#endif
