/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Reads the progress words of channels at calls that submit work. The driver has a slot of two
 * words in the memory of the process for each channel: a counter of begun operations, and the GPU's time
 * at the start of the last one. The GPU writes both. User space finds the slots.
 *
 * A process is sampled once in PROGRESS_INTERVAL_NS: PROGRESS_READS of its slots, in turn. Without
 * sample_progress the verifier removes all of this code.
 */
#ifndef GPUREC_PROGRESS_H
#define GPUREC_PROGRESS_H

#include "state.h"

/* 1 if the programs read progress words. User space sets it before it loads the programs. */
const volatile __u8 sample_progress = 0;

#define PROGRESS_INTERVAL_NS 50000
#define PROGRESS_PROCESSES 64 /* processes whose progress words can be read */
#define PROGRESS_SLOTS 16     /* slots of one process that the programs read */

struct progress_slot {
	__u64 address;
	__u64 counter; /* the newest recorded counter; user space writes it, too */
	__u32 channel;
	__u32 _pad;
};

/* The slots of one process. If several CPUs sample them at once, a sample is sent twice. */
struct progress_process {
	__u64 submitted; /* calls that submit work */
	__u64 lost;      /* samples that did not fit into the ring buffer */
	__u64 due_ns;    /* slots are not read before this time */
	__u32 next;      /* the slot to read first */
	__u32 slots_len;
	struct progress_slot slots[PROGRESS_SLOTS];
};

/* tgid -> index in progress_processes. User space adds and deletes processes. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, PROGRESS_PROCESSES);
	__type(key, __u32);
	__type(value, __u32);
} progress_indexes SEC(".maps");

/* User space maps this memory, and fills the slots. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, PROGRESS_PROCESSES);
	__uint(map_flags, BPF_F_MMAPABLE);
	__type(key, __u32);
	__type(value, struct progress_process);
} progress_processes SEC(".maps");

/* Returns 1 if calls of this function submit work to a GPU, or concern a stream. */
static __always_inline int submits_work(const struct call_spec *spec)
{
	return !spec->count_only && (spec->class == CLASS_LAUNCH || spec->class == CLASS_COPY || spec->stream.from != ARG_NONE);
}

/* Returns the slot at an index, or 0 if the index is out of range. See open_call for the asm. */
static __always_inline struct progress_slot *progress_slot_at(struct progress_process *p, __u32 i)
{
	asm volatile("" : "+r"(i));
	if (i >= PROGRESS_SLOTS)
		return 0;
	return &p->slots[i];
}

/* Reads a slot. Returns 1 if its channel has progressed. */
static __always_inline int read_progress(struct progress_slot *slot, struct progress_sample *sample)
{
	volatile struct progress_slot *shared = slot; /* user space may replace it at any time */
	__u64 address = shared->address;

	sample->channel = shared->channel;
	return address && !bpf_probe_read_user(&sample->counter, 2 * sizeof(__u64), (void *)address) &&
	       sample->counter > shared->counter;
}

/*
 * Reads a slot again. Returns 1 if its words are equal. The GPU may write one of them between two
 * reads.
 */
static __always_inline int confirm_progress(struct progress_slot *slot, struct progress_sample *sample)
{
	volatile struct progress_slot *shared = slot;
	__u64 words[2] = {}, address = shared->address;

	if (!address || bpf_probe_read_user(words, sizeof(words), (void *)address))
		return 0;
	if (words[0] != sample->counter || words[1] != sample->gpu_time_ns || shared->channel != sample->channel)
		return 0;
	shared->counter = words[0];
	return 1;
}

/*
 * Reads the slots that are due, and sends the slots that have progressed. A slot with equal words
 * before and after seen_ns had these words at that time.
 */
static __always_inline void sample_slots(struct progress_process *p, __u32 tgid)
{
	struct progress_event e = {.kind = RECORD_PROGRESS, .pid = tgid};
	struct progress_slot *slots[PROGRESS_READS] = {};
	__u32 len = p->slots_len, at = p->next, moved = 0, n = 0;

	for (int i = 0; i < PROGRESS_READS && i < len; i++) {
		struct progress_slot *slot;

		if (at >= len)
			at = 0;
		slot = progress_slot_at(p, at++);
		if (slot && read_progress(slot, &e.sample[i])) {
			slots[i] = slot;
			moved++;
		}
	}
	p->next = at;
	if (!moved)
		return;
	e.seen_ns = bpf_ktime_get_ns();
	for (int i = 0; i < PROGRESS_READS; i++)
		if (slots[i] && confirm_progress(slots[i], &e.sample[i]))
			n++;
		else
			e.sample[i].channel = 0;
	if (n && bpf_ringbuf_output(&events, &e, sizeof(e), wakeup()))
		__sync_fetch_and_add(&p->lost, n);
}

/* Counts calls that submit work, and samples the channels of the process if a sample is due. */
GLOBAL_FUNC int sample_process(__u32 tgid, __u64 now, __u64 calls)
{
	__u32 *index = bpf_map_lookup_elem(&progress_indexes, &tgid);
	struct progress_process *p = index ? bpf_map_lookup_elem(&progress_processes, index) : 0;

	if (!p)
		return 0;
	__sync_fetch_and_add(&p->submitted, calls);
	if (now < p->due_ns || !p->slots_len)
		return 0;
	p->due_ns = now + PROGRESS_INTERVAL_NS;
	sample_slots(p, tgid);
	return 0;
}

/* Counts a call that submits work. Most calls use only the state of their thread. */
static __always_inline void note_submission(struct thread *t, __u32 tgid, __u64 now)
{
	t->submitted++;
	if (now < t->progress_due_ns)
		return;
	t->progress_due_ns = now + PROGRESS_INTERVAL_NS;
	sample_process(tgid, now, t->submitted);
	t->submitted = 0;
}

#endif
