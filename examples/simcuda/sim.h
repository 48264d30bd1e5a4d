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

enum kind { FREE_OBJECT, CONTEXT, STREAM, EVENT, MODULE, LIBRARY, FUNCTION, KERNEL };

/* Simulated time: when the work submitted so far will be over, by CLOCK_MONOTONIC. */
typedef _Atomic uint64_t timeline;

/* Everything that has a handle has this one shape and lives in one never shrinking slab: a handle that was destroyed, or that never
 * was one, can be told from a live one without reading freed memory. Handles are used again, as the real driver does. */
struct object {
	_Atomic uint32_t kind;
	char *name;              /* function and kernel: the mangled name, at offset 8 as in driver 580, where recorders look */
	struct object *context;  /* the owner; libraries and kernels have none */
	struct object *next;     /* the next free one, or the next function of the same module */
	union {
		struct {
			struct device *device;
			timeline until;          /* of all streams */
			timeline legacy_stream;
			bool primary;
			atomic_bool alive;
		} ctx;
		struct {
			timeline until;
		} stream;
		struct {
			_Atomic uint64_t done_at; /* 0 = never recorded */
			bool untimed;
		} event;
		struct {
			struct object *functions;
			char *ptx;               /* NULL: a binary image, whose names are not looked at */
		} module;
		struct {
			struct object *module;
			struct object *kernel;   /* a function made from a kernel; else NULL */
		} function;
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
	timeline stream;                     /* the per-thread default stream */
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
	timeline *until;
	struct object *context;
};
enum default_stream { LEGACY, PER_THREAD };

CUresult lane_of(struct call *call, CUstream stream, enum default_stream zero, struct lane *lane);
uint64_t lane_enqueue(struct lane *lane, uint64_t duration_ns); /* returns when it will be over */
void timeline_raise(timeline *until, uint64_t to);
void wait_until(uint64_t when_ns);
uint64_t copy_ns(uint64_t bytes);

/* ---- devices, contexts, memory ---- */

struct space;

struct device {
	int ordinal;
	pthread_mutex_t lock;      /* of the fields below */
	struct object *primary;
	int primary_refs;
	struct space *space;
	uint64_t used;             /* bytes, those idle in the pool included */
	uint64_t pool_idle;        /* freed in stream order, not yet given back to the device */
};

struct device *device_of(CUdevice dev); /* NULL if there is no such device */
bool device_init(void);
bool context_alive(struct object *context);
void context_empty(struct object *context);

bool memory_init(void);
void memory_of_context(struct object *context);
void memory_trim_pool(struct device *device); /* what every synchronisation does */
bool memory_is_on_device(uint64_t address); /* has an address only: there is no data behind it */
bool memory_is_cuda(uint64_t address);      /* device, managed or pinned */

void module_free(struct object *module);
const char *kernel_name(const void *handle); /* of a function or kernel, NULL if it is neither */

#endif
