/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The names of kernels: from the calls that return handles, and from behind handles
 * that are older than the recording.
 */
#ifndef GPUREC_NAMES_H
#define GPUREC_NAMES_H

#include "state.h"

/* Sends the name that is at addr in user memory for a kernel handle. */
static __attribute__((noinline)) void send_name(struct thread *t, struct event *e, __u64 handle, __u64 addr, __u32 source)
{
	struct name_event *n = &t->scratch.name;
	long length = bpf_probe_read_user_str(n->name, sizeof(n->name), (void *)addr);

	if (length <= 1)
		return;
	n->kind = RECORD_NAME;
	n->length = length;
	n->pid = e->pid;
	n->handle = handle;
	n->start_ns = e->start_ns;
	n->source = source;
	length += sizeof(*n) - sizeof(n->name);
	if (length > sizeof(*n))
		return;
	/* A name that finds no room is sent again with the next launch. */
	if (!bpf_ringbuf_output(&events, n, length, wakeup())) {
		struct handle_key key = {.handle = handle, .pid = e->pid};
		__u32 tgid = e->pid, *epoch = bpf_map_lookup_elem(&targets, &tgid);

		if (epoch)
			bpf_map_update_elem(&handles, &key, epoch, BPF_ANY);
	}
}

/*
 * The driver keeps a pointer to the mangled name in the second word of what a kernel
 * handle points to (undocumented; seen in 580). User space takes such names only if
 * they look like names and name_checks do not speak against them.
 */
static __always_inline __u64 name_behind(__u64 handle)
{
	__u64 addr = 0;

	bpf_probe_read_user(&addr, sizeof(addr), (void *)(handle + 8));
	return addr;
}

/* Makes sure that user space knows the name of a kernel that is launched. */
static __always_inline void know_kernel(struct thread *t, struct event *e, __u64 handle)
{
	struct handle_key key = {.handle = handle, .pid = e->pid};
	__u32 *known = bpf_map_lookup_elem(&handles, &key);
	__u32 tgid = e->pid, *epoch = bpf_map_lookup_elem(&targets, &tgid);

	if (!epoch || (known && *known == *epoch))
		return;
	send_name(t, e, handle, name_behind(handle), NAME_FROM_HANDLE);
}

/* Compares what stands behind a handle with the name by which it was asked for. */
static __always_inline void check_name(struct event *e)
{
	char asked[32] = {}, behind[32] = {};
	__u32 which = NAME_CONFIRMED;
	__u64 *count;

	if (bpf_probe_read_user_str(asked, sizeof(asked), (void *)e->src) <= 0)
		return;
	bpf_probe_read_user_str(behind, sizeof(behind), (void *)name_behind(e->ptr));
	for (int i = 0; i < sizeof(asked); i++)
		if (asked[i] != behind[i])
			which = NAME_CONTRADICTED;
	count = bpf_map_lookup_elem(&name_checks, &which);
	if (count)
		(*count)++;
}

/* A module is gone: handles may from now on stand for other kernels. */
static __always_inline void new_epoch(struct event *e)
{
	__u32 tgid = e->pid, *epoch = bpf_map_lookup_elem(&targets, &tgid);

	if (epoch)
		__sync_fetch_and_add(epoch, 1);
}

#endif
