/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Stacks by fingerprint. This is no hash map of the kernel, because of what a hit costs in a
 * program at work: between two launches from the same place it pushes everything of them out of
 * the processor's caches, and a hash map touches three cache lines on three pages for a
 * lookup, one after the other. Here a fingerprint has its place in one of two sets of a few. Its
 * first set is among some that are its process's, so that they lie on few pages; where that is
 * full of others in use, the second one can be anywhere.
 */
#ifndef GPUREC_KNOWN_H
#define GPUREC_KNOWN_H

#include "state.h"
#include "stack.h"

/* A fingerprint's stack. */
struct known_stack {
	/*
	 * The fingerprint, xor stack_id: what two threads write into one place at the same time
	 * passes for neither (Hyatt's lockless hashing).
	 */
	__u64 check;
	__u64 stack_id; /* 0: free */
	__u32 epoch;    /* of kernel handles: in which the launched kernel's name was sent */
	__u16 hits : 11;     /* up to MATURE_HITS */
	__u16 used : 1;      /* since a place in its set was last needed */
	__u16 ambiguous : 4; /* was seen with different stacks: more must go into the fingerprint */
	__u16 span; /* of its paths: how much of the stack they need, in words */
};
_Static_assert(sizeof(struct known_stack) == 24, "five in two cache lines");

#define KNOWN_WAYS 5
#define KNOWN_SETS 65536 /* 8 MiB, 327,680 places */
#define HOME_SETS 2048   /* of a process, which may share them with others: 256 KiB, 10,240 places */
/* The last set that is used: one less than a power of two, lower in tests. */
const volatile __u32 known_last = KNOWN_SETS - 1;

struct known_set {
	struct known_stack ways[KNOWN_WAYS];
	__u64 _pad;
};
_Static_assert(sizeof(struct known_set) == 128, "two cache lines, which are fetched together");

/* BPF_F_MMAPABLE, since else sets begin in the middle of a line. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, KNOWN_SETS);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct known_set);
} known_stacks SEC(".maps");

static __always_inline struct known_set *set_at(__u32 i)
{
	i &= known_last;
	return bpf_map_lookup_elem(&known_stacks, &i);
}

static __always_inline struct known_set *first_set(__u32 pid, __u64 fingerprint)
{
	return set_at(mix(0, pid) / HOME_SETS * HOME_SETS + fingerprint % HOME_SETS);
}

static __always_inline struct known_set *second_set(__u64 fingerprint)
{
	return set_at(fingerprint >> 32);
}

/*
 * 1 if word is not 0, without a branch: where code goes different ways with the number of a
 * place, the verifier follows what comes after for each of them. The empty asm keeps the
 * compiler from seeing what this is.
 */
static __always_inline __u64 is_not_0(__u64 word)
{
	word |= -word;
	asm volatile("" : "+r"(word));
	return word >> 63;
}

/* The i-th place of a set, 0 if there is none. */
static __always_inline struct known_stack *way_of(struct known_set *set, __u64 i)
{
	asm volatile("" : "+r"(i));
	if (i >= KNOWN_WAYS)
		return 0;
	return &set->ways[i];
}

/* What is known of a fingerprint in a set, 0: nothing. */
static __always_inline struct known_stack *find_in(struct known_set *set, __u64 fingerprint)
{
	__u64 first = 0, differs = 1; /* the first place that has it; whether all up to this one differ */

	if (!set)
		return 0;
	for (int i = 0; i < KNOWN_WAYS; i++) {
		differs &= is_not_0(set->ways[i].check ^ set->ways[i].stack_id ^ fingerprint);
		first += differs;
	}
	return way_of(set, first);
}

/* What is known of a fingerprint, 0: nothing. Only its own thread asks: the thread is in it. */
static __always_inline struct known_stack *find_known(__u32 pid, __u64 fingerprint)
{
	struct known_stack *k = find_in(first_set(pid, fingerprint), fingerprint);

	if (!k)
		k = find_in(second_set(fingerprint), fingerprint);
	if (k)
		k->used = 1;
	return k;
}

/*
 * A place for a new fingerprint in a set: a free one, or that of one that was not used since a
 * place there was last needed. Threads that are gone leave theirs behind. 0: all are in use.
 */
static __always_inline struct known_stack *place_in(struct known_set *set)
{
	__u64 first_free = 0, taken = 1, first_idle = 0, used = 1;
	struct known_stack *k;

	for (int i = 0; i < KNOWN_WAYS; i++) {
		taken &= is_not_0(set->ways[i].stack_id);
		first_free += taken;
		used &= set->ways[i].used;
		first_idle += used;
	}
	k = way_of(set, first_free);
	if (k)
		return k;
	for (int i = 0; i < KNOWN_WAYS; i++)
		set->ways[i].used = 0;
	return way_of(set, first_idle);
}

/* Learns the stack of a fingerprint of which nothing is known. */
static __always_inline void learn_known(__u32 pid, __u64 fingerprint, __u64 stack_id)
{
	struct known_set *first = first_set(pid, fingerprint), *second = second_set(fingerprint);
	struct known_stack *k;

	if (!first || !second)
		return;
	k = place_in(first);
	if (!k)
		k = place_in(second);
	if (!k) /* one of those in use is learnt again */
		k = way_of(second, bpf_get_prandom_u32() % KNOWN_WAYS);
	if (!k)
		return;
	k->epoch = 0;
	k->hits = 0;
	k->used = 1;
	k->ambiguous = 0;
	k->span = 0;
	k->stack_id = stack_id;
	k->check = fingerprint ^ stack_id;
}

#endif
