/*
 * Work as a thing: an op is run on a stream at once, or becomes a node of a graph, by capture or by cuGraphAdd…, and is run when an
 * executable graph made from it is launched.
 */
#ifndef SIMCUDA_GRAPH_H
#define SIMCUDA_GRAPH_H

#include "sim.h"

enum op_kind { OP_EMPTY, OP_KERNEL, OP_COPY, OP_SET, OP_HOST, OP_ALLOC, OP_FREE, OP_GRAPH, OP_RECORD, OP_WAIT, OP_WRITE };

/* Rows of bytes, with strides for both ends; a plain copy is one row. */
struct box {
	uint64_t dst, src; /* 0: an array, which has no data */
	uint64_t dst_pitch, src_pitch, dst_slice, src_slice;
	uint64_t width, height, depth;
};

struct op {
	enum op_kind kind;
	uint64_t ns; /* keeps its stream busy for so long */
	union {
		struct box box;                                     /* OP_COPY; OP_SET: dst */
		struct { void (*run)(void *); void *data; } host;
		struct graph_memory *memory;                        /* OP_ALLOC, OP_FREE */
		struct object *child;                               /* OP_GRAPH: a graph of the node's own */
		struct object *event;                               /* OP_RECORD, OP_WAIT */
		struct { uint64_t address, value; uint32_t width; } write;
	};
	uint32_t value, width; /* OP_SET */
};

/* Runs it on the lane, or adds it to the graph that the lane's stream captures into. Returns in *over when it will be over. */
CUresult op_submit(struct lane *lane, const struct op *op, uint64_t *over);
void op_move_data(const struct op *op);

/* ---- graphs ---- */

extern pthread_mutex_t graph_lock; /* of all graphs, nodes and captures */
struct object *node_add(struct object *graph, struct object *const *after, uint32_t n, const struct op *op); /* locked */
CUresult node_remove(struct object *node); /* NULL: an invalid handle */
struct object *graph_copy(struct object *graph); /* locked */
void graph_free(struct object *graph);           /* locked */

bool set_add(struct node_set *set, struct object *node);
void set_free(struct node_set *set);

/* ---- captures ---- */

CUresult capture_op(struct lane *lane, const struct op *op);
CUresult capture_record(struct lane *lane, struct object *event);
/* cuStreamWaitEvent of a captured event, or by a capturing stream. */
CUresult capture_wait(struct lane *lane, struct object *event);
void capture_forget_event(struct object *event);
CUresult capture_implicit(struct object *context); /* 906, and the captures in the way are lost */
CUresult capture_unsupported(struct lane *lane); /* 900 if the lane captures, and the capture is lost */
CUresult capture_forbids_waiting(struct object *context); /* 900 if there are captures in the context, which are lost */
/* The stream is going away or its thread is. */
void capture_leave(struct queue *queue);

#endif
