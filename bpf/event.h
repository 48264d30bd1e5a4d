/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Records that the BPF programs send to user space, and the call table that user space fills
 * for the BPF programs. bpf2go generates the Go types from these definitions.
 *
 * All records share one ring buffer. Their first member, kind, selects the structure.
 * All times are CLOCK_MONOTONIC nanoseconds.
 */
#ifndef GPUREC_EVENT_H
#define GPUREC_EVENT_H

enum record_kind {
	RECORD_CALL = 1,  /* struct event: one call */
	RECORD_STACK = 2, /* struct stack_event: a new stack, walked by frame pointers */
	RECORD_NAME = 3,  /* struct name_event: the name of a kernel handle */
	RECORD_PROCESS = 4, /* struct process_event: a target process forked, called exec or was added */
	RECORD_UNWOUND = 5, /* struct unwound_event: a new stack, unwound by the OpenTelemetry profiler */
	RECORD_LEARNED = 6, /* struct learned_event: the stack that a provisional stack ID means */
	RECORD_PROGRESS = 7, /* struct progress_event: progress words of channels */
	RECORD_ARGUMENTS = 8, /* struct arguments_event: the arguments of a kernel launch */
	RECORD_ENGINE = 9, /* struct event: a call of PyTorch's autograd engine, see autograd.h */
};

/* Classes of calls. Seen, sent and lost calls are counted per class. */
enum call_class {
	CLASS_MEMORY,
	CLASS_LAUNCH,
	CLASS_COPY,
	CLASS_SYNC,
	CLASS_API,
	CLASS_ALLOCATOR, /* events of a caching allocator */
	CLASS_COLLECTIVE, /* calls of NCCL */
	CLASS_COUNT,
	CLASS_ENGINE = CLASS_COUNT, /* calls of PyTorch's autograd engine: no rows, and no counts of them */
	CLASS_SLOTS,
};

/* Reasons why a call, a stack or a name did not reach the ring buffer. */
enum loss_reason {
	LOSS_RING_FULL, /* no room in the ring buffer */
	LOSS_THREADS,   /* the map of thread states is full */
	LOSS_DEPTH,     /* more than MAX_OPEN nested calls in one thread */
	LOSS_REASONS,
};

enum event_flags {
	EVENT_OPEN = 1,       /* set by user space: the call has not returned */
	EVENT_ABANDONED = 2,  /* the function was left without a return (exception, longjmp) */
	EVENT_UNREADABLE = 8, /* an argument in user memory could not be read */
	EVENT_NO_RETURN = 16, /* sent at the entry probe: duration and result are unknown */
	EVENT_EARLY = 32,     /* the kernel may begin before the operation before it on its stream ends */
};

enum stack_state {
	STACK_NONE,          /* the call has no stack */
	STACK_FRAME_POINTER, /* stack_id identifies a stack walked by frame pointers */
	STACK_PARENT,        /* nested call: stack_id is copied from the enclosing call */
	STACK_UNWOUND,       /* stack_id identifies an unwound stack */
	STACK_INFERRED,      /* stack_id is copied from an earlier call with the same fingerprint */
	STACK_RATIONED,      /* not unwound: stack_id is provisional, or 0 if the stack stays unknown */
	STACK_UNKNOWN,       /* unwinding did not end: the unwinder does not know the process yet */
};

/* How call stacks are captured. */
enum stack_mode {
	STACKS_OFF,            /* no stacks */
	STACKS_FRAME_POINTERS, /* stacks are walked by frame pointers */
	STACKS_AUTO, /* frequent classes of calls infer their stacks; other calls are unwound */
	STACKS_FULL, /* every call is unwound */
};

/*
 * One call. Until the call returns, its event is stored in the state of the calling thread.
 * Members that are read through an out pointer hold that pointer until then.
 */
struct event {
	__u16 kind; /* RECORD_CALL */
	__u16 call; /* index into the call table */
	__u8 flags; /* enum event_flags */
	__u8 stack; /* enum stack_state */
	__s16 device;
	__u64 start_ns;
	__u64 dur_ns;    /* without holds (hold.bpf.c); while the call is open: the time of holds in it */
	__u64 parent_ns; /* start_ns of the enclosing call of this thread, 0: not nested */
	__u64 stack_id;
	__u64 ptr;
	__u64 bytes;
	__u64 stream;
	__u64 context;
	__u64 src; /* source of a copy, function of a launch, otherwise a second handle */
	/*
	 * Launches: grid, block and dynamic shared memory. Other calls: grid[0] and grid[1] are the
	 * low and high half of the call's value; enum call_decode defines the other words.
	 */
	__u32 grid[3];
	__u32 block[3];
	__u32 shared_bytes;
	__u32 pid;
	__u32 tid;
	__s32 result;
	__u32 cpu;
	/*
	 * DECODE_GRAPH_NODE: CUgraphNodeType + 1, 0: unreadable. New communicators: epoch of the parent.
	 * RECORD_ENGINE: the number of the call. Memory, launches and allocator events: the number of the call
	 * of the autograd engine for which the thread works, or 0.
	 */
	__u32 extra;
};
_Static_assert(sizeof(struct event) == 128, "two cache lines; 32 MiB hold 245k of them");

/* The kernel's default limit of frames in a stack (PERF_MAX_STACK_DEPTH). */
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
 * Header of an unwound stack. The frames follow as the OpenTelemetry profiler encodes them, in
 * 8-byte words. The first kernel_words words are not frames of the process. After the frames come
 * class_words words: the code object of a method of nn.Module, and the name of the class of self in
 * each frame of this method, leaf first, in CLASS_NAME_WORDS (empty: unreadable).
 */
struct unwound_event {
	__u16 kind; /* RECORD_UNWOUND */
	__u16 words;
	__u32 pid;
	__u64 stack_id;
	__u64 stop_pc; /* program counter at which unwinding ended */
	__u32 error;   /* ErrorCode of the OpenTelemetry profiler, 0: the stack is complete */
	__u16 kernel_words;
	__u16 class_words; /* 0: the stack has no such frames */
};
_Static_assert(sizeof(struct unwound_event) == 32, "goes in front of the frames");

struct learned_event {
	__u16 kind; /* RECORD_LEARNED */
	__u16 _pad;
	__u32 pid;
	__u64 provisional_id;
	__u64 stack_id;
};

/* One progress word: counter operations of the channel are complete, the last at gpu_time_ns. */
struct progress_sample {
	__u32 channel; /* 0: no sample */
	__u32 _pad;
	__u64 counter;
	__u64 gpu_time_ns;
};

/* One launch reads the progress words of at most this many channels. */
#define PROGRESS_READS 4

struct progress_event {
	__u16 kind; /* RECORD_PROGRESS */
	__u16 _pad;
	__u32 pid;
	__u64 seen_ns; /* the slots had these words at this time */
	struct progress_sample sample[PROGRESS_READS];
};

/* At most this many parameters of a launch are read. */
#define MAX_ARGUMENTS 32
/* At most this many bytes of their values are sent. */
#define MAX_ARGUMENT_BYTES 512

/* How the arguments of a launch were passed. */
enum arguments_form {
	ARGUMENTS_POINTERS = 1, /* kernelParams: an array of pointers to values */
	ARGUMENTS_BUFFER, /* extra: all values in one buffer, data[0 .. bytes) */
};

/*
 * The arguments of one launch. User space joins it with the call by pid, tid and start_ns. Value i of
 * ARGUMENTS_POINTERS begins at data[at[i]]. The first near values are in one copy of memory,
 * data[0 .. near_bytes); the others follow, each with at most 8 bytes or its known size.
 */
struct arguments_event {
	__u16 kind; /* RECORD_ARGUMENTS */
	__u8 form;  /* enum arguments_form */
	__u8 count; /* pointers that could be read, or known parameters */
	__u32 pid;
	__u32 tid;
	__u16 bytes; /* valid bytes of data */
	__u16 near_bytes;
	__u64 start_ns;
	__u64 function;
	__u64 stream;
	__u64 context;
	__u8 near;
	__u8 is_known; /* count is the number of parameters; otherwise more pointers may be wrong */
	__u8 is_cut;   /* values are missing: too many parameters or bytes, or unreadable memory */
	__u8 _pad[3];
	__u16 call; /* index into the call table */
	__u16 at[MAX_ARGUMENTS];
	__u8 data[MAX_ARGUMENT_BYTES];
};
_Static_assert(sizeof(struct arguments_event) == 632, "user space decodes it");

/* A stream of a process. */
struct arguments_stream {
	__u64 pid, context, stream;
};

/* Memory for the arguments of a launch. A far value that is too long ends in the spare bytes. */
struct arguments_record {
	struct arguments_event event; /* kind is 0 while it is being written */
	__u8 spare[MAX_ARGUMENT_BYTES];
};

/* The kept launches of a stream: launch n is in kept_arguments[index * kept_launches + n % kept_launches]. */
struct kept_stream {
	__u64 launches; /* so far */
	__u32 index;
	__u32 _pad;
};

/* The parameters of a kernel, from user space. */
struct kernel_layout {
	__u32 count;
	__u16 size[MAX_ARGUMENTS];
};

/*
 * Reading of arguments. All of it is in the memory of the thread, and not on the stack of the program: the
 * verifier follows no values in memory, so its loops have few states.
 */
struct arguments_state {
	__u64 pointers[MAX_ARGUMENTS];
	struct kernel_layout layout; /* count 0 and sizes 0: unknown */
	__u32 count;     /* pointers that were read */
	__u32 plausible; /* of these, up to the first that is no address of the host */
	__u32 is_far;    /* a value is not near the first ones */
	__u32 near;      /* the first values that are near each other */
	__u64 low, high; /* the near values */
	struct arguments_record record; /* where arguments are read that are not kept */
};

/* Capacity of the unwinder's record, in 8-byte words. */
#define MAX_FRAME_WORDS 3072

/* Bytes kept of a kernel's name. Mangled names of template kernels reach about 2,000. */
#define MAX_NAME 2800

enum process_change {
	PROCESS_FORK,  /* a target process forked a child, which is a target from now on */
	PROCESS_EXEC,  /* a target process called exec */
	PROCESS_FIRST, /* record_all: a process made its first call and is a target from now on */
};

struct process_event {
	__u16 kind;   /* RECORD_PROCESS */
	__u16 change; /* enum process_change */
	__u32 pid;
	__u32 parent_pid; /* PROCESS_FORK only */
	__u32 _pad;
	__u64 start_ns;
};

enum name_source {
	NAME_FROM_CALL,   /* argument of the call that returned the handle */
	NAME_FROM_HANDLE, /* read through a handle that was created before the recording */
};

/* Indexes of the name_checks map. */
enum name_check {
	NAME_CONFIRMED,
	NAME_CONTRADICTED,
};

struct name_event {
	__u16 kind;   /* RECORD_NAME */
	__u16 length; /* bytes including the final 0; MAX_NAME: the name was cut */
	__u32 pid;
	__u64 handle;
	__u64 start_ns; /* the name is valid from this time: the driver reuses handles */
	__u32 source;   /* enum name_source */
	__u32 _pad;
	char name[MAX_NAME];
};

/* How one member of an event is read from a function's arguments. */
enum arg_from {
	ARG_NONE,
	ARG_VALUE,    /* the integer argument at index, counted from 0 */
	ARG_POINTEE,  /* *(argument + offset), read at entry */
	ARG_OUT,      /* *(argument + offset), read at return if the call succeeded */
};

struct arg_spec {
	__u8 from; /* enum arg_from */
	__u8 index;
	__u8 size; /* 4 or 8 bytes */
	__u8 _pad;
	__u16 offset;
};

/*
 * How a call's arguments are read beyond its arg_specs. Structures and offsets are those of the
 * public cuda.h. They are stable from CUDA 11.4, or their first version, to 13.0.
 */
enum call_decode {
	DECODE_ARGS,        /* only the arg_specs */
	DECODE_LAUNCH,      /* arguments (f, grid x y z, block x y z, shared bytes, stream, ...) */
	DECODE_LAUNCH_EX,   /* arguments (const CUlaunchConfig *, f, ...) */
	DECODE_LAUNCH_GRID, /* arguments (f, grid x, grid y, ...): the block size is unknown */
	DECODE_LAUNCH_BLOCK, /* argument (f): one block of unknown size */
	/* DECODE_KERNEL_NODE to DECODE_BATCH_3D: bytes holds the address of a structure or array. */
	DECODE_KERNEL_NODE,    /* CUDA_KERNEL_NODE_PARAMS_v2: bytes = function */
	DECODE_KERNEL_NODE_V1, /* CUDA_KERNEL_NODE_PARAMS_v1: the same without the CUkernel member */
	DECODE_GRAPH_NODE,     /* CUgraphNodeParams, see read_graph_node */
	DECODE_LAUNCH_LIST,    /* CUDA_LAUNCH_PARAMS[argument 1]: the first entry; bytes = argument 1 */
	DECODE_BATCH,          /* size_t[value]: bytes = the sum of the sizes */
	DECODE_BATCH_3D,       /* CUDA_MEMCPY3D_BATCH_OP[value]: bytes = the sum; ptr and src of the first */
	DECODE_ARRAY,       /* argument 1: CUDA_ARRAY_DESCRIPTOR */
	DECODE_ARRAY_3D,    /* argument 1: CUDA_ARRAY3D_DESCRIPTOR */
	/* Both array descriptors: bytes = width, grid = height, depth, format, block[0] = channels. */
	DECODE_COPY_2D, /* argument 0: CUDA_MEMCPY2D */
	DECODE_COPY_3D, /* argument 0: CUDA_MEMCPY3D or CUDA_MEMCPY3D_PEER */
	/* Both copies set ptr, src, bytes, grid[2] = source memory type, block[0] = target's. */
	DECODE_UUID,  /* at return: the 16 bytes at argument 0, in grid[0..2] and block[0] */
	DECODE_ALLOCATOR,      /* record_trace without a pool argument, see read_trace */
	DECODE_ALLOCATOR_POOL, /* record_trace with a pool argument, see read_trace */
	DECODE_REPORT,         /* reportMemoryUsageToProfiler, see read_report */
	/* Calls of NCCL, see read_collective. */
	DECODE_COLLECTIVE,     /* an operation of all ranks of a communicator */
	DECODE_SEND,           /* ncclSend */
	DECODE_RECV,           /* ncclRecv */
	DECODE_COMMUNICATOR,   /* another call, with only the arg_specs */
	DECODE_INIT_RANK,      /* the same with an ncclUniqueId by value after argument 1 */
	DECODE_INIT_IDS,       /* the same with an array of ncclUniqueId as argument 4 */
	DECODE_GROUP_START,    /* ncclGroupStart: counted in the thread's state, sends no event */
	DECODE_GROUP_END,      /* ncclGroupEnd */
	DECODE_ENGINE,         /* torch::autograd::Engine::execute, see autograd.h */
};

/* Actions of a PyTorch allocator: c10::CachingDeviceAllocator::TraceEntry::Action. */
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

/* The probed function from which the allocator events of a process are recorded. */
enum allocator_source {
	SOURCE_TRACE = 1, /* DeviceCachingAllocator::record_trace */
	SOURCE_REPORTS,   /* c10::reportMemoryUsageToProfiler */
};

/* The state of the caching allocators of one process. */
struct process_allocator {
	__u64 stats_offset; /* bytes from an allocator object to its statistics, or OFFSET_UNKNOWN */
	__u32 source;       /* enum allocator_source */
	__u32 counted;      /* bit d: device d needs no struct allocator_beginning any more */
};
#define OFFSET_UNKNOWN (~0ULL)

#define ACTIONS (ACTION_OOM + 1)

/*
 * Events of one process and device until the allocator's statistics can be read. They have the
 * number of events since the start of the process: more than were recorded if the beginning is
 * missing.
 */
struct allocator_beginning {
	__u64 first_ns;          /* the first recorded event */
	__u64 recorded[ACTIONS]; /* events by action, before the statistics were read */
	/* The same of the allocator's statistics; valid once is_read is set. */
	__u64 happened[ACTION_SEGMENT_FREE + 1];
	__u64 is_read;
};

/* The effect of a call on the state in BPF maps: names of handles, epochs and contexts. */
enum call_effect {
	EFFECT_NONE,
	EFFECT_NAME,           /* ptr is the new handle of the kernel named *src */
	EFFECT_LAUNCH,         /* src is a kernel handle: send its name if it is new */
	EFFECT_RARE_LAUNCH,    /* EFFECT_LAUNCH for functions with call_enter: launch_enter stays small */
	EFFECT_UNLOAD,         /* a module was unloaded: the driver may reuse kernel handles */
	EFFECT_CONTEXT_SET,    /* ptr becomes the thread's current context */
	EFFECT_CONTEXT_PUSH,
	EFFECT_CONTEXT_POP,
	EFFECT_CONTEXT_CREATE, /* ptr is a new context on device ordinal bytes, now current */
	EFFECT_CONTEXT_DESTROY,
	EFFECT_CONTEXT_RETAIN, /* ptr is the primary context of device ordinal bytes */
	EFFECT_CONTEXT_GET,    /* ptr is the current context */
	EFFECT_DEVICE_GET,     /* bytes is the device ordinal of the current context */
	EFFECT_COMMUNICATOR,   /* ptr is a new communicator, whose numbers begin at 1 */
	EFFECT_COMMUNICATORS,  /* src is an array of as many new communicators as bytes says */
	EFFECT_COMMUNICATOR_END, /* at entry: the communicator ptr ends, and its address may be used again */
};

/* When the return of a call is probed. A call without a return probe is sent at its entry. */
enum return_probe {
	RETURN_ALWAYS,  /* every return is probed */
	RETURN_SAMPLED, /* returns are probed while skip_returns is 0 */
	RETURN_NEVER,   /* no return is probed */
	RETURN_OPTIONAL, /* returns are probed while skip_operation_returns is 0 */
};

/* One row of the call table, as the BPF programs read it. */
struct call_spec {
	__u8 class;      /* enum call_class */
	__u8 decode;     /* enum call_decode */
	__u8 effect;     /* enum call_effect */
	__u8 count_only; /* calls are counted and send no event */
	__u8 scale;      /* multiplies bytes, 0: no scaling */
	__u8 is_getter;  /* also counted: user space removes the probe if calls are too frequent */
	__u8 return_probe;  /* enum return_probe */
	struct arg_spec ptr, bytes, times, stream, src, value; /* times multiplies bytes */
};

/* The evidence in a fingerprint, from the cheapest level to the most exact. */
enum fingerprint_level {
	LEVEL_CALL,     /* thread, stack pointer, return address, function and discriminator */
	LEVEL_SEQUENCE, /* LEVEL_CALL plus innermost Python frame and the thread's previous stack */
	LEVEL_PYTHON,   /* LEVEL_CALL plus all Python frames */
	LEVEL_PATH,     /* LEVEL_PYTHON plus the return addresses on the native stack */
	LEVELS,
};

/* Counts of inferred stacks, and of the random checks that measure their error rate. */
struct inference_stats {
	__u64 inferred[LEVELS];
	__u64 checked; /* an inferred stack was known, and the call was unwound as a check */
	__u64 wrong;   /* checks that unwound another stack than the inferred one */
	__u64 wrong_weight; /* inferred calls that the wrong checks represent */
	__u64 busy;    /* not unwound completely: another thread used the unwinder on this CPU */
	__u64 rationed;  /* not unwound: the thread had used its ration, and the cache had no stack */
	__u64 unchecked; /* inferred calls whose check was left out because of the ration, by weight */
	__u64 unwinding_ns; /* time spent on unwinding */
};

/* Counters of a class of calls, per CPU. User space sums them. seen = emitted + lost + open. */
struct class_stats {
	__u64 seen;
	__u64 emitted;
	__u64 abandoned; /* emitted calls with EVENT_ABANDONED */
	__u64 lost[LOSS_REASONS];
	/* Not in a map of its own: that would cost one more cache miss per call. */
	struct inference_stats inference;
};

/* A call that has not returned. */
struct open_call {
	__u64 sp; /* stack pointer at entry: orders the open calls of a thread */
	__u32 name_known; /* launches: user space already has the kernel's name */
	__u32 is_silent;  /* calls of NCCL inside of another call, and inner groups: no event */
	struct event event;
};

#define MAX_OPEN 6     /* maximum nesting of calls: runtime, driver, allocator and a reserve */
#define MAX_CONTEXTS 8 /* maximum nesting of cuCtxPushCurrent; a deeper push drops the oldest */

/* Kinds of probe hits, to measure the overhead of probes. */
enum hit_kind {
	HIT_LAUNCH,    /* launches whose probes can be removed */
	HIT_ALLOCATOR, /* events of a caching allocator */
	HIT_COLLECTIVE, /* calls of NCCL */
	HIT_OTHER,
	HIT_KINDS,
};

/* The method of nn.Module whose frames have the class of a module as the type of self. */
struct module_method {
	__u64 code;        /* address of its code object as in frames, 0: not found yet */
	__u64 interpreter; /* identifies the interpreter: an exec replaces it */
	__u32 locals;      /* offset of the first local variable in a frame */
	__u32 self_is_cell;
};

/* Bytes of the name of a class, with a final 0. A longer name is cut. */
#define CLASS_NAME_WORDS 8
#define CLASS_NAME_BYTES (8 * CLASS_NAME_WORDS)

/* Frames of a stack whose classes are sent. Transformers have 10. */
#define MAX_MODULE_FRAMES 64

/* What a thread does for PyTorch's autograd engine. */
enum engine_role {
	ENGINE_NONE,
	ENGINE_THREAD, /* one of the engine's own threads, by its name */
	ENGINE_CALLER, /* inside of Engine::execute */
	ENGINE_UNSURE, /* inside of two calls of it, or an exception has left the outer one */
};

/* State of one thread that has called CUDA. Only that thread writes it. */
struct thread {
	__u32 hits[HIT_KINDS]; /* probe hits at entries and returns; they wrap around */
	__u32 open;     /* number of calls that have not returned: calls[0 .. open) */
	__u32 contexts; /* depth of the context stack */
	__u32 engine;   /* enum engine_role */
	__u32 engine_call; /* ENGINE_CALLER: number of the call of execute */
	__u64 context[MAX_CONTEXTS];
	__u64 device_context; /* the context for which device was looked up */
	__s32 device;
	__u32 epoch; /* epoch of the process's kernel handles at the current call */
	struct open_call calls[MAX_OPEN];
	__u64 fingerprint; /* key under which the unwound stack is cached, 0: do not cache it */
	__u64 expected_stack; /* in a check: the stack that would have been inferred, otherwise 0 */
	__u64 sequence; /* key of LEVEL_SEQUENCE if the call's stack was not inferred from its frames, 0: none */
	__u64 path_key;       /* key of the path that matched, for LEVEL_PATH */
	__u64 previous_stack; /* stack of the thread's previous call, 0: none yet */
	__u64 repeats;     /* how often previous_stack repeated in a row, at most MAX_REPEATS */
	__u32 level;       /* enum fingerprint_level */
	__u32 check_weight;  /* calls that one check represents, see check_period */
	__u64 is_rationed; /* the current call may not be unwound, and its fingerprint is not trusted */
	__u64 unwinding_ns;      /* unwinding time that unwind_paid_until does not contain yet */
	__u64 unwind_paid_until; /* time until which the thread's unwinding is paid for, see ration.h */
	__u64 progress_due_ns; /* the thread does not sample channels before this time */
	__u64 submitted; /* calls that submit work, since the thread last sampled channels */
	__u64 group;       /* number of the outermost NCCL group of the thread, from 1 on */
	__u32 group_depth; /* ncclGroupStart without its ncclGroupEnd */
	__u32 group_operations; /* operations in the group */
	/* ENGINE_CALLER and ENGINE_UNSURE: stack pointer and return address at the entry of the outer call of execute. */
	__u64 engine_sp, engine_return;
	struct module_method module_method;
	__u64 last_allocator; /* address of the last caching allocator object that was called, 0: none */
	union {
		struct stack_event stack;
		struct name_event name;
		struct arguments_state arguments;
		__u64 words[336]; /* a structure or a part of an array, copied from user memory */
	} scratch;
};
_Static_assert(sizeof(struct thread) <= 4096 - 64, "one element of a run-time allocated hash");

#endif
