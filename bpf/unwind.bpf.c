//go:build ignore

/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The end of unwinding. The programs of the OpenTelemetry profiler, begun by call_enter
 * (unwind.h), come here with a complete or a broken stack in a record per CPU.
 * unwind_stop names the stack by a hash of its frames, puts the name into the call's
 * event and sends a stack that is new.
 *
 * Needs Linux 5.17 (bpf_loop); without it stacks are walked by frame pointers.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "regs.h"
#include "state.h"
#include "unwind.h"

char _license[] SEC("license") = "GPL";

/* Offsets in the unwinder's record. */
const volatile __u32 record_error = 0;        /* s32: its ErrorCode */
const volatile __u32 record_pc = 0;           /* u64: where it is */
const volatile __u32 record_words = 0;        /* u16: of frames */
const volatile __u32 record_kernel_words = 0; /* u16 */
const volatile __u32 record_data = 0;         /* u64[MAX_FRAME_WORDS]: the frames */

/* Their record. User space puts theirs in place of this one. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__uint(key_size, 4);
	__uint(value_size, 8);
} unwind_record SEC(".maps");

/* A broken stack is sent again after this time: what broke it may have changed. */
#define RESEND_NS 50000000

/* Mixes the words of a stack into h. A call of its own, so that it is verified once. */
static __attribute__((noinline)) __u64 hash_words(__u8 *record, __u32 words, __u64 h)
{
	if (!record)
		return h;
	for (__u32 i = 0; i < MAX_FRAME_WORDS; i++) {
		if (i >= words)
			break;
		h = mix(h, *(__u64 *)(record + record_data + 8 * i));
	}
	return h;
}

/*
 * Sends the stack, with our header in front of its frames, over what the unwinder needs no
 * more. Returns whether there was room.
 */
static __always_inline int send_unwound(__u8 *record, __u64 stack_id, __u32 pid, __u32 error, __u32 words)
{
	struct unwound_event *u = (void *)(record + record_data - sizeof(*u));
	__u16 kernel_words = *(__u16 *)(record + record_kernel_words);
	__u64 now = bpf_ktime_get_ns();
	__u64 size = sizeof(*u) + 8 * words;

	u->kind = RECORD_UNWOUND;
	u->words = words;
	u->pid = pid;
	u->stack_id = stack_id;
	u->stop_pc = *(__u64 *)(record + record_pc);
	u->error = error;
	u->kernel_words = kernel_words;
	u->_pad = 0;
	asm volatile("" : "+r"(size));
	if (size > sizeof(*u) + 8 * MAX_FRAME_WORDS || bpf_ringbuf_output(&events, u, size, wakeup()))
		return 0;
	bpf_map_update_elem(&stacks_sent, &stack_id, &now, BPF_ANY);
	return 1;
}

/* Whether user space has the stack; a broken one it should see again at times. */
static __always_inline int was_sent(__u64 stack_id, __u32 error)
{
	__u64 *sent = bpf_map_lookup_elem(&stacks_sent, &stack_id);

	return sent && (!error || bpf_ktime_get_ns() - *sent < RESEND_NS);
}

static __always_inline void count_busy(struct event *e)
{
	__u32 call = e->call;
	struct call_spec *spec = bpf_map_lookup_elem(&calls, &call);
	struct class_stats *s = spec ? stats_of(spec->class) : 0;

	if (s)
		s->inference.busy++;
}

/* A call whose return is not probed ends here. */
static __always_inline void finish(struct thread *t, struct open_call *c)
{
	__u32 call = c->event.call;
	struct call_spec *spec = bpf_map_lookup_elem(&calls, &call);

	if (!spec || !(c->event.flags & EVENT_NO_RETURN))
		return;
	t->open--;
	emit(stats_of(spec->class), &c->event);
}

/* Where the unwinder ends. The call is the innermost open one of this thread. */
SEC("uprobe.multi/unwind_stop")
int unwind_stop(struct pt_regs *ctx)
{
	__u64 id = bpf_get_current_pid_tgid();
	__u32 zero = 0, words, error;
	__u8 *record = bpf_map_lookup_elem(&unwind_record, &zero);
	struct unwinding *u = unwinding_here();
	struct thread *t = bpf_map_lookup_elem(&threads, &id);
	struct open_call *c;
	__u64 h;

	if (!record || !u || !t)
		return 0;
	c = open_call(t, t->open - 1);
	if (!c)
		return 0;
	if (u->id != id) { /* another thread has taken the record meanwhile */
		count_busy(&c->event);
		finish(t, c);
		return 0;
	}
	u->id = 0;
	words = *(__u16 *)(record + record_words);
	error = *(__u32 *)(record + record_error);
	h = hash_words(record, words, mix(id >> 32, error));
	h &= 0x7fffffffffffffffULL; /* fits a signed column; 0 means none */
	c->event.stack = STACK_UNWOUND;
	c->event.stack_id = h;
	precede(t, h);
	/* A stack that found no room must not be inferred: user space would not know it. */
	if (was_sent(h, error) || send_unwound(record, h, id >> 32, error, words))
		remember(ctx, t, &c->event, h, error);
	finish(t, c);
	return 0;
}
