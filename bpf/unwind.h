/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Complete stacks: the programs of the OpenTelemetry profiler unwind, through .eh_frame
 * and Python interpreters, between two programs of ours. call_enter makes a tail call
 * into them; they end in unwind_stop (unwind.bpf.c).
 */
#ifndef GPUREC_UNWIND_H
#define GPUREC_UNWIND_H

#include "state.h"
#include "stack.h"
#include "fingerprint.h"

/* Slots of the unwinder's program array. */
enum unwinder_slot {
	UNWINDER_STOP = 0,   /* ours */
	UNWINDER_ENTRY = 24, /* not one of theirs, which are numbered from 0 */
};

/* Their programs, and unwind_stop. Empty: there is no unwinder. */
struct {
	__uint(type, BPF_MAP_TYPE_PROG_ARRAY);
	__uint(max_entries, 32);
	__type(key, __u32);
	__type(value, __u32);
} unwinders SEC(".maps");

/*
 * Who is unwinding on this CPU. Where the kernel preempts tasks in a probe, another
 * thread may come here while the record is in use.
 */
struct unwinding {
	__u64 id; /* of the thread, 0: nobody */
	__u64 since_ns;
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct unwinding);
} unwinding SEC(".maps");

/* An unwinding takes 10 to 100 µs; one that never came to its end must not block others for long. */
#define UNWIND_TIMEOUT_NS 1000000

static __always_inline struct unwinding *unwinding_here(void)
{
	__u32 zero = 0;

	return bpf_map_lookup_elem(&unwinding, &zero);
}

/* Whether this thread may use the CPU's record; if so, it has it. */
static __always_inline int claim_record(__u64 id, __u64 now)
{
	struct unwinding *u = unwinding_here();

	if (!u || (u->id && u->id != id && now - u->since_ns < UNWIND_TIMEOUT_NS))
		return 0;
	u->id = id;
	u->since_ns = now;
	return 1;
}

/* Whether the stack of an outermost call is known without a look at it. */
static __always_inline int infer_stack(struct pt_regs *ctx, struct thread *t, const struct call_spec *spec, struct class_stats *s, struct open_call *c, __u64 caller_pc)
{
	t->fingerprint = t->expected = 0;
	if (take_stacks != STACKS_AUTO)
		return take_stacks == STACKS_OFF;
	if (!infer(ctx, t, spec, s, c, caller_pc))
		return 0;
	precede(t, c->event.stack_id);
	return 1;
}

/* Unwinds the stack of an outermost call (then this function does not return) or walks it by frame pointers. */
static __always_inline void take_stack(struct pt_regs *ctx, struct thread *t, struct class_stats *s, struct open_call *c, __u64 caller_pc)
{
	struct event *e = &c->event;
	__u64 id = (__u64)e->pid << 32 | e->tid;

	if (take_stacks >= STACKS_AUTO) {
		if (claim_record(id, e->start_ns))
			bpf_tail_call(ctx, &unwinders, UNWINDER_ENTRY);
		else
			s->inference.busy++;
	}
	walk_stack(ctx, t, e, caller_pc);
}

#endif
