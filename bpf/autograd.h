/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Probes on torch::autograd::Engine::execute, which loss.backward() calls. Its kernels and allocations
 * come from other threads, named pt_autograd_N, which run no Python. An event of such a thread gets
 * the number of the call of execute that it works for: that of the only thread that is inside. User
 * space knows the stack of each numbered call.
 */
#ifndef GPUREC_AUTOGRAD_H
#define GPUREC_AUTOGRAD_H

#include "state.h"
#include "regs.h"

/* The calls of execute in one process. */
struct engine_process {
	/*
	 * Threads inside of execute << ENGINE_COUNT_SHIFT, plus the sum of the numbers of their calls. With one
	 * thread inside, the sum is the number of its call. One word, so that both change at once.
	 */
	__u64 inside;
	__u64 after; /* numbers up to this one belong to an earlier program of the process */
};

#define ENGINE_COUNT_SHIFT 48

/* tgid -> its calls of execute. User space and process.bpf.c delete the entries of former programs. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 16384);
	__type(key, __u32);
	__type(value, struct engine_process);
} engine_processes SEC(".maps");

/* Calls of execute so far, in all processes: the number of the last one. */
__u64 engine_calls = 0;

/* Returns the calls of a process, which it inserts at the first one; 0: the map is full. */
static __always_inline struct engine_process *engine_of(__u32 pid)
{
	struct engine_process *p = bpf_map_lookup_elem(&engine_processes, &pid), first = {.after = engine_calls};

	if (p)
		return p;
	bpf_map_update_elem(&engine_processes, &pid, &first, BPF_NOEXIST);
	return bpf_map_lookup_elem(&engine_processes, &pid);
}

/* Gives a thread another role. Its call of execute does not count any more. */
static __always_inline void end_engine_call(struct thread *t, __u32 pid, enum engine_role role)
{
	struct engine_process *p;
	int counts = t->engine == ENGINE_CALLER;

	t->engine = role;
	if (!counts)
		return;
	p = bpf_map_lookup_elem(&engine_processes, &pid);
	if (p && t->engine_call > p->after)
		__sync_fetch_and_add(&p->inside, -((1ULL << ENGINE_COUNT_SHIFT) + t->engine_call));
}

/*
 * Returns 1 if an exception has left the thread's call of execute: the stack pointer is back in its caller, or
 * something else is where its return address was.
 */
static __always_inline int has_left_engine(const struct thread *t, __u64 sp)
{
	return sp >= t->engine_sp || !may_be_inside(t->engine_sp, t->engine_return);
}

/*
 * Notes that the thread is inside of execute, and returns the number of the call, 0: none. A call on an
 * autograd thread has none (checkpoints): the outer call counts. If a call seems to be inside of another one of
 * its thread, neither counts: an exception may have left the other one without a trace.
 */
static __always_inline __u32 join_engine(struct thread *t, __u32 pid, __u64 sp, __u64 caller_pc)
{
	struct engine_process *p;

	if (t->engine == ENGINE_THREAD)
		return 0;
	if (t->engine != ENGINE_NONE && !has_left_engine(t, sp)) {
		end_engine_call(t, pid, ENGINE_UNSURE);
		return 0;
	}
	end_engine_call(t, pid, ENGINE_NONE);
	p = engine_of(pid);
	if (!p)
		return 0;
	t->engine = ENGINE_CALLER;
	t->engine_sp = sp;
	t->engine_return = caller_pc;
	t->engine_call = (__u32)(__sync_fetch_and_add(&engine_calls, 1) + 1);
	__sync_fetch_and_add(&p->inside, (1ULL << ENGINE_COUNT_SHIFT) + t->engine_call);
	return t->engine_call;
}

/* Ends the thread's call of execute if a return instruction with this stack pointer is its end. Returns 1 if so. */
static __always_inline int return_from_engine(struct thread *t, __u32 pid, __u64 sp)
{
	if (t->engine == ENGINE_NONE || t->engine == ENGINE_THREAD || t->engine_sp != sp)
		return 0;
	end_engine_call(t, pid, ENGINE_NONE);
	return 1;
}

/* Returns the number of the call of execute for which an autograd thread works; 0: none, or several. */
static __always_inline __u32 working_for(__u32 pid)
{
	struct engine_process *p = bpf_map_lookup_elem(&engine_processes, &pid);
	__u64 inside = p ? *(volatile __u64 *)&p->inside : 0;

	return inside >> ENGINE_COUNT_SHIFT == 1 ? (__u32)inside : 0;
}

/* Returns 1 for classes of calls whose events say for which call of execute they work. */
static __always_inline int has_engine_call(__u32 class)
{
	return class == CLASS_MEMORY || class == CLASS_LAUNCH || class == CLASS_ALLOCATOR;
}

/*
 * Returns the number of the call of execute for which the thread's current call works, or 0. Call it at each
 * call of a thread with a role: a thread that is back in its caller has left execute by an exception.
 */
GLOBAL_FUNC __u32 engine_call_of(struct thread *t, __u32 pid, __u32 class, __u64 sp)
{
	if (!t)
		return 0;
	if (t->engine == ENGINE_THREAD)
		return has_engine_call(class) ? working_for(pid) : 0;
	if (has_left_engine(t, sp))
		end_engine_call(t, pid, ENGINE_NONE);
	return 0;
}

#endif
