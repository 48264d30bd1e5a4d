/*
 * The allocator for programs, in C so that Python's ctypes can call it too. What a thread does is about its current device, which
 * is 0 at first. Streams are CUstream, NULL is the default stream. A mistake in the use of it ends the process.
 */
#ifndef SIMTORCH_H
#define SIMTORCH_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Starts CUDA and returns how many devices there are. */
int simtorch_init(void);
void simtorch_set_device(int device);
size_t simtorch_memory(void);                                   /* of the device */
void simtorch_set_memory_fraction(double fraction);             /* of it that may be reserved, 1: all */
void *simtorch_stream(void);                                    /* a new one */
void simtorch_work(void *ptr, size_t bytes, void *stream);      /* a memset, so that the stream has something to do */

void *simtorch_alloc(size_t bytes, void *stream);               /* NULL: out of memory */
void simtorch_free(void *ptr);
void simtorch_record_stream(void *ptr, void *stream);
void simtorch_empty_cache(void);
void simtorch_snapshot(void);

/* The user's private pools: between begin and end the thread allocates from it. */
uint64_t simtorch_pool_create(void);
void simtorch_pool_begin(uint64_t pool);
void simtorch_pool_end(uint64_t pool);
void simtorch_pool_destroy(uint64_t pool);

/* A graph and its private pool: until the end of the capture, what is allocated on its stream comes from there. */
uint64_t simtorch_graph_begin(void **stream);
void simtorch_graph_end(uint64_t graph);
void simtorch_graph_destroy(uint64_t graph);

void simtorch_host_tensor(size_t bytes);                        /* memory of the CPU, which is reported too and freed again */

void simtorch_checkpoint(void);                                 /* of all devices, into the ledger, which is written out */
int64_t simtorch_stat(const char *name);                        /* a column of checkpoints; -1 if there is none */
uint64_t simtorch_events(void);                                 /* calls of record_trace that this thread has made */
void simtorch_verify(void);                                     /* ends the process if statistics and blocks disagree */

#ifdef __cplusplus
}
#endif

#endif
