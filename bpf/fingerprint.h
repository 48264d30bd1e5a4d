/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Which calls have the same stack? Unwinding costs 10 to 40 µs, too much for launches
 * that come 40,000 times a second. A call with a fingerprint that was seen before gets
 * the stack of the earlier one; a random share is unwound nevertheless, which measures
 * how often that would have been wrong.
 *
 * A fingerprint is no better than it has to be. That of the call itself (thread, stack
 * pointer, return address, function) is enough where it was never contradicted; where it
 * was, the chain of Python frames is added, and where that was, the return addresses on
 * the stack (path.h). These two take microseconds. But programs repeat themselves: a call
 * in the same line of Python, after one with the same stack and as many like that in a
 * row, nearly always has the stack it had before. That is believed while the calls that
 * are looked at closely, a share of all, bear it out.
 */
#ifndef GPUREC_FINGERPRINT_H
#define GPUREC_FINGERPRINT_H

#include "state.h"
#include "stack.h"
#include "known.h"
#include "python.h"
#include "path.h"

/*
 * Of how many calls with a fingerprint one is unwound nevertheless: every one at first,
 * then fewer and fewer; powers of two. What else a fingerprint stands for often comes
 * late: a training step runs through a dozen equal layers before it. The share is therefore
 * spread over many calls rather than taken from the first. A call that is enough by itself
 * shows early that it is not: it is in every one of these layers.
 */
#define YOUNG_HITS 16
#define MATURE_HITS 512
const volatile __u64 check_every = 1024;

static __always_inline __u64 one_in(__u32 hits, __u32 level)
{
	if (hits < YOUNG_HITS)
		return 1;
	if (hits < 64)
		return 16;
	if (hits >= MATURE_HITS)
		return check_every;
	return level == LEVEL_CALL ? 256 : 64;
}

/*
 * Of how many calls whose stack follows from the one before one is looked at closely
 * nevertheless, at its Python frames and path: what goes another way than usual is noticed
 * after some calls, and from then on its own stacks precede.
 */
static __always_inline __u64 close_look_in(__u32 looks)
{
	if (looks < YOUNG_HITS)
		return 1;
	return looks < 32 ? 4 : looks < 64 ? 16 : 64;
}

/* How often a path may turn out not to tell enough. */
#define MAX_AMBIGUOUS 8

/* Calls that come in masses. */
static __always_inline int may_infer(__u32 class)
{
	return class == CLASS_LAUNCH || class == CLASS_COPY || class == CLASS_API || class == CLASS_ALLOCATOR;
}

/* Whether an event is one of a random share: by its time, mixed. */
static __always_inline int is_sampled(__u64 ns, __u64 of)
{
	return (ns * 0x9e3779b97f4a7c15ULL >> 32 & (of - 1)) == 0;
}

/* Gives the call the stack of its fingerprint. */
static __always_inline int take(struct thread *t, struct class_stats *s, struct open_call *c, struct known_stack *k)
{
	struct event *e = &c->event;
	__u32 level = t->level;

	c->name_known = k->epoch == t->epoch; /* the same function: it is in the fingerprint */
	k->epoch = t->epoch;
	e->stack = STACK_INFERRED;
	e->stack_id = k->stack_id;
	asm volatile("" : "+r"(level));
	if (s && level < LEVELS)
		s->inference.inferred[level]++;
	return 1;
}

/* Takes the stack that the fingerprint stands for, unless it is to be unwound: then returns 0. */
static __always_inline int take_known(struct thread *t, struct class_stats *s, struct open_call *c, struct known_stack *k)
{
	__u32 hits = k->hits;

	if (hits < MATURE_HITS)
		k->hits++;
	t->weight = one_in(hits, t->level);
	if (t->weight == 1)
		return 0;
	if (is_sampled(c->event.start_ns, t->weight)) {
		t->expected = k->stack_id;
		return 0;
	}
	return take(t, s, c, k);
}

/* Whether the stack follows from the one before it, without a closer look. */
static __always_inline int follows(struct thread *t, struct known_stack *k, struct event *e)
{
	if (!k || k->ambiguous || is_sampled(e->start_ns >> 3, close_look_in(k->hits)))
		return 0;
	t->level = LEVEL_SEQUENCE;
	t->weight = check_every;
	return 1;
}

/* Learns that a stack, found by a closer look, came after the one before it. */
static __always_inline void remember_sequence(__u64 key, struct known_stack *k, struct event *e)
{
	if (!k)
		learn_known(e->pid, key, e->stack_id);
	else if (k->stack_id != e->stack_id)
		k->ambiguous = 1;
	else if (k->hits < MATURE_HITS)
		k->hits++;
}

/* A loop that launches the parts of something: the last one often has another stack. */
#define MAX_REPEATS 63

/* Notes the stack of a call, which precedes that of the thread's next one. */
static __always_inline void precede(struct thread *t, __u64 stack_id)
{
	if (t->previous != stack_id)
		t->repeats = 0;
	else if (t->repeats < MAX_REPEATS)
		t->repeats++;
	t->previous = stack_id;
}

/* The size of an allocation, roughly: its highest bit and the two below it. */
static __always_inline __u64 rough_size(__u64 bytes)
{
	__u32 shift = 0;

	if (bytes >> 32) {
		bytes >>= 32;
		shift += 32;
	}
	if (bytes >> 16) {
		bytes >>= 16;
		shift += 16;
	}
	if (bytes >> 8) {
		bytes >>= 8;
		shift += 8;
	}
	if (bytes >> 4) {
		bytes >>= 4;
		shift += 4;
	}
	if (bytes >> 3) {
		bytes >>= 1;
		shift += 1;
	}
	return bytes | shift << 8;
}

/*
 * What tells calls from one place apart, before frames do: kernels, numbers, and sizes. Of
 * these only roughly, since programs with data of varying length have no two alike.
 */
static __always_inline __u64 what_for(__u32 class, const struct event *e)
{
	switch (class) {
	case CLASS_LAUNCH:
		return e->src;
	case CLASS_ALLOCATOR:
		return rough_size(e->bytes);
	case CLASS_COPY:
		return 0;
	}
	return e->bytes;
}

/* Infers the stack of a call from frames: h is of the call itself. */
SEPARATE int infer_from_frames(struct thread *t, struct open_call *c, __u32 class, __u64 h, __u64 sp)
{
	struct class_stats *s = stats_of(class);
	struct known_stack *k;
	struct known_path *p;

	if (!t || !c)
		return 0;
	h = python_chain(t, c->event.pid, mix(h, LEVEL_PYTHON));
	t->fingerprint = h;
	t->level = LEVEL_PYTHON;
	k = find_known(c->event.pid, h);
	if (!k)
		return 0;
	if (!k->ambiguous)
		return take_known(t, s, c, k);
	t->level = LEVEL_PATH;
	p = find_path(t, h, sp, k->span);
	if (!p)
		return 0;
	if (p->known.ambiguous < MAX_AMBIGUOUS)
		return take_known(t, s, c, &p->known);
	t->fingerprint = 0;
	return 0;
}

/*
 * Infers the stack of a call from its fingerprint. If it returns 0, the stack must be
 * unwound; t->fingerprint and t->level then say as what it is to be remembered.
 */
static __always_inline int infer(struct pt_regs *ctx, struct thread *t, const struct call_spec *spec, struct class_stats *s, struct open_call *c, __u64 caller_pc)
{
	struct event *e = &c->event;
	struct known_stack *k;
	__u64 h, sequence;

	if (!may_infer(spec->class))
		return 0;
	h = mix(mix(mix((__u64)e->pid << 32 | e->tid, REG_SP(ctx)), caller_pc), e->call);
	h = mix(h, what_for(spec->class, e));
	t->fingerprint = h;
	t->level = LEVEL_CALL;
	k = find_known(e->pid, h);
	if (!k)
		return 0;
	if (!k->ambiguous)
		return take_known(t, s, c, k);
	sequence = python_line(t, e->pid, mix(h ^ t->previous, t->repeats * LEVELS + LEVEL_SEQUENCE));
	k = find_known(e->pid, sequence);
	if (follows(t, k, e)) {
		if (!is_sampled(e->start_ns, t->weight))
			return take(t, s, c, k);
		t->fingerprint = sequence;
		t->expected = k->stack_id;
		return 0;
	}
	if (!infer_from_frames(t, c, spec->class, h, REG_SP(ctx)))
		return 0;
	remember_sequence(sequence, k, e);
	return 1;
}

/* Learns which stack the fingerprint of an unwound call stands for. */
static __always_inline void remember(struct pt_regs *ctx, struct thread *t, struct event *e, __u64 stack_id, __u32 error)
{
	struct known_stack *k;
	struct call_spec *spec;
	struct class_stats *s;
	__u64 h = t->fingerprint;
	__u32 call = e->call;
	int is_wrong = t->expected && t->expected != stack_id;

	if (!h || error)
		return;
	if (t->expected) {
		spec = bpf_map_lookup_elem(&calls, &call);
		s = spec ? stats_of(spec->class) : 0;
		if (s) {
			s->inference.checked++;
			s->inference.wrong += is_wrong;
			s->inference.wrong_weight += is_wrong ? t->weight - 1 : 0;
		}
	}
	k = find_known(e->pid, h);
	if (t->level == LEVEL_PATH) {
		__u64 span = learn_path(ctx, t, h, e->pid, stack_id, is_wrong);

		if (k && span > k->span)
			k->span = span;
		return;
	}
	if (!k)
		learn_known(e->pid, h, stack_id);
	else if (k->stack_id != stack_id)
		k->ambiguous = 1;
}

#endif
