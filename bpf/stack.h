/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Stacks walked by frame pointers: the fallback where the unwinder (unwind.h) is unavailable.
 * Each distinct stack is sent to user space once.
 */
#ifndef GPUREC_STACK_H
#define GPUREC_STACK_H

#include "state.h"

/* Mixes a word into hash h. */
static __always_inline __u64 mix(__u64 h, __u64 word)
{
	h = (h ^ word) * 0x9e3779b97f4a7c15ULL; /* 2^64 / golden ratio */
	return h ^ h >> 29;
}

/* Mixes the first n addresses of a stack into h. Global: otherwise the code after it is verified 127 times. */
GLOBAL_FUNC __u64 hash_addresses(const struct stack_event *st, __u32 n, __u64 h)
{
	if (!st)
		return h;
	for (__u32 i = 0; i < MAX_FRAMES; i++) {
		if (i >= n)
			break;
		h = mix(h, st->pc[i]);
	}
	return h;
}

/*
 * Walks the user stack by frame pointers, sets the event's stack_id to a hash of its addresses,
 * and sends the stack if it is new.
 */
static __attribute__((noinline)) void walk_stack(struct pt_regs *ctx, struct thread *t, struct event *e, __u64 caller_pc)
{
	struct stack_event *st = &t->scratch.stack;
	long size = bpf_get_stack(ctx, st->pc, sizeof(st->pc), BPF_F_USER_STACK);
	__u64 h;
	__u32 n = size > 0 ? (__u64)size / 8 : 0;
	__u64 now = e->start_ns;

	if (n > MAX_FRAMES)
		n = MAX_FRAMES;
	h = hash_addresses(st, n, mix(e->pid, caller_pc));
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
		bpf_map_update_elem(&stacks_sent, &h, &now, BPF_ANY);
}

#endif
