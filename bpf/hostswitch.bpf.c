//go:build ignore

/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Accounts the time of watched threads by state, and records their long waits and who ended them. on_switch runs at
 * each context switch of the machine, and on_waking at each wake-up. They do little for other threads: one lookup for
 * each.
 *
 * sched_waking runs in the thread that ends the wait, and holds a lock of the woken thread. So wake-ups of one
 * thread do not overlap, and plain stores to its account are enough.
 *
 * It reads the registers of a thread when the thread comes back: they are those of its entry into the
 * kernel, and do not change while it waits.
 *
 * Needs kernel BTF and Linux 5.15 (bpf_task_pt_regs); no tracefs and no kprobes.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include "hostswitch.h"
#include "hosttask.h"
#include "hostwaking.h"

char _license[] SEC("license") = "GPL";

/* Keeps the types in BTF, from which bpf2go makes Go's. */
const struct switch_wait *type_of_wait __attribute__((unused));
const enum switch_limits *type_of_limits __attribute__((unused));
const enum switch_sum *type_of_sum __attribute__((unused));
const enum switch_ender *type_of_ender __attribute__((unused));

#define STATE_INTERRUPTIBLE 0x01
#define STATE_UNINTERRUPTIBLE 0x02
#define STATE_DEAD 0x80

/* One of so many runs is timed: reading the clock costs 25 ns. */
#define TIMED_ONE_IN 64

/*
 * A thread that ran for less than so long, and waits for a futex in the same place again, continues the wait that a
 * timer or a signal has cut. A part of such a wait has a record however short it is: it can say who ended the wait.
 */
#define CUT_NS 200000

/* The tracepoint has the state of the leaving thread as its fourth argument, since Linux 5.18. */
const volatile __u8 has_state_argument = 1;

/* The shortest wait with a record, ns. User space raises it if there are too many. */
volatile __u64 min_wait_ns = 1000000;
/* The value of min_wait_ns at the start. */
const volatile __u64 first_wait_ns = 1000000;

/* CLOCK_MONOTONIC minus the scheduler's clock at the latest switch of a watched thread, ns. 0: unknown. */
__u64 clock_offset_ns = 0;

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, SWITCH_THREADS);
	__type(key, __u32);
	__type(value, struct switch_thread);
} watched SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct switch_counters);
} counters SEC(".maps");

/* User space reads it every 100 ms, so no record wakes it up. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 2 << 20);
} waits SEC(".maps");

static __always_inline __u64 read_run_delay(struct task_struct *t)
{
	return bpf_core_field_exists(t->sched_info.run_delay) ? t->sched_info.run_delay : 0;
}

/* move_to_runnable moves time from the sum of a state to the time in run queues; back if ns is negative. */
static __always_inline void move_to_runnable(struct switch_thread *t, __s64 ns)
{
	t->sum_ns[SUM_RUNNABLE] += ns;
	if (t->state & STATE_UNINTERRUPTIBLE)
		t->sum_ns[SUM_UNINTERRUPTIBLE] -= ns;
	else
		t->sum_ns[SUM_SLEEPING] -= ns;
}

/*
 * estimate_delay returns how long a thread that comes to a processor was in run queues since its wait
 * ended. The kernel adds it to run_delay only later. The error is the drift of the two clocks since
 * clock_offset_ns was set: below 0.1 % of the time since then.
 */
static __always_inline __u64 estimate_delay(struct task_struct *next, __u64 now)
{
	__u64 queued, offset = clock_offset_ns;
	__s64 delay;

	if (!bpf_core_field_exists(next->sched_info.last_queued) || !offset)
		return 0;
	queued = next->sched_info.last_queued;
	if (!queued)
		return 0;
	delay = now - offset - queued;
	return delay < 0 ? 0 : delay;
}

/*
 * queued_ns returns how long a thread that comes to a processor was in run queues since its wait ended: since its
 * wake-up. The thread can have been woken before it left its processor.
 */
static __always_inline __u64 queued_ns(struct switch_thread *t, struct task_struct *next, __u64 now)
{
	__u64 off_ns = t->off_ns ? t->off_ns : t->since_ns;

	if (!t->waking.ns)
		return estimate_delay(next, now);
	return now - (t->waking.ns > off_ns ? t->waking.ns : off_ns);
}

/* user_place is where a thread entered the kernel, and its system call: call is -1 if it is in none. */
struct user_place {
	__u64 pc, sp, arguments[3];
	__s32 call;
};

/* read_place reads where a thread entered the kernel. */
static __always_inline void read_place(struct task_struct *task, struct user_place *p)
{
	struct user_regs regs = {};

	bpf_probe_read_kernel(&regs, sizeof(regs), (void *)bpf_task_pt_regs(task));
#if defined(__TARGET_ARCH_x86)
	p->pc = regs.ip;
	p->call = regs.orig_ax;
	p->arguments[0] = regs.di;
	p->arguments[1] = regs.si;
	p->arguments[2] = regs.dx;
#else
	p->pc = regs.pc;
	p->call = regs.call;
	p->arguments[0] = regs.orig_x0;
	p->arguments[1] = regs.regs[1];
	p->arguments[2] = regs.regs[2];
#endif
	p->sp = regs.sp;
}

/* is_recorded reports whether a wait of waited ns at a place has a record. continues is as in switch_wait. */
static __always_inline int is_recorded(struct switch_thread *t, struct user_place *p, __u64 waited, int *continues)
{
	*continues = t->cut_pc && t->state && p->pc == t->cut_pc && p->sp == t->cut_sp &&
		   t->sum_ns[SUM_RUNNING] - t->cut_running_ns < CUT_NS;
	return *continues || waited >= min_wait_ns;
}

/* note_cut notes whether the wait that has now ended can continue. Parts that are short end it. */
static __always_inline void note_cut(struct switch_thread *t, struct user_place *p, __u64 waited)
{
	if (!t->state)
		return;
	t->cut_pc = 0;
	if (p->call != CALL_FUTEX || waited < min_wait_ns ||
	    (t->waking.ender != ENDER_INTERRUPT && t->waking.ender != ENDER_SIGNAL))
		return;
	t->cut_pc = p->pc;
	t->cut_sp = p->sp;
	t->cut_running_ns = t->sum_ns[SUM_RUNNING];
}

/* record_wait sends a wait to user space. */
static __always_inline void record_wait(struct switch_counters *c, struct switch_thread *t, struct task_struct *task,
					__u64 on_ns, struct user_place *p, int continues)
{
	struct switch_wait *w = bpf_ringbuf_reserve(&waits, sizeof(*w), 0);
	__u64 ran_ns = t->sum_ns[SUM_RUNNING] - t->record_running_ns;

	c->waits++;
	t->record_running_ns = t->sum_ns[SUM_RUNNING];
	if (!w) {
		c->lost++;
		return;
	}
	w->is_partial = !t->off_ns;
	w->off_ns = t->off_ns ? t->off_ns : t->since_ns;
	w->on_ns = on_ns;
	w->delay_ns = t->delay_ns;
	w->count = t->off_ns ? t->count : task->nvcsw + task->nivcsw;
	w->tid = task->pid;
	w->tgid = task->tgid;
	w->cpu = bpf_get_smp_processor_id();
	w->state = t->state;
	w->next_pid = t->next_pid;
	w->next_tgid = t->next_tgid;
	__builtin_memcpy(w->next_name, t->next_name, sizeof(w->next_name));
	w->continues = continues;
	w->ran_ns = ran_ns;
	w->waking = t->waking;
	w->pc = p->pc;
	w->sp = p->sp;
	__builtin_memcpy(w->arguments, p->arguments, sizeof(w->arguments));
	w->call = p->call;
	bpf_ringbuf_submit(w, BPF_RB_NO_WAKEUP);
}

/* end_wait accounts a wait that ends at on_ns, with delay ns in run queues at its end. */
static __always_inline void end_wait(struct switch_counters *c, struct switch_thread *t, struct task_struct *task,
				     __u64 on_ns, __u64 delay, int is_rebuilt)
{
	__u64 waited = on_ns - (t->off_ns ? t->off_ns : t->since_ns);
	struct user_place place = {.call = SWITCH_NO_REGISTERS};
	int continues = 0;

	if (!t->state || delay > waited)
		delay = waited;
	t->waited_ns = waited;
	t->delay_ns = delay;
	t->sum_ns[SUM_RUNNABLE] += delay;
	if (t->state & STATE_UNINTERRUPTIBLE)
		t->sum_ns[SUM_UNINTERRUPTIBLE] += waited - delay;
	else
		t->sum_ns[SUM_SLEEPING] += waited - delay; /* also threads that a signal or a debugger has stopped */
	if (!is_rebuilt && (waited >= min_wait_ns || t->cut_pc))
		read_place(task, &place);
	if (is_recorded(t, &place, waited, &continues))
		record_wait(c, t, task, on_ns, &place, continues);
	else if (waited >= first_wait_ns)
		c->left_out++;
	note_cut(t, &place, waited);
	t->on_ns = on_ns;
	t->off_ns = 0;
	t->waking.ns = t->waking.ender = 0;
}

/*
 * rebuild_arrival accounts a wait whose end had no event, when the thread leaves its processor again. Some
 * kernels have no event for a few switches. The scheduler's own time of the arrival is as exact.
 */
static __always_inline void rebuild_arrival(struct switch_counters *c, struct switch_thread *t, struct task_struct *task,
					    __u64 now)
{
	__u64 on_ns = 0;

	if (bpf_core_field_exists(task->sched_info.last_arrival) && clock_offset_ns)
		on_ns = task->sched_info.last_arrival + clock_offset_ns;
	if (on_ns <= t->off_ns || on_ns > now) {
		c->missed++;
		t->on_ns = now;
		t->off_ns = t->waited_ns = t->delay_ns = 0;
		return;
	}
	c->rebuilt++;
	end_wait(c, t, task, on_ns, read_run_delay(task) - t->run_delay_ns, 1);
}

/* leave accounts a thread that leaves its processor. */
static __always_inline void leave(struct switch_counters *c, struct switch_thread *t, struct task_struct *prev,
				  struct task_struct *next, __u32 state, __u64 now)
{
	__u64 delay = read_run_delay(prev), count = prev->nvcsw + prev->nivcsw;

	if (t->has_ended)
		return;
	if (t->off_ns)
		rebuild_arrival(c, t, prev, now);
	else if (t->on_ns && bpf_core_field_exists(prev->sched_info.last_arrival))
		clock_offset_ns = t->on_ns - prev->sched_info.last_arrival;
	t->sum_ns[SUM_RUNNING] += now - (t->on_ns ? t->on_ns : t->since_ns);
	if (t->state && t->run_delay_ns) {
		__u64 exact = delay - t->run_delay_ns;

		move_to_runnable(t, (exact < t->waited_ns ? exact : t->waited_ns) - t->delay_ns);
	}
	t->on_ns = 0;
	t->off_ns = now;
	t->run_delay_ns = delay;
	t->state = state;
	t->switches += t->count ? count - t->count : 1; /* also those without an event */
	t->count = count;
	t->major_faults = prev->maj_flt;
	if (!state) {
		t->next_pid = next->pid;
		t->next_tgid = next->tgid;
		__builtin_memcpy(t->next_name, next->comm, sizeof(t->next_name));
	}
	if (state & STATE_DEAD)
		t->has_ended = 1;
}

/* arrive accounts a thread that comes to a processor. */
static __always_inline void arrive(struct switch_counters *c, struct switch_thread *t, struct task_struct *next, __u64 now)
{
	if (t->has_ended)
		return;
	if (t->on_ns) {
		c->missed++; /* the begin of the wait had no event */
		t->on_ns = now;
		t->waited_ns = t->delay_ns = 0;
		return;
	}
	end_wait(c, t, next, now, queued_ns(t, next, now), 0);
}

/* TP_PROTO(bool preempt, struct task_struct *prev, struct task_struct *next, unsigned int prev_state) */
SEC("tp_btf/sched_switch")
int on_switch(__u64 *ctx)
{
	struct task_struct *prev = (void *)ctx[1], *next = (void *)ctx[2];
	struct switch_thread *from, *to;
	__u32 zero = 0, out = prev->pid, in = next->pid, state = 0;
	struct switch_counters *c = bpf_map_lookup_elem(&counters, &zero);
	__u64 begin = 0, now = 0;

	if (!c)
		return 0;
	if (!(c->switches++ % TIMED_ONE_IN))
		begin = bpf_ktime_get_ns();
	/* 0 is the idle thread. */
	from = out ? bpf_map_lookup_elem(&watched, &out) : 0;
	to = in ? bpf_map_lookup_elem(&watched, &in) : 0;
	if (from) {
		/* A preempted thread is runnable, whatever state it has set. */
		if (!(ctx[0] & 1))
			state = has_state_argument ? (__u32)ctx[3] : prev->__state;
		now = bpf_ktime_get_ns();
		leave(c, from, prev, next, state, now);
	}
	if (to) {
		if (!now)
			now = bpf_ktime_get_ns();
		arrive(c, to, next, now);
	}
	if (now)
		c->target_switches++;
	if (begin && now) {
		c->target_timed++;
		c->target_timed_ns += bpf_ktime_get_ns() - begin;
	} else if (begin) {
		c->timed++;
		c->timed_ns += bpf_ktime_get_ns() - begin;
	}
	return 0;
}

/* TP_PROTO(struct task_struct *p) */
SEC("tp_btf/sched_waking")
int on_waking(__u64 *ctx)
{
	struct task_struct *woken = (void *)ctx[0];
	struct switch_thread *t;
	__u32 zero = 0, tid = woken->pid;
	struct switch_counters *c = bpf_map_lookup_elem(&counters, &zero);
	__u64 begin = 0;

	if (!c)
		return 0;
	if (!(c->wakings++ % TIMED_ONE_IN))
		begin = bpf_ktime_get_ns();
	t = bpf_map_lookup_elem(&watched, &tid);
	if (t) {
		/* The last wake-up before it comes to a processor counts: it may be woken before it waits. */
		c->target_wakings++;
		find_ender(c, ctx, woken, &t->waking);
		t->waking.ns = bpf_ktime_get_ns();
	}
	if (begin && t) {
		c->target_waking_timed++;
		c->target_waking_timed_ns += bpf_ktime_get_ns() - begin;
	} else if (begin) {
		c->waking_timed++;
		c->waking_timed_ns += bpf_ktime_get_ns() - begin;
	}
	return 0;
}
