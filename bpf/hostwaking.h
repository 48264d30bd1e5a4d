/* SPDX-License-Identifier: GPL-2.0 */
/* Who wakes a thread, for hostswitch.bpf.c: another thread, a signal, or an interrupt. */
#ifndef GPUREC_HOSTWAKING_H
#define GPUREC_HOSTWAKING_H

#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "hostswitch.h"
#include "hosttask.h"

#define PF_KTHREAD 0x00200000

static __always_inline int is_sending(__s32 call)
{
	return call == CALL_WRITE || call == CALL_WRITEV || call == CALL_SENDTO || call == CALL_SENDMSG ||
	       call == CALL_SENDMMSG;
}

static __always_inline int is_signaling(__s32 call)
{
	return call == CALL_KILL || call == CALL_TKILL || call == CALL_TGKILL || call == CALL_RT_SIGQUEUEINFO ||
	       call == CALL_RT_TGSIGQUEUEINFO || call == CALL_PIDFD_SEND_SIGNAL;
}

/* read_call returns the number of the system call that a thread is in, -1: none. */
static __always_inline __s32 read_call(struct task_struct *task)
{
	struct user_regs *regs = (void *)bpf_task_pt_regs(task);
#if defined(__TARGET_ARCH_x86)
	long call = -1;

	bpf_probe_read_kernel(&call, sizeof(call), &regs->orig_ax);
#else
	int call = -1;

	bpf_probe_read_kernel(&call, sizeof(call), &regs->call);
#endif
	return call;
}

/*
 * is_interrupted reports whether a program with the context ctx runs in an interrupt that hit the thread, and not for
 * the thread itself.
 *
 * x86 keeps the count that tells it in a variable of the processor, which BPF finds in few kernels. But interrupts of
 * the kernel and all softirqs run on another stack than the thread's, and ctx lies on the stack. Stacks have 16 KiB,
 * but 32 KiB in kernels with KASAN. An interrupt of user code leaves -1 as the number of the system call.
 */
static __always_inline int is_interrupted(struct switch_counters *c, void *ctx, struct task_struct *current)
{
#if defined(__TARGET_ARCH_x86)
	enum { STACK_SIZE = 16 << 10 };
	volatile __u64 *at = &c->scratch; /* the verifier forbids arithmetic on ctx itself */

	*at = (__u64)ctx;
	return *at - (__u64)current->stack >= STACK_SIZE;
#else
	enum { SERVES_SOFTIRQ = 0x100, HARDIRQ_OR_NMI = 0xff0000 };

	return current->thread_info.preempt.count & (SERVES_SOFTIRQ | HARDIRQ_OR_NMI);
#endif
}

/* find_ender finds out who wakes a thread. */
static __always_inline void find_ender(struct switch_counters *c, void *ctx, struct task_struct *woken,
				       struct switch_waking *w)
{
	struct task_struct *current = (void *)bpf_get_current_task_btf();

	w->tid = current->pid;
	w->tgid = current->tgid;
	w->call = -1;
	w->ender = ENDER_INTERRUPT;
	if (!current->pid || current->pid == woken->pid)
		return;
	w->call = read_call(current);
	__builtin_memcpy(w->name, current->comm, sizeof(w->name));
	if (is_interrupted(c, ctx, current)) {
		if (is_sending(w->call))
			w->ender = ENDER_SENDER;
	} else if (current->flags & PF_KTHREAD) {
		w->ender = ENDER_KERNEL;
	} else if (w->call >= 0) {
		w->ender = is_signaling(w->call) ? ENDER_SIGNAL : ENDER_THREAD;
	}
}

#endif
