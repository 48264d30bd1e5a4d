//go:build ignore

/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Holds a thread of a target process when the dynamic loader has mapped a library whose probes and
 * unwind tables are not in place yet. The loader calls _dl_debug_state after it has mapped
 * libraries, and before it runs their constructors; a probe on that function waits.
 *
 * No signal and no ptrace is involved, so no parent, shell or debugger notices. The wait ends
 * when user space releases the thread, when the hold lasts too long, or when user space has not
 * shown for a while that it lives: a recorder that was killed leaves nothing held.
 *
 * Needs kernel BTF and Linux 6.0: sleepable uprobes, bpf_loop, bpf_copy_from_user_task.
 */
#include <linux/bpf.h>
#include <linux/ptrace.h>
#include <bpf/bpf_helpers.h>
#include "hold.h"

char _license[] SEC("license") = "GPL";

/* Keeps the types in BTF, from which bpf2go makes Go's. */
const struct hold_request *type_of_request __attribute__((unused));
const enum hold_state *type_of_hold __attribute__((unused));

#define NS_PER_MS 1000000ULL

/* Only what is read; the offsets come from the running kernel's BTF. */
struct task_struct {
	int pid;
	int tgid;
} __attribute__((preserve_access_index));

/* The map of cuda.bpf.c; user space puts it in place of this one. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, __u32);
	__type(value, __u32);
} targets SEC(".maps");

/* What is known of the libraries of a process. */
struct loaded {
	__u64 last;       /* the last entry of its list of libraries, a struct link_map */
	__u32 has_driver; /* it has libcuda: from then on, all code that it loads can be in a stack */
	__u32 unused;
};

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 16384);
	__type(key, __u32);
	__type(value, struct loaded);
} processes SEC(".maps");

/* Thread -> 1 once user space has released it. */
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

/* CLOCK_MONOTONIC time of user space's last sign of life. */
volatile __u64 alive_ns = 0;
/* Without a sign of life for this long, nothing is held. */
volatile __u64 patience_ns = 100 * NS_PER_MS;
/* The longest hold. */
volatile __u64 max_hold_ns = 20000 * NS_PER_MS;
/* Holds that ended without a release, or that had no room to begin. */
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
	LIBRARIES_COME,       /* RT_ADD: the loader is about to add libraries */
	LIBRARIES_GO,         /* RT_DELETE: it is about to remove some */
};

enum library {
	LIBRARY_OTHER,
	LIBRARY_ALLOCATOR, /* libc10*: PyTorch's caching allocator and its reports */
	LIBRARY_DRIVER,    /* libcuda.so* */
};

/* library_of returns which library a file name belongs to. */
static __always_inline enum library library_of(const char *n)
{
	if (n[0] != 'l' || n[1] != 'i' || n[2] != 'b' || n[3] != 'c')
		return LIBRARY_OTHER;
	if (n[4] == '1' && n[5] == '0')
		return LIBRARY_ALLOCATOR;
	if (n[4] == 'u' && n[5] == 'd' && n[6] == 'a' && n[7] == '.' && n[8] == 's')
		return LIBRARY_DRIVER;
	return LIBRARY_OTHER;
}

struct walk {
	__u64 next, last;
	int is_new, has_driver, has_new_allocator;
};

/* The longest path whose name is found, and the longest name. */
#define MAX_PATH 256
#define MAX_NAME 32

/* walk_step looks at one library: 1 ends the loop. */
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
	for (k = 0; k < MAX_NAME - 10; k++) {
		if (name[k] != '/')
			continue;
		switch (library_of(name + k + 1)) {
		case LIBRARY_DRIVER:
			w->has_driver = 1;
			break;
		case LIBRARY_ALLOCATOR:
			w->has_new_allocator = 1;
			break;
		default:
			break;
		}
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

struct wait {
	__u32 tid;
	__u64 until_ns;
	int released;
};

/* wait_step looks once whether the hold has ended: 1 ends the loop. */
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
	/* Reads a page of user space, and on the way lets other threads run where the kernel is not preemptible. */
	bpf_copy_from_user_task(&byte, sizeof(byte), (void *)0, bpf_get_current_task_btf(), 0);
	return 0;
}

/*
 * needs_hold reports whether the process has new libraries that user space must cover first: ones
 * to be probed, and, where it has libcuda, all others, which need unwind tables. at is the address of the loader's struct r_debug.
 */
static __always_inline int needs_hold(__u32 pid, __u64 at)
{
	struct loaded first = {}, *known = bpf_map_lookup_elem(&processes, &pid);
	struct r_debug list;
	struct walk w = {.has_driver = known && known->has_driver};

	if (bpf_probe_read_user(&list, sizeof(list), (void *)at))
		return 0;
	if (list.state == LIBRARIES_GO && known)
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
	first.last = w.last;
	first.has_driver = w.has_driver;
	bpf_map_update_elem(&processes, &pid, &first, BPF_ANY);
	return w.is_new && w.has_driver || w.has_new_allocator;
}

/*
 * _dl_debug_state of the dynamic loader: libraries come (the list is not consistent), or have come.
 * The cookie is the distance from the function to the loader's struct r_debug.
 */
SEC("uprobe.s")
int hold_thread(struct pt_regs *ctx)
{
	__u64 pid_tgid = bpf_get_current_pid_tgid();
	struct hold_request r = {.pid = pid_tgid >> 32, .tid = (__u32)pid_tgid, .start_ns = bpf_ktime_get_ns()};
	struct wait w = {.tid = r.tid, .until_ns = r.start_ns + max_hold_ns};
	__u32 hold = HOLD_ASKED;

	if (!bpf_map_lookup_elem(&targets, &r.pid) || r.start_ns > alive_ns + patience_ns)
		return 0;
	if (!needs_hold(r.pid, bpf_get_func_ip(ctx) + bpf_get_attach_cookie(ctx)))
		return 0;
	if (bpf_map_update_elem(&holds, &w.tid, &hold, BPF_ANY) || bpf_ringbuf_output(&hold_requests, &r, sizeof(r), BPF_RB_FORCE_WAKEUP)) {
		__sync_fetch_and_add(&unreleased, 1);
		return 0;
	}
	bpf_loop(1 << 23, wait_step, &w, 0);
	if (!w.released)
		__sync_fetch_and_add(&unreleased, 1);
	bpf_map_delete_elem(&holds, &w.tid);
	return 0;
}
