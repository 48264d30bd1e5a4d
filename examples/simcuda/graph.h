/* Ops: units of work. An op runs on a stream at once, or becomes a graph node through stream
 * capture or cuGraphAdd…. A launch of the executable graph then runs the op. */
#ifndef SIMCUDA_GRAPH_H
#define SIMCUDA_GRAPH_H

#include "sim.h"

enum op_kind { OP_EMPTY, OP_KERNEL, OP_COPY, OP_SET, OP_HOST, OP_ALLOC, OP_FREE, OP_GRAPH, OP_RECORD, OP_WAIT, OP_WRITE };

/* A 3D block of bytes with strides for source and destination. A plain copy is one row. */
struct box {
	uint64_t dst, src; /* address; 0 = an array, which holds no data */
	uint64_t dst_pitch, src_pitch, dst_slice, src_slice;
	uint64_t width, height, depth;
};

struct op {
	enum op_kind kind;
	uint64_t ns; /* how long the op occupies its stream, ns */
	union {
		struct box box; /* OP_COPY; OP_SET uses dst only */
		struct { void (*run)(void *); void *data; } host;
		struct graph_memory *memory;                        /* OP_ALLOC, OP_FREE */
		struct object *child; /* OP_GRAPH: a child graph owned by the node */
		struct object *event;                               /* OP_RECORD, OP_WAIT */
		struct { uint64_t address, value; uint32_t width; } write;
	};
	uint32_t value, width; /* OP_SET: element value and width in bytes */
};

/* Runs the op on the lane's stream, or adds it to the graph if the stream is capturing. Stores
 * the op's end in *over (CLOCK_MONOTONIC, ns). */
CUresult op_submit(struct lane *lane, const struct op *op, uint64_t *over);
void op_move_data(const struct op *op);
enum work_kind op_work(const struct op *op);

/* ---- graphs ---- */

extern pthread_mutex_t graph_lock; /* guards all graphs, nodes and captures */
/* The caller holds graph_lock. Returns NULL if out of memory. */
struct object *node_add(struct object *graph, struct object *const *after, uint32_t n, const struct op *op);
CUresult node_remove(struct object *node); /* NULL is an invalid handle */
struct object *graph_copy(struct object *graph); /* the caller holds graph_lock */
void graph_free(struct object *graph);           /* the caller holds graph_lock */

bool set_add(struct node_set *set, struct object *node);
void set_free(struct node_set *set);

/* ---- stream capture ---- */

CUresult capture_op(struct lane *lane, const struct op *op);
CUresult capture_record(struct lane *lane, struct object *event);
/* Simulates cuStreamWaitEvent for a captured event, or on a capturing stream. */
CUresult capture_wait(struct lane *lane, struct object *event);
void capture_forget_event(struct object *event);
/* Invalidates the captures that a use of the legacy stream would affect. Returns
 * CUDA_ERROR_STREAM_CAPTURE_IMPLICIT (906). */
CUresult capture_implicit(struct object *context);
/* If the lane captures: invalidates the capture and returns
 * CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED (900). */
CUresult capture_unsupported(struct lane *lane);
/* If streams of the context capture: invalidates their captures and returns
 * CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED (900). */
CUresult capture_forbids_waiting(struct object *context);
/* Removes the queue from its capture. Called when the stream is destroyed or its thread ends. */
void capture_leave(struct queue *queue);

#endif
