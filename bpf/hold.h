/* SPDX-License-Identifier: GPL-2.0 */
/* The records and states that the programs of hold.bpf.c share with user space. */
#ifndef GPUREC_HOLD_H
#define GPUREC_HOLD_H

enum hold_state {
	HOLD_ASKED = 1,
	HOLD_RELEASED = 2, /* the thread may run */
	HOLD_SEIZED = 3,   /* the thread may leave the kernel: it stops there for its tracer */
};

/* What a thread waits for. */
enum hold_reason {
	HOLD_FOR_PROBES = 1, /* it has loaded a library that is probed */
	HOLD_FOR_TABLES = 2, /* it is about to call CUDA, or loads code after that: stacks need unwind tables */
	HOLD_IN_KERNEL = 3,  /* like HOLD_FOR_TABLES, but the BPF program itself waits until the release */
};

/* A thread waits to be released. */
struct hold_request {
	__u32 pid, tid;
	__u64 start_ns;
	__u32 reason, unused;
};

#endif
