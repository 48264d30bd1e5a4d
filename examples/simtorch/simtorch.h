/* The allocator's interface for programs, in C so that Python's ctypes can call it. Functions
 * use the calling thread's current device, initially 0. Streams are CUstream; NULL is the
 * default stream. Invalid use ends the process. */
#ifndef SIMTORCH_H
#define SIMTORCH_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Initialises CUDA and returns the number of devices. */
int simtorch_init(void);
void simtorch_set_device(int device);
size_t simtorch_memory(void);                                   /* capacity of the device, bytes */
void simtorch_set_memory_fraction(double fraction); /* limits reserved bytes; 1 = no limit */
void *simtorch_stream(void);                                    /* creates a stream */
void simtorch_work(void *ptr, size_t bytes, void *stream);      /* a memset: work for the stream */

void *simtorch_alloc(size_t bytes, void *stream);               /* NULL: out of memory */
void simtorch_free(void *ptr);
void simtorch_record_stream(void *ptr, void *stream);
void simtorch_empty_cache(void);
void simtorch_snapshot(void);

/* Private pools of the user. Between begin and end, the thread allocates from the pool. */
uint64_t simtorch_pool_create(void);
void simtorch_pool_begin(uint64_t pool);
void simtorch_pool_end(uint64_t pool);
void simtorch_pool_destroy(uint64_t pool);

/* A captured graph and its private pool. Until the end of the capture, allocations on its stream
 * use the pool. */
uint64_t simtorch_graph_begin(void **stream);
void simtorch_graph_end(uint64_t graph);
void simtorch_graph_destroy(uint64_t graph);

void simtorch_host_tensor(size_t bytes); /* reports a CPU allocation and its free */

/* Writes the statistics of all devices to the ledger, and flushes it. */
void simtorch_checkpoint(void);
int64_t simtorch_stat(const char *name); /* a column of checkpoint lines; -1: no such column */
uint64_t simtorch_events(void); /* calls of record_trace by this thread */
void simtorch_verify(void); /* ends the process if statistics and blocks disagree */

#ifdef __cplusplus
}
#endif

#endif
