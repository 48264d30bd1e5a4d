/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Names of kernels. They come from the calls that return kernel handles, or are read through
 * handles that were created before the recording.
 */
#ifndef GPUREC_NAMES_H
#define GPUREC_NAMES_H

#include "state.h"

/* Sends the name of a kernel handle; the name is at addr in user memory. */
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
	/* A name that did not fit is sent again with the next launch. */
	if (!bpf_ringbuf_output(&events, n, length, wakeup())) {
		struct handle_key key = {.handle = handle, .pid = e->pid};
		__u32 tgid = e->pid, *epoch = bpf_map_lookup_elem(&targets, &tgid);

		if (epoch)
			bpf_map_update_elem(&handles, &key, epoch, BPF_ANY);
	}
}

/*
 * Returns the address of the kernel's mangled name. The driver keeps it in the second word of
 * the object behind a kernel handle (undocumented; seen in driver 580). User space accepts the
 * string only if it looks like a name and name_checks do not contradict it.
 */
static __always_inline __u64 driver_name_address(__u64 handle)
{
	__u64 addr = 0;

	bpf_probe_read_user(&addr, sizeof(addr), (void *)(handle + 8));
	return addr;
}

/* Sends the name of a launched kernel unless user space has it already. */
static __always_inline void ensure_kernel_name(struct thread *t, struct event *e, __u64 handle)
{
	struct handle_key key = {.handle = handle, .pid = e->pid};
	__u32 *known = bpf_map_lookup_elem(&handles, &key);
	__u32 tgid = e->pid, *epoch = bpf_map_lookup_elem(&targets, &tgid);

	if (!epoch || (known && *known == *epoch))
		return;
	send_name(t, e, handle, driver_name_address(handle), NAME_FROM_HANDLE);
}

/* Compares the name in a cuModuleGetFunction call with the name behind the returned handle. */
static __always_inline void check_name(struct event *e)
{
	char asked[32] = {}, behind[32] = {};
	__u32 which = NAME_CONFIRMED;
	__u64 *count;

	if (bpf_probe_read_user_str(asked, sizeof(asked), (void *)e->src) <= 0)
		return;
	bpf_probe_read_user_str(behind, sizeof(behind), (void *)driver_name_address(e->ptr));
	for (int i = 0; i < sizeof(asked); i++)
		if (asked[i] != behind[i])
			which = NAME_CONTRADICTED;
	count = bpf_map_lookup_elem(&name_checks, &which);
	if (count)
		(*count)++;
}

/* Starts a new epoch of kernel handles: after an unload the driver may reuse them. */
static __always_inline void start_epoch(struct event *e)
{
	__u32 tgid = e->pid, *epoch = bpf_map_lookup_elem(&targets, &tgid);

	if (epoch)
		__sync_fetch_and_add(epoch, 1);
}

#endif
