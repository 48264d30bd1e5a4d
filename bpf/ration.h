/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Rations unwinding. A program that has just been attached to makes only calls whose stacks are
 * unknown. To unwind 30,000 of them a second would take more than half of a thread's time. With
 * --max-overhead, a thread may spend only a share of its time on unwinding.
 *
 * A call that is not unwound gets a provisional stack ID, made from its fingerprint. Later calls
 * with this fingerprint are unwound. If all of the first ones have the same stack, the programs
 * send RECORD_LEARNED: the ID means this stack.
 */
#ifndef GPUREC_RATION_H
#define GPUREC_RATION_H

#include "state.h"

/* For calls of urgency 1: how far unwind_paid_until may be in the future. */
#define RATION_AHEAD_NS 250000000ULL

/*
 * A call may be unwound while unwind_paid_until is at most its urgency times RATION_AHEAD_NS in the
 * future. Without urgencies, checks of frequent calls would use the whole ration, and rare calls
 * would never get a stack.
 */
#define URGENCY_CHECK 1       /* checks of inferred stacks */
#define URGENCY_FIRST_CHECK 2 /* the first checks of a fingerprint */
#define URGENCY_NEW 3         /* calls with a new fingerprint */
#define URGENCY_LARGE 4       /* memory calls, waits and large allocations with a new fingerprint */

/* Unwinding that took longer was interrupted by other tasks. */
#define MAX_UNWIND_NS 300000

/* Marks a provisional stack ID. IDs of unwound stacks have a zero in this bit. */
#define PROVISIONAL (1ULL << 63)

/* Returns 1 if the stack ID is provisional. */
static __always_inline int is_provisional(__u64 stack_id)
{
	return (stack_id & PROVISIONAL) != 0;
}

/*
 * Returns 1 if the thread may unwind a stack at this time. Each ns of unwinding moves
 * unwind_paid_until by unwind_spacing ns into the future.
 */
static __always_inline int may_unwind(struct thread *t, __u64 now, __u32 urgency)
{
	__u64 spacing = unwind_spacing;

	if (!spacing || stack_capture != STACKS_AUTO)
		return 1;
	if (t->unwind_paid_until < now)
		t->unwind_paid_until = now;
	t->unwind_paid_until += t->unwinding_ns * spacing;
	t->unwinding_ns = 0;
	return t->unwind_paid_until - now <= RATION_AHEAD_NS * urgency;
}

/* Charges an unwinding to the thread's ration. */
static __always_inline void charge_unwinding(struct thread *t, struct class_stats *s, __u64 ns)
{
	if (ns > MAX_UNWIND_NS)
		ns = MAX_UNWIND_NS;
	t->unwinding_ns += ns;
	if (s)
		s->inference.unwinding_ns += ns;
}

#endif
