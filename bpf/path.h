/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The native path of a thread: a cheap substitute for its unwound stack. A path consists of
 * the words on the stack that point behind a call instruction and do not change while the
 * unwound stack stays the same. They include the return addresses of all live frames. Stale
 * return addresses of earlier calls drop out of the path when they change.
 *
 * Reading the instruction before an address rules out function pointers and data near code.
 * These would fill the path before it reaches the frame in which two stacks differ.
 *
 * Learning a path is slow, but happens a few times per stack. Comparing a path costs a copy of
 * the stack up to the path's outermost word, and about 50 comparisons.
 */
#ifndef GPUREC_PATH_H
#define GPUREC_PATH_H

#include "state.h"
#include "stack.h"
#include "stackcache.h"

/* How much of the native stack is searched: 16 KiB. */
#define PIECE_WORDS 2048

#define CODE_UNIT_BITS 21 /* 2 MiB */
#define CODE_UNITS 32768  /* 64 GiB: the dynamic linker maps libraries close together */

/* A bitmap of the address ranges that hold code of a process, made from its mappings. */
struct code_map {
	__u64 program_start, program_end; /* code of the main program, outside the bitmap */
	__u64 base; /* address of the first unit */
	__u64 units[CODE_UNITS / 64];
};

/* pid -> address ranges of the process's code. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u32);
	__type(value, struct code_map);
} code_maps SEC(".maps");

/* A copy of the thread's native stack, from the stack pointer up. */
struct stack_piece {
	__u32 count; /* valid words */
	__u32 kept;  /* words of a path that prune has kept; the verifier does not track values in a map */
	__u64 words[PIECE_WORDS];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct stack_piece);
} stack_pieces SEC(".maps");

#define PATH_WORDS 128

/* One entry of the path cache: a native path and the stack that it belongs to. */
struct cached_path {
	struct cached_stack stack;
	__u32 count;
	__u32 scanned; /* words of the stack that were searched */
	__u16 at[PATH_WORDS]; /* offset of each path word from the stack pointer, in words, ascending */
	__u64 value[PATH_WORDS];
};

/* Maximum number of stacks that share a LEVEL_PYTHON fingerprint. */
#define MAX_PATHS 16

/* fingerprint + number of the path -> path. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, __u64);
	__type(value, struct cached_path);
} path_cache SEC(".maps");

/* Initial value of a path: too large for the 512-byte BPF stack. */
static const struct cached_path new_path;

/* Copies count words of the stack from address sp. Returns 0 if they are unreadable. */
static __always_inline struct stack_piece *copy_stack(__u64 sp, __u64 count)
{
	__u32 zero = 0;
	struct stack_piece *piece = bpf_map_lookup_elem(&stack_pieces, &zero);

	asm volatile("" : "+r"(count));
	if (!piece || count > PIECE_WORDS || bpf_probe_read_user(piece->words, 8 * count, (void *)sp))
		return 0;
	piece->count = count;
	return piece;
}

#define STEP_WORDS 64

/* Copies the readable part of the stack from address sp, at most PIECE_WORDS, in steps. */
static __always_inline struct stack_piece *copy_whole_stack(__u64 sp)
{
	__u32 zero = 0;
	struct stack_piece *piece = bpf_map_lookup_elem(&stack_pieces, &zero);

	if (!piece)
		return 0;
	piece->count = 0;
	for (__u32 i = 0; i < PIECE_WORDS / STEP_WORDS; i++) {
		if (bpf_probe_read_user(piece->words + i * STEP_WORDS, 8 * STEP_WORDS, (void *)(sp + 8 * i * STEP_WORDS)))
			break;
		piece->count = (i + 1) * STEP_WORDS;
	}
	return piece;
}

/* Returns word i of the copied stack, 0 if it was not copied. */
static __always_inline __u64 piece_word(struct stack_piece *piece, __u32 i)
{
	asm volatile("" : "+r"(i));
	return i < PIECE_WORDS && i < piece->count ? piece->words[i] : 0;
}

/* State of the bpf_loop callbacks that learn a path. */
struct path_search {
	struct stack_piece *piece;
	struct code_map *code;
	struct cached_path *path;
	__u32 from;
};

/* Returns 1 if every word of the path is unchanged in the copy of the stack. */
GLOBAL_FUNC int matches_path(struct stack_piece *piece, struct cached_path *p)
{
	__u32 count, copied;

	if (!piece || !p)
		return 0;
	count = p->count;
	copied = piece->count;
	for (__u32 i = 0; i < PATH_WORDS; i++) {
		__u32 at;

		if (i >= count)
			return 1;
		at = p->at[i];
		asm volatile("" : "+r"(at));
		if (at >= PIECE_WORDS || at >= copied || piece->words[at] != p->value[i])
			return 0;
	}
	return 1;
}

/* Returns the cached path of fingerprint h that matches the thread's stack, or 0. */
static __always_inline struct cached_path *find_path(struct thread *t, __u64 h, __u64 sp, __u64 span)
{
	struct stack_piece *piece = copy_stack(sp, span);

	if (!piece)
		return 0;
	for (int i = 0; i < MAX_PATHS; i++) {
		__u64 key = h + i;
		struct cached_path *p = bpf_map_lookup_elem(&path_cache, &key);

		if (!p)
			return 0;
		if (matches_path(piece, p)) {
			t->path_key = key;
			return p;
		}
	}
	return 0;
}

/* Returns 1 if an address is in code of the process. */
static __always_inline int is_code(struct code_map *code, __u64 word)
{
	__u64 unit = (word - code->base) >> CODE_UNIT_BITS;

	if (unit < CODE_UNITS)
		return code->units[unit / 64 % (CODE_UNITS / 64)] >> unit % 64 & 1;
	return word >= code->program_start && word < code->program_end;
}

/* bpf_loop callback: adds word i to the path if it looks like a return address. */
static long add_if_return(__u32 i, struct path_search *c)
{
	__u32 at = c->from + i, n = c->path->count;
	__u64 word = piece_word(c->piece, at);

	asm volatile("" : "+r"(n));
	if (at >= c->piece->count || n >= PATH_WORDS)
		return 1;
	c->path->scanned = at + 1;
	if (!is_code(c->code, word) || !is_after_call(word))
		return 0;
	c->path->at[n] = at;
	c->path->value[n] = word;
	c->path->count = n + 1;
	return 0;
}

/* bpf_loop callback: keeps word i of the path if it is unchanged, after piece->kept others. */
static long keep_if_same(__u32 i, struct path_search *c)
{
	__u32 kept = c->piece->kept;

	asm volatile("" : "+r"(i));
	asm volatile("" : "+r"(kept));
	if (i >= PATH_WORDS || kept >= PATH_WORDS)
		return 1;
	if (piece_word(c->piece, c->path->at[i]) != c->path->value[i])
		return 0;
	c->path->at[kept] = c->path->at[i];
	c->path->value[kept] = c->path->value[i];
	c->piece->kept = kept + 1;
	return 0;
}

/* Removes the words of a path that have changed on the stack. */
static __always_inline void prune(struct path_search *c)
{
	c->piece->kept = 0;
	bpf_loop(c->path->count, keep_if_same, c, 0);
	c->path->count = c->piece->kept;
}

/* Returns the path cache key for a stack: its present key, a free one or a random one. */
static __always_inline __u64 choose_path_key(__u64 h, __u64 stack_id)
{
	for (int i = 0; i < MAX_PATHS; i++) {
		__u64 key = h + i;
		struct cached_path *p = bpf_map_lookup_elem(&path_cache, &key);

		if (!p || p->stack.stack_id == stack_id)
			return key;
	}
	return h + bpf_get_prandom_u32() % MAX_PATHS;
}

/* Returns the offset of the outermost word of a path, in words. */
static __always_inline __u64 outermost_word(struct cached_path *p)
{
	__u32 last = p->count - 1;

	asm volatile("" : "+r"(last));
	return last < PATH_WORDS ? p->at[last] : 0;
}

/*
 * Learns the path of an unwound stack, or refines it: words that changed are removed and words
 * further out are added. Returns how many words of the stack the path covers.
 */
static __always_inline __u64 learn_path(struct pt_regs *ctx, struct thread *t, __u64 h, __u32 pid, __u64 stack_id, int is_wrong)
{
	struct path_search c = {.piece = copy_whole_stack(REG_SP(ctx)), .code = bpf_map_lookup_elem(&code_maps, &pid)};
	__u64 key = choose_path_key(h, stack_id);

	if (!c.piece || !c.code)
		return 0;
	if (is_wrong) { /* the path that matched by mistake has too few words */
		c.path = bpf_map_lookup_elem(&path_cache, &t->path_key);
		if (c.path) {
			c.path->stack.hits = 0;
			c.path->stack.ambiguous++;
		}
	}
	c.path = bpf_map_lookup_elem(&path_cache, &key);
	if (c.path && c.path->stack.stack_id == stack_id) {
		prune(&c);
	} else {
		bpf_map_update_elem(&path_cache, &key, &new_path, BPF_ANY);
		c.path = bpf_map_lookup_elem(&path_cache, &key);
		if (!c.path)
			return 0;
		c.path->stack.stack_id = stack_id;
	}
	c.from = c.path->scanned;
	bpf_loop(PIECE_WORDS, add_if_return, &c, 0);
	return outermost_word(c.path) + 1;
}

#endif
