/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Reads the arguments of kernel launches. kernelParams is an array of pointers to values, which mostly
 * lie near each other on the stack of the caller: one copy of memory then has them all. The programs
 * do not know which values are pointers, nor, for most launches, how many parameters a kernel has. User
 * space does: it decodes what is sent here.
 *
 * Without record_arguments the verifier removes all of this code.
 */
#ifndef GPUREC_KERNELARGS_H
#define GPUREC_KERNELARGS_H

#include "state.h"
#include "regs.h"

/* 1 if the programs read arguments. User space sets it before it loads the programs. */
const volatile __u8 record_arguments = 0;
/*
 * Launches of a stream whose arguments are kept in kept_arguments, until user space takes them. 0: those of all
 * launches are sent. To keep them is cheaper: their memory stays in the caches of the processor.
 */
const volatile __u32 kept_launches = 0;
/* Arguments that did not fit into the ring buffer or into a map. */
volatile __u64 arguments_lost = 0;
/* Set if frozen_processes is not empty. User space clears it. */
volatile __u32 any_frozen = 0;

/* User space sets the sizes of these three maps. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1);
	__type(key, struct arguments_stream);
	__type(value, struct kept_stream);
} kept_streams SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct arguments_record);
} kept_arguments SEC(".maps");

/* Indexes that no stream has. User space fills it. */
struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, 1);
	__type(value, __u32);
} free_streams SEC(".maps");

/*
 * tgid of processes whose GPU work has failed: their kept arguments are those before the failure, and stay until
 * user space has taken them.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, __u32);
	__type(value, __u8);
} frozen_processes SEC(".maps");

/* Kernel handle and process -> parameters. User space adds and deletes them. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH); /* a lookup in an LRU map costs more */
	__uint(max_entries, 16384);
	__type(key, struct handle_key);
	__type(value, struct kernel_layout);
} kernel_layouts SEC(".maps");

#define USER_END (1ULL << 47)
#define PAGE_BYTES 4096
/* Bytes that are read behind the last pointer of unknown parameters: it may be a structure. */
#define SPARE_BYTES 64

/* Reads the readable part of the array of pointers. */
static __always_inline void read_pointers(struct arguments_state *a, __u64 from)
{
	__u32 n = a->layout.count;

	if (!n || n > MAX_ARGUMENTS)
		n = MAX_ARGUMENTS;
	asm volatile("" : "+r"(n));
	if (n > MAX_ARGUMENTS)
		return;
	a->count = n;
	if (!bpf_probe_read_user(a->pointers, n * 8, (void *)from))
		return;
	a->count = 0;
	n = (PAGE_BYTES - from % PAGE_BYTES) / 8; /* the next page may be unreadable */
	asm volatile("" : "+r"(n));
	if (n <= MAX_ARGUMENTS && !bpf_probe_read_user(a->pointers, n * 8, (void *)from))
		a->count = n;
}

/* Returns 1 if a word can be the address of a value on the host. */
static __always_inline int is_host_address(__u64 word)
{
	return word >= PAGE_BYTES && word < USER_END;
}

/* Finds the first values that fit into one copy. Without a layout, a value has at least 8 bytes. */
GLOBAL_FUNC int find_near_values(struct thread *t)
{
	struct arguments_state *a;

	if (!t)
		return 0;
	a = &t->scratch.arguments;
	a->near = 0;
	a->low = ~0ULL;
	a->high = a->plausible = a->is_far = 0;
	for (__u32 i = 0; i < MAX_ARGUMENTS; i++) {
		__u64 at = a->pointers[i], low = a->low, high = a->high, size = a->layout.size[i];
		__u64 end = at + (size ? size : 8);

		if (i >= a->count || !is_host_address(at))
			break;
		a->plausible = i + 1;
		if (low > at)
			low = at;
		if (high < end)
			high = end;
		if (a->is_far || high - low > MAX_ARGUMENT_BYTES) {
			a->is_far = 1;
			continue;
		}
		a->low = low;
		a->high = high;
		a->near = i + 1;
	}
	return 0;
}

/* Copies the near values to the event. */
static __always_inline void copy_near_values(const struct arguments_state *a, struct arguments_event *out)
{
	__u64 wanted = a->high - a->low, n = out->is_known ? wanted : wanted + SPARE_BYTES;

	if (n > MAX_ARGUMENT_BYTES)
		n = MAX_ARGUMENT_BYTES;
	asm volatile("" : "+r"(n));
	if (n > MAX_ARGUMENT_BYTES)
		return;
	if (!bpf_probe_read_user(out->data, n, (void *)a->low)) {
		out->bytes = n;
		return;
	}
	asm volatile("" : "+r"(wanted)); /* without the spare bytes */
	if (wanted <= MAX_ARGUMENT_BYTES && !bpf_probe_read_user(out->data, wanted, (void *)a->low))
		out->bytes = wanted;
}

/* Stores where the near values are in the copy. */
GLOBAL_FUNC int place_near_values(const struct thread *t, struct arguments_record *r)
{
	const struct arguments_state *a;

	if (!t || !r)
		return 0;
	a = &t->scratch.arguments;
	for (__u32 i = 0; i < MAX_ARGUMENTS; i++) {
		if (i >= r->event.near)
			break;
		r->event.at[i] = a->pointers[i] - a->low;
	}
	return 0;
}

/* Copies the values that are not near the first ones, up to the first that cannot be read. */
GLOBAL_FUNC int copy_far_values(const struct thread *t, struct arguments_record *r)
{
	const struct arguments_state *a;

	if (!t || !r)
		return 0;
	a = &t->scratch.arguments;
	for (__u32 i = 0; i < MAX_ARGUMENTS; i++) {
		__u64 at = r->event.bytes, n = a->layout.size[i];

		if (i < r->event.near)
			continue;
		if (i >= a->plausible)
			break;
		if (!n)
			n = 8;
		/* The bounds also keep an access inside of the record, with its spare bytes. */
		asm volatile("" : "+r"(at));
		asm volatile("" : "+r"(n));
		if (at >= MAX_ARGUMENT_BYTES || n > MAX_ARGUMENT_BYTES || at + n > MAX_ARGUMENT_BYTES ||
		    bpf_probe_read_user(r->event.data + at, n, (void *)a->pointers[i]))
			break;
		r->event.at[i] = at;
		r->event.count = i + 1;
		r->event.bytes = at + n;
	}
	return 0;
}

/* Reads the values behind kernelParams. */
static __always_inline void read_values(struct thread *t, struct arguments_record *r, __u64 params,
					const struct kernel_layout *layout)
{
	struct arguments_state *a = &t->scratch.arguments;
	struct arguments_event *out = &r->event;

	out->form = ARGUMENTS_POINTERS;
	out->is_known = layout != 0;
	if (layout)
		a->layout = *layout;
	else
		__builtin_memset(&a->layout, 0, sizeof(a->layout));
	read_pointers(a, params);
	find_near_values(t);
	if (a->near)
		copy_near_values(a, out);
	out->near_bytes = out->bytes;
	out->near = out->count = out->bytes ? a->near : 0;
	place_near_values(t, r);
	if (a->is_far)
		copy_far_values(t, r);
	out->is_cut = layout ? out->count < a->layout.count : out->count == MAX_ARGUMENTS;
}

#define BUFFER_WORDS 5
#define BUFFER_POINTER 1 /* CU_LAUNCH_PARAM_BUFFER_POINTER */
#define BUFFER_SIZE 2    /* CU_LAUNCH_PARAM_BUFFER_SIZE */

/* Reads the buffer of extra: pairs of a name and a value, until a name is 0. */
static __always_inline void read_buffer(struct thread *t, struct arguments_event *a, __u64 extra)
{
	__u64 *words = t->scratch.arguments.pointers, buffer = 0, size = 0;

	a->form = ARGUMENTS_BUFFER;
	if (bpf_probe_read_user(words, BUFFER_WORDS * 8, (void *)extra))
		return;
	for (__u32 i = 0; i < BUFFER_WORDS - 1 && words[i]; i += 2) {
		if (words[i] == BUFFER_POINTER)
			buffer = words[i + 1];
		if (words[i] == BUFFER_SIZE)
			bpf_probe_read_user(&size, sizeof(size), (void *)words[i + 1]);
	}
	if (size > MAX_ARGUMENT_BYTES) {
		size = MAX_ARGUMENT_BYTES;
		a->is_cut = 1;
	}
	asm volatile("" : "+r"(size));
	if (size > MAX_ARGUMENT_BYTES || bpf_probe_read_user(a->data, size, (void *)buffer))
		size = 0;
	a->bytes = size;
}

/* Adds a stream. 0: there are too many. */
static __attribute__((noinline)) struct kept_stream *add_stream(struct arguments_stream *key)
{
	struct kept_stream s = {};

	if (bpf_map_pop_elem(&free_streams, &s.index))
		return 0;
	if (bpf_map_update_elem(&kept_streams, key, &s, BPF_NOEXIST)) /* another thread has added it */
		bpf_map_push_elem(&free_streams, &s.index, 0);
	return bpf_map_lookup_elem(&kept_streams, key);
}

/* Returns the memory for the arguments of a launch of a stream: that of its oldest launch. 0: there are too many streams. */
static __always_inline struct arguments_record *next_record(const struct event *e)
{
	struct arguments_stream key = {.pid = e->pid, .context = e->context, .stream = e->stream};
	struct kept_stream *s = bpf_map_lookup_elem(&kept_streams, &key);
	__u32 at;

	if (!s)
		s = add_stream(&key);
	if (!s)
		return 0;
	at = s->index * kept_launches + __sync_fetch_and_add(&s->launches, 1) % kept_launches;
	return bpf_map_lookup_elem(&kept_arguments, &at);
}

/* Returns 1 if the kept arguments of a process must not change. */
static __always_inline int is_frozen(__u32 tgid)
{
	return any_frozen && bpf_map_lookup_elem(&frozen_processes, &tgid);
}

/* Reports whether a result comes from earlier work on the GPU: later calls of the context return it, too. */
static __always_inline int is_sticky(__s32 result)
{
	return result == 700 || result == 702 || (result >= 714 && result <= 719) || result == 710 || result == 721 ||
	       result == 214 || result == 220 || result == 226 || result == 911;
}

/* Freezes the kept arguments of a process whose GPU work has failed. */
static __attribute__((noinline)) void freeze_arguments(__u32 tgid)
{
	__u8 one = 1;

	any_frozen = 1;
	bpf_map_update_elem(&frozen_processes, &tgid, &one, BPF_ANY);
}

/* Sends the arguments of a launch. */
static __always_inline void send_arguments(struct arguments_event *a)
{
	__u32 bytes = a->bytes;

	asm volatile("" : "+r"(bytes));
	if (bytes > MAX_ARGUMENT_BYTES)
		return;
	if (bpf_ringbuf_output(&events, a, __builtin_offsetof(struct arguments_event, data) + bytes, wakeup()))
		__sync_fetch_and_add(&arguments_lost, 1);
}

/* Reads the arguments of a launch, and keeps or sends them. Global: the verifier checks it once. */
GLOBAL_FUNC int take_arguments(struct thread *t, const struct event *e, __u64 params, __u64 extra)
{
	struct handle_key key = {};
	struct arguments_record *r;
	struct arguments_event *a;

	if (!t || !e || (!params && !extra) || is_frozen(e->pid))
		return 0; /* without both, the kernel has no parameters */
	r = kept_launches ? next_record(e) : &t->scratch.arguments.record;
	if (!r) {
		__sync_fetch_and_add(&arguments_lost, 1);
		return 0;
	}
	a = &r->event;
	__builtin_memset(a, 0, __builtin_offsetof(struct arguments_event, data));
	a->call = e->call;
	a->pid = e->pid;
	a->tid = e->tid;
	a->start_ns = e->start_ns;
	a->function = e->src;
	a->stream = e->stream;
	a->context = e->context;
	key.handle = e->src;
	key.pid = e->pid;
	if (params)
		read_values(t, r, params, bpf_map_lookup_elem(&kernel_layouts, &key));
	else
		read_buffer(t, a, extra);
	a->kind = RECORD_ARGUMENTS;
	if (!kept_launches)
		send_arguments(a);
	return 0;
}

/* Reads the arguments of cuLaunchKernel, cuLaunchCooperativeKernel (without extra) or cuLaunchKernelEx. */
static __always_inline void read_arguments(struct pt_regs *ctx, struct thread *t, const struct call_spec *spec,
					   const struct stack_top *top, const struct event *e)
{
	__u64 params, extra = 0;

	if (spec->decode == DECODE_LAUNCH_EX) {
		params = reg_arg(ctx, 2);
		extra = reg_arg(ctx, 3);
	} else {
		params = ARG(ctx, top, 9);
		if (spec->value.from != ARG_NONE)
			extra = ARG(ctx, top, 10);
	}
	take_arguments(t, e, params, extra);
}

#endif
