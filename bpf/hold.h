/* SPDX-License-Identifier: GPL-2.0 */
/* What the program that holds threads and user space tell each other. */
#ifndef GPUREC_HOLD_H
#define GPUREC_HOLD_H

enum hold_state {
	HOLD_ASKED = 1,
	HOLD_RELEASED = 2,
};

/* A thread waits to be released. */
struct hold_request {
	__u32 pid, tid;
	__u64 start_ns;
};

#endif
