/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Records that cross from the kernel to user space, and the table that user space
 * gives to the kernel. The layout is written only here; bpf2go makes the Go types.
 *
 * The records share the ring buffer and are told apart by their first member, kind. All times are CLOCK_MONOTONIC nanoseconds.
 */
#ifndef GPUREC_EVENT_H
#define GPUREC_EVENT_H

enum record_kind {
	RECORD_CALL = 1,  /* struct event: one call */
	RECORD_STACK = 2, /* struct stack_event: a stack walked by frame pointers, seen for the first time */
	RECORD_NAME = 3,  /* struct name_event: the name behind a kernel handle */
	RECORD_PROCESS = 4, /* struct process_event: a process began or became another */
	RECORD_UNWOUND = 5, /* struct unwound_event: an unwound stack seen for the first time */
};

/* Classes in which calls are counted and their losses accounted for. */
enum call_class {
	CLASS_MEMORY,
	CLASS_LAUNCH,
	CLASS_COPY,
	CLASS_SYNC,
	CLASS_API,
	CLASS_ALLOCATOR, /* events of a caching allocator */
	CLASS_COUNT,
};

/* Why a call, a stack or a name did not reach the ring buffer. */
enum loss_reason {
	LOSS_RING_FULL, /* no room in the ring buffer */
	LOSS_THREADS,   /* no room for the state of one more thread */
	LOSS_DEPTH,     /* more calls nested in one thread than its state holds */
	LOSS_REASONS,
};

enum event_flags {
	EVENT_OPEN = 1,       /* set by user space: not returned yet */
	EVENT_ABANDONED = 2,  /* the thread went on without the call's return */
	EVENT_UNREADABLE = 8, /* an argument in user memory could not be read */
	EVENT_NO_RETURN = 16, /* sent at its entry: duration and result are not known */
};

enum stack_state {
	STACK_NONE,
	STACK_FRAME_POINTER, /* stack_id names a stack walked by frame pointers */
	STACK_PARENT,        /* nested: stack_id is that of the enclosing call */
	STACK_UNWOUND,       /* stack_id names an unwound stack */
	STACK_INFERRED,      /* stack_id is that of an earlier call with the same fingerprint */
};

/* How stacks are taken. */
enum stack_mode {
	STACKS_OFF,
	STACKS_FRAME_POINTERS,
	STACKS_AUTO, /* unwound, or inferred for classes of calls that come in masses */
	STACKS_FULL, /* unwound, every one */
};

/*
 * One call. While it runs the record lives in its thread's state; members that are
 * read through an out pointer hold that pointer until the call returns.
 */
struct event {
	__u16 kind; /* RECORD_CALL */
	__u16 call; /* index into the table of calls */
	__u8 flags; /* enum event_flags */
	__u8 stack; /* enum stack_state */
	__s16 device;
	__u64 start_ns;
	__u64 dur_ns;
	__u64 parent_ns; /* start_ns of the enclosing call of this thread, 0: none */
	__u64 stack_id;
	__u64 ptr;
	__u64 bytes;
	__u64 stream;
	__u64 context;
	__u64 src; /* source of a copy, function of a launch, second handle otherwise */
	/*
	 * Launches: as named. Other calls: grid[0] and [1] are the low and high half of
	 * the row's value; for the rest see enum call_decode.
	 */
	__u32 grid[3];
	__u32 block[3];
	__u32 shared_bytes;
	__u32 pid;
	__u32 tid;
	__s32 result;
	__u32 cpu;
	__u32 node_type; /* DECODE_GRAPH_NODE: CUgraphNodeType + 1, 0: unreadable */
};
_Static_assert(sizeof(struct event) == 128, "two cache lines; 32 MiB hold 245k of them");

/* 127 frames is what perf keeps at most (PERF_MAX_STACK_DEPTH). */
#define MAX_FRAMES 127

struct stack_event {
	__u16 kind; /* RECORD_STACK */
	__u16 frames;
	__u32 pid;
	__u64 stack_id;
	__u64 caller_pc; /* return address of the probed function, 0: unreadable */
	__u64 pc[MAX_FRAMES];
};

/*
 * A stack that the unwinder took, followed by its frames as that wrote them: words of 8
 * bytes, of which the first kernel_words are not frames of the process.
 */
struct unwound_event {
	__u16 kind; /* RECORD_UNWOUND */
	__u16 words;
	__u32 pid;
	__u64 stack_id;
	__u64 stop_pc; /* where unwinding ended */
	__u32 error;   /* the unwinder's ErrorCode, 0: the stack is complete */
	__u16 kernel_words;
	__u16 _pad;
};
_Static_assert(sizeof(struct unwound_event) == 32, "goes in front of the frames");

/* What 3,072 words take, the room that the unwinder has for one stack. */
#define MAX_FRAME_WORDS 3072

/* Mangled names of template kernels reach some 2,000 characters. */
#define MAX_NAME 2800

enum process_change {
	PROCESS_FORK,  /* a child of a recorded process, recorded from here on */
	PROCESS_EXEC,  /* a recorded process runs another program */
	PROCESS_FIRST, /* recording everything: the first call of a process */
};

struct process_event {
	__u16 kind;   /* RECORD_PROCESS */
	__u16 change; /* enum process_change */
	__u32 pid;
	__u32 parent_pid; /* PROCESS_FORK */
	__u32 _pad;
	__u64 start_ns;
};

enum name_source {
	NAME_FROM_CALL,   /* the call that returned the handle */
	NAME_FROM_HANDLE, /* read behind a handle that is older than the recording */
};

/* Indexes of the map name_checks. */
enum name_check {
	NAME_CONFIRMED,
	NAME_CONTRADICTED,
};

struct name_event {
	__u16 kind;   /* RECORD_NAME */
	__u16 length; /* with the final 0; MAX_NAME: the name was cut */
	__u32 pid;
	__u64 handle;
	__u64 start_ns; /* from when on the name holds: handles are used again */
	__u32 source;   /* enum name_source */
	__u32 _pad;
	char name[MAX_NAME];
};

/* Where the value of one member of an event comes from. */
enum arg_from {
	ARG_NONE,
	ARG_VALUE,    /* integer argument number index, counted from 0 */
	ARG_POINTEE,  /* read at entry: *(argument + offset) */
	ARG_OUT,      /* read at return if the call succeeded: *(argument + offset) */
};

struct arg_spec {
	__u8 from; /* enum arg_from */
	__u8 index;
	__u8 size; /* bytes: 4 or 8 */
	__u8 _pad;
	__u16 offset;
};

/*
 * How the arguments are read beyond the arg_specs. Structures and their offsets are
 * those of the public cuda.h, the same from CUDA 11.4 or their first version to 13.0.
 */
enum call_decode {
	DECODE_ARGS,        /* members from the arg_specs alone */
	DECODE_LAUNCH,      /* (f, grid x y z, block x y z, shared bytes, stream, ...) */
	DECODE_LAUNCH_EX,   /* (const CUlaunchConfig *, f, ...) */
	DECODE_LAUNCH_GRID, /* (f, grid x, grid y, ...): the block is not known */
	DECODE_LAUNCH_BLOCK, /* (f): one block, whose size is not known */
	/* From here to DECODE_BATCH_3D the row puts the address of a structure or array into bytes. */
	DECODE_KERNEL_NODE,    /* CUDA_KERNEL_NODE_PARAMS_v2: bytes = function */
	DECODE_KERNEL_NODE_V1, /* CUDA_KERNEL_NODE_PARAMS_v1, which has no CUkernel */
	DECODE_GRAPH_NODE,     /* CUgraphNodeParams, see read_graph_node */
	DECODE_LAUNCH_LIST,    /* CUDA_LAUNCH_PARAMS[argument 1]: the first; bytes = argument 1 */
	DECODE_BATCH,          /* size_t[value]: bytes = sum of sizes */
	DECODE_BATCH_3D,       /* CUDA_MEMCPY3D_BATCH_OP[value]: bytes = sum; ptr, src of the first */
	DECODE_ARRAY,       /* argument 1: CUDA_ARRAY_DESCRIPTOR */
	DECODE_ARRAY_3D,    /* argument 1: CUDA_ARRAY3D_DESCRIPTOR */
	/* Arrays: bytes = width, grid = height, depth, format, block[0] = channels. */
	DECODE_COPY_2D, /* argument 0: CUDA_MEMCPY2D */
	DECODE_COPY_3D, /* argument 0: CUDA_MEMCPY3D or CUDA_MEMCPY3D_PEER */
	/* Copies: ptr, src and bytes; grid[2] and block[0] = memory type of source, target. */
	DECODE_UUID,  /* at return, the 16 bytes at argument 0: grid[0..2], block[0] */
	DECODE_ALLOCATOR, /* see read_trace */
	DECODE_ALLOCATOR_POOL,
	DECODE_REPORT, /* see read_report */
};

/* What a caching allocator does: c10::CachingDeviceAllocator::TraceEntry::Action. */
enum allocator_action {
	ACTION_ALLOC,
	ACTION_FREE_REQUESTED,
	ACTION_FREE_COMPLETED,
	ACTION_SEGMENT_ALLOC,
	ACTION_SEGMENT_FREE,
	ACTION_SEGMENT_MAP,
	ACTION_SEGMENT_UNMAP,
	ACTION_SNAPSHOT,
	ACTION_OOM,
};

/* Which function tells of a process's caching allocator. */
enum allocator_source {
	SOURCE_TRACE = 1, /* DeviceCachingAllocator::record_trace */
	SOURCE_REPORTS,   /* c10::reportMemoryUsageToProfiler */
};

/* What is known of the caching allocators of a process. */
struct process_allocator {
	__u64 allocated_at; /* where in an object its array of allocated bytes is, NOT_FOUND: not known yet */
	__u32 source;       /* enum allocator_source */
	__u32 _pad;
};
#define NOT_FOUND (~0ULL)

/* What a call changes beyond its own record. */
enum call_effect {
	EFFECT_NONE,
	EFFECT_NAME,           /* ptr is the new handle of the kernel called *src */
	EFFECT_LAUNCH,         /* src is a kernel handle whose name is wanted */
	EFFECT_RARE_LAUNCH,    /* the same, served by call_enter: launch_enter stays small */
	EFFECT_UNLOAD,         /* kernel handles may be used again */
	EFFECT_CONTEXT_SET,    /* ptr becomes the thread's current context */
	EFFECT_CONTEXT_PUSH,
	EFFECT_CONTEXT_POP,
	EFFECT_CONTEXT_CREATE, /* ptr is a new context on device bytes, now current */
	EFFECT_CONTEXT_DESTROY,
	EFFECT_CONTEXT_RETAIN, /* ptr is the primary context of device bytes */
	EFFECT_CONTEXT_GET,    /* ptr turned out to be current */
	EFFECT_DEVICE_GET,     /* the current context turned out to be on device bytes */
};

/* Whether a call is sent at its entry, its return not being probed. */
enum no_return {
	RETURN_ALWAYS,
	RETURN_SOMETIMES, /* sent at its entry while skip_returns is set */
	RETURN_NEVER,
};

/* One row of the table of calls, as the kernel needs it. */
struct call_spec {
	__u8 class;      /* enum call_class */
	__u8 decode;     /* enum call_decode */
	__u8 effect;     /* enum call_effect */
	__u8 count_only; /* only counted, no event */
	__u8 scale;      /* bytes are multiplied by this, 0: by 1 */
	__u8 is_getter;  /* counted too: user space drops the probe when it comes too often */
	__u8 no_return;  /* sent at its entry, enum no_return */
	struct arg_spec ptr, bytes, times, stream, src, value; /* bytes *= times */
};

/* What a fingerprint is made of. */
enum fingerprint_level {
	LEVEL_CALL,     /* the call itself */
	LEVEL_SEQUENCE, /* and the innermost Python frame, and the stack of the thread's call before it */
	LEVEL_PYTHON,   /* instead of these all Python frames */
	LEVEL_PATH,     /* and return addresses on the stack */
	LEVELS,
};

/* How right inferred stacks are. */
struct inference_stats {
	__u64 inferred[LEVELS];
	__u64 checked; /* could have been inferred and were unwound instead, chosen at random */
	__u64 wrong;   /* of the checked: the fingerprint said another stack */
	__u64 wrong_weight; /* inferred calls for which the wrong ones stand */
	__u64 busy;    /* not unwound, or not to the end: another thread was at it on this CPU */
};

/* Accounting per class; per CPU, summed by user space. seen = emitted + lost + open. */
struct class_stats {
	__u64 seen;
	__u64 emitted;
	__u64 abandoned; /* of the emitted */
	__u64 lost[LOSS_REASONS];
	struct inference_stats inference; /* here, because a map of its own is one more cold page a hit */
};

/* A call that has not returned. */
struct open_call {
	__u64 sp; /* stack pointer at entry: orders the calls of a thread */
	__u64 name_known; /* a launch: user space has been told the kernel's name */
	struct event event;
};

#define MAX_OPEN 6     /* nested calls: runtime, driver, allocator and then some */
#define MAX_CONTEXTS 8 /* cuCtxPushCurrent nesting; deeper pushes lose the oldest */

/* State of one thread that has called CUDA; touched by that thread alone. */
struct thread {
	__u32 open;     /* calls[0 .. open) have not returned */
	__u32 contexts; /* depth of the context stack */
	__u64 context[MAX_CONTEXTS];
	__u64 device_context; /* the context that device is of, as far as known */
	__s32 device;
	__u32 epoch; /* of kernel handles, at the call under way */
	struct open_call calls[MAX_OPEN];
	__u64 fingerprint; /* of the stack being unwound, 0: it is not to be remembered */
	__u64 expected;    /* the stack as it would have been inferred, 0: it would not have been */
	__u64 path;        /* key of the path on which it would have been */
	__u64 previous;    /* stack of the last call that has one, 0: none yet */
	__u64 repeats;     /* how often it came in a row before that, at most MAX_REPEATS */
	__u32 level;       /* enum fingerprint_level */
	__u32 weight;      /* of how many calls such as this one is unwound */
	__u64 allocator;   /* the caching allocator that was last at work, 0: none */
	union {
		struct stack_event stack;
		struct name_event name;
		__u64 words[336]; /* a structure or a piece of an array of the caller */
	} scratch;
};
_Static_assert(sizeof(struct thread) <= 4096 - 64, "one element of a run-time allocated hash");

#endif
