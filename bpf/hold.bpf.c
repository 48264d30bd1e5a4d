//go:build ignore

/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Holds threads of targets until probes and unwind tables are in place for the code that they have
 * loaded. One program is on the dynamic loader's _dl_debug_state: the loader calls it after it has
 * mapped libraries, and before it runs their constructors. Another program is on the functions of
 * libcuda that programs call first.
 *
 * A program waits in a loop. The loop ends when user space releases the thread, after max_hold_ns,
 * or when user space has not updated alive_ns for patience_ns. So a recorder that was killed holds
 * no thread.
 *
 * Needs kernel BTF and Linux 6.0: sleepable uprobes, bpf_loop, bpf_copy_from_user_task.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "hold.h"
#include "regs.h"

char _license[] SEC("license") = "GPL";

/* Keeps the types in BTF, from which bpf2go makes Go's. */
const struct hold_request *type_of_request __attribute__((unused));
const enum hold_state *type_of_hold __attribute__((unused));
const enum hold_reason *type_of_reason __attribute__((unused));

#define NS_PER_MS 1000000ULL

/* Only what is read; the offsets come from the running kernel's BTF. */
struct task_struct {
	int pid;
	int tgid;
} __attribute__((preserve_access_index));

/* User space replaces this map by the map of cuda.bpf.c. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, __u32);
	__type(value, __u32);
} targets SEC(".maps");

/* State of the libraries of a process. */
struct loaded {
	__u64 last;       /* the last entry of its list of libraries, a struct link_map */
	__u32 calls_cuda; /* it has called libcuda: from then on, all code that it loads can be in a stack */
	__u32 unused;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, __u32);
	__type(value, struct loaded);
} processes SEC(".maps");

/* Thread ID -> enum hold_state. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__type(key, __u32);
	__type(value, __u32);
} holds SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 16);
} hold_requests SEC(".maps");

/* User space writes the current CLOCK_MONOTONIC time here, every 20 ms. */
volatile __u64 alive_ns = 0;
/* No thread is held if alive_ns is older than this. */
volatile __u64 patience_ns = 100 * NS_PER_MS;
/* The longest hold. */
volatile __u64 max_hold_ns = 20000 * NS_PER_MS;
/* Threads that ran without a release by user space. */
__u64 unreleased = 0;

/* The list that the dynamic loader keeps for debuggers (link.h). */
struct link_map {
	__u64 address, name, dynamic, next, previous;
};

struct r_debug {
	__u64 version, first, breakpoint;
	__u32 state;
};

enum list_state {
	LIBRARIES_CONSISTENT, /* RT_CONSISTENT: the list may be read */
	LIBRARIES_ADD,        /* RT_ADD: the loader is about to add libraries */
	LIBRARIES_DELETE,     /* RT_DELETE: the loader is about to remove libraries */
};

/* is_probed reports whether gpurec probes libraries of this file name: libcuda.so* and libc10*. */
static __always_inline int is_probed(const char *n)
{
	if (n[0] != 'l' || n[1] != 'i' || n[2] != 'b' || n[3] != 'c')
		return 0;
	if (n[4] == '1')
		return n[5] == '0';
	return n[4] == 'u' && n[5] == 'd' && n[6] == 'a' && n[7] == '.' && n[8] == 's';
}

struct walk {
	__u64 next, last;
	int is_new, is_probed;
};

/* Maximum length of a path, and of the end of it that is compared. */
#define MAX_PATH 256
#define MAX_NAME 32

/* walk_step reads one entry of the list. It returns 1, which ends the loop, after the last entry. */
static long walk_step(__u32 i, struct walk *w)
{
	struct link_map map;
	char path[MAX_PATH], name[MAX_NAME + 16] = {};
	long size;
	__u32 k;

	if (!w->next || bpf_probe_read_user(&map, sizeof(map), (void *)w->next))
		return 1;
	w->last = w->next;
	w->next = map.next;
	w->is_new = 1;
	size = bpf_probe_read_user_str(path, sizeof(path), (void *)map.name);
	if (size < 0)
		return 0;
	if (size > MAX_NAME)
		map.name += size - MAX_NAME;
	bpf_probe_read_user_str(name, MAX_NAME, (void *)map.name);
	for (k = 0; k < MAX_NAME - 10; k++)
		if (name[k] == '/' && is_probed(name + k + 1))
			w->is_probed = 1;
	return 0;
}

/* TP_PROTO(struct task_struct *p, pid_t old_pid, struct linux_binprm *bprm) */
SEC("tp_btf/sched_process_exec")
int forget_libraries(__u64 *ctx)
{
	__u32 tgid = ((struct task_struct *)ctx[0])->tgid;

	bpf_map_delete_elem(&processes, &tgid);
	return 0;
}

struct wait {
	__u32 tid;
	__u64 sp;
	__u64 until_ns;
	int released;
};

/* wait_step returns 1, which ends the loop, if the hold has ended. */
static long wait_step(__u32 i, struct wait *w)
{
	__u32 *state = bpf_map_lookup_elem(&holds, &w->tid);
	__u64 now = bpf_ktime_get_ns();
	char byte;

	if (!state || *state == HOLD_RELEASED) {
		w->released = 1;
		return 1;
	}
	if (now > w->until_ns || now > alive_ns + patience_ns)
		return 1;
	/*
	 * The helper finds the page of the stack for another task's access, and calls cond_resched
	 * for that: in a kernel without preemption, other threads would not run before the loop ends.
	 */
	bpf_copy_from_user_task(&byte, sizeof(byte), (void *)w->sp, bpf_get_current_task_btf(), 0);
	return 0;
}

/*
 * reason_to_hold returns why a process must not run on, 0 if it may: it has new libraries, and one
 * of them is to be probed, or it calls CUDA and any of them can be in a stack. at is the address
 * of the loader's struct r_debug.
 */
static __always_inline enum hold_reason reason_to_hold(__u32 pid, __u64 at)
{
	struct loaded now = {}, *known = bpf_map_lookup_elem(&processes, &pid);
	struct r_debug list;
	struct walk w = {};

	if (bpf_probe_read_user(&list, sizeof(list), (void *)at))
		return 0;
	if (list.state == LIBRARIES_DELETE && known)
		known->last = 0;
	if (list.state != LIBRARIES_CONSISTENT)
		return 0;
	w.next = list.first;
	if (known && known->last) {
		struct link_map last;

		if (!bpf_probe_read_user(&last, sizeof(last), (void *)known->last)) {
			w.last = known->last;
			w.next = last.next;
		}
	}
	bpf_loop(4096, walk_step, &w, 0);
	now.last = w.last;
	now.calls_cuda = known && known->calls_cuda;
	bpf_map_update_elem(&processes, &pid, &now, BPF_ANY);
	if (w.is_new && now.calls_cuda)
		return HOLD_FOR_TABLES;
	return w.is_probed ? HOLD_FOR_PROBES : 0;
}

/* hold waits until user space releases the thread. */
static __always_inline int hold(enum hold_reason reason, __u64 sp)
{
	__u64 pid_tgid = bpf_get_current_pid_tgid();
	struct hold_request r = {.pid = pid_tgid >> 32, .tid = (__u32)pid_tgid, .start_ns = bpf_ktime_get_ns(), .reason = reason};
	struct wait w = {.tid = r.tid, .sp = sp, .until_ns = r.start_ns + max_hold_ns};
	__u32 state = HOLD_ASKED;

	if (r.start_ns > alive_ns + patience_ns ||
	    bpf_map_update_elem(&holds, &w.tid, &state, BPF_ANY) ||
	    bpf_ringbuf_output(&hold_requests, &r, sizeof(r), BPF_RB_FORCE_WAKEUP)) {
		__sync_fetch_and_add(&unreleased, 1);
		return 0;
	}
	bpf_loop(1 << 23, wait_step, &w, 0);
	if (!w.released)
		__sync_fetch_and_add(&unreleased, 1);
	bpf_map_delete_elem(&holds, &w.tid);
	return 0;
}

/*
 * Runs on _dl_debug_state, which the dynamic loader calls before and after it changes its list of
 * libraries. The attach cookie is the distance from the function to the loader's struct r_debug.
 */
SEC("uprobe.s")
int libraries_changed(struct pt_regs *ctx)
{
	__u32 pid = bpf_get_current_pid_tgid() >> 32;
	enum hold_reason reason;

	if (!bpf_map_lookup_elem(&targets, &pid))
		return 0;
	reason = reason_to_hold(pid, bpf_get_func_ip(ctx) + bpf_get_attach_cookie(ctx));
	return reason ? hold(reason, REG_SP(ctx)) : 0;
}

/* Runs on the functions of libcuda that programs call first. */
SEC("uprobe.s")
int cuda_called(struct pt_regs *ctx)
{
	__u32 pid = bpf_get_current_pid_tgid() >> 32;
	struct loaded first = {.calls_cuda = 1}, *known = bpf_map_lookup_elem(&processes, &pid);

	if ((known && known->calls_cuda) || !bpf_map_lookup_elem(&targets, &pid))
		return 0;
	if (known)
		known->calls_cuda = 1;
	else
		bpf_map_update_elem(&processes, &pid, &first, BPF_ANY);
	return hold(HOLD_FOR_TABLES, REG_SP(ctx));
}
