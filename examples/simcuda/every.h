/* Declarations shared by the source files of the program every. */
#ifndef EVERY_H
#define EVERY_H

#include "cuda_sim.h"

#include <stdbool.h>
#include <stdlib.h>

/* OK and FAILS call the exported function fn, note the call, and report a result that differs
 * from the expected one. OK_AS and FAILS_AS call a variant that has the type of fn. */
#define FUNCTION(name, type) ((__typeof__(type) *)every_find(#name))
#define OK(fn, ...) every_note(#fn, FUNCTION(fn, fn)(__VA_ARGS__), CUDA_SUCCESS, __FILE__, __LINE__)
#define OK_AS(variant, fn, ...) every_note(#variant, FUNCTION(variant, fn)(__VA_ARGS__), CUDA_SUCCESS, __FILE__, __LINE__)
#define FAILS(want, fn, ...) every_note(#fn, FUNCTION(fn, fn)(__VA_ARGS__), want, __FILE__, __LINE__)
#define FAILS_AS(want, variant, fn, ...) every_note(#variant, FUNCTION(variant, fn)(__VA_ARGS__), want, __FILE__, __LINE__)
#define BAD_HANDLE(type) ((type)(uintptr_t)0xbad0)

void *every_find(const char *name);
void every_note(const char *name, CUresult got, CUresult want, const char *file, int line);
void every_check(bool ok, const char *what);

/* Numbers that no other call uses. A recording that mixes up two calls shows a wrong number. */
size_t unique_bytes(void);          /* small, a multiple of 4 */
size_t unique_big_bytes(void);      /* a multiple of 2 MiB */
unsigned int unique_number(void);

enum { STREAMS = 4, BUFFER = 1 << 20 };
#define HUGE_BYTES ((size_t)1 << 50)

struct every {
	CUdevice device, other_device;
	CUcontext context, other_context; /* of two devices; context is current */
	CUmodule module;
	CUfunction function;
	CUkernel kernel;
	CUlibrary library;
	CUstream streams[STREAMS];        /* non-blocking streams */
	CUevent event, join;
	CUdeviceptr buffer_a, buffer_b;   /* device buffers for copies, BUFFER bytes each */
	char *host;                       /* pinned memory, BUFFER bytes */
	CUarray array;
};
extern struct every every;
extern const char every_ptx[];
extern const size_t every_ptx_size;

/* The parts of the program, in the order of their calls. every_set_up fills struct every,
 * every_tear_down frees it. */
void every_set_up(void);
void every_memory(void);
void every_pool(void);
void every_virtual_memory(void);
void every_foreign_memory(void); /* external memory and arrays */
void every_copy(void);
void every_set(void);
void every_hints(void);  /* managed memory in batches, semaphores, checkpoints */
void every_stream(void);
void every_launch(void);
void every_graph(void);
void every_nodes(void);  /* node types that every_graph does not use */
void every_capture(void);
void every_module(void);
void every_shared(void);   /* memory shared with the child process */
void every_tear_down(void);

/* The child process of every: it opens memory that the parent shares, and shares memory with the
 * parent. */
void every_start_child(void);
int every_run_child(void);
void every_end_child(void);

#endif
