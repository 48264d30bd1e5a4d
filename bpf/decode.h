/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Decodes a call's arguments into the members of its event, as the row of the call table
 * specifies.
 */
#ifndef GPUREC_DECODE_H
#define GPUREC_DECODE_H

#include "state.h"
#include "regs.h"

/* Reads 4 or 8 bytes of user memory. Returns 0 and marks the event if they are unreadable. */
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

/* Returns a member's value at entry; for an out pointer, the pointer itself (arg_at_return). */
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

/* Returns a member's value at return; v is the value of arg_at_entry. */
static __always_inline __u64 arg_at_return(struct event *e, const struct arg_spec *a, __u64 v)
{
	if (a->from != ARG_OUT)
		return v;
	return e->result == 0 && v ? read_user(e, v + a->offset, a->size) : 0;
}

/* Stores the call's value in the grid. */
static __always_inline void set_value(struct event *e, __u64 v)
{
	e->grid[0] = v;
	e->grid[1] = v >> 32;
}

/* Returns the call's value, which set_value has stored. */
static __always_inline __u64 value_of(const struct event *e)
{
	return e->grid[0] | (__u64)e->grid[1] << 32;
}

/* Copies a structure from user memory to the thread's scratch; 0 if it is unreadable. */
static __always_inline __u64 *read_structure(struct thread *t, struct event *e, __u64 from, __u32 size)
{
	if (bpf_probe_read_user(t->scratch.words, size, (void *)from)) {
		e->flags |= EVENT_UNREADABLE;
		return 0;
	}
	return t->scratch.words;
}

/* Selects one of three addresses (host, device, array) by a CUmemorytype. */
static __always_inline __u64 address_by_memory_type(__u32 type, const __u64 *where)
{
	if (type == 1) /* CU_MEMORYTYPE_HOST */
		return where[0];
	return type == 3 ? where[2] : where[1]; /* ARRAY; DEVICE and UNIFIED */
}

/* Reads source and target of a 2D or 3D copy: word 0 is the memory type, 1 to 3 addresses. */
static __always_inline void read_copy_endpoints(struct event *e, const __u64 *source, const __u64 *target)
{
	e->grid[2] = source[0];
	e->block[0] = target[0];
	e->src = address_by_memory_type(source[0], source + 1);
	e->ptr = address_by_memory_type(target[0], target + 1);
}

#define BATCH_PIECES 16
#define BATCH_PIECE 64 /* sizes read at once */
#define COPY_3D_WORDS 14 /* sizeof(CUDA_MEMCPY3D_BATCH_OP) == 112 */
#define COPY_3D_PIECE 24 /* structures read at once */

/* Returns the number of elements from index at, at most piece. The asm shows that to the verifier. */
static __always_inline __u64 piece_of(__u64 count, __u64 at, __u64 piece)
{
	__u64 n = count - at;

	if (at >= count)
		return 0;
	if (n > piece)
		n = piece;
	asm volatile("" : "+r"(n));
	return n > piece ? 0 : n;
}

/*
 * Returns the sum of the first n sizes in the thread's scratch. Global, like sum_copies: the
 * verifier checks its loop once, and not for each piece of a batch.
 */
GLOBAL_FUNC __u64 sum_sizes(const struct thread *t, __u64 n)
{
	__u64 sum = 0;

	if (!t)
		return 0;
	for (__u32 i = 0; i < BATCH_PIECE; i++) {
		if (i >= n)
			break;
		sum += t->scratch.words[i];
	}
	return sum;
}

/* Adds up the first 1,024 sizes of a batch. A longer batch is marked EVENT_UNREADABLE. */
static __always_inline void batch_bytes(struct thread *t, struct event *e, __u64 sizes, __u64 count)
{
	for (__u32 piece = 0; piece < BATCH_PIECES; piece++) {
		__u64 at = piece * BATCH_PIECE;
		__u64 n = piece_of(count, at, BATCH_PIECE);

		if (!n || !read_structure(t, e, sizes + at * 8, n * 8))
			return;
		e->bytes += sum_sizes(t, n);
	}
	if (count > BATCH_PIECES * BATCH_PIECE)
		e->flags |= EVENT_UNREADABLE;
}

/*
 * Adds the bytes of the first n 3D copies in the thread's scratch to the event. Returns 0 if each
 * of them copies from a pointer to a pointer.
 */
GLOBAL_FUNC int sum_copies(const struct thread *t, struct event *e, __u64 n)
{
	__u32 other = 0;
	const __u64 *w;

	if (!t || !e)
		return 0;
	w = t->scratch.words;
	for (__u32 i = 0; i < COPY_3D_PIECE; i++) {
		if (i >= n)
			break;
		other |= ((__u32)w[0] ^ 1) | ((__u32)w[5] ^ 1);
		e->bytes += w[10] * w[11] * w[12];
		w += COPY_3D_WORDS;
	}
	return other;
}

/*
 * Adds up the bytes of the first 384 copies of a batch of 3D copies. CUDA_MEMCPY3D_BATCH_OP
 * (cuda.h 12.8 to 13.0, checked with driver 580.159): source CUmemcpy3DOperand @0, target @40,
 * width, height, depth @80 .. @96. An operand: type u32 @0 (1 pointer, 2 array), address @8.
 * A copy with an array counts elements of unknown size. The sum of such a batch is 0.
 */
static __always_inline void batch_3d_bytes(struct thread *t, struct event *e, __u64 ops, __u64 count)
{
	__u32 other = 0;

	for (__u32 piece = 0; piece < BATCH_PIECES; piece++) {
		__u64 at = piece * COPY_3D_PIECE, *w;
		__u64 n = piece_of(count, at, COPY_3D_PIECE);

		if (!n)
			break;
		w = read_structure(t, e, ops + at * COPY_3D_WORDS * 8, n * COPY_3D_WORDS * 8);
		if (!w)
			return;
		if (!piece) {
			e->src = w[1];
			e->ptr = w[6];
		}
		other |= sum_copies(t, e, n);
	}
	if (other)
		e->bytes = 0;
	if (other || count > BATCH_PIECES * COPY_3D_PIECE)
		e->flags |= EVENT_UNREADABLE;
}

/*
 * Reads function, grid and block of CUDA_KERNEL_NODE_PARAMS or CUDA_LAUNCH_PARAMS: func @0,
 * grid u32[3] @8, block u32[3] @20, shared u32 @32. The function goes to bytes.
 */
static __always_inline void read_grid(struct event *e, const __u64 *w)
{
	e->bytes = w[0];
	__builtin_memcpy(e->grid, w + 1, 24);
	e->shared_bytes = w[4];
}

#define NODE_KERNEL 0
#define NODE_GRAPH 4
#define NODE_MEM_ALLOC 10
#define NODE_MEM_FREE 11

/*
 * Decodes CUgraphNodeParams (cuda.h 12.2 to 13.0, checked with driver 580.159): type u32 @0 and
 * a union @16. Kernel: CUDA_KERNEL_NODE_PARAMS_v3, laid out as v2; bytes = function, grid, block.
 * Child graph: value = the graph. Allocation: CUDA_MEM_ALLOC_NODE_PARAMS_v2, bytesize @104 and,
 * at return, dptr @112. Free: the address. A new memory node sets ptr.
 */
static __always_inline void read_graph_node(struct thread *t, const struct call_spec *spec, struct event *e, __u64 from)
{
	__u64 *w = read_structure(t, e, from, 80);
	__u32 is_new = spec->ptr.from == ARG_OUT;

	if (!w)
		return;
	e->extra = (__u32)w[0] + 1;
	switch ((__u32)w[0]) {
	case NODE_KERNEL:
		read_grid(e, w + 2);
		if (!e->bytes)
			e->bytes = w[9]; /* kern */
		break;
	case NODE_GRAPH:
		set_value(e, w[2]);
		break;
	case NODE_MEM_ALLOC:
		e->bytes = read_user(e, from + 120, 8);
		if (is_new)
			e->ptr = from + 128;
		break;
	case NODE_MEM_FREE:
		if (is_new)
			e->ptr = from + 16;
		break;
	}
}

/* Decodes a structure or array whose address the arg_specs put into bytes. */
static __always_inline void decode_at(struct pt_regs *ctx, struct thread *t, const struct call_spec *spec, struct event *e)
{
	__u64 from = e->bytes, *w;

	e->bytes = 0;
	switch (spec->decode) {
	case DECODE_KERNEL_NODE:
	case DECODE_KERNEL_NODE_V1:
		w = read_structure(t, e, from, spec->decode == DECODE_KERNEL_NODE ? 64 : 40);
		if (!w)
			return;
		read_grid(e, w);
		if (!e->bytes && spec->decode == DECODE_KERNEL_NODE)
			e->bytes = w[7]; /* kern @56 */
		break;
	case DECODE_GRAPH_NODE:
		read_graph_node(t, spec, e, from);
		break;
	case DECODE_LAUNCH_LIST: /* CUDA_LAUNCH_PARAMS: func @0 .. shared @32, stream @40 */
		w = read_structure(t, e, from, 48);
		if (w) {
			read_grid(e, w);
			e->src = e->bytes;
			e->stream = w[5];
		}
		e->bytes = (__u32)call_arg(ctx, 1);
		break;
	case DECODE_BATCH:
		batch_bytes(t, e, from, value_of(e));
		break;
	case DECODE_BATCH_3D:
		batch_3d_bytes(t, e, from, value_of(e));
		break;
	}
}

/* Decodes a structure or arguments at positions that the decode kind fixes. */
static __always_inline void decode_structure(struct pt_regs *ctx, struct thread *t, __u8 decode, struct event *e)
{
	__u64 *w;

	switch (decode) {
	case DECODE_LAUNCH_GRID:
		e->grid[0] = call_arg(ctx, 1);
		e->grid[1] = call_arg(ctx, 2);
		e->grid[2] = 1;
		break;
	case DECODE_LAUNCH_BLOCK:
		e->grid[0] = e->grid[1] = e->grid[2] = 1;
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
		read_copy_endpoints(e, w + 2, w + 9);
		e->bytes = w[14] * w[15];
		break;
	case DECODE_COPY_3D: /* source @32 .. @56, target @120 .. @144, width @176, height @184, depth @192 */
		w = read_structure(t, e, call_arg(ctx, 0), 200);
		if (!w)
			return;
		read_copy_endpoints(e, w + 4, w + 15);
		e->bytes = w[22] * w[23] * w[24];
		break;
	case DECODE_UUID: /* keep the address until the call has stored the UUID */
		set_value(e, call_arg(ctx, 0));
		break;
	}
}

/* Decodes the arguments of all functions except kernel launches and allocator events. */
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
	if (spec->decode >= DECODE_KERNEL_NODE && spec->decode <= DECODE_BATCH_3D)
		decode_at(ctx, t, spec, e);
	else
		decode_structure(ctx, t, spec->decode, e);
}

enum {
	LAUNCH_ATTRIBUTES = 8,         /* the first attributes of a launch, which are read */
	LAUNCH_ATTRIBUTE_WORDS = 9,    /* CUlaunchAttribute: u32 id @0, a union @8, 72 bytes */
	PROGRAMMATIC_SERIALIZATION = 6 /* CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION */
};

/* Marks a launch whose kernel may begin before the operation before it has ended. */
static __always_inline void read_launch_attributes(struct thread *t, struct event *e, __u64 from, __u32 count)
{
	__u64 *w;

	if (!count)
		return;
	if (count > LAUNCH_ATTRIBUTES)
		count = LAUNCH_ATTRIBUTES;
	w = read_structure(t, e, from, count * LAUNCH_ATTRIBUTE_WORDS * 8);
	if (!w)
		return;
	for (__u32 i = 0; i < LAUNCH_ATTRIBUTES; i++, w += LAUNCH_ATTRIBUTE_WORDS)
		if (i < count && (__u32)w[0] == PROGRAMMATIC_SERIALIZATION && (__u32)w[1])
			e->flags |= EVENT_EARLY;
}

/* Decodes the arguments of cuLaunchKernel, cuLaunchCooperativeKernel or cuLaunchKernelEx. */
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
	/* DECODE_LAUNCH_EX: grid u32[3] @0, block u32[3] @12, shared u32 @24, stream @32, attributes @40,
	 * u32 count @48 */
	e->src = ARG(ctx, top, 1);
	w = read_structure(t, e, ARG(ctx, top, 0), 56);
	if (!w)
		return;
	__builtin_memcpy(e->grid, w, 24);
	e->shared_bytes = w[3];
	e->stream = w[4];
	read_launch_attributes(t, e, w[5], (__u32)w[6]);
}

/* Reads the UUID that a successful call has stored. */
static __always_inline void read_uuid(struct event *e)
{
	__u64 from = value_of(e), uuid[2] = {};

	if (e->result == 0 && bpf_probe_read_user(uuid, sizeof(uuid), (void *)from))
		e->flags |= EVENT_UNREADABLE;
	__builtin_memcpy(e->grid, uuid, sizeof(uuid));
}

#endif
