/*
 * Internals of the simulated driver. Every exported function has the same three parts:
 *
 *	EXPORT CUresult cuMemFree_v2(CUdeviceptr dptr)
 *	{
 *		BEGIN(cuMemFree_v2, NEEDS_CONTEXT, .ptr = dptr); // reads the clock, checks the context
 *		DO(memory_free(&call, dptr));                    // does the work
 *		return END();                                    // writes the ledger line
 *	}
 *
 * BEGIN may inject an error. DO runs its expression unless call.result is already an error.
 * Exported functions never call each other, so one call by the program is one probe hit.
 */
#ifndef SIMCUDA_SIM_H
#define SIMCUDA_SIM_H

#include "config.h"
#include "cuda_sim.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <time.h>

#define EXPORT __attribute__((visibility("default")))
#define H(handle) ((uint64_t)(uintptr_t)(handle)) /* a handle as a ledger value */

enum needs { NEEDS_NOTHING, NEEDS_INIT, NEEDS_CONTEXT };
enum { CONTEXT_STACK = 64, KERNEL_NAME_MAX = 32 << 10 };

/* ---- a call and its ledger line ---- */

struct call {
	/* Ledger columns. The columns pid and tid come from the process and the thread. */
	uint64_t start_ns, end_ns;
	const char *name;
	CUresult result;
	uint64_t ptr, bytes, stream, context;
	int device;
	uint64_t src_ptr, function;
	uint32_t grid[3], block[3], shared_bytes;
	int64_t value;
	const char *kernel;
	/* Not in the ledger: state for the implementation of the call. */
	uint64_t duration_ns; /* of the launched kernel; 0: it follows from name and grid */
	struct gate { bool (*end)(void *data, uint64_t start_ns, uint64_t *end_ns); void *data; } gate; /* end NULL: none */
	bool early;           /* the kernel may begin before the one before it has ended */
	bool faults;          /* the kernel reads memory that is not allocated */
	struct thread *thread;
	struct object *current; /* the context of .context; NULL = none */
};

#define BEGIN(fn, needs, ...)                                                                            \
	struct call call = {.name = #fn, .start_ns = calls_timed ? now_ns() : 0, .device = -1, __VA_ARGS__}; \
	call_begin(&call, needs)
#define DO(expr)                           \
	do {                               \
		if (!call.result)          \
			call.result = (expr); \
	} while (0)
#define END() call_end(&call)

void call_begin(struct call *call, enum needs needs);
CUresult call_end(struct call *call);

/* ---- objects behind handles ---- */

enum kind { FREE_OBJECT, CONTEXT, STREAM, EVENT, MODULE, LIBRARY, FUNCTION, KERNEL, POOL, PHYSICAL, ARRAY, MIPMAPPED_ARRAY,
	    EXTERNAL, GRAPH, NODE, EXEC, CAPTURE, LINK, GREEN_CONTEXT, RESOURCES, SEMAPHORE, GRAPHICS, TEXTURE, SURFACE };

/* Simulated time: when all submitted work will be complete (CLOCK_MONOTONIC, ns). */
typedef _Atomic uint64_t timeline;

struct node_set {
	struct object **nodes;
	uint32_t len, room;
};

/* State of a stream. Default streams have one too. */
struct queue {
	timeline until;
	_Atomic uint64_t host_ticket;      /* ticket of the last host function, see host.c */
	/* The capture whose graph receives submitted work; NULL: work runs. See capture.c for
	 * the fields below. */
	_Atomic(struct object *) capture;
	struct queue *next;                /* next queue of the same capture */
	/* Context whose count of captures includes this one; see blocking. */
	struct object *capturing_in;
	struct node_set tail;              /* nodes that the next captured node will depend on */
	bool blocking;                     /* synchronises with the legacy default stream */
	bool high_priority;
	/* The channel that the stream submits to, see channel.c, and its place in its class. Both count
	 * from 1; 0 = none yet. */
	uint16_t channel : 10, turn : 6;
	uint32_t channel_number;
};

/* The object behind every handle. Objects live in one slab that never shrinks. So a destroyed or
 * invalid handle can be detected without reading freed memory. Handles are reused, as in the
 * real driver. */
struct object {
	_Atomic uint32_t kind;
	/* Functions and kernels: the mangled name, at offset 8 as in driver 580, where recorders
	 * read it. */
	char *name;
	/* Owner. Libraries, kernels, pools, physical memory and graphs have none. */
	_Atomic(struct object *) context;
	/* Next free object, or next object of the same module, device or graph. */
	struct object *next;
	union {
		struct {
			struct device *device;
			timeline until;          /* of all streams of the context */
			_Atomic uint64_t host_ticket;
			struct queue legacy;
			/* Active captures on streams that the legacy stream synchronises with. */
			atomic_uint captures;
			bool primary : 1, green : 1;
			atomic_bool alive;
			_Atomic uint8_t attached; /* references added by cuCtxAttach */
			_Atomic uint8_t peers;   /* bit i: peer access to device i is enabled */
		} ctx;
		struct queue queue;              /* a STREAM's state */
		struct {
			_Atomic uint64_t done_at; /* completion time; 0 = never recorded */
			_Atomic uint64_t host_ticket;
			bool untimed;
			/* Last recorded in a capture, after the nodes below. */
			atomic_bool captured;
			struct object *capture;
			uint64_t capture_id;
			struct node_set after;
			struct slot *slot; /* the GPU writes the time here, see channel.h */
		} event;
		struct {
			struct object *functions;
			char *ptx; /* NULL: a binary image, whose names simcuda does not read */
			struct object *library;  /* the library of the module, or NULL */
			struct object *modules;  /* modules made from a library */
			struct global *globals;
		} module;
		struct {
			struct object *module;
			struct object *kernel;   /* the kernel of the function, or NULL */
			bool has_duration;       /* its first parameter is the duration of the launch */
		} function;
		struct {
			struct device *device;
			uint64_t threshold, max_size;
			/* Bytes; reserved = used + idle. */
			uint64_t used, used_high, idle, reserved_high;
			int reuse[3];
			bool is_default;
			bool destroyed;              /* destroyed, but some of its memory is in use */
			bool imported;           /* a pool of another process */
		} pool;
		struct {
			/* NULL for host memory, multicast objects and memory imported from
			 * another process. */
			struct device *device;
			uint64_t size;
			int refs, maps;
			uint64_t exported; /* number of the export in the shared state, 0 = none */
			uint64_t bound;          /* multicast objects: bytes bound */
			unsigned int devices_wanted, devices_added;
			bool multicast;
		} physical;
		struct {
			struct device *device;
			uint64_t charged;        /* device memory charged, bytes */
			uint64_t row, height, depth;
		} array;
		struct {
			uint64_t size;
			int fd;
		} external;
		struct {
			struct object *first, *last;
			uint32_t len;
			bool capturing;          /* a capture adds nodes to the graph */
			bool has_memory;         /* has memory nodes, so it cannot be cloned */
		} graph;
		struct {
			struct object *graph;
			struct op *op;
			struct node_set after;
			uint32_t index;          /* position in the graph */
			uint32_t mark;           /* used by the graph search in capture.c */
		} node;
		struct {
			struct steps *steps;
			bool frees_on_launch;
		} exec;
		struct {
			struct object *graph;
			struct queue *origin, *queues;
			struct thread *thread;   /* the thread that began the capture */
			uint64_t id;
			struct object *next;     /* next active capture */
			CUstreamCaptureMode mode;
			atomic_bool invalid;
			bool own_graph; /* the capture created the graph, and frees it on failure */
		} capture;
		struct {
			int fd;
		} semaphore;
		struct {
			uint64_t address, size;  /* while the resource is mapped */
			struct object *array;
			bool image, mapped;
		} graphics;
		struct {
			char *text;              /* all PTX texts added so far */
			char *cubin;
		} link;
		struct {
			struct device *device;
			struct object *context;     /* its context, or NULL before cuCtxFromGreenCtx */
		} green;
	};
};
_Static_assert(offsetof(struct object, name) == 8, "recorders read the kernel name at offset 8 of a handle");

bool objects_init(void);
struct object *object_new(enum kind kind, struct object *context);
/* Returns NULL unless the handle is a live object of that kind. */
struct object *object_of(const void *handle, enum kind kind);
void object_free(struct object *object);
void objects_of_context(struct object *context, void (*visit)(struct object *));

/* ---- threads and the process ---- */

struct thread {
	pid_t tid;
	int depth;
	struct object *stack[CONTEXT_STACK]; /* stack of contexts; the last one is current */
	struct queue queue;                  /* per-thread default stream */
	CUstreamCaptureMode capture_mode;    /* see cuThreadExchangeStreamCaptureMode */
	pthread_mutex_t lock; /* guards the buffer: another thread may flush it at exit */
	char *buffer;
	size_t length;
	struct thread *next, **link;
};

struct thread *thread_self(void);
extern pid_t process_pid;
extern struct config config;
CUresult process_init(void);
bool process_initialised(void);
void faults_read(void);
CUresult fault_of(const char *name);
void faults_after_fork(void);
extern bool faults_any;

/* ---- ledger ---- */

extern bool ledger_off;  /* false until the environment was read */
extern bool calls_timed; /* false if no ledger needs the start of calls */
void ledger_open(void);
void ledger_write(const struct call *call);
void ledger_flush(struct thread *thread);
void ledger_release(struct thread *thread);
void ledger_at_exit(void);

/* ---- time ---- */

static inline uint64_t now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

/* The queue, context and capture of a stream argument. */
struct lane {
	struct call *call;
	struct queue *queue;
	struct object *context;
	struct object *capture; /* NULL: the stream is not capturing */
};
enum default_stream { LEGACY, PER_THREAD };

/* Resolves a stream argument to a lane. Returns an error if a capture forbids the use of the
 * stream. Succeeds for a capturing stream; the caller checks lane->capture. */
CUresult lane_of(struct call *call, CUstream stream, enum default_stream zero, struct lane *lane);
/* Like lane_of, but fails for a capturing stream. */
CUresult lane_of_running(struct call *call, CUstream stream, enum default_stream zero, struct lane *lane);
/* WORK_COPY_SHORT is a copy to the device on the channel of its stream, and WORK_COPY_ANY one that is there or on that of
 * a copy engine. Both become WORK_COPY_IN. */
enum work_kind { WORK_KERNEL, WORK_COPY_IN, WORK_COPY_OUT, WORK_COPY_ON_DEVICE, WORK_SET, WORK_EVENT, WORK_GRAPH, WORK_EXTRA,
		 WORK_OTHER, WORK_COPY_SHORT, WORK_COPY_ANY };
/* Occupies the lane for duration_ns and returns the end of the work (CLOCK_MONOTONIC, ns). */
uint64_t lane_enqueue(struct lane *lane, enum work_kind kind, uint64_t duration_ns);
/* Returns the duration of a kernel. */
uint64_t kernel_ns(const char *name, const uint32_t grid[3]);
/* Sets *until to `to` unless it is larger already. Also used for tickets of host functions. */
void timeline_raise(timeline *until, uint64_t to);
void wait_until(uint64_t when_ns);
/* Times may be unknown, see gate.c. Such a time is later than all known ones. */
#define UNKNOWN_TIME (1ull << 62)
bool time_known(uint64_t when, uint64_t *at);
uint64_t time_add(uint64_t when, uint64_t ns);
uint64_t time_later(uint64_t a, uint64_t b);
/* Waits until the time is known, and returns it. It may be in the future. */
uint64_t time_wait(uint64_t when);
/* Returns the end of a kernel with a gate that starts then. */
uint64_t gate_open(const struct gate *gate, uint64_t start, int device);
/* Takes the gate that simcudaGateNextKernel gave to the thread's next kernel. */
struct gate gate_take(void);
bool time_reached(uint64_t when_ns);
uint64_t copy_ns(uint64_t bytes);

/* ---- devices, contexts, memory ---- */

struct space;

struct device {
	int ordinal;
	pthread_mutex_t lock;      /* guards the fields below and the device's pools */
	struct object *primary;
	int primary_refs;
	struct space *space;
	uint64_t used;             /* bytes in use, including idle bytes of pools */
	struct object *pools;      /* all pools, including the default pool */
	struct object *default_pool, *current_pool;
	/* Idle pool bytes beyond the release thresholds. The next synchronisation releases them. */
	uint64_t excess;
	/* A kernel of the context failed at the time; 0: none did. */
	_Atomic(struct object *) failed;
	timeline failed_at;
};

struct device *device_of(CUdevice dev); /* NULL: no such device */
bool device_init(void);
bool context_alive(struct object *context);
void context_empty(struct object *context);
struct object *context_new_green(struct device *device);
void context_end_green(struct object *context);

void module_free(struct object *module);
void link_free(struct object *link);
/* Returns the name of a function or kernel handle, or NULL for other handles. */
const char *kernel_name(const void *handle);
/* Returns the duration that the arguments of a launch ask for, or 0 if the kernel has no such
 * parameter. KERNEL_MAX_NS is a kernel that never ends: 31 years. */
#define KERNEL_MAX_NS 1000000000000000000ull
uint64_t kernel_duration(const void *handle, void *const *arguments);
/* Checks the handle and the sizes of a launch or of a kernel node. */
CUresult launch_check(const struct call *call);

/* ---- host functions ---- */

/* Queues a host function and returns its ticket. */
uint64_t host_enqueue(uint64_t when_ns, void (*run)(void *), void *data);
bool host_done(uint64_t ticket);
void host_wait(uint64_t ticket);

/* ---- channels with progress words, see channel.h ---- */

struct slot;

extern bool channels_on;
void channels_open(void);
void channels_after_fork(void);
void channels_close(void); /* at the exit of the process */
uint64_t channel_enqueue(struct lane *lane, enum work_kind kind, uint64_t duration_ns, struct slot *event);
uint64_t channel_kernel_ns(const char *name, const uint32_t grid[3]);
/* Publishes all operations that end at or before a time in the past. */
void channels_publish(uint64_t until_ns);
/* A new stream gets its place among the channels of its context. */
void channel_choose(struct queue *queue, struct object *context);
/* The stream's queue ends. */
void channel_leave(struct queue *queue, uint64_t stream);
struct slot *channel_event_slot(struct object *context);
void channel_event_slot_give(struct object *context, struct slot *slot);
void channels_of_context_end(struct object *context);

/* ---- capture checks for every call ---- */

extern atomic_uint captures_active;
CUresult capture_forbids(struct call *call);

/* Check for calls that may synchronise the whole context. While any stream captures, they are
 * allowed in relaxed mode only. */
static inline CUresult unsafe_in_capture(struct call *call)
{
	return atomic_load_explicit(&captures_active, memory_order_relaxed) ? capture_forbids(call) : CUDA_SUCCESS;
}

#endif
