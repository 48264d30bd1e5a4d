//go:build ignore

/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Takes snapshots of the threads of a process, without stopping them. Iterators over tasks see
 * threads that wait: their user registers and their user stack do not change until they run again. A
 * CPU-clock event sees a thread that runs: its program interrupts the thread.
 *
 * No program changes the thread or its memory. bpf_copy_from_user_task may wait for a page of the
 * thread, as any read of its memory does: user space has a deadline.
 *
 * Needs kernel BTF and Linux 5.15: bpf_task_pt_regs. read_stacks needs Linux 5.18.
 */
#include <stdbool.h>
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include <bpf/bpf_core_read.h>
#include "hoststack.h"

char _license[] SEC("license") = "GPL";

/* Keeps the types in BTF, from which bpf2go makes Go's. */
const struct host_snapshot *type_of_snapshot __attribute__((unused));
const struct host_running *type_of_running __attribute__((unused));
const struct host_python *type_of_python __attribute__((unused));
const struct host_symbol *type_of_symbol __attribute__((unused));
const enum host_limits *type_of_limits __attribute__((unused));

#define PF_KTHREAD 0x00200000

/* The members that are read. The running kernel's BTF supplies their offsets. */
#pragma clang attribute push(__attribute__((preserve_access_index)), apply_to = record)
struct sched_entity {
	__u64 sum_exec_runtime;
};

struct sched_info {
	unsigned long long run_delay, last_arrival;
};

#if defined(__TARGET_ARCH_x86)
struct thread_struct {
	unsigned long fsbase;
};
#define THREAD_POINTER(t) ((t)->thread.fsbase)
#define REG_SP_INDEX 19
#elif defined(__TARGET_ARCH_arm64)
struct user_words {
	unsigned long tp_value;
};

struct thread_struct {
	struct user_words uw;
};
#define THREAD_POINTER(t) ((t)->thread.uw.tp_value)
#define REG_SP_INDEX 31
#else
#error "no register layout for this architecture"
#endif

struct thread_info {
	__u32 cpu;
};

struct return_instance {
	unsigned long stack, orig_ret_vaddr;
	struct return_instance *next;
};

struct uprobe_task {
	struct return_instance *return_instances;
};

struct upid {
	int nr;
};

struct pid {
	unsigned int level;
	struct upid numbers[1];
};

struct task_struct {
	struct thread_info thread_info;
	unsigned int __state;
	unsigned int flags;
	unsigned int cpu; /* before Linux 5.16 on x86-64 */
	int on_cpu;
	int pid, tgid;
	struct task_struct *group_leader;
	struct pid *thread_pid;
	unsigned long nvcsw, nivcsw;
	struct sched_entity se;
	struct sched_info sched_info;
	struct thread_struct thread;
	struct uprobe_task *utask;
	unsigned long long start_time;
	unsigned in_iowait : 1;
	char comm[16];
};

struct seq_file;

struct bpf_iter_meta {
	struct seq_file *seq;
};

struct bpf_iter__task {
	struct bpf_iter_meta *meta;
	struct task_struct *task;
};
#pragma clang attribute pop

#if defined(__TARGET_ARCH_x86)
#define REGS_BYTES (21 * 8)
#else
#define REGS_BYTES (34 * 8)
#endif

/* The process; 0: the link of the iterator selects it. */
volatile __u32 only_tgid = 0;

struct buffer {
	struct host_snapshot thread;
	char stack[HOST_STACK_BYTES];
};

/* One iterator runs at a time: user space holds a lock. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct buffer);
} scratch SEC(".maps");

/*
 * Threads that need no other snapshot: tid -> start_ns. Preallocated, as perf events require. If it
 * is full, threads get snapshots that are not needed.
 */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, __u32);
	__type(value, __u64);
} done SEC(".maps");

/* Thread pointer -> where its Python frames begin. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, __u64);
	__type(value, struct host_python);
} pythons SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 4 << 20);
} running SEC(".maps");

/* Samples of running threads that did not fit into the ring buffer. */
__u64 lost_samples = 0;

/* number_in returns the number of a task in its own PID namespace. */
static __always_inline __u32 number_in_own_namespace(struct task_struct *t)
{
	struct pid *pid = BPF_CORE_READ(t, thread_pid);
	__u32 level, nr = 0;

	if (!pid)
		return 0;
	level = BPF_CORE_READ(pid, level);
	if (level > 32)
		return 0;
	bpf_probe_read_kernel(&nr, sizeof(nr), (void *)pid + bpf_core_field_offset(struct pid, numbers) +
							level * bpf_core_type_size(struct upid) +
							bpf_core_field_offset(struct upid, nr));
	return nr;
}

/* read_returns copies the return addresses that return probes have replaced. */
static __always_inline void read_returns(struct task_struct *t, struct host_snapshot *s)
{
	struct uprobe_task *u = BPF_CORE_READ(t, utask);
	struct return_instance *instance;
	__u32 i;

	s->return_count = 0;
	if (!u)
		return;
	instance = BPF_CORE_READ(u, return_instances);
	for (i = 0; i < HOST_RETURNS && instance; i++) {
		s->returns[i].slot = BPF_CORE_READ(instance, stack);
		s->returns[i].address = BPF_CORE_READ(instance, orig_ret_vaddr);
		instance = BPF_CORE_READ(instance, next);
		s->return_count = i + 1;
	}
}

/* read_before reads what identifies a thread and its state, and its registers. */
static __always_inline void read_before(struct task_struct *t, struct host_snapshot *s)
{
	struct task_struct *self = bpf_get_current_task_btf();
	__u64 now = self->sched_info.last_arrival, arrival;

	s->voluntary_before = t->nvcsw;
	s->involuntary_before = t->nivcsw;
	s->on_cpu_before = t->on_cpu;
	s->state = t->__state;
	s->flags = t->flags;
	s->tid = t->pid;
	s->tgid = t->tgid;
	s->ns_tid = number_in_own_namespace(t);
	s->ns_tgid = number_in_own_namespace(BPF_CORE_READ(t, group_leader));
	s->start_ns = t->start_time;
	s->run_ns = t->se.sum_exec_runtime;
	s->run_delay_ns = t->sched_info.run_delay;
	arrival = t->sched_info.last_arrival;
	s->off_ns = arrival && now > arrival ? now - arrival : 0;
	s->thread_pointer = THREAD_POINTER(t);
	if (bpf_core_field_exists(t->thread_info.cpu))
		s->cpu = t->thread_info.cpu;
	else
		s->cpu = t->cpu;
	s->in_iowait = BPF_CORE_READ_BITFIELD_PROBED(t, in_iowait);
	__builtin_memcpy(s->name, t->comm, sizeof(s->name));
	s->copied = 0;
	s->python_count = 0;
	s->python_next = 0;
	s->kernel_bytes = 0;
	s->regs[REG_SP_INDEX] = 0;
	read_returns(t, s);
	if (!(s->flags & PF_KTHREAD) && bpf_probe_read_kernel(s->regs, REGS_BYTES, (void *)bpf_task_pt_regs(t)))
		s->regs[REG_SP_INDEX] = 0;
}

/* read_after reads the counts again. */
static __always_inline void read_after(struct task_struct *t, struct host_snapshot *s)
{
	barrier();
	s->on_cpu_after = t->on_cpu;
	s->voluntary_after = t->nvcsw;
	s->involuntary_after = t->nivcsw;
}

/* is_wanted reports whether a task needs a snapshot. */
static __always_inline int is_wanted(struct task_struct *t)
{
	__u32 tid = t->pid;
	__u64 *start;

	if (only_tgid && t->tgid != only_tgid)
		return 0;
	start = bpf_map_lookup_elem(&done, &tid);
	return !start || *start != t->start_time;
}

/* Returns the state, the counts of switches and the kernel stack of a wanted task; 0 for other tasks. */
static __always_inline struct buffer *read_kernel_part(struct task_struct *t)
{
	struct buffer *b;
	__u32 zero = 0;

	if (!t || !is_wanted(t))
		return 0;
	b = bpf_map_lookup_elem(&scratch, &zero);
	if (!b)
		return 0;
	read_before(t, &b->thread);
	b->thread.kernel_bytes = bpf_get_task_stack(t, b->thread.kernel, sizeof(b->thread.kernel), 0);
	return b;
}

/* Writes states and kernel stacks. It takes no lock of the process, so it never waits for it. */
SEC("iter/task")
int read_states(struct bpf_iter__task *ctx)
{
	struct task_struct *t = ctx->task;
	struct buffer *b = read_kernel_part(t);

	if (!b)
		return 0;
	read_after(t, &b->thread);
	bpf_seq_write(ctx->meta->seq, &b->thread, sizeof(b->thread));
	return 0;
}

/* Writes states, kernel stacks and the tops of user stacks. */
SEC("iter.s/task")
int read_stacks(struct bpf_iter__task *ctx)
{
	struct task_struct *t = ctx->task;
	struct buffer *b = read_kernel_part(t);
	__u32 copied = 0;
	__u64 sp;

	if (!b)
		return 0;
	sp = b->thread.regs[REG_SP_INDEX];
	if (sp) {
		/* Whole pages from the one of sp, so that the end of a stack costs one failed read. */
		sp &= ~(HOST_PAGE - 1ULL);
#pragma unroll
		for (int i = 0; i < HOST_STACK_BYTES / HOST_PAGE; i++) {
			if (bpf_copy_from_user_task(b->stack + i * HOST_PAGE, HOST_PAGE, (void *)(sp + i * HOST_PAGE), t, 0))
				break;
			copied = (i + 1) * HOST_PAGE;
		}
	}
	b->thread.copied = copied;
	read_after(t, &b->thread);
	if (copied > HOST_STACK_BYTES)
		copied = HOST_STACK_BYTES;
	bpf_seq_write(ctx->meta->seq, b, sizeof(b->thread) + copied);
	return 0;
}

/* read_python copies the Python frames of the current thread. */
static __always_inline void read_python(struct host_running *r)
{
	struct host_python *python = bpf_map_lookup_elem(&pythons, &r->thread.thread_pointer);
	__u64 frame = 0;
	__u32 i;

	if (!python)
		return;
	bpf_probe_read_user(&frame, sizeof(frame), (void *)(python->thread_state + python->frame));
	if (python->has_cframe)
		bpf_probe_read_user(&frame, sizeof(frame), (void *)(frame + python->cframe_frame));
	for (i = 0; i < HOST_PYTHON_FRAMES && frame; i++) {
		if (bpf_probe_read_user(r->python[i], HOST_PYTHON_BYTES, (void *)frame))
			break;
		bpf_probe_read_user(&frame, sizeof(frame), (void *)(frame + python->previous));
		r->thread.python_count = i + 1;
	}
	r->thread.python_next = frame;
}

/* Sends a sample of the current thread. at_ns replaces off_ns if it is not 0. Returns 0 if it is lost. */
static __always_inline int send_sample(void *ctx, struct task_struct *t, __u64 at_ns)
{
	struct host_running *r = bpf_ringbuf_reserve(&running, sizeof(*r), 0);
	__u64 sp;

	if (!r) {
		__sync_fetch_and_add(&lost_samples, 1);
		return 0;
	}
	read_before(t, &r->thread);
	if (at_ns)
		r->thread.off_ns = at_ns;
	r->thread.kernel_bytes = bpf_get_stack(ctx, r->thread.kernel, sizeof(r->thread.kernel), 0);
	sp = r->thread.regs[REG_SP_INDEX] & ~(HOST_PAGE - 1ULL);
	for (int i = 0; sp && i < HOST_STACK_BYTES / HOST_PAGE; i++) {
		if (bpf_probe_read_user(r->stack + i * HOST_PAGE, HOST_PAGE, (void *)(sp + i * HOST_PAGE)))
			break;
		r->thread.copied += HOST_PAGE;
	}
	read_python(r);
	read_after(t, &r->thread);
	bpf_ringbuf_submit(r, at_ns ? BPF_RB_NO_WAKEUP : 0);
	return 1;
}

/* Sends the first sample of a running thread. */
SEC("perf_event")
int sample_running(void *ctx)
{
	struct task_struct *t = bpf_get_current_task_btf();
	__u32 tid = t->pid;
	__u64 start = t->start_time;

	if (is_wanted(t) && send_sample(ctx, t, 0))
		bpf_map_update_elem(&done, &tid, &start, BPF_ANY);
	return 0;
}

/* Sends every sample of a running thread, with its time. User space reads them at its own rate. */
SEC("perf_event")
int sample_always(void *ctx)
{
	send_sample(ctx, bpf_get_current_task_btf(), bpf_ktime_get_ns());
	return 0;
}

/* Names a kernel address. The kernel's own printf does so without a table of symbols. */
SEC("syscall")
int name_kernel_address(struct host_symbol *s)
{
	static const char form[] = "%ps";
	__u64 args[1] = {s->address};
	char name[sizeof(s->name)] = {};

	bpf_snprintf(name, sizeof(name), form, args, sizeof(args));
	__builtin_memcpy(s->name, name, sizeof(name));
	return 0;
}
