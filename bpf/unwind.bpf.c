//go:build ignore

/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The end of unwinding. call_enter starts the OpenTelemetry profiler's programs (unwind.h).
 * They tail-call unwind_stop with a complete or broken stack in a per-CPU record. unwind_stop
 * hashes the frames, sets the event's stack_id to the hash, and sends a new stack.
 *
 * Needs Linux 5.17 (bpf_loop). Older kernels walk stacks by frame pointers.
 */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "regs.h"
#include "state.h"
#include "unwind.h"

char _license[] SEC("license") = "GPL";

/* 1: stacks have the classes of modules. Otherwise no thread looks for their method. */
const volatile __u8 record_classes = 0;

/* Offsets in the OpenTelemetry profiler's per-CPU record; user space sets them before load. */
const volatile __u32 record_error = 0;        /* s32: ErrorCode of the OpenTelemetry profiler */
const volatile __u32 record_pc = 0;           /* u64: program counter at which unwinding ended */
const volatile __u32 record_words = 0;        /* u16: words of all frames */
const volatile __u32 record_kernel_words = 0; /* u16: words of kernel frames */
const volatile __u32 record_data = 0;         /* u64[MAX_FRAME_WORDS]: the frames */

/* The profiler's per-CPU record. User space substitutes the profiler's map at load. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__uint(key_size, 4);
	__uint(value_size, 8);
} unwind_record SEC(".maps");

/* A broken stack is sent again after 50 ms: the process may be readable by then. */
#define RESEND_NS 50000000

/* State of the bpf_loop callback that hashes a stack. */
struct word_hash {
	__u8 *record;
	__u32 words;
	__u64 hash;
};

/* Words that one call of mix_words hashes: a call of the callback costs as much as a word. */
#define HASH_STEP 8

/* bpf_loop callback: mixes words i * HASH_STEP and following into the hash. */
static long mix_words(__u32 i, struct word_hash *c)
{
	__u32 first = i * HASH_STEP;

	for (__u32 j = 0; j < HASH_STEP; j++) {
		__u32 at = first + j;

		asm volatile("" : "+r"(at));
		if (at >= c->words || at >= MAX_FRAME_WORDS)
			return 1;
		c->hash = mix(c->hash, *(__u64 *)(c->record + record_data + 8 * at));
	}
	return 0;
}

/*
 * Mixes the words of a stack into h. The verifier checks the callback of bpf_loop a few times; it
 * would check a loop 3,072 times, and each time the code after it.
 */
static __always_inline __u64 hash_words(__u8 *record, __u32 words, __u64 h)
{
	struct word_hash c = {.record = record, .words = words, .hash = h};

	bpf_loop(MAX_FRAME_WORDS / HASH_STEP, mix_words, &c, 0);
	return c.hash;
}

/* Returns the ID of a stack: a hash of its words that fits a signed column. 0 means no stack. */
static __always_inline __u64 hash_stack(__u8 *record, __u32 words, __u32 pid, __u32 error)
{
	return hash_words(record, words, mix(pid, error)) & 0x7fffffffffffffffULL;
}

/* State of the bpf_loop callbacks that visit the Python frames of a thread. */
struct frame_walk {
	struct thread *t;
	const struct python_process *p;
	struct frame_window *window;
	__u8 *record;
	__u64 frame; /* the next frame */
	__u64 code;  /* find_method: the code object of _call_impl, which counts if there is no other */
	__u32 at;    /* add_class: index of the next word of the record */
	__u32 end;   /* add_class: index after the last class */
};

/* The Python frames that are visited. The fingerprint of a stack has MAX_PYTHON_FRAMES of them. */
#define MAX_VISITED_FRAMES 512

/* Prepares a visit of the Python frames of the thread. Returns 0 if it runs no Python. */
static __always_inline int begin_walk(struct frame_walk *w, struct thread *t, __u8 *record, __u32 pid)
{
	__u32 zero = 0;

	w->t = t;
	w->record = record;
	w->p = bpf_map_lookup_elem(&python_processes, &pid);
	w->window = bpf_map_lookup_elem(&frame_windows, &zero);
	if (!w->p || !w->window || w->p->version < PYTHON_3_11 || w->p->version > PYTHON_3_14)
		return 0;
	w->frame = python_frame(w->p);
	if (!w->frame)
		return 0;
	w->window->start = 0;
	return 1;
}

/*
 * Returns the words of the next frame of a walk, or 0 after the last one and if they are unreadable.
 * The window is the page of the frame: pages below it may not exist, and a failed read is slow.
 */
static __always_inline const __u64 *next_words(struct frame_walk *w)
{
	struct frame_window *page = w->window;

	if (!w->frame)
		return 0;
	if (page->start != (w->frame & ~(FRAME_WINDOW - 1ULL))) {
		page->start = w->frame & ~(FRAME_WINDOW - 1ULL);
		if (bpf_probe_read_user(page->words, FRAME_WINDOW, (void *)page->start))
			return 0;
	}
	return frame_words(w->t, page, w->frame);
}

/* Returns a number for the interpreter of a process, which differs after an exec. */
static __always_inline __u64 interpreter_of(const struct python_process *p)
{
	return p->tls_key_address ^ p->none_address;
}

/* bpf_loop callback: adds the class of self to the record if the frame is of the method. */
static long add_class(__u32 i, struct frame_walk *w)
{
	struct module_method *m = &w->t->module_method;
	const __u64 *words;
	__u32 at = w->at;
	__u64 *name;

	words = next_words(w);
	if (!words)
		return 1;
	if (frame_word(words, w->p->frame_code) == m->code) {
		asm volatile("" : "+r"(at));
		if (at >= w->end || at > MAX_FRAME_WORDS - CLASS_NAME_WORDS)
			return 1;
		name = (void *)(w->record + record_data + 8 * at);
		for (int j = 0; j < CLASS_NAME_WORDS; j++)
			name[j] = 0;
		bpf_probe_read_user_str(name, CLASS_NAME_BYTES, (void *)class_of_self(m, frame_word(words, m->locals)));
		w->at = at + CLASS_NAME_WORDS;
	}
	w->frame = frame_word(words, w->p->frame_back);
	return 0;
}

/*
 * Adds the code object of the method and the classes of self to the record, after the words of the
 * frames. Returns the number of words added, 0 if there are no frames of the method.
 */
static __always_inline __u32 add_classes(struct thread *t, __u8 *record, __u32 words, __u32 pid)
{
	struct frame_walk w = {};

	if (!t->module_method.code || !begin_walk(&w, t, record, pid))
		return 0;
	if (t->module_method.interpreter != interpreter_of(w.p)) {
		t->module_method.code = 0;
		return 0;
	}
	asm volatile("" : "+r"(words));
	if (words >= MAX_FRAME_WORDS)
		return 0;
	*(__u64 *)(record + record_data + 8 * words) = t->module_method.code;
	w.at = words + 1;
	w.end = w.at + CLASS_NAME_WORDS * MAX_MODULE_FRAMES;
	bpf_loop(MAX_VISITED_FRAMES, add_class, &w, 0);
	return w.at - words > 1 ? w.at - words : 0;
}

/* bpf_loop callback: looks for the method by the name of the frame's code object. */
static long find_method(__u32 i, struct frame_walk *w)
{
	const __u64 *words;
	enum code_name name;
	__u64 code;

	words = next_words(w);
	if (!words)
		return 1;
	code = frame_word(words, w->p->frame_code);
	name = name_of_code(code & ~REFERENCE_TAGS, w->p->version);
	if (name != CODE_OTHER && is_of_module_file(code & ~REFERENCE_TAGS, w->p->version))
		w->code = code;
	else
		name = CODE_OTHER;
	w->frame = frame_word(words, w->p->frame_back);
	return name == CODE_WRAPPED_CALL_IMPL;
}

/* Looks for the method in the frames of a thread that does not know it. Returns 1 if it is found. */
static __always_inline int find_module_method(struct thread *t, __u8 *record, __u32 pid)
{
	struct frame_walk w = {};

	if (t->module_method.code || !begin_walk(&w, t, record, pid))
		return 0;
	bpf_loop(MAX_VISITED_FRAMES, find_method, &w, 0);
	if (w.code)
		set_module_method(&t->module_method, w.code, w.p->version, interpreter_of(w.p));
	return w.code != 0;
}

/*
 * Sends the stack. The header overwrites a part of the profiler's record that is no longer
 * needed, directly before the frames. Returns 1 if the stack fit into the ring buffer.
 */
static __always_inline int send_unwound(__u8 *record, __u64 stack_id, __u32 pid, __u32 error, __u32 words, __u32 class_words)
{
	struct unwound_event *u = (void *)(record + record_data - sizeof(*u));
	__u16 kernel_words = *(__u16 *)(record + record_kernel_words);
	__u64 now = bpf_ktime_get_ns();
	__u64 size = sizeof(*u) + 8 * (words + class_words);

	u->kind = RECORD_UNWOUND;
	u->words = words;
	u->pid = pid;
	u->stack_id = stack_id;
	u->stop_pc = *(__u64 *)(record + record_pc);
	u->error = error;
	u->kernel_words = kernel_words;
	u->class_words = class_words;
	asm volatile("" : "+r"(size));
	if (size > sizeof(*u) + 8 * MAX_FRAME_WORDS || bpf_ringbuf_output(&events, u, size, wakeup()))
		return 0;
	bpf_map_update_elem(&stacks_sent, &stack_id, &now, BPF_ANY);
	return 1;
}

/* Returns 1 if user space has the stack. A broken stack counts as new again after RESEND_NS. */
static __always_inline int was_sent(__u64 stack_id, __u32 error)
{
	__u64 *sent = bpf_map_lookup_elem(&stacks_sent, &stack_id);

	return sent && (!error || bpf_ktime_get_ns() - *sent < RESEND_NS);
}

/* Returns the counters of an event's class of calls. */
static __always_inline struct class_stats *class_stats_of(struct event *e)
{
	__u32 call = e->call;
	struct call_spec *spec = bpf_map_lookup_elem(&calls, &call);

	return spec ? stats_of(spec->class) : 0;
}

/* Counts a call whose stack was not unwound because the record was in use. */
static __always_inline void count_busy(struct event *e)
{
	struct class_stats *s = class_stats_of(e);

	if (s)
		s->inference.busy++;
}

/* Emits a call whose return is not probed. */
static __always_inline void finish_without_return(struct thread *t, struct open_call *c)
{
	__u32 call = c->event.call;
	struct call_spec *spec = bpf_map_lookup_elem(&calls, &call);

	if (!spec || !(c->event.flags & EVENT_NO_RETURN))
		return;
	t->open--;
	emit(stats_of(spec->class), &c->event);
}

/* Tail-called when unwinding ends. The unwound call is the thread's innermost open call. */
SEC("uprobe.multi/unwind_stop")
int unwind_stop(struct pt_regs *ctx)
{
	__u64 id = bpf_get_current_pid_tgid();
	__u32 zero = 0, words, classes, error, pid = id >> 32;
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
	if (u->id != id) { /* another thread on this CPU overwrote the record */
		count_busy(&c->event);
		c->event.stack = STACK_NONE;
		finish_without_return(t, c);
		return 0;
	}
	words = *(__u16 *)(record + record_words);
	error = *(__u32 *)(record + record_error);
	classes = add_classes(t, record, words, pid);
	u->id = 0;
	charge_unwinding(t, class_stats_of(&c->event), bpf_ktime_get_ns() - u->since_ns);
	h = hash_stack(record, words + classes, pid, error);
	if (record_classes && !was_sent(h, error) && find_module_method(t, record, pid)) {
		classes = add_classes(t, record, words, pid);
		h = hash_stack(record, words + classes, pid, error);
	}
	c->event.stack = STACK_UNWOUND;
	c->event.stack_id = h;
	set_previous_stack(t, h);
	/* Do not cache a stack that did not fit: user space could not resolve it. */
	if (was_sent(h, error) || send_unwound(record, h, pid, error, words, classes))
		cache_unwound(ctx, t, &c->event, h, error);
	finish_without_return(t, c);
	return 0;
}
