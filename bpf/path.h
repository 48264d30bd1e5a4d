/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The native path of a thread without unwinding it: the words on its stack that point
 * behind a call in code, and stay the same while the unwound stack does. Those of the live
 * frames are the return addresses; others are left over from calls that are gone and drop
 * out as soon as they change. Pointers to functions and what lies beside code look
 * alike until one looks at the code: they would fill a path before it reaches the frame
 * that tells two stacks apart.
 *
 * Learning is slow, but happens a few times per stack; comparing costs a copy of the
 * stack, up to the outermost word, and some 50 comparisons.
 */
#ifndef GPUREC_PATH_H
#define GPUREC_PATH_H

#include "state.h"
#include "stack.h"
#include "known.h"

/* How much of the stack is looked at: 16 KiB. */
#define PIECE_WORDS 2048

#define CODE_UNIT_BITS 21 /* 2 MiB */
#define CODE_UNITS 32768  /* 64 GiB: libraries lie close together */

/* Where code of a process lies; made by user space from its mappings. */
struct code_map {
	__u64 program_start, program_end; /* of the code outside: the program itself */
	__u64 base; /* address of the first unit */
	__u64 units[CODE_UNITS / 64];
};

/* pid -> its code. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u32);
	__type(value, struct code_map);
} code_maps SEC(".maps");

/* A copy of the stack from its top on. */
struct stack_piece {
	__u32 count; /* of words */
	__u32 _pad;
	__u64 words[PIECE_WORDS];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct stack_piece);
} stack_pieces SEC(".maps");

#define PATH_WORDS 128

/* One native path of a fingerprint, and its stack. */
struct known_path {
	struct known_stack known;
	__u32 count;
	__u32 scanned; /* words of the stack that were looked at */
	__u16 at[PATH_WORDS]; /* places on the stack, in words, from the inside out */
	__u64 value[PATH_WORDS];
};

/* How many stacks with the same calls and the same Python frames can be told apart. */
#define MAX_PATHS 16

/* Fingerprint + number of the path -> path. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 4096);
	__type(key, __u64);
	__type(value, struct known_path);
} known_paths SEC(".maps");

/* What a path starts as: too big for the BPF stack. */
static const struct known_path new_path;

/* Copies so many words of the stack from sp on. */
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

/* Copies as much of the stack from sp on as there is and as fits, in steps. */
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

static __always_inline __u64 piece_word(struct stack_piece *piece, __u32 i)
{
	asm volatile("" : "+r"(i));
	return i < PIECE_WORDS && i < piece->count ? piece->words[i] : 0;
}

struct path_search {
	struct stack_piece *piece;
	struct code_map *code;
	struct known_path *path;
	__u32 kept;
	__u32 from;
};

/* Whether all words of a path are what they were. */
SEPARATE int is_on(struct stack_piece *piece, struct known_path *p)
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

/* The path of the fingerprint that the thread is on, 0: none that is known. */
static __always_inline struct known_path *find_path(struct thread *t, __u64 h, __u64 sp, __u64 span)
{
	struct stack_piece *piece = copy_stack(sp, span);

	if (!piece)
		return 0;
	for (int i = 0; i < MAX_PATHS; i++) {
		__u64 key = h + i;
		struct known_path *p = bpf_map_lookup_elem(&known_paths, &key);

		if (!p)
			return 0;
		if (is_on(piece, p)) {
			t->path = key;
			return p;
		}
	}
	return 0;
}

static __always_inline int is_code(struct code_map *code, __u64 word)
{
	__u64 unit = (word - code->base) >> CODE_UNIT_BITS;

	if (unit < CODE_UNITS)
		return code->units[unit / 64 % (CODE_UNITS / 64)] >> unit % 64 & 1;
	return word >= code->program_start && word < code->program_end;
}

/* Adds a word to the path, if it looks like a return address, until that is full. */
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

/* Keeps a word of a path if it is what it was; c->kept words before it have been kept. */
static long keep_if_same(__u32 i, struct path_search *c)
{
	__u32 kept = c->kept;

	asm volatile("" : "+r"(i));
	asm volatile("" : "+r"(kept));
	if (i >= PATH_WORDS || kept >= PATH_WORDS)
		return 1;
	if (piece_word(c->piece, c->path->at[i]) != c->path->value[i])
		return 0;
	c->path->at[kept] = c->path->at[i];
	c->path->value[kept] = c->path->value[i];
	c->kept = kept + 1;
	return 0;
}

/* Drops the words of a path that are not what they were. */
static __always_inline void prune(struct path_search *c)
{
	c->kept = 0;
	bpf_loop(c->path->count, keep_if_same, c, 0);
	c->path->count = c->kept;
}

/* The place for a stack among the paths of its fingerprint: where it is, or a free one, or any. */
static __always_inline __u64 place_of(__u64 h, __u64 stack_id)
{
	for (int i = 0; i < MAX_PATHS; i++) {
		__u64 key = h + i;
		struct known_path *p = bpf_map_lookup_elem(&known_paths, &key);

		if (!p || p->known.stack_id == stack_id)
			return key;
	}
	return h + bpf_get_prandom_u32() % MAX_PATHS;
}

/* Where the outermost word of a path is. */
static __always_inline __u64 last_word(struct known_path *p)
{
	__u32 last = p->count - 1;

	asm volatile("" : "+r"(last));
	return last < PATH_WORDS ? p->at[last] : 0;
}

/*
 * Learns the path of an unwound stack, or more about it: words that have changed go, and
 * in their place come words further out. Returns how much of the stack it needs.
 */
static __always_inline __u64 learn_path(struct pt_regs *ctx, struct thread *t, __u64 h, __u32 pid, __u64 stack_id, int is_wrong)
{
	struct path_search c = {.piece = copy_whole_stack(REG_SP(ctx)), .code = bpf_map_lookup_elem(&code_maps, &pid)};
	__u64 key = place_of(h, stack_id);

	if (!c.piece || !c.code)
		return 0;
	if (is_wrong) { /* the path that looked like this one does not tell enough */
		c.path = bpf_map_lookup_elem(&known_paths, &t->path);
		if (c.path) {
			c.path->known.hits = 0;
			c.path->known.ambiguous++;
		}
	}
	c.path = bpf_map_lookup_elem(&known_paths, &key);
	if (c.path && c.path->known.stack_id == stack_id) {
		prune(&c);
	} else {
		bpf_map_update_elem(&known_paths, &key, &new_path, BPF_ANY);
		c.path = bpf_map_lookup_elem(&known_paths, &key);
		if (!c.path)
			return 0;
		c.path->known.stack_id = stack_id;
	}
	c.from = c.path->scanned;
	bpf_loop(PIECE_WORDS, add_if_return, &c, 0);
	return last_word(c.path) + 1;
}

#endif
