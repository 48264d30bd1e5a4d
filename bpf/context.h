/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Tracks the current CUDA context of each thread, and its device.
 */
#ifndef GPUREC_CONTEXT_H
#define GPUREC_CONTEXT_H

#include "state.h"

/* Sets the event's context and device to the thread's current ones; unknown: 0 and -1. */
static __always_inline void read_context(struct thread *t, struct event *e)
{
	struct context_key key = {.pid = e->pid};
	__u64 *current = context_slot(t, t->contexts - 1);
	__s32 *device;

	e->context = 0;
	e->device = -1;
	if (!current)
		return;
	key.context = e->context = *current;
	if (t->device_context == *current) {
		e->device = t->device;
		return;
	}
	device = bpf_map_lookup_elem(&contexts, &key);
	if (!device)
		return;
	e->device = t->device = *device;
	t->device_context = *current;
}

/* Stores the device ordinal of a context. */
static __always_inline void set_device(struct event *e, __u64 context, __s32 device)
{
	struct context_key key = {.context = context, .pid = e->pid};

	bpf_map_update_elem(&contexts, &key, &device, BPF_ANY);
}

/* Pushes a context on the thread's stack of contexts. */
static __always_inline void push_context(struct thread *t, __u64 context)
{
	__u64 *slot;

	if (t->contexts >= MAX_CONTEXTS) { /* drop the oldest entry: the current context stays right */
		for (int i = 1; i < MAX_CONTEXTS; i++)
			t->context[i - 1] = t->context[i];
		t->contexts = MAX_CONTEXTS - 1;
	}
	slot = context_slot(t, t->contexts);
	if (!slot)
		return;
	*slot = context;
	t->contexts++;
}

/* Replaces the thread's current context. */
static __always_inline void set_context(struct thread *t, __u64 context)
{
	__u64 *current = context_slot(t, t->contexts - 1);

	if (current)
		*current = context;
	else if (context)
		push_context(t, context);
}

#endif
