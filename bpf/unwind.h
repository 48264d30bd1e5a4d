/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Complete stacks. The OpenTelemetry profiler's programs unwind them with .eh_frame data and
 * Python interpreter state. The entry programs tail-call the profiler's first program, and its
 * last program tail-calls unwind_stop (unwind.bpf.c).
 */
#ifndef GPUREC_UNWIND_H
#define GPUREC_UNWIND_H

#include "state.h"
#include "stack.h"
#include "fingerprint.h"

/* Slots of the unwinders program array. */
enum unwinder_slot {
	UNWINDER_STOP = 0,   /* unwind_stop */
	UNWINDER_ENTRY = 24, /* the profiler's entry program; its own slots are below this one */
};

/* The profiler's programs, and unwind_stop. Empty if there is no unwinder. */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 32);
	__type(key, __u32);
	__type(value, __u32);
} unwinders SEC(".maps");

/*
 * The thread that uses the profiler's record on this CPU. Where the kernel preempts tasks in a
 * probe, another thread may enter while the record is in use.
 */
struct unwinding {
	__u64 id; /* tgid<<32|tid of the thread, 0: the record is free */
	__u64 since_ns;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct unwinding);
} unwinding SEC(".maps");

/* Unwinding takes 10 to 100 µs. After 1 ms, an unfinished one no longer blocks others. */
#define UNWIND_TIMEOUT_NS 1000000

/* Returns the entry of this CPU in the unwinding map. */
static __always_inline struct unwinding *unwinding_here(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&unwinding, &zero);
}

/* Claims the profiler's record of this CPU for a thread. Returns 0 if another thread uses it. */
static __always_inline int claim_record(__u64 id, __u64 now)
{
	struct unwinding *u = unwinding_here();

	if (!u || (u->id && u->id != id && now - u->since_ns < UNWIND_TIMEOUT_NS))
		return 0;
	u->id = id;
	u->since_ns = now;
	return 1;
}

/* Returns 1 if an outermost call needs no unwinding: its stack was inferred or is not wanted. */
static __always_inline int infer_stack(struct pt_regs *ctx, struct thread *t, const struct call_spec *spec, struct class_stats *s, struct open_call *c, __u64 caller_pc)
{
	t->fingerprint = t->expected_stack = t->sequence = t->is_rationed = 0;
	if (stack_capture != STACKS_AUTO)
		return stack_capture == STACKS_OFF;
	if (!infer(ctx, t, spec, s, c, caller_pc))
		return 0;
	set_previous_stack(t, c->event.stack_id);
	return 1;
}

/*
 * Is infer_stack for a call of the autograd engine. Its Python frames are always read: all calls come from one
 * place of the library, so only they tell one line of the program from another.
 */
static __always_inline int infer_engine_stack(struct pt_regs *ctx, struct thread *t, struct open_call *c, __u64 caller_pc)
{
	struct event *e = &c->event;
	__u64 h;

	t->fingerprint = t->expected_stack = t->sequence = t->is_rationed = 0;
	if (stack_capture != STACKS_AUTO)
		return stack_capture == STACKS_OFF;
	h = mix(mix(mix((__u64)e->pid << 32 | e->tid, REG_SP(ctx)), caller_pc), e->call);
	if (!infer_from_frames(t, c, CLASS_ENGINE, h, REG_SP(ctx)))
		return 0;
	set_previous_stack(t, e->stack_id);
	return 1;
}

/*
 * Captures the stack of an outermost call: unwinds it (then does not return) or walks it. With a
 * ration, the call may get a provisional stack.
 */
static __always_inline void capture_stack(struct pt_regs *ctx, struct thread *t, const struct call_spec *spec, struct class_stats *s, struct open_call *c, __u64 caller_pc)
{
	struct event *e = &c->event;
	__u64 id = (__u64)e->pid << 32 | e->tid;
	__u32 urgency = urgency_of(spec, e);

	/* A check of a cached stack has been granted or refused already. */
	if (t->is_rationed || (!t->expected_stack && !may_unwind(t, e->start_ns, urgency))) {
		give_provisional_stack(t, s, e);
		return;
	}
	if (stack_capture >= STACKS_AUTO) {
		if (claim_record(id, e->start_ns)) {
			e->stack = STACK_UNKNOWN;
			bpf_tail_call(ctx, &unwinders, UNWINDER_ENTRY);
		} else {
			s->inference.busy++;
		}
	}
	walk_stack(ctx, t, e, caller_pc);
}

#endif
