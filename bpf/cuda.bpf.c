//go:build ignore

/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Probes on the CUDA driver API, on PyTorch's allocator and on NCCL. Each probed function has a program
 * at its entry, and most have call_exit at their return. The attach cookie is an index into the
 * call table, which describes the arguments.
 *
 * Four entry programs share one source: launch_enter and allocator_enter serve functions that
 * are called 100,000 times a second, collective_enter those of NCCL, call_enter all others. The target evicts the probe's
 * code and data from the processor's caches between two hits. Cache misses dominate the cost of
 * a hit, so each frequent entry program contains only the code that it needs.
 *
 * Life of an event: the entry program stores it in the state of its thread, on a stack of open
 * calls. call_exit adds duration, result and out parameters and copies the event to the ring
 * buffer. A loss is counted by class and reason. User space reads the calls that are still open
 * when recording ends from the thread states.
 *
 * Needs Linux 5.15 (bpf_get_attach_cookie); uprobe_multi links need 6.6.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "event.h"
#include "regs.h"
#include "state.h"
#include "decode.h"
#include "allocator.h"
#include "autograd.h"
#include "collective.h"
#include "context.h"
#include "kernelargs.h"
#include "names.h"
#include "progress.h"
#include "unwind.h"

char _license[] SEC("license") = "GPL";

/* Keeps the types that user space shares in BTF, from which bpf2go generates Go types. */
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
const struct allocator_beginning *unused_beginning __attribute__((unused));
const struct process_event *unused_process __attribute__((unused));
const enum process_change *unused_change __attribute__((unused));
const enum name_source *unused_source __attribute__((unused));
const enum name_check *unused_check __attribute__((unused));
const enum loss_reason *unused_reason __attribute__((unused));
const enum stack_mode *unused_mode __attribute__((unused));
const enum return_probe *unused_return_probe __attribute__((unused));
const enum allocator_action *unused_action __attribute__((unused));
const enum allocator_source *unused_allocator_source __attribute__((unused));
const struct unwound_event *unused_unwound __attribute__((unused));
const enum fingerprint_level *unused_level __attribute__((unused));
const enum hit_kind *unused_hit_kind __attribute__((unused));
const struct learned_event *unused_learned __attribute__((unused));
const struct progress_event *unused_progress __attribute__((unused));
const struct progress_sample *unused_sample __attribute__((unused));
const struct progress_process *unused_progress_process __attribute__((unused));
const struct progress_slot *unused_progress_slot __attribute__((unused));
const enum unwinder_slot *unused_slot __attribute__((unused));
const struct arguments_event *unused_arguments __attribute__((unused));
const struct kernel_layout *unused_layout __attribute__((unused));
const enum arguments_form *unused_form __attribute__((unused));
const struct arguments_stream *unused_arguments_stream __attribute__((unused));
const struct arguments_record *unused_record __attribute__((unused));
const struct kept_stream *unused_kept_stream __attribute__((unused));
const enum engine_role *unused_role __attribute__((unused));

/* Returns true if a call made a communicator whose init continues in the background. */
static __always_inline int makes_communicator(const struct call_spec *spec, const struct event *e)
{
	return e->result == NCCL_IN_PROGRESS && spec->effect == EFFECT_COMMUNICATOR && spec->class == CLASS_COLLECTIVE;
}

/* Applies the effect of a successful call to the state of its thread and process. */
static __always_inline void apply_effect(struct thread *t, const struct call_spec *spec, struct open_call *c)
{
	struct event *e = &c->event;
	__u64 *current = context_slot(t, t->contexts - 1);

	if (e->result != 0 && !makes_communicator(spec, e))
		return;
	switch (spec->effect) {
	case EFFECT_NAME:
		check_name(e);
		send_name(t, e, e->ptr, e->src, NAME_FROM_CALL);
		break;
	case EFFECT_LAUNCH:
	case EFFECT_RARE_LAUNCH:
		if (!c->name_known)
			ensure_kernel_name(t, e, e->src);
		break;
	case EFFECT_UNLOAD:
		start_epoch(e);
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
	case EFFECT_COMMUNICATOR:
		start_numbers(e, e->ptr);
		break;
	case EFFECT_COMMUNICATORS:
		start_numbers_of_array(e);
		break;
	}
}

/*
 * Emits an open call that will not return. A call that is sent at its entry can be here, too:
 * its stack could not be unwound completely.
 */
static __attribute__((noinline)) void abandon(struct open_call *c)
{
	struct event *e = &c->event;
	__u32 call = e->call;
	struct call_spec *spec = bpf_map_lookup_elem(&calls, &call);

	if (!spec || spec->count_only || c->is_silent)
		return;
	if (!(e->flags & EVENT_NO_RETURN))
		e->flags |= EVENT_ABANDONED;
	e->dur_ns = 0;
	emit(stats_of(spec->class), e);
}

/*
 * Emits and removes open calls that the thread has left: an exception or longjmp unwound the
 * stack past them. An open call with an equal stack pointer has been left, too, unless it made
 * a tail call to this function. Then the return address is the kernel's trampoline.
 */
static __always_inline void abandon_left_calls(struct thread *t, __u64 sp, __u64 caller_pc)
{
	for (int i = 0; i < MAX_OPEN; i++) {
		struct open_call *c = open_call(t, t->open - 1);

		if (!c || c->sp > sp || (c->sp == sp && is_trampoline(caller_pc)))
			return;
		abandon(c);
		t->open--;
	}
}

/* Returns 1 if record_all is set and the current process passes the name and cgroup filters. */
static __always_inline int passes_filters(void)
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

/* With record_all, makes a process a target at its first call. Returns 1 if it is one. */
static __attribute__((noinline)) int add_target(__u32 tgid)
{
	struct process_event p = {.kind = RECORD_PROCESS, .change = PROCESS_FIRST, .pid = tgid};
	__u32 epoch = 1;

	if (!passes_filters())
		return 0;
	if (bpf_map_update_elem(&targets, &tgid, &epoch, BPF_NOEXIST))
		return 1; /* another thread inserted the process first */
	p.start_ns = bpf_ktime_get_ns();
	bpf_ringbuf_output(&events, &p, sizeof(p), BPF_RB_FORCE_WAKEUP);
	return 1;
}

/* Selects the calls that an entry program serves. */
enum entry_kind {
	ENTRY_CALL,      /* all other rows of the call table */
	ENTRY_LAUNCH,    /* rows of the call table with EFFECT_LAUNCH */
	ENTRY_ALLOCATOR, /* rows of the call table with CLASS_ALLOCATOR */
	ENTRY_COLLECTIVE, /* rows of the call table with CLASS_COLLECTIVE */
};

/* Returns 1 if a launch or an allocator event at this time is outside the recorded window. */
static __always_inline int is_outside_window(const enum entry_kind kind, __u64 now)
{
	if (kind == ENTRY_LAUNCH)
		return now < launches_from_ns || now >= launches_until_ns;
	if (kind == ENTRY_ALLOCATOR)
		return now < allocator_from_ns || now >= allocator_until_ns;
	return 0;
}

/* Counts a probe hit outside the recorded window: it costs the thread an exception, too. */
static __always_inline int skip_outside_window(__u64 id, const struct call_spec *spec)
{
	struct thread *t = bpf_map_lookup_elem(&threads, &id);

	if (t)
		count_hit(t, spec);
	return 0;
}

/* Returns 1 if a call needs a stack. Frees need none: the last user of a block frees it. */
static __always_inline int needs_stack(const struct call_spec *spec, const struct event *e)
{
	if (spec->count_only || (spec->return_probe == RETURN_SAMPLED && skip_stacks))
		return 0;
	if (spec->class != CLASS_ALLOCATOR)
		return 1;
	if (spec->decode == DECODE_REPORT)
		return (__s64)e->bytes > 0;
	return e->grid[0] != ACTION_FREE_REQUESTED && e->grid[0] != ACTION_FREE_COMPLETED && e->grid[0] != ACTION_SNAPSHOT;
}

/* Sends the kernel's name if necessary: a call sent at its entry has no later chance. */
static __always_inline void ensure_launch_name(struct thread *t, struct open_call *c)
{
	if (!c->name_known)
		ensure_kernel_name(t, &c->event, c->event.src);
	c->name_known = 1;
}

/* Counts a call of a counted function. Returns 1 if the call must be processed further. */
static __always_inline int count_call(const struct call_spec *spec, __u32 call)
{
	__u64 *n;

	if (!spec->count_only && !spec->is_getter)
		return 1;
	n = bpf_map_lookup_elem(&counts, &call);
	if (n)
		(*n)++;
	return !spec->count_only || spec->effect != EFFECT_NONE;
}

/* Serves ncclGroupStart: PyTorch calls it for each collective, so it does only what it needs. */
static __always_inline int enter_group(struct pt_regs *ctx, __u64 id, const struct call_spec *spec)
{
	struct thread *t = thread_state(id);
	struct stack_top top;

	if (!t)
		return 0;
	count_hit(t, spec);
	if (t->open) {
		read_stack_top(ctx, &top, 0);
		abandon_left_calls(t, REG_SP(ctx), top.caller_pc);
	}
	start_group(t);
	return 0;
}

/* Returns 1 if a call is sent at its entry, because its return is not probed. */
static __always_inline int is_sent_at_entry(const enum entry_kind kind, const struct call_spec *spec)
{
	return spec->return_probe == RETURN_NEVER || (kind == ENTRY_LAUNCH && skip_returns) ||
	       (kind == ENTRY_COLLECTIVE && spec->return_probe == RETURN_OPTIONAL && skip_operation_returns);
}

/* The body of all entry programs; the compiler removes the code that kind does not need. */
static __always_inline int enter(struct pt_regs *ctx, const enum entry_kind kind)
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
	__u32 *epoch, ended = 0, engine_call = 0;
	int at_entry;

	if (paused)
		return 0;
	spec = bpf_map_lookup_elem(&calls, &call);
	if (!spec || (kind == ENTRY_ALLOCATOR && is_other_device(ctx, spec)))
		return 0;
	epoch = bpf_map_lookup_elem(&targets, &tgid);
	if (!epoch && !add_target(tgid))
		return 0;
	if (kind == ENTRY_ALLOCATOR && !matches_source(spec, tgid, &allocator))
		return 0;
	if (kind == ENTRY_CALL && !count_call(spec, call))
		return 0;
	if (kind == ENTRY_COLLECTIVE && skip_groups && is_group_call(spec))
		return 0;
	if (kind == ENTRY_COLLECTIVE && spec->decode == DECODE_GROUP_START)
		return enter_group(ctx, id, spec);
	/* Before all reasons to lose the call: rows of a later communicator must not get its identity. */
	if (kind == ENTRY_COLLECTIVE && spec->effect == EFFECT_COMMUNICATOR_END && call_arg(ctx, 0))
		ended = change_epoch(tgid, call_arg(ctx, 0), 0);
	now = bpf_ktime_get_ns();
	if (is_outside_window(kind, now))
		return skip_outside_window(id, spec);
	s = stats_of(spec->class);
	if (!s)
		return 0;
	if (!spec->count_only)
		s->seen++;
	t = thread_state(id);
	if (!t)
		return spec->count_only ? 0 : count_loss(s, LOSS_THREADS);
	t->epoch = epoch ? *epoch : 0;
	count_hit(t, spec);
	if (sample_progress && kind != ENTRY_ALLOCATOR && kind != ENTRY_COLLECTIVE && submits_work(spec))
		note_submission(t, tgid, now);
	if (record_arguments && kind == ENTRY_LAUNCH)
		read_stack_top(ctx, &top, 1);
	else
		read_stack_top(ctx, &top, 0);
	abandon_left_calls(t, REG_SP(ctx), top.caller_pc);
	if (t->engine)
		engine_call = engine_call_of(t, tgid, spec->class, REG_SP(ctx));
	c = open_call(t, t->open);
	if (!c)
		return spec->count_only ? 0 : count_loss(s, LOSS_DEPTH);
	__builtin_memset(c, 0, sizeof(*c));
	c->sp = REG_SP(ctx);
	c->event.kind = RECORD_CALL;
	c->event.call = call;
	c->event.pid = tgid;
	c->event.tid = id;
	c->event.start_ns = now;
	read_context(t, &c->event);
	if (kind == ENTRY_COLLECTIVE && is_inside_nccl(t, spec)) {
		s->seen--;
		if (!is_sent_at_entry(kind, spec))
			open_silently(t, c);
		return 0;
	}
	if (kind == ENTRY_LAUNCH) {
		read_launch(ctx, t, spec, &top, &c->event);
		if (record_arguments)
			read_arguments(ctx, t, spec, &top, &c->event);
	}
	if (kind == ENTRY_COLLECTIVE)
		read_collective(ctx, t, spec, ended, &c->event);
	else if (kind == ENTRY_ALLOCATOR)
		read_allocator(ctx, t, spec, allocator, &top, &c->event);
	else if (kind == ENTRY_CALL)
		read_args(ctx, t, spec, &c->event);
	at_entry = is_sent_at_entry(kind, spec);
	if (at_entry) {
		c->event.flags |= EVENT_NO_RETURN;
		c->event.cpu = bpf_get_smp_processor_id();
	}
	if (engine_call && needs_stack(spec, &c->event))
		c->event.extra = engine_call;
	outer = open_call(t, t->open - 1);
	t->open++;
	/*
	 * Only the outermost call can be unwound: the return address of an open call with a
	 * return probe is the kernel's trampoline.
	 */
	if (outer) {
		c->event.parent_ns = outer->event.start_ns;
		c->event.stack_id = outer->event.stack_id;
		c->event.stack = outer->event.stack_id ? STACK_PARENT : STACK_NONE;
	} else if (needs_stack(spec, &c->event) && !infer_stack(ctx, t, spec, s, c, top.caller_pc)) {
		if (at_entry && kind == ENTRY_LAUNCH)
			ensure_launch_name(t, c);
		capture_stack(ctx, t, spec, s, c, top.caller_pc);
	}
	if (at_entry) {
		if (kind == ENTRY_LAUNCH)
			ensure_launch_name(t, c);
		t->open--;
		emit(s, &c->event);
	}
	return 0;
}

SEC("uprobe.multi/call_enter")
int call_enter(struct pt_regs *ctx)
{
	return enter(ctx, ENTRY_CALL);
}

SEC("uprobe.multi/launch_enter")
int launch_enter(struct pt_regs *ctx)
{
	return enter(ctx, ENTRY_LAUNCH);
}

SEC("uprobe.multi/allocator_enter")
int allocator_enter(struct pt_regs *ctx)
{
	return enter(ctx, ENTRY_ALLOCATOR);
}

SEC("uprobe.multi/collective_enter")
int collective_enter(struct pt_regs *ctx)
{
	return enter(ctx, ENTRY_COLLECTIVE);
}

/* Removes and returns the open call that returns here; abandons open calls inside it. */
static __always_inline struct open_call *pop_returning_call(struct thread *t, __u32 call, __u64 sp)
{
	for (int i = 0; i < MAX_OPEN; i++) {
		struct open_call *c = open_call(t, t->open - 1);

		if (!c || SP_AT_RETURN(c->sp) > sp)
			return 0; /* this call began before its probes were attached */
		t->open--;
		if (SP_AT_RETURN(c->sp) == sp && c->event.call == call)
			return c;
		abandon(c);
	}
	return 0;
}

/* Completes the event of a call at its return and sends it. */
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

	if (!t || recording_ended)
		return 0;
	spec = bpf_map_lookup_elem(&calls, &call);
	c = pop_returning_call(t, call, REG_SP(ctx));
	if (!spec || !c)
		return 0;
	count_hit(t, spec);
	if (c->is_silent)
		return 0;
	s = stats_of(spec->class);
	e = &c->event;
	e->dur_ns = now - e->start_ns - e->dur_ns; /* until now, dur_ns was the time of holds */
	e->result = REG_RESULT(ctx);
	e->cpu = bpf_get_smp_processor_id();
	if (record_arguments && kept_launches && is_sticky(e->result))
		freeze_arguments(e->pid);
	if (makes_communicator(spec, e) && spec->ptr.from == ARG_OUT)
		e->ptr = read_user(e, e->ptr + spec->ptr.offset, spec->ptr.size);
	else
		e->ptr = arg_at_return(e, &spec->ptr, e->ptr);
	e->stream = arg_at_return(e, &spec->stream, e->stream);
	e->src = arg_at_return(e, &spec->src, e->src);
	if (spec->value.from == ARG_OUT)
		set_value(e, arg_at_return(e, &spec->value, value_of(e)));
	if (spec->decode == DECODE_UUID)
		read_uuid(e);
	e->bytes = arg_at_return(e, &spec->bytes, e->bytes);
	apply_effect(t, spec, c);
	if (spec->class == CLASS_COLLECTIVE)
		take_back_number(spec, e);
	if (!spec->count_only)
		emit(s, e);
	return 0;
}

/*
 * Finds the offset of an allocator object's statistics, see search_piece. Probe on
 * c10::reportMemoryUsageToProfiler(address, change, allocated bytes, reserved bytes, device).
 */
SEC("uprobe.multi/allocator_report")
int allocator_report(struct pt_regs *ctx)
{
	struct allocator_search *s, all = {};
	__u64 id = bpf_get_current_pid_tgid();
	__u64 allocated = call_arg(ctx, 2), reserved = call_arg(ctx, 3);
	__u32 tgid = id >> 32;
	struct thread *t = bpf_map_lookup_elem(&threads, &id);

	if (!t || !t->last_allocator || !allocated || !reserved || (__u8)call_arg(ctx, 4) != DEVICE_TYPE_CUDA)
		return 0;
	s = bpf_map_lookup_elem(&allocator_searches, &tgid);
	if (!s) {
		__builtin_memset(all.allocated, 0xff, sizeof(all.allocated));
		__builtin_memset(all.reserved, 0xff, sizeof(all.reserved));
		bpf_map_update_elem(&allocator_searches, &tgid, &all, BPF_NOEXIST);
		s = bpf_map_lookup_elem(&allocator_searches, &tgid);
	}
	if (!s || s->last_allocated == allocated)
		return 0;
	for (__u32 piece = 0; piece < SEARCH_PIECES; piece++)
		search_piece(t, s, piece, allocated, reserved);
	s->last_allocated = allocated;
	s->comparisons++;
	return 0;
}

/*
 * The entry of torch::autograd::Engine::execute. User space gets the number of the call with its stack,
 * before an autograd thread can have an event with this number.
 */
SEC("uprobe.multi/engine_enter")
int engine_enter(struct pt_regs *ctx)
{
	__u64 id = bpf_get_current_pid_tgid(), now = bpf_ktime_get_ns();
	__u32 tgid = id >> 32, call = bpf_get_attach_cookie(ctx), number;
	struct stack_top top;
	struct call_spec *spec;
	struct class_stats *s;
	struct open_call *c;
	struct thread *t;

	if (paused)
		return 0;
	spec = bpf_map_lookup_elem(&calls, &call);
	s = stats_of(CLASS_ENGINE);
	if (!spec || !s || (!bpf_map_lookup_elem(&targets, &tgid) && !add_target(tgid)))
		return 0;
	t = thread_state(id);
	if (!t)
		return 0;
	count_hit(t, spec);
	read_stack_top(ctx, &top, 0);
	abandon_left_calls(t, REG_SP(ctx), top.caller_pc);
	number = join_engine(t, tgid, REG_SP(ctx), top.caller_pc);
	c = open_call(t, t->open);
	if (!number || t->open || !c) /* no stack can be unwound inside of another probed call */
		return 0;
	__builtin_memset(c, 0, sizeof(*c));
	c->sp = REG_SP(ctx);
	c->event.kind = RECORD_ENGINE;
	c->event.call = call;
	c->event.flags = EVENT_NO_RETURN;
	c->event.pid = tgid;
	c->event.tid = id;
	c->event.start_ns = now;
	c->event.extra = number;
	t->open++;
	if (!infer_engine_stack(ctx, t, c, top.caller_pc))
		capture_stack(ctx, t, spec, s, c, top.caller_pc);
	t->open--;
	emit(s, &c->event);
	return 0;
}

/* A return instruction of torch::autograd::Engine::execute. The stack pointer is that of the entry. */
SEC("uprobe.multi/engine_return")
int engine_return(struct pt_regs *ctx)
{
	__u64 id = bpf_get_current_pid_tgid();
	struct thread *t = bpf_map_lookup_elem(&threads, &id);

	if (t && return_from_engine(t, id >> 32, REG_SP(ctx)))
		t->hits[HIT_OTHER]++;
	return 0;
}
