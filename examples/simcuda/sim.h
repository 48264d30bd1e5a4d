/*
 * The inside of the simulated driver. Every exported function has the same three parts:
 *
 *	EXPORT CUresult cuMemFree_v2(CUdeviceptr dptr)
 *	{
 *		BEGIN(cuMemFree_v2, NEEDS_CONTEXT, .ptr = dptr);   // takes the time, may inject an error, checks the context
 *		DO(memory_free(&call, dptr));                      // the work, unless call.result is an error already
 *		return END();                                      // takes the time, writes the ledger's line
 *	}
 *
 * Exported functions never call each other: one call of the user's is one hit of a probe.
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
#define H(handle) ((uint64_t)(uintptr_t)(handle)) /* as the ledger wants pointers and handles */

enum needs { NEEDS_NOTHING, NEEDS_INIT, NEEDS_CONTEXT };
enum { CONTEXT_STACK = 64, KERNEL_NAME_MAX = 32 << 10 };

/* ---- one call, and its line in the ledger ---- */

struct call {
	/* The ledger's columns; pid is the process's, tid the thread's. */
	uint64_t start_ns, end_ns;
	const char *name;
	CUresult result;
	uint64_t ptr, bytes, stream, context;
	int device;
	uint64_t src_ptr, function;
	uint32_t grid[3], block[3], shared_bytes;
	int64_t value;
	const char *kernel;
	/* What the work needs to know. */
	struct thread *thread;
	struct object *current; /* the context of .context, NULL if there is none */
};

#define BEGIN(fn, needs, ...)                                                                             \
	struct call call = {.name = #fn, .start_ns = ledger_off ? 0 : now_ns(), .device = -1, __VA_ARGS__}; \
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
	    EXTERNAL, GRAPH, NODE, EXEC, CAPTURE, LINK, GREEN_CONTEXT, RESOURCES, SEMAPHORE, GRAPHICS };

/* Simulated time: when the work submitted so far will be over, by CLOCK_MONOTONIC. */
typedef _Atomic uint64_t timeline;

struct node_set {
	struct object **nodes;
	uint32_t len, room;
};

/* What a stream is inside; the default streams are queues too. */
struct queue {
	timeline until;
	_Atomic uint64_t hosted;           /* ticket of its last host function, see host.c */
	_Atomic(struct object *) capture;  /* what is submitted goes into its graph; NULL: it runs. See capture.c for the rest. */
	struct queue *next;                /* in the same capture */
	struct object *capturing_in;       /* the context that counts the capture, see blocking */
	struct node_set tail;              /* what the next captured node will depend on */
	bool blocking;                     /* waits for the legacy default stream, and the other way round */
};

/* Everything that has a handle has this one shape and lives in one never shrinking slab: a handle that was destroyed, or that never
 * was one, can be told from a live one without reading freed memory. Handles are used again, as the real driver does. */
struct object {
	_Atomic uint32_t kind;
	char *name;              /* function and kernel: the mangled name, at offset 8 as in driver 580, where recorders look */
	_Atomic(struct object *) context; /* the owner; libraries, kernels, pools, physical memory and graphs have none */
	struct object *next;     /* the next free one, or the next of the same module, device or graph */
	union {
		struct {
			struct device *device;
			timeline until;          /* of all streams */
			_Atomic uint64_t hosted;
			struct queue legacy;
			atomic_uint captures;    /* by streams that the legacy stream would have to wait for */
			bool primary : 1, green : 1;
			atomic_bool alive;
			_Atomic uint8_t attached; /* users that cuCtxAttach added */
			_Atomic uint8_t peers;   /* bit i: access to device i is enabled */
		} ctx;
		struct queue queue;              /* of a stream */
		struct {
			_Atomic uint64_t done_at; /* 0 = never recorded */
			_Atomic uint64_t hosted;
			bool untimed;
			atomic_bool captured;     /* recorded last in a capture, by these nodes: */
			struct object *capture;
			uint64_t capture_id;
			struct node_set after;
		} event;
		struct {
			struct object *functions;
			char *ptx;               /* NULL: a binary image, whose names are not looked at */
			struct object *library;  /* a module made from a library; else NULL */
			struct object *modules;  /* of a library: those made from it */
			struct global *globals;
		} module;
		struct {
			struct object *module;
			struct object *kernel;   /* a function made from a kernel; else NULL */
		} function;
		struct {
			struct device *device;
			uint64_t threshold, max_size;
			uint64_t used, used_high, idle, reserved_high; /* reserved = used + idle */
			int reuse[3];
			bool is_default;
			bool dying;              /* destroyed while some of its memory is still in use */
			bool imported;           /* another process's */
		} pool;
		struct {
			struct device *device;   /* NULL: host memory, multicast objects, and imported memory, which is another's */
			uint64_t size;
			int refs, maps;
			uint64_t exported;       /* its number in the shared state, 0 = none */
			uint64_t bound;          /* multicast: bytes */
			unsigned int devices_wanted, devices_added;
			bool multicast;
		} physical;
		struct {
			struct device *device;
			uint64_t charged;        /* bytes of device memory */
			uint64_t row, height, depth;
		} array;
		struct {
			uint64_t size;
			int fd;
		} external;
		struct {
			struct object *first, *last;
			uint32_t len;
			bool capturing;          /* streams are adding to it */
			bool has_memory;         /* nodes that allocate or free: cannot be cloned */
		} graph;
		struct {
			struct object *graph;
			struct op *op;
			struct node_set after;
			uint32_t index;          /* in the graph */
			uint32_t mark;           /* see capture.c */
		} node;
		struct {
			struct steps *steps;
			bool frees_on_launch;
		} exec;
		struct {
			struct object *graph;
			struct queue *origin, *queues;
			struct thread *thread;   /* that began it */
			uint64_t id;
			struct object *next;     /* the next capture in progress */
			CUstreamCaptureMode mode;
			atomic_bool invalid;
			bool own_graph;          /* begun without one: it goes when the capture fails */
		} capture;
		struct {
			int fd;
		} semaphore;
		struct {
			uint64_t address, size;  /* while it is mapped */
			struct object *array;
			bool image, mapped;
		} graphics;
		struct {
			char *text;              /* all PTX added */
			char *cubin;
		} link;
		struct {
			struct device *device;
			struct object *made;     /* its context, once asked for */
		} green;
	};
};
_Static_assert(offsetof(struct object, name) == 8, "recorders read the kernel name at handle+8");

bool objects_init(void);
struct object *object_new(enum kind kind, struct object *context);
struct object *object_of(const void *handle, enum kind kind); /* NULL if the handle is not a live one of that kind */
void object_free(struct object *object);
void objects_of_context(struct object *context, void (*visit)(struct object *));

/* ---- threads and the process ---- */

struct thread {
	pid_t tid;
	int depth;
	struct object *stack[CONTEXT_STACK]; /* the last one is current */
	struct queue queue;                  /* the per-thread default stream */
	CUstreamCaptureMode capture_mode;    /* see cuThreadExchangeStreamCaptureMode */
	pthread_mutex_t lock;                /* of the buffer: at exit another thread flushes it */
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

extern bool ledger_off; /* false until the environment has been read */
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

/* A stream argument, resolved. */
struct lane {
	struct queue *queue;
	struct object *context;
	struct object *capture; /* NULL: the stream is not capturing */
};
enum default_stream { LEGACY, PER_THREAD };

/* An error if a capture forbids the use of the stream; whether it captures itself is for the caller to look at. */
CUresult lane_of(struct call *call, CUstream stream, enum default_stream zero, struct lane *lane);
/* The same for calls that capturing streams do not allow. */
CUresult lane_of_running(struct call *call, CUstream stream, enum default_stream zero, struct lane *lane);
uint64_t lane_enqueue(struct lane *lane, uint64_t duration_ns); /* returns when it will be over */
void timeline_raise(timeline *until, uint64_t to); /* and tickets of host functions */
void wait_until(uint64_t when_ns);
uint64_t copy_ns(uint64_t bytes);

/* ---- devices, contexts, memory ---- */

struct space;

struct device {
	int ordinal;
	pthread_mutex_t lock;      /* of the fields below, and of the device's pools */
	struct object *primary;
	int primary_refs;
	struct space *space;
	uint64_t used;             /* bytes, those idle in pools included */
	struct object *pools;      /* all of them, the default one too */
	struct object *default_pool, *current_pool;
	uint64_t excess;           /* of the bytes idle in pools: those that the next synchronisation gives back */
};

struct device *device_of(CUdevice dev); /* NULL if there is no such device */
bool device_init(void);
bool context_alive(struct object *context);
void context_empty(struct object *context);
struct object *context_new_green(struct device *device);
void context_end_green(struct object *context);

void module_free(struct object *module);
void link_free(struct object *link);
const char *kernel_name(const void *handle); /* of a function or kernel, NULL if it is neither */
/* What every launch checks and what a kernel node checks too: handle and sizes of call. */
CUresult launch_check(const struct call *call);

/* ---- host functions ---- */

uint64_t host_enqueue(uint64_t when_ns, void (*run)(void *), void *data); /* returns its ticket */
bool host_done(uint64_t ticket);
void host_wait(uint64_t ticket);

/* ---- captures: what every call may have to ask ---- */

extern atomic_uint captures_active;
CUresult capture_forbids(struct call *call);

/* For calls that must not be made while somebody captures, because they may wait for everything: only safe in relaxed mode. */
static inline CUresult unsafe_in_capture(struct call *call)
{
	return atomic_load_explicit(&captures_active, memory_order_relaxed) ? capture_forbids(call) : CUDA_SUCCESS;
}

#endif
