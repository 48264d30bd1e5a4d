/* SPDX-License-Identifier: GPL-2.0 */
/* Accounts of context switches, see hostswitch.bpf.c. */
#ifndef GPUREC_HOSTSWITCH_H
#define GPUREC_HOSTSWITCH_H

#include <linux/types.h>

#define SWITCH_NO_REGISTERS (-2)

enum switch_limits {
	SWITCH_THREADS = 1024, /* most watched threads */
};

/* What a thread did, by which its time is summed up. */
enum switch_sum {
	SUM_RUNNING,
	SUM_RUNNABLE, /* in a run queue, also at the end of a wait */
	SUM_SLEEPING,
	SUM_UNINTERRUPTIBLE,
	SUM_COUNT,
};

/* What ended a wait. */
enum switch_ender {
	ENDER_UNKNOWN,   /* no wake-up was seen */
	ENDER_THREAD,    /* a thread */
	ENDER_SENDER,    /* an interrupt inside of a thread's call that sends: most often of the loopback device */
	ENDER_SIGNAL,    /* a thread that sent a signal */
	ENDER_INTERRUPT, /* a timer or a device */
	ENDER_KERNEL,    /* a thread of the kernel */
};

/* A wake-up: who ended a wait, and when. */
struct switch_waking {
	__u64 ns;          /* CLOCK_MONOTONIC. 0: no wake-up was seen */
	__u32 tid, tgid;   /* of the thread that ended the wait, or that an interrupt hit */
	__s32 call;        /* its system call, -1: none */
	__u32 ender;       /* ENDER_* */
	char name[16];
};

/*
 * The account of a watched thread. All times are CLOCK_MONOTONIC in ns. User space sets since_ns and
 * state; the program sets the others. Without on_ns and off_ns, the thread has not switched since
 * since_ns.
 */
struct switch_thread {
	__u64 since_ns;       /* when user space began to watch it */
	__u64 on_ns, off_ns;  /* when it came to a processor, or left it. One of them is 0 */
	__u64 sum_ns[SUM_COUNT];
	__u64 switches;       /* times that it has left a processor since since_ns */
	__u64 count;          /* the kernel's number of its switches, at the last one: identifies a wait */
	__u64 major_faults;   /* the kernel's number, at the last switch */
	__u64 run_delay_ns;   /* the kernel's time of it in run queues, when it left the processor */
	__u64 waited_ns;      /* length of its last wait */
	__u64 delay_ns;       /* the part of its last wait in run queues */
	__u32 state;          /* TASK_* of the kernel when it left the processor. 0: it was preempted */
	__u32 next_pid, next_tgid; /* the thread that took its processor at the last preemption, 0: the idle thread */
	__u32 has_ended;
	char next_name[16];
	__u64 record_running_ns; /* sum_ns[SUM_RUNNING] at its last record */
	__u64 cut_pc, cut_sp;    /* where it waited for a futex when a timer or a signal ended that wait. 0: not so */
	__u64 cut_running_ns;    /* sum_ns[SUM_RUNNING] then */
	struct switch_waking waking; /* the last one since it came to a processor */
};

/* A wait: the time from leaving a processor until coming to one. */
struct switch_wait {
	__u64 off_ns, on_ns;  /* CLOCK_MONOTONIC */
	__u64 delay_ns;       /* the part of it in run queues */
	__u64 count;          /* identifies the wait of a thread */
	__u64 pc, sp;         /* user registers of the thread */
	__u64 arguments[3];   /* of the system call */
	__s32 call;           /* number of the system call, -1: none, SWITCH_NO_REGISTERS: unknown */
	__u32 tid, tgid;
	__u32 cpu;            /* after the wait */
	__u32 state;          /* as in switch_thread */
	__u32 next_pid, next_tgid; /* as in switch_thread, valid if state is 0 */
	__u32 is_partial;     /* the wait began before off_ns, when user space did not watch the thread yet */
	char next_name[16];
	__u32 continues;        /* it continues the thread's last wait with a record that was no preemption */
	__u64 ran_ns;         /* on processors since its last record, or since it is watched */
	struct switch_waking waking; /* what ended the wait. Nothing if state is 0 */
};

/* Counters of one processor. */
struct switch_counters {
	__u64 switches;        /* of all threads */
	__u64 target_switches; /* of watched threads */
	__u64 timed, timed_ns; /* measured runs of the program for other threads, and their time */
	__u64 target_timed, target_timed_ns;
	__u64 waits;           /* of at least min_wait_ns: recorded or lost */
	__u64 lost;            /* waits that did not fit into the ring buffer */
	__u64 rebuilt;         /* waits whose end had no event: the scheduler's own times gave it */
	__u64 missed;          /* times of threads between two events that do not fit together: in no sum */
	__u64 left_out;        /* waits of at least first_wait_ns, but less than min_wait_ns */
	__u64 wakings;         /* of all threads */
	__u64 target_wakings;  /* of watched threads */
	__u64 waking_timed, waking_timed_ns; /* as timed, of wake-ups */
	__u64 target_waking_timed, target_waking_timed_ns;
	__u64 scratch;
};

#endif
