/* SPDX-License-Identifier: GPL-2.0 */
/* Snapshots of threads, see hoststack.bpf.c. */
#ifndef GPUREC_HOSTSTACK_H
#define GPUREC_HOSTSTACK_H

#include <linux/types.h>

enum host_limits {
	HOST_KERNEL_FRAMES = 32,
	HOST_RETURNS = 64,        /* the kernel's limit of return probes in flight, for one thread */
	HOST_REGS = 34,           /* words of user registers: 21 on x86-64, 34 on arm64 */
	HOST_PAGE = 4096,
	HOST_STACK_BYTES = 16384, /* bytes of user stack in a snapshot: whole pages */
	HOST_PYTHON_FRAMES = 128,
	HOST_PYTHON_BYTES = 80,   /* bytes of a Python frame that are copied */
};

/* A return address on the user stack that a return probe has replaced. */
struct host_return {
	__u64 slot;    /* its address on the stack */
	__u64 address; /* the true return address */
};

/*
 * The state of a thread. The counts of context switches are read first and last: if they are equal,
 * and the thread was on no processor, all between them belongs to one moment.
 */
struct host_snapshot {
	__u64 voluntary_before, involuntary_before;
	__u64 voluntary_after, involuntary_after;
	__u64 start_ns;       /* start of the thread; identifies it together with tid */
	__u64 run_ns;         /* CPU time */
	__u64 run_delay_ns;   /* time in run queues */
	__u64 off_ns;         /* time since the thread last came to a processor; of sample_always: CLOCK_MONOTONIC */
	__u64 thread_pointer; /* pthread_self() with glibc on x86-64 */
	__u32 tid, tgid;      /* in the first PID namespace */
	__u32 ns_tid, ns_tgid; /* in the thread's own PID namespace */
	__u32 state;          /* TASK_* of the kernel */
	__u32 flags;          /* PF_* of the kernel */
	__u32 on_cpu_before, on_cpu_after;
	__u32 cpu;
	__u32 in_iowait;
	__s32 kernel_bytes;   /* length of kernel[], < 0: an error */
	__u32 return_count;
	__u32 copied;         /* bytes of stack that follow, from the start of the page of the stack pointer */
	__u32 python_count;   /* Python frames that follow, only for running threads */
	__u64 python_next;    /* address of the next Python frame, 0: there is none */
	char name[16];
	__u64 regs[HOST_REGS];
	__u64 kernel[HOST_KERNEL_FRAMES];
	struct host_return returns[HOST_RETURNS];
};

/* Snapshot of a thread on a processor. */
struct host_running {
	struct host_snapshot thread;
	char stack[HOST_STACK_BYTES];
	char python[HOST_PYTHON_FRAMES][HOST_PYTHON_BYTES];
};

/* Where the Python frames of a thread begin. */
struct host_python {
	__u64 thread_state;  /* address of its PyThreadState */
	__u32 frame;         /* offset of the frame in it, or of the cframe */
	__u32 cframe_frame;  /* offset of the frame in the cframe */
	__u32 has_cframe;
	__u32 previous;      /* offset of the previous frame in a frame */
};

/* The text of one kernel address. */
struct host_symbol {
	__u64 address;
	char name[120]; /* "function" or "function [module]" */
};

#endif
