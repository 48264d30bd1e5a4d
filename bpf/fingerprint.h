/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Infers the stack of a call from a fingerprint. Unwinding takes 10 to 40 µs, too long for
 * launches that come 40,000 times a second. A call whose fingerprint is in the stack cache gets
 * the cached stack. A random share of these calls is unwound anyway, which measures how often
 * the cached stack is wrong.
 *
 * A fingerprint uses the cheapest level of evidence that has not been contradicted:
 * LEVEL_CALL (thread, stack pointer, return address, function), then LEVEL_PYTHON (all Python
 * frames), then LEVEL_PATH (return addresses on the stack, path.h). The last two take
 * microseconds.
 *
 * LEVEL_SEQUENCE avoids most of that cost, because programs repeat themselves. A call from the
 * same Python line, after the same number of calls with the same stack, nearly always has the
 * stack that it had before. A share of these calls is checked at the next levels.
 */
#ifndef GPUREC_FINGERPRINT_H
#define GPUREC_FINGERPRINT_H

#include "state.h"
#include "stack.h"
#include "stackcache.h"
#include "python.h"
#include "path.h"
#include "ration.h"

/*
 * Re-unwind 1 in N calls whose fingerprint is in the stack cache. N is a power of two and grows
 * with the hits of the entry. The checks are spread over many calls, because a second stack
 * often appears late: a training step runs a dozen equal layers before another one. LEVEL_CALL
 * needs fewer checks: if it is ambiguous, each of these layers shows it.
 */
#define YOUNG_HITS 16
#define MATURE_HITS 512
const volatile __u64 check_every = 1024;

static __always_inline __u64 check_period(__u32 hits, __u32 level)
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
 * Check 1 in N calls whose stack the sequence predicts at the next levels, LEVEL_PYTHON and
 * LEVEL_PATH. N grows with the number of checks. When a program takes a new path, a check finds
 * its stack after some calls, and the following calls of the sequence use that stack.
 */
static __always_inline __u64 sequence_check_period(__u32 checks)
{
	if (checks < YOUNG_HITS)
		return 1;
	return checks < 32 ? 4 : checks < 64 ? 16 : 64;
}

/* A path that was wrong this many times is no longer used. */
#define MAX_AMBIGUOUS 8

/*
 * Returns 1 for classes of calls that are rare in most programs: driver memory calls and waits. They are always
 * unwound without a ration. With one, they are unwound as long as checks are, and inferred otherwise.
 */
static __always_inline int is_rare(__u32 class)
{
	return class == CLASS_MEMORY || class == CLASS_SYNC;
}

/* Selects a random 1 in n of the calls, by a hash of the start time. n is a power of two. */
static __always_inline int is_sampled(__u64 ns, __u64 of)
{
	return (ns * 0x9e3779b97f4a7c15ULL >> 32 & (of - 1)) == 0;
}

/* Gives the call the cached stack, and counts the call as inferred. Returns 1. */
static __always_inline int use_cached_stack(struct thread *t, struct class_stats *s, struct open_call *c, struct cached_stack *k)
{
	struct event *e = &c->event;
	__u32 level = t->level;

	c->name_known = k->epoch == t->epoch; /* the fingerprint includes the kernel's handle */
	k->epoch = t->epoch;
	e->stack = STACK_INFERRED;
	e->stack_id = k->stack_id;
	asm volatile("" : "+r"(level));
	if (s && level < LEVELS)
		s->inference.inferred[level]++;
	return 1;
}

/*
 * With a ration, a fingerprint is trusted after this many checks: a second stack is likely to
 * appear in the first ones. Before that, calls that may not be unwound get a provisional ID.
 */
#define FIRST_CHECKS 3

/* Returns 1 if the thread may unwind a call as a check. Otherwise counts the missing check. */
static __always_inline int may_check(struct thread *t, struct class_stats *s, struct open_call *c, __u32 hits)
{
	if (may_unwind(t, c->event.start_ns, hits < FIRST_CHECKS ? URGENCY_FIRST_CHECK : URGENCY_CHECK))
		return 1;
	if (hits < FIRST_CHECKS)
		t->is_rationed = 1;
	else if (s)
		s->inference.unchecked += t->check_weight;
	return 0;
}

/*
 * Uses the cached stack and returns 1. Returns 0 if this call must be unwound as a check, or if it
 * is rationed and the fingerprint is not trusted.
 */
static __always_inline int try_cached_stack(struct thread *t, struct class_stats *s, struct open_call *c, struct cached_stack *k)
{
	__u32 hits = k->hits;

	if (is_provisional(k->stack_id))
		return 0;
	t->check_weight = check_period(hits, t->level);
	if (is_sampled(c->event.start_ns, t->check_weight)) {
		if (may_check(t, s, c, hits)) {
			if (hits < MATURE_HITS)
				k->hits++;
			if (hits >= YOUNG_HITS || unwind_spacing) /* young fingerprints are inferred only with a ration */
				t->expected_stack = k->stack_id;
			return 0;
		}
		return t->is_rationed ? 0 : use_cached_stack(t, s, c, k);
	}
	if (hits < MATURE_HITS)
		k->hits++;
	return use_cached_stack(t, s, c, k);
}

/* Makes the unwinding of a call of a rare class a check of its cached stack, if there is one. */
static __always_inline void check_rare(struct thread *t, struct cached_stack *k)
{
	if (!k || k->ambiguous || is_provisional(k->stack_id))
		return;
	if (k->hits < MATURE_HITS)
		k->hits++;
	t->check_weight = 1;
	t->expected_stack = k->stack_id;
}

/* Returns 1 if the sequence predicts the stack and this call is not chosen for a check. */
static __always_inline int predicts_next(struct thread *t, struct cached_stack *k, struct event *e)
{
	if (!k || k->ambiguous || is_sampled(e->start_ns >> 3, sequence_check_period(k->hits)))
		return 0;
	t->level = LEVEL_SEQUENCE;
	t->check_weight = check_every;
	return 1;
}

/* Records that the call's stack, found at a higher level, came next in the sequence. */
static __always_inline void learn_sequence(__u64 key, struct cached_stack *k, struct event *e)
{
	if (!k)
		cache_stack(e->pid, key, e->stack_id);
	else if (k->stack_id != e->stack_id)
		k->ambiguous = 1;
	else if (k->hits < MATURE_HITS)
		k->hits++;
}

/*
 * Marks the sequence as ambiguous if it predicts another stack than the thread's current call has,
 * a call whose stack could not be inferred. Otherwise a frequent path alone would teach the
 * sequence while a rare path is new, and later calls of the rare path would get the wrong stack.
 */
GLOBAL_FUNC int contradict_sequence(struct thread *t, __u32 pid, __u64 stack_id)
{
	struct cached_stack *k;

	if (!t || !t->sequence)
		return 0;
	k = find_cached(pid, t->sequence);
	if (k && k->stack_id != stack_id)
		k->ambiguous = 1;
	return 0;
}

/* The longest run of equal stacks that is counted. The stack after a run often differs. */
#define MAX_REPEATS 63

/* Sets the thread's previous stack, which predicts the stack of its next call. */
static __always_inline void set_previous_stack(struct thread *t, __u64 stack_id)
{
	if (t->previous_stack != stack_id)
		t->repeats = 0;
	else if (t->repeats < MAX_REPEATS)
		t->repeats++;
	t->previous_stack = stack_id;
}

/* Rounds a size down to its highest bit and the two bits below it, and encodes the result. */
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
 * Returns the argument that distinguishes calls from one call site: the kernel, or a number or
 * size. Allocation sizes are rounded, because programs with varying data rarely repeat a size.
 */
static __always_inline __u64 call_discriminator(__u32 class, const struct event *e)
{
	switch (class) {
	case CLASS_LAUNCH:
		return e->src;
	case CLASS_ALLOCATOR:
	case CLASS_MEMORY:
		return rough_size(e->bytes);
	case CLASS_COPY:
		return 0;
	}
	return e->bytes;
}

/* Infers the stack from LEVEL_PYTHON or LEVEL_PATH; h is the LEVEL_CALL fingerprint. */
GLOBAL_FUNC int infer_from_frames(struct thread *t, struct open_call *c, __u32 class, __u64 h, __u64 sp)
{
	struct class_stats *s = stats_of(class);
	struct cached_stack *k;
	struct cached_path *p;

	if (!t || !c)
		return 0;
	h = python_chain(t, c->event.pid, mix(h, LEVEL_PYTHON));
	t->fingerprint = h;
	t->level = LEVEL_PYTHON;
	k = find_cached(c->event.pid, h);
	if (!k)
		return 0;
	if (!k->ambiguous)
		return try_cached_stack(t, s, c, k);
	t->level = LEVEL_PATH;
	p = find_path(t, h, sp, k->span);
	if (!p)
		return 0;
	if (p->stack.ambiguous < MAX_AMBIGUOUS)
		return try_cached_stack(t, s, c, &p->stack);
	t->fingerprint = 0;
	return 0;
}

/*
 * Infers the stack of a call from its fingerprint and returns 1. Returns 0 if the stack must be
 * unwound. t->fingerprint and t->level are then the key under which it will be cached.
 */
static __always_inline int infer(struct pt_regs *ctx, struct thread *t, const struct call_spec *spec, struct class_stats *s, struct open_call *c, __u64 caller_pc)
{
	struct event *e = &c->event;
	struct cached_stack *k;
	__u64 h, sequence;

	if (is_rare(spec->class) && !unwind_spacing)
		return 0;
	h = mix(mix(mix((__u64)e->pid << 32 | e->tid, REG_SP(ctx)), caller_pc), e->call);
	h = mix(h, call_discriminator(spec->class, e));
	/* Python frames use no C stack, so two lines or callers at the same depth differ in nothing else. */
	if (spec->class == CLASS_ALLOCATOR || is_rare(spec->class))
		h = python_chain(t, e->pid, h);
	t->fingerprint = h;
	t->level = LEVEL_CALL;
	k = find_cached(e->pid, h);
	if (is_rare(spec->class) && may_unwind(t, e->start_ns, URGENCY_CHECK)) {
		check_rare(t, k);
		return 0;
	}
	if (!k)
		return 0;
	if (!k->ambiguous)
		return try_cached_stack(t, s, c, k);
	sequence = python_line(t, e->pid, mix(h ^ t->previous_stack, t->repeats * LEVELS + LEVEL_SEQUENCE));
	k = find_cached(e->pid, sequence);
	if (predicts_next(t, k, e)) {
		if (!is_sampled(e->start_ns, t->check_weight) || !may_check(t, s, c, YOUNG_HITS))
			return use_cached_stack(t, s, c, k);
		t->fingerprint = sequence;
		t->expected_stack = k->stack_id;
		return 0;
	}
	if (!infer_from_frames(t, c, spec->class, h, REG_SP(ctx))) {
		t->sequence = sequence;
		return 0;
	}
	learn_sequence(sequence, k, e);
	return 1;
}

/* Sends user space the stack that the provisional ID of a fingerprint means. */
static __always_inline void tell_learned(__u32 pid, __u64 h, struct cached_stack *k)
{
	struct learned_event l = {.kind = RECORD_LEARNED, .pid = pid, .provisional_id = h | PROVISIONAL, .stack_id = k->stack_id};

	if (!bpf_ringbuf_output(&events, &l, sizeof(l), wakeup()))
		k->owed = 0;
}

/* Caches the unwound stack of a fingerprint. Its provisional ID is explained once it is trusted. */
static __always_inline void cache_fingerprint(__u32 pid, __u64 h, struct cached_stack *k, __u64 stack_id)
{
	if (!k) {
		cache_stack(pid, h, stack_id);
	} else if (is_provisional(k->stack_id)) {
		k->stack_id = stack_id;
		k->check = h ^ stack_id;
	} else if (k->stack_id != stack_id) {
		k->ambiguous = 1;
		k->owed = 0;
	} else if (k->owed && k->hits >= FIRST_CHECKS && !k->ambiguous) {
		tell_learned(pid, h, k);
	}
}

/*
 * Gives a call that may not be unwound a provisional stack ID. Several stacks can belong to the
 * fingerprint of a path, so such a call gets none.
 */
static __always_inline void give_provisional_stack(struct thread *t, struct class_stats *s, struct event *e)
{
	__u64 h = t->fingerprint, id = h | PROVISIONAL;
	struct cached_stack *k;

	e->stack = STACK_RATIONED;
	s->inference.rationed++;
	if (!h || t->level == LEVEL_PATH)
		return;
	k = find_cached(e->pid, h);
	if (!k) {
		cache_stack(e->pid, h, id);
		k = find_cached(e->pid, h);
	}
	if (k)
		k->owed = 1;
	e->stack_id = id;
	set_previous_stack(t, id);
}

/* Allocations of at least this many bytes do not wait for the stacks of launches. */
#define URGENT_BYTES (1 << 20)

/* Returns how urgently a call needs its stack. */
static __always_inline __u32 urgency_of(const struct call_spec *spec, const struct event *e)
{
	if (is_rare(spec->class) || (spec->class == CLASS_ALLOCATOR && (__s64)e->bytes >= URGENT_BYTES))
		return URGENCY_LARGE;
	return URGENCY_NEW;
}

/* Caches the unwound stack under the call's fingerprint, and evaluates a check. */
static __always_inline void cache_unwound(struct pt_regs *ctx, struct thread *t, struct event *e, __u64 stack_id, __u32 error)
{
	struct cached_stack *k;
	struct call_spec *spec;
	struct class_stats *s;
	__u64 h = t->fingerprint;
	__u32 call = e->call;
	int is_wrong = t->expected_stack && t->expected_stack != stack_id;

	if (error)
		return;
	contradict_sequence(t, e->pid, stack_id);
	if (!h)
		return;
	if (t->expected_stack) {
		spec = bpf_map_lookup_elem(&calls, &call);
		s = spec ? stats_of(spec->class) : 0;
		if (s) {
			s->inference.checked++;
			s->inference.wrong += is_wrong;
			s->inference.wrong_weight += is_wrong ? t->check_weight - 1 : 0;
		}
	}
	k = find_cached(e->pid, h);
	if (t->level == LEVEL_PATH) {
		__u64 span = learn_path(ctx, t, h, e->pid, stack_id, is_wrong);

		if (k && span > k->span)
			k->span = span;
		return;
	}
	cache_fingerprint(e->pid, h, k, stack_id);
}

#endif
