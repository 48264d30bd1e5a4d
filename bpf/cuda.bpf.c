//go:build ignore

/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Probes on the CUDA driver API and on PyTorch's allocator. A function has a program at its
 * entry and call_exit at its return; the attach cookie is an index into the table of calls,
 * which says where arguments are and what they mean.
 *
 * Three programs, made of the same code, serve entries: launch_enter and allocator_enter
 * those that come 100,000 times a second, call_enter all others. What runs between two hits
 * throws most of them out of the processor's caches, so that a hit costs as much as the
 * code and the data that it needs: the two have none but their own.
 *
 * Life of an event: the program at the entry fills it in the state of its thread, in order of the
 * nesting; call_exit adds duration, result and out pointers and copies it to the
 * ring buffer. What cannot be stored is counted, per class and reason. A call still
 * open when recording ends is read from the thread's state by user space.
 *
 * Needs Linux 5.15 (bpf_get_attach_cookie), with uprobe_multi links 6.6.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "event.h"
#include "regs.h"
#include "state.h"
#include "decode.h"
#include "allocator.h"
#include "context.h"
#include "names.h"
#include "unwind.h"

char _license[] SEC("license") = "GPL";

/* Puts the types that user space shares into BTF for bpf2go. */
const struct event *unused_event __attribute__((unused));
const struct stack_event *unused_stack __attribute__((unused));
const struct name_event *unused_name __attribute__((unused));
const enum record_kind *unused_kind __attribute__((unused));
const enum event_flags *unused_flags __attribute__((unused));
const enum stack_state *unused_state __attribute__((unused));
const enum arg_from *unused_from __attribute__((unused));
const enum call_class *unused_class __attribute__((unused));
const enum call_decode *unused_decode __attribute__((unused));
const enum call_effect *unused_effect __attribute__((unused));
const struct process_event *unused_process __attribute__((unused));
const enum process_change *unused_change __attribute__((unused));
const enum name_source *unused_source __attribute__((unused));
const enum name_check *unused_check __attribute__((unused));
const enum loss_reason *unused_reason __attribute__((unused));
const enum stack_mode *unused_mode __attribute__((unused));
const enum no_return *unused_no_return __attribute__((unused));
const enum allocator_action *unused_action __attribute__((unused));
const enum allocator_source *unused_source_of __attribute__((unused));
const struct unwound_event *unused_unwound __attribute__((unused));
const enum fingerprint_level *unused_level __attribute__((unused));
const enum unwinder_slot *unused_slot __attribute__((unused));

static __always_inline void take_effect(struct thread *t, const struct call_spec *spec, struct open_call *c)
{
	struct event *e = &c->event;
	__u64 *current = context_slot(t, t->contexts - 1);

	if (e->result != 0)
		return;
	switch (spec->effect) {
	case EFFECT_NAME:
		check_name(e);
		send_name(t, e, e->ptr, e->src, NAME_FROM_CALL);
		break;
	case EFFECT_LAUNCH:
	case EFFECT_RARE_LAUNCH:
		if (!c->name_known)
			know_kernel(t, e, e->src);
		break;
	case EFFECT_UNLOAD:
		new_epoch(e);
		break;
	case EFFECT_CONTEXT_SET:
	case EFFECT_CONTEXT_GET:
		set_context(t, e->ptr);
		break;
	case EFFECT_CONTEXT_PUSH:
		push_context(t, e->ptr);
		break;
	case EFFECT_CONTEXT_POP:
		if (current)
			t->contexts--;
		break;
	case EFFECT_CONTEXT_CREATE:
		push_context(t, e->ptr);
		set_device(e, e->ptr, e->bytes);
		break;
	case EFFECT_CONTEXT_RETAIN:
		set_device(e, e->ptr, e->bytes);
		break;
	case EFFECT_CONTEXT_DESTROY:
		if (current && *current == e->ptr)
			t->contexts--;
		break;
	case EFFECT_DEVICE_GET:
		if (current)
			set_device(e, *current, e->bytes);
		break;
	}
}

/*
 * Emits an open call that will never return: the thread is past it. One that was to be sent at its
 * entry is here because its stack could not be unwound to the end.
 */
static __attribute__((noinline)) void abandon(struct event *e)
{
	__u32 call = e->call;
	struct call_spec *spec = bpf_map_lookup_elem(&calls, &call);

	if (!spec || spec->count_only)
		return;
	if (!(e->flags & EVENT_NO_RETURN))
		e->flags |= EVENT_ABANDONED;
	emit(stats_of(spec->class), e);
}

/*
 * Drops open calls that the stack pointer shows to be gone (an exception or longjmp
 * passed them). At an equal stack pointer the open call is gone, too, unless it jumped
 * here (a tail call): then the return address is the kernel's trampoline.
 */
static __always_inline void drop_gone(struct thread *t, __u64 sp, __u64 caller_pc)
{
	for (int i = 0; i < MAX_OPEN; i++) {
		struct open_call *c = open_call(t, t->open - 1);

		if (!c || c->sp > sp || (c->sp == sp && is_trampoline(caller_pc)))
			return;
		abandon(&c->event);
		t->open--;
	}
}

/* Whether a process that nobody named is one of those to record. */
static __always_inline int is_wanted(void)
{
	char comm[16] = {};

	if (!record_all)
		return 0;
	if (only_cgroup && bpf_get_current_ancestor_cgroup_id(only_cgroup_level) != only_cgroup)
		return 0;
	if (!only_comm[0])
		return 1;
	bpf_get_current_comm(comm, sizeof(comm));
	for (int i = 0; i < sizeof(comm); i++)
		if (comm[i] != only_comm[i])
			return 0;
	return 1;
}

/* Recording everything: a process that calls for the first time becomes a target. */
static __attribute__((noinline)) int admit(__u32 tgid)
{
	struct process_event p = {.kind = RECORD_PROCESS, .change = PROCESS_FIRST, .pid = tgid};
	__u32 epoch = 1;

	if (!is_wanted())
		return 0;
	if (bpf_map_update_elem(&targets, &tgid, &epoch, BPF_NOEXIST))
		return 1; /* another thread was faster */
	p.start_ns = bpf_ktime_get_ns();
	bpf_ringbuf_output(&events, &p, sizeof(p), BPF_RB_FORCE_WAKEUP);
	return 1;
}

/* Whether this is a time in which launches are left out. */
static __always_inline int is_left_out(__u64 now)
{
	return now < launches_from_ns || now >= launches_until_ns;
}

/* Whether the stack of a call is of interest. Memory is freed by whoever drops the last reference. */
static __always_inline int has_stack(const struct call_spec *spec, const struct event *e)
{
	if (spec->count_only || (spec->no_return == RETURN_SOMETIMES && skip_stacks))
		return 0;
	if (spec->class != CLASS_ALLOCATOR)
		return 1;
	if (spec->decode == DECODE_REPORT)
		return (__s64)e->bytes > 0;
	return e->grid[0] != ACTION_FREE_REQUESTED && e->grid[0] != ACTION_FREE_COMPLETED && e->grid[0] != ACTION_SNAPSHOT;
}

/* Makes the name of a launched kernel known before its stack is taken, or instead. */
static __always_inline void know_launched(struct thread *t, struct open_call *c)
{
	if (!c->name_known)
		know_kernel(t, &c->event, c->event.src);
	c->name_known = 1;
}

/* Which calls a program at the entry serves. */
enum entry {
	ENTRY_OF_ANY,
	ENTRY_OF_LAUNCH,    /* rows with EFFECT_LAUNCH */
	ENTRY_OF_ALLOCATOR, /* rows of CLASS_ALLOCATOR */
};

/* Counts a call that is only counted, or a getter. Returns whether it is of interest besides. */
static __always_inline int count(const struct call_spec *spec, __u32 call)
{
	__u64 *n;

	if (!spec->count_only && !spec->is_getter)
		return 1;
	n = bpf_map_lookup_elem(&counts, &call);
	if (n)
		(*n)++;
	return !spec->count_only || spec->effect != EFFECT_NONE;
}

/* What happens at the entry of a call. */
static __always_inline int enter(struct pt_regs *ctx, const enum entry kind)
{
	__u64 id = bpf_get_current_pid_tgid();
	__u32 tgid = id >> 32;
	__u32 call = bpf_get_attach_cookie(ctx);
	struct process_allocator *allocator = 0;
	struct stack_top top;
	struct call_spec *spec;
	struct class_stats *s;
	struct open_call *c, *outer;
	struct thread *t;
	__u64 now;
	__u32 *epoch;
	int at_entry;

	if (paused)
		return 0;
	spec = bpf_map_lookup_elem(&calls, &call);
	if (!spec || (kind == ENTRY_OF_ALLOCATOR && is_of_other_device(ctx, spec)))
		return 0;
	epoch = bpf_map_lookup_elem(&targets, &tgid);
	if (!epoch && !admit(tgid))
		return 0;
	if (kind == ENTRY_OF_ALLOCATOR && !is_of_source(spec, tgid, &allocator))
		return 0;
	if (kind == ENTRY_OF_ANY && !count(spec, call))
		return 0;
	now = bpf_ktime_get_ns();
	if (kind == ENTRY_OF_LAUNCH && is_left_out(now))
		return 0;
	s = stats_of(spec->class);
	if (!s)
		return 0;
	if (!spec->count_only)
		s->seen++;
	t = thread_state(id);
	if (!t)
		return spec->count_only ? 0 : lost(s, LOSS_THREADS);
	t->epoch = epoch ? *epoch : 0;
	read_stack_top(ctx, &top);
	drop_gone(t, REG_SP(ctx), top.caller_pc);
	c = open_call(t, t->open);
	if (!c)
		return spec->count_only ? 0 : lost(s, LOSS_DEPTH);
	__builtin_memset(c, 0, sizeof(*c));
	c->sp = REG_SP(ctx);
	c->event.kind = RECORD_CALL;
	c->event.call = call;
	c->event.pid = tgid;
	c->event.tid = id;
	c->event.start_ns = now;
	read_context(t, &c->event);
	if (kind == ENTRY_OF_LAUNCH)
		read_launch(ctx, t, spec, &top, &c->event);
	else if (kind == ENTRY_OF_ALLOCATOR)
		read_allocator(ctx, t, spec, allocator, &top, &c->event);
	else
		read_args(ctx, t, spec, &c->event);
	at_entry = spec->no_return == RETURN_NEVER || (kind == ENTRY_OF_LAUNCH && skip_returns);
	if (at_entry) {
		c->event.flags |= EVENT_NO_RETURN;
		c->event.cpu = bpf_get_smp_processor_id();
	}
	outer = open_call(t, t->open - 1);
	t->open++;
	/*
	 * Only the outermost call has a stack that can be unwound: while a function's return
	 * is probed, its return address is the kernel's trampoline.
	 */
	if (outer) {
		c->event.parent_ns = outer->event.start_ns;
		c->event.stack_id = outer->event.stack_id;
		c->event.stack = outer->event.stack_id ? STACK_PARENT : STACK_NONE;
	} else if (has_stack(spec, &c->event) && !infer_stack(ctx, t, spec, s, c, top.caller_pc)) {
		if (at_entry && kind == ENTRY_OF_LAUNCH)
			know_launched(t, c);
		take_stack(ctx, t, s, c, top.caller_pc);
	}
	if (at_entry) {
		if (kind == ENTRY_OF_LAUNCH)
			know_launched(t, c);
		t->open--;
		emit(s, &c->event);
	}
	return 0;
}

SEC("uprobe.multi/call_enter")
int call_enter(struct pt_regs *ctx)
{
	return enter(ctx, ENTRY_OF_ANY);
}

SEC("uprobe.multi/launch_enter")
int launch_enter(struct pt_regs *ctx)
{
	return enter(ctx, ENTRY_OF_LAUNCH);
}

SEC("uprobe.multi/allocator_enter")
int allocator_enter(struct pt_regs *ctx)
{
	return enter(ctx, ENTRY_OF_ALLOCATOR);
}

/* Finds the open call that returns here, dropping what it had called and left open. */
static __always_inline struct open_call *returning(struct thread *t, __u32 call, __u64 sp)
{
	for (int i = 0; i < MAX_OPEN; i++) {
		struct open_call *c = open_call(t, t->open - 1);

		if (!c || SP_AT_RETURN(c->sp) > sp)
			return 0; /* the return of a call that began before we attached */
		t->open--;
		if (SP_AT_RETURN(c->sp) == sp && c->event.call == call)
			return c;
		abandon(&c->event);
	}
	return 0;
}

SEC("uretprobe.multi/call_exit")
int call_exit(struct pt_regs *ctx)
{
	__u64 now = bpf_ktime_get_ns();
	__u64 id = bpf_get_current_pid_tgid();
	__u32 call = bpf_get_attach_cookie(ctx);
	struct thread *t = bpf_map_lookup_elem(&threads, &id);
	struct call_spec *spec;
	struct class_stats *s;
	struct open_call *c;
	struct event *e;

	if (!t || ended)
		return 0;
	spec = bpf_map_lookup_elem(&calls, &call);
	c = returning(t, call, REG_SP(ctx));
	if (!spec || !c)
		return 0;
	s = stats_of(spec->class);
	e = &c->event;
	e->dur_ns = now - e->start_ns;
	e->result = REG_RESULT(ctx);
	e->cpu = bpf_get_smp_processor_id();
	e->ptr = arg_at_return(e, &spec->ptr, e->ptr);
	e->stream = arg_at_return(e, &spec->stream, e->stream);
	e->src = arg_at_return(e, &spec->src, e->src);
	if (spec->value.from == ARG_OUT)
		set_value(e, arg_at_return(e, &spec->value, value_of(e)));
	if (spec->decode == DECODE_UUID)
		read_uuid(e);
	e->bytes = arg_at_return(e, &spec->bytes, e->bytes);
	take_effect(t, spec, c);
	if (!spec->count_only)
		emit(s, e);
	return 0;
}

/* c10::reportMemoryUsageToProfiler(address, change, allocated bytes, reserved bytes, device). */
SEC("uprobe.multi/allocator_report")
int allocator_report(struct pt_regs *ctx)
{
	struct allocator_search *s, all = {};
	__u64 id = bpf_get_current_pid_tgid();
	__u64 allocated = call_arg(ctx, 2), reserved = call_arg(ctx, 3);
	__u32 tgid = id >> 32;
	struct thread *t = bpf_map_lookup_elem(&threads, &id);

	if (!t || !t->allocator || !allocated || !reserved || (__u8)call_arg(ctx, 4) != DEVICE_TYPE_CUDA)
		return 0;
	s = bpf_map_lookup_elem(&allocator_searches, &tgid);
	if (!s) {
		__builtin_memset(all.allocated, 0xff, sizeof(all.allocated));
		__builtin_memset(all.reserved, 0xff, sizeof(all.reserved));
		bpf_map_update_elem(&allocator_searches, &tgid, &all, BPF_NOEXIST);
		s = bpf_map_lookup_elem(&allocator_searches, &tgid);
	}
	if (!s || s->last == allocated)
		return 0;
	for (__u32 piece = 0; piece < SEARCH_PIECES; piece++)
		search_piece(t, s, piece, allocated, reserved);
	s->last = allocated;
	s->looks++;
	return 0;
}
