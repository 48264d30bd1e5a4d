/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The stack cache: fingerprint -> stack. A kernel hash map would touch three cache lines on
 * three pages in sequence for a lookup. Between two launches from one call site, a program
 * evicts those lines from the processor's caches.
 *
 * This cache is set-associative, and a fingerprint may be in one of two sets. The first is in a
 * region of sets chosen by process, so that a process uses few pages. The second may be
 * anywhere, and is used when the first is full of entries in use.
 */
#ifndef GPUREC_STACKCACHE_H
#define GPUREC_STACKCACHE_H

#include "state.h"
#include "stack.h"

/* One entry of the stack cache. */
struct cached_stack {
	/*
	 * fingerprint ^ stack_id. If two threads write one entry at the same time, the result
	 * matches neither fingerprint (Hyatt's lockless hashing).
	 */
	__u64 check;
	__u64 stack_id; /* 0: free */
	__u32 epoch;    /* epoch of kernel handles in which the launched kernel's name was sent */
	__u16 hits : 11;     /* lookups that found this entry, at most MATURE_HITS */
	__u16 used : 1;      /* found since the last eviction scan of its set */
	__u16 ambiguous : 4; /* not 0: several stacks have this fingerprint, use the next level */
	__u16 span : 15; /* words of the native stack that the fingerprint's paths cover */
	__u16 owed : 1;  /* earlier calls have a provisional stack ID, see ration.h */
};
_Static_assert(sizeof(struct cached_stack) == 24, "five in two cache lines");

#define CACHE_WAYS 5
#define CACHE_SETS 65536 /* 8 MiB, 327,680 entries */
#define HOME_SETS 2048   /* sets in the region of a process: 256 KiB, 10,240 entries */
/* Index of the last set in use: a power of two minus one. Tests lower it. */
const volatile __u32 last_cache_set = CACHE_SETS - 1;

struct cache_set {
	struct cached_stack ways[CACHE_WAYS];
	__u64 _pad;
};
_Static_assert(sizeof(struct cache_set) == 128, "two cache lines, which are fetched together");

/* BPF_F_MMAPABLE aligns the array to a page, so that sets begin at a cache line. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, CACHE_SETS);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct cache_set);
} stack_cache SEC(".maps");

/* Returns set i of the stack cache; i wraps around. */
static __always_inline struct cache_set *set_at(__u32 i)
{
	i &= last_cache_set;
	return bpf_map_lookup_elem(&stack_cache, &i);
}

/* Returns the first set of a fingerprint, in the region of its process. */
static __always_inline struct cache_set *first_set(__u32 pid, __u64 fingerprint)
{
	return set_at(mix(0, pid) / HOME_SETS * HOME_SETS + fingerprint % HOME_SETS);
}

/* Returns the second set of a fingerprint, anywhere in the cache. */
static __always_inline struct cache_set *second_set(__u64 fingerprint)
{
	return set_at(fingerprint >> 32);
}

/*
 * Returns 1 if word is not 0, otherwise 0, without a branch: the verifier would follow the
 * code after each branch separately. The empty asm keeps the compiler from adding a branch.
 */
static __always_inline __u64 is_nonzero(__u64 word)
{
	word |= -word;
	asm volatile("" : "+r"(word));
	return word >> 63;
}

/* Returns the i-th entry of a set, or 0 if i is out of range. */
static __always_inline struct cached_stack *cache_way(struct cache_set *set, __u64 i)
{
	asm volatile("" : "+r"(i));
	if (i >= CACHE_WAYS)
		return 0;
	return &set->ways[i];
}

/* Returns the entry of a fingerprint in a set, or 0. */
static __always_inline struct cached_stack *find_in_set(struct cache_set *set, __u64 fingerprint)
{
	__u64 first = 0, differs = 1; /* index of the first match; whether all entries so far differ */

	if (!set)
		return 0;
	for (int i = 0; i < CACHE_WAYS; i++) {
		differs &= is_nonzero(set->ways[i].check ^ set->ways[i].stack_id ^ fingerprint);
		first += differs;
	}
	return cache_way(set, first);
}

/* Returns the cache entry of a fingerprint, or 0. A fingerprint includes its thread. */
static __always_inline struct cached_stack *find_cached(__u32 pid, __u64 fingerprint)
{
	struct cached_stack *k = find_in_set(first_set(pid, fingerprint), fingerprint);

	if (!k)
		k = find_in_set(second_set(fingerprint), fingerprint);
	if (k)
		k->used = 1;
	return k;
}

/*
 * Returns an entry of a set for a new fingerprint: a free entry, or one that was not found since
 * the last eviction scan. Returns 0 if all entries are in use. Entries of exited threads are
 * evicted here, too.
 */
static __always_inline struct cached_stack *evictable_way(struct cache_set *set)
{
	__u64 first_free = 0, taken = 1, first_idle = 0, used = 1;
	struct cached_stack *k;

	for (int i = 0; i < CACHE_WAYS; i++) {
		taken &= is_nonzero(set->ways[i].stack_id);
		first_free += taken;
		used &= set->ways[i].used;
		first_idle += used;
	}
	k = cache_way(set, first_free);
	if (k)
		return k;
	for (int i = 0; i < CACHE_WAYS; i++)
		set->ways[i].used = 0;
	return cache_way(set, first_idle);
}

/* Caches the stack of a new fingerprint. */
static __always_inline void cache_stack(__u32 pid, __u64 fingerprint, __u64 stack_id)
{
	struct cache_set *first = first_set(pid, fingerprint), *second = second_set(fingerprint);
	struct cached_stack *k;

	if (!first || !second)
		return;
	k = evictable_way(first);
	if (!k)
		k = evictable_way(second);
	if (!k) /* both sets are full: evict a random entry */
		k = cache_way(second, bpf_get_prandom_u32() % CACHE_WAYS);
	if (!k)
		return;
	k->epoch = 0;
	k->hits = 0;
	k->used = 1;
	k->ambiguous = 0;
	k->span = 0;
	k->owed = 0;
	k->stack_id = stack_id;
	k->check = fingerprint ^ stack_id;
}

#endif
