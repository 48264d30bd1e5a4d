/* SPDX-License-Identifier: GPL-2.0 */
/* What hostswitch.bpf.c reads of the kernel's tasks, and numbers of system calls. */
#ifndef GPUREC_HOSTTASK_H
#define GPUREC_HOSTTASK_H

#include <linux/types.h>

/* The members that are read. The running kernel's BTF supplies their offsets. */
#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct sched_info {
	unsigned long long run_delay, last_arrival, last_queued;
};

#if defined(__TARGET_ARCH_arm64)
struct thread_info {
	struct {
		__u32 count;
	} preempt;
};
#endif

struct task_struct {
#if defined(__TARGET_ARCH_arm64)
	struct thread_info thread_info;
#endif
	unsigned int __state, flags;
	void *stack;
	int pid, tgid;
	unsigned long nvcsw, nivcsw, maj_flt;
	struct sched_info sched_info;
	char comm[16];
};
#pragma clang attribute pop

/* User registers at the entry into the kernel. */
#if defined(__TARGET_ARCH_x86)
struct user_regs {
	unsigned long r15, r14, r13, r12, bp, bx, r11, r10, r9, r8, ax, cx, dx, si, di, orig_ax, ip, cs, flags, sp;
};
#elif defined(__TARGET_ARCH_arm64)
struct user_regs {
	unsigned long regs[31], sp, pc, pstate, orig_x0;
	int call;
};
#else
#error "no register layout for this architecture"
#endif

/* Numbers of system calls. */
#if defined(__TARGET_ARCH_x86)
enum calls {
	CALL_WRITE = 1,
	CALL_WRITEV = 20,
	CALL_SENDTO = 44,
	CALL_SENDMSG = 46,
	CALL_KILL = 62,
	CALL_RT_SIGQUEUEINFO = 129,
	CALL_TKILL = 200,
	CALL_FUTEX = 202,
	CALL_TGKILL = 234,
	CALL_RT_TGSIGQUEUEINFO = 297,
	CALL_SENDMMSG = 307,
	CALL_PIDFD_SEND_SIGNAL = 424,
};
#else
enum calls {
	CALL_WRITE = 64,
	CALL_WRITEV = 66,
	CALL_FUTEX = 98,
	CALL_KILL = 129,
	CALL_TKILL = 130,
	CALL_TGKILL = 131,
	CALL_RT_SIGQUEUEINFO = 138,
	CALL_SENDTO = 206,
	CALL_SENDMSG = 211,
	CALL_RT_TGSIGQUEUEINFO = 240,
	CALL_SENDMMSG = 269,
	CALL_PIDFD_SEND_SIGNAL = 424,
};
#endif

#endif
