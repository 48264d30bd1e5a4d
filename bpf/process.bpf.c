//go:build ignore

/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Follows the children of target processes. The fork tracepoint fires in the parent, so a
 * child is a target before its first instruction. User space receives a process_event.
 *
 * Needs kernel BTF (CONFIG_DEBUG_INFO_BTF, Linux 5.5). Without BTF, children are not followed;
 * all else works.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "event.h"

char _license[] SEC("license") = "GPL";

/* The members that are read. The running kernel's BTF supplies their offsets. */
struct task_struct {
	int pid;
	int tgid;
} __attribute__((preserve_access_index));

/* Declarations of cuda.bpf.c's maps, which user space substitutes at load. */
struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 64 << 20);
} events SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, __u32);
	__type(value, __u32);
} targets SEC(".maps");

/* The allocator state of a process is deleted at exec and when its pid is reused. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, __u32);
	__type(value, struct process_allocator);
} allocators SEC(".maps");

/* So are the calls of PyTorch's autograd engine: struct engine_process of autograd.h. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 16384);
	__type(key, __u32);
	__uint(value_size, 16);
} engine_processes SEC(".maps");

/* Process events that did not fit into the ring buffer. */
__u64 lost_process_events;

/* Sends a process_event to user space, and counts it as lost if it does not fit. */
static __always_inline void emit_process_event(enum process_change change, __u32 pid, __u32 parent_pid)
{
	struct process_event p = {
		.kind = RECORD_PROCESS, .change = change, .pid = pid, .parent_pid = parent_pid, .start_ns = bpf_ktime_get_ns(),
	};

	if (bpf_ringbuf_output(&events, &p, sizeof(p), BPF_RB_FORCE_WAKEUP))
		__sync_fetch_and_add(&lost_process_events, 1);
}

/* TP_PROTO(struct task_struct *parent, struct task_struct *child) */
SEC("tp_btf/sched_process_fork")
int process_fork(__u64 *ctx)
{
	struct task_struct *parent = (void *)ctx[0], *child = (void *)ctx[1];
	__u32 from = parent->tgid, to = child->tgid, epoch = 1;

	if (from == to) /* a new thread, not a process */
		return 0;
	if (!bpf_map_lookup_elem(&targets, &from)) {
		bpf_map_delete_elem(&targets, &to); /* a reused pid: the earlier target has exited */
		return 0;
	}
	bpf_map_delete_elem(&allocators, &to);
	bpf_map_delete_elem(&engine_processes, &to);
	if (!bpf_map_update_elem(&targets, &to, &epoch, BPF_ANY))
		emit_process_event(PROCESS_FORK, to, from);
	return 0;
}

/* TP_PROTO(struct task_struct *p, pid_t old_pid, struct linux_binprm *bprm) */
SEC("tp_btf/sched_process_exec")
int process_exec(__u64 *ctx)
{
	struct task_struct *task = (void *)ctx[0];
	__u32 tgid = task->tgid;

	if (!bpf_map_lookup_elem(&targets, &tgid))
		return 0;
	bpf_map_delete_elem(&allocators, &tgid);
	bpf_map_delete_elem(&engine_processes, &tgid);
	emit_process_event(PROCESS_EXEC, tgid, 0);
	return 0;
}
