//go:build ignore

/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Holds threads of targets until probes and unwind tables are in place for the code that they have
 * loaded. One program is where the dynamic loader calls _dl_debug_state: the loader does so after it
 * has mapped libraries, and before it runs their constructors. Another program is on the functions of
 * libcuda that programs call first, and a third one is on the return of fork in the child.
 *
 * A program waits in a loop. The loop ends when user space releases the thread, after max_hold_ns,
 * or when user space has not updated alive_ns for patience_ns. So a recorder that was killed holds
 * no thread.
 *
 * While a thread waits, other threads run the same programs on its processor. Since Linux 6.13, a
 * function with 64 or more bytes of BPF stack has its stack in memory of the processor
 * (BPF_PRIV_STACK_MIN_SIZE), which those threads overwrite. So the programs, and the functions that
 * wait, use fewer bytes: TestStacksOfHolds checks it.
 *
 * Needs kernel BTF and Linux 6.0: sleepable uprobes, bpf_loop, bpf_copy_from_user_task.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "event.h"
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

/* User space replaces these two maps by the maps of cuda.bpf.c. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, __u32);
	__type(value, __u32);
} targets SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__uint(max_entries, 65536);
	__type(key, __u64);
	__type(value, struct thread);
} threads SEC(".maps");

/*
 * The command, and those of its descendants that began after it. LRU: no program deletes the entry of
 * a process that has ended.
 */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
	__uint(max_entries, 16384);
	__type(key, __u32);
	__type(value, __u32);
} commands SEC(".maps");

/* may_be_held reports whether a process is recorded, and descends from the command. */
static __always_inline int may_be_held(__u32 pid)
{
	return bpf_map_lookup_elem(&commands, &pid) && bpf_map_lookup_elem(&targets, &pid);
}

/* State of the libraries of a process. */
struct loaded {
	__u64 last;       /* the last entry of its list of libraries, a struct link_map */
	__u64 covered;    /* the last entry for which the process waited until unwind tables were in place */
	__u32 has_driver; /* it has loaded libcuda */
	__u32 calls_cuda; /* it has called libcuda: from then on, all code that it loads can be in a stack */
	__u32 is_watched; /* no code of a probed library ran before its process had waited for the probes */
	__u32 unused;
};

/* LRU: no program deletes the state of a process that has ended. */
struct {
	__uint(type, BPF_MAP_TYPE_LRU_HASH);
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

/* Libraries that gpurec probes. */
enum probed_library {
	PROBED_NONE,
	PROBED_DRIVER,    /* libcuda.so* */
	PROBED_ALLOCATOR, /* libc10* */
};

/* probed_library returns the library that has this file name. */
static __always_inline enum probed_library probed_library(const char *n)
{
	if (n[0] != 'l' || n[1] != 'i' || n[2] != 'b' || n[3] != 'c')
		return PROBED_NONE;
	if (n[4] == '1' && n[5] == '0')
		return PROBED_ALLOCATOR;
	if (n[4] == 'u' && n[5] == 'd' && n[6] == 'a' && n[7] == '.' && n[8] == 's')
		return PROBED_DRIVER;
	return PROBED_NONE;
}

struct walk {
	__u64 next, last;
	int is_new, is_probed, has_driver;
};

/* Maximum length of a path, and of the end of it that is compared. */
#define PATH_BYTES 256
#define PATH_END_BYTES 32

/* walk_step reads one entry of the list. It returns 1, which ends the loop, after the last entry. */
static long walk_step(__u32 i, struct walk *w)
{
	struct link_map map;
	char path[PATH_BYTES], name[PATH_END_BYTES + 16] = {};
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
	if (size > PATH_END_BYTES)
		map.name += size - PATH_END_BYTES;
	bpf_probe_read_user_str(name, PATH_END_BYTES, (void *)map.name);
	for (k = 0; k < PATH_END_BYTES - 10; k++)
		if (name[k] == '/') {
			enum probed_library library = probed_library(name + k + 1);

			w->is_probed |= library != PROBED_NONE;
			w->has_driver |= library == PROBED_DRIVER;
		}
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

/*
 * A child has the libraries of its parent, but the unwinder does not know that yet.
 * TP_PROTO(struct task_struct *parent, struct task_struct *child)
 */
SEC("tp_btf/sched_process_fork")
int inherit_libraries(__u64 *ctx)
{
	__u32 parent = ((struct task_struct *)ctx[0])->tgid, child = ((struct task_struct *)ctx[1])->tgid;
	struct loaded inherited = {}, *known;
	__u32 is_command = 1;

	if (parent == child)
		return 0; /* a thread */
	if (bpf_map_lookup_elem(&commands, &parent))
		bpf_map_update_elem(&commands, &child, &is_command, BPF_ANY);
	else
		bpf_map_delete_elem(&commands, &child); /* of an earlier process with this number */
	known = bpf_map_lookup_elem(&processes, &parent);
	if (!known) {
		bpf_map_delete_elem(&processes, &child);
		return 0;
	}
	inherited.last = known->last;
	inherited.has_driver = known->has_driver;
	inherited.is_watched = known->is_watched; /* a child waits when fork returns */
	bpf_map_update_elem(&processes, &child, &inherited, BPF_ANY);
	return 0;
}

struct wait {
	__u64 sp;
	__u64 until_ns;
	__u32 end; /* enum hold_state, 0: the wait took too long */
};

/* wait_step returns 1, which ends the loop, if the hold has ended. */
static long wait_step(__u32 i, struct wait *w)
{
	__u32 tid = (__u32)bpf_get_current_pid_tgid(), *state = bpf_map_lookup_elem(&holds, &tid);
	__u64 now = bpf_ktime_get_ns();
	char byte;

	if (!state || *state != HOLD_ASKED) {
		w->end = state ? *state : HOLD_RELEASED;
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
 * begin_watch notes that the list of libraries of a process is seen from the start of its program: it
 * has no probed library yet.
 */
static __attribute__((noinline)) int begin_watch(__u32 pid, __u64 first)
{
	struct loaded now = {};
	struct walk w = {.next = first};

	bpf_loop(4096, walk_step, &w, 0);
	now.is_watched = !w.is_probed;
	bpf_map_update_elem(&processes, &pid, &now, BPF_NOEXIST);
	return 0;
}

/* end_watch notes that a process continues before all its libraries are probed. */
static __attribute__((noinline)) int end_watch(void)
{
	__u32 pid = bpf_get_current_pid_tgid() >> 32;
	struct loaded *known = bpf_map_lookup_elem(&processes, &pid);

	if (known)
		known->is_watched = 0;
	__sync_fetch_and_add(&unreleased, 1);
	return 0;
}

/*
 * reason_to_hold returns why a process must not run on, 0 if it may: it has new libraries, and one
 * of them is to be probed, or it calls CUDA and any of them can be in a stack. at is the address
 * of the loader's struct r_debug.
 */
static __attribute__((noinline)) enum hold_reason reason_to_hold(__u32 pid, __u64 at)
{
	struct loaded now = {}, *known = bpf_map_lookup_elem(&processes, &pid);
	enum hold_reason reason = 0;
	struct r_debug list;
	struct walk w = {};

	if (bpf_probe_read_user(&list, sizeof(list), (void *)at))
		return 0;
	if (list.state == LIBRARIES_DELETE && known)
		known->last = 0;
	if (list.state == LIBRARIES_ADD && !known)
		begin_watch(pid, list.first);
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
	if (known)
		now = *known;
	now.last = w.last;
	/* Programs call CUDA soon after they have loaded it. */
	if (w.is_new && (now.calls_cuda || (w.has_driver && !now.has_driver)))
		reason = HOLD_FOR_TABLES;
	else if (w.is_probed)
		reason = HOLD_FOR_PROBES;
	now.has_driver |= w.has_driver;
	if (reason == HOLD_FOR_TABLES)
		now.covered = now.last;
	bpf_map_update_elem(&processes, &pid, &now, BPF_ANY);
	return reason;
}

/*
 * exclude_hold subtracts the time of a hold from the calls of this thread that have not returned.
 * User space does it for a thread that it has seized.
 */
static __attribute__((noinline)) void exclude_hold(__u64 held_ns)
{
	__u64 pid_tgid = bpf_get_current_pid_tgid();
	struct thread *t = bpf_map_lookup_elem(&threads, &pid_tgid);

	for (__u32 i = 0; t && i < MAX_OPEN; i++)
		if (i < t->open)
			t->calls[i].event.dur_ns += held_ns;
}

/* ask asks user space to cover the thread's code. It reports whether the thread may wait for that. */
static __attribute__((noinline)) int ask(enum hold_reason reason, __u64 now)
{
	__u64 pid_tgid = bpf_get_current_pid_tgid();
	struct hold_request r = {.pid = pid_tgid >> 32, .tid = (__u32)pid_tgid, .start_ns = now, .reason = reason};
	__u32 state = HOLD_ASKED;

	return now <= alive_ns + patience_ns && !bpf_map_update_elem(&holds, &r.tid, &state, BPF_ANY) &&
	       !bpf_ringbuf_output(&hold_requests, &r, sizeof(r), BPF_RB_FORCE_WAKEUP);
}

/* wait_for_release waits, and returns how the wait ended: an enum hold_state, 0: it took too long. */
static __attribute__((noinline)) __u32 wait_for_release(__u64 now, __u64 sp)
{
	struct wait w = {.sp = sp, .until_ns = now + max_hold_ns};

	bpf_loop(1 << 23, wait_step, &w, 0);
	return w.end;
}

/* hold waits until user space releases the thread. */
static __attribute__((noinline)) int hold(enum hold_reason reason, __u64 sp)
{
	__u32 tid = (__u32)bpf_get_current_pid_tgid(), end = 0;
	__u64 start_ns = bpf_ktime_get_ns();
	int may_wait = ask(reason, start_ns);

	if (may_wait)
		end = wait_for_release(start_ns, sp);
	if (!end)
		end_watch();
	bpf_map_delete_elem(&holds, &tid);
	if (may_wait && end != HOLD_SEIZED)
		exclude_hold(bpf_ktime_get_ns() - start_ns);
	return 0;
}

/*
 * Runs on the instructions that call _dl_debug_state: the dynamic loader does so before and after it
 * changes its list of libraries. The attach cookie is the distance from the instruction to the
 * loader's struct r_debug.
 */
SEC("uprobe.s")
int libraries_changed(struct pt_regs *ctx)
{
	__u32 pid = bpf_get_current_pid_tgid() >> 32;
	enum hold_reason reason;

	if (!may_be_held(pid))
		return 0;
	reason = reason_to_hold(pid, REG_PC(ctx) + bpf_get_attach_cookie(ctx));
	return reason ? hold(reason, REG_SP(ctx)) : 0;
}

/*
 * begin_call notes that a process calls libcuda, and returns its state if it has code that is not
 * covered. The list of libraries of a process is unknown if its loader could not be probed.
 */
static __attribute__((noinline)) struct loaded *begin_call(__u32 pid)
{
	struct loaded first = {.last = 1, .has_driver = 1}, *known = bpf_map_lookup_elem(&processes, &pid);

	if (known && known->calls_cuda && known->covered == known->last)
		return 0;
	if (!may_be_held(pid))
		return 0;
	if (!known) {
		bpf_map_update_elem(&processes, &pid, &first, BPF_NOEXIST);
		known = bpf_map_lookup_elem(&processes, &pid);
		if (!known)
			return 0;
	}
	known->calls_cuda = 1;
	return known->covered == known->last ? 0 : known;
}

/*
 * Runs on the functions of libcuda that programs call first, before the program that records the
 * call. The thread waits here if it has loaded libraries since it has loaded libcuda, or if the
 * loader could not be probed. It waits in the kernel: a ptrace stop would come after the call was
 * recorded.
 */
SEC("uprobe.s")
int cuda_called(struct pt_regs *ctx)
{
	__u32 pid = bpf_get_current_pid_tgid() >> 32;
	struct loaded *known = begin_call(pid);
	__u64 last;

	if (!known)
		return 0;
	last = known->last;
	hold(HOLD_IN_KERNEL, REG_SP(ctx));
	known = bpf_map_lookup_elem(&processes, &pid);
	if (known)
		known->covered = last; /* until then, other threads wait, too */
	return 0;
}

/* Runs on the return of fork. A child may call CUDA at once, without one of the first functions. */
SEC("uprobe.s")
int forked(struct pt_regs *ctx)
{
	__u32 pid = bpf_get_current_pid_tgid() >> 32;
	struct loaded *known;

	if (REG_RESULT(ctx))
		return 0; /* the parent */
	known = bpf_map_lookup_elem(&processes, &pid);
	if (!known || !known->has_driver || known->covered == known->last || !may_be_held(pid))
		return 0;
	known->covered = known->last;
	return hold(HOLD_FOR_TABLES, REG_SP(ctx));
}
