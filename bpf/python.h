/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Reads the Python frames of a thread, in the layout of CPython 3.11 and later. The
 * OpenTelemetry profiler provides the offsets for each process.
 */
#ifndef GPUREC_PYTHON_H
#define GPUREC_PYTHON_H

#include "state.h"
#include "stack.h"
#include "moduleclass.h"

/* Offset of the thread pointer (fs base, tpidr) in the kernel's task_struct. */
const volatile __u32 task_thread_pointer = 0;

/* PyProcInfo of the OpenTelemetry profiler: offsets in a process's interpreter. */
struct python_process {
	__u64 tls_key_address; /* of the int autoTLSkey, before CPython 3.13 */
	__u64 none_address;
	__u16 version;
	__s16 tls_offset; /* thread state from the thread pointer, CPython 3.13+; 0: use autoTLSkey */
	struct {
		__s16 offset;
		__u8 multiplier;
		__u8 indirect;
	} tsd;
	__u8 thread_frame;   /* PyThreadState.frame, .cframe or .current_frame */
	__u8 cframe_current; /* _PyCFrame.current_frame */
	__u8 frame_back, frame_code, frame_instruction;
	__u8 frame_entry, frame_entry_value;
	__u8 _code[5];
	__u8 instruction_is_pointer; /* since CPython 3.11 */
	__u8 frame_is_cframe;        /* thread_frame is .cframe: CPython 3.11 and 3.12 */
	__u8 _pad[2];
};
_Static_assert(sizeof(struct python_process) == 40, "the layout of the unwinder's PyProcInfo");

/* pid -> its interpreter. User space substitutes the OpenTelemetry profiler's map at load. */
struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 1024);
	__type(key, __u32);
	__type(value, struct python_process);
} python_processes SEC(".maps");

#define MAX_PYTHON_FRAMES 96
/*
 * Words read of an interpreter frame: all members that are needed are in its first 80 bytes. The
 * first local variable follows them since CPython 3.14.
 */
#define PYTHON_FRAME_WORDS 11

/* Reads 8 bytes of user memory; 0 if they are unreadable. */
static __always_inline __u64 read_word(__u64 address)
{
	__u64 v = 0;

	bpf_probe_read_user(&v, sizeof(v), (void *)address);
	return v;
}

/* Returns the address of the thread's innermost Python frame, 0: the thread runs no Python. */
static __always_inline __u64 python_frame(const struct python_process *p)
{
	__u64 task = bpf_get_current_task(), thread_pointer = 0, state, frame;
	__u32 key = 0;

	bpf_probe_read_kernel(&thread_pointer, sizeof(thread_pointer), (void *)(task + task_thread_pointer));
	if (p->tls_offset) {
		state = read_word(thread_pointer + p->tls_offset);
	} else {
		__u64 tsd = thread_pointer + p->tsd.offset;

		bpf_probe_read_user(&key, sizeof(key), (void *)p->tls_key_address);
		if (p->tsd.indirect)
			tsd = read_word(tsd);
		state = read_word(tsd + (__u64)key * p->tsd.multiplier);
	}
	if (!state)
		return 0;
	frame = read_word(state + p->thread_frame);
	return frame && p->frame_is_cframe ? read_word(frame + p->cframe_current) : frame;
}

/* Returns the word at a byte offset of a copied Python frame. */
static __always_inline __u64 frame_word(const __u64 *frame, __u8 offset)
{
	__u32 i = offset / 8;

	asm volatile("" : "+r"(i));
	return i < PYTHON_FRAME_WORDS ? frame[i] : 0;
}

/* Frames at most this many bytes below the innermost frame are read at once. */
#define FRAME_WINDOW 4096
#define FRAME_WINDOW_WORDS (FRAME_WINDOW / 8)

/*
 * A copy of the memory below the innermost frame. CPython keeps the frames of a thread in
 * chunks of 16 KiB, the innermost at the highest address. One read of 4 KiB copies about 20
 * frames, for the cost of reading two or three alone.
 */
struct frame_window {
	__u64 start; /* address in the process, 0: unreadable */
	__u64 words[FRAME_WINDOW_WORDS];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct frame_window);
} frame_windows SEC(".maps");

/* Copies the memory that ends behind a Python frame into the window. */
static __always_inline void read_window(struct frame_window *w, __u64 frame)
{
	w->start = frame + 8 * PYTHON_FRAME_WORDS - FRAME_WINDOW;
	if (bpf_probe_read_user(w->words, FRAME_WINDOW, (void *)w->start))
		w->start = 0;
}

/* Returns the first words of a frame, from the window if possible; 0 if unreadable. */
static __always_inline const __u64 *frame_words(struct thread *t, const struct frame_window *w, __u64 frame)
{
	__u64 at = (frame - w->start) / 8;

	asm volatile("" : "+r"(at));
	if (w->start && at <= FRAME_WINDOW_WORDS - PYTHON_FRAME_WORDS)
		return w->words + at;
	if (bpf_probe_read_user(t->scratch.words, PYTHON_FRAME_WORDS * 8, (void *)frame))
		return 0;
	return t->scratch.words;
}

/* Mixes code object and instruction of the thread's innermost Python frame into h. */
static __always_inline __u64 python_line(struct thread *t, __u32 pid, __u64 h)
{
	const struct python_process *p = bpf_map_lookup_elem(&python_processes, &pid);
	const __u64 *words = t->scratch.words;
	__u64 frame = p ? python_frame(p) : 0;

	if (!frame || bpf_probe_read_user(t->scratch.words, PYTHON_FRAME_WORDS * 8, (void *)frame))
		return h;
	return mix(h ^ frame_word(words, p->frame_code), frame_word(words, p->frame_instruction));
}

/*
 * Mixes code object and instruction of every Python frame of the thread into h, and the classes of
 * modules once the thread knows their method.
 */
GLOBAL_FUNC __u64 python_chain(struct thread *t, __u32 pid, __u64 h)
{
	const struct python_process *p = bpf_map_lookup_elem(&python_processes, &pid);
	__u32 zero = 0;
	struct frame_window *w = bpf_map_lookup_elem(&frame_windows, &zero);
	__u64 frame, code;

	if (!t || !p || !w)
		return h;
	frame = python_frame(p);
	if (frame)
		read_window(w, frame);
	for (int i = 0; i < MAX_PYTHON_FRAMES && frame; i++) {
		const __u64 *words = frame_words(t, w, frame);

		if (!words)
			break;
		code = frame_word(words, p->frame_code);
		h = mix(h ^ code, frame_word(words, p->frame_instruction));
		if (code == t->module_method.code)
			h = mix(h, class_of_self(&t->module_method, frame_word(words, t->module_method.locals)));
		frame = frame_word(words, p->frame_back);
	}
	return h;
}

#endif
