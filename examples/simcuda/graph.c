/* Graphs and their nodes, and the execution of a single op. */
#include "graph.h"

#include "memory.h"

#include <stdlib.h>
#include <string.h>

pthread_mutex_t graph_lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- ops ---- */

/* Copies or clears one row of bytes. Only host memory holds data; a copy from the device writes
 * zeros. */
static void move_row(uint64_t dst, uint64_t src, uint64_t bytes, bool zeros)
{
	if (zeros)
		memset((void *)(uintptr_t)dst, 0, bytes);
	else
		memmove((void *)(uintptr_t)dst, (const void *)(uintptr_t)src, bytes);
}

static void copy_data(const struct box *b)
{
	if (!b->dst || !b->width || memory_is_on_device(b->dst))
		return;
	bool zeros = !b->src || memory_is_on_device(b->src);
	for (uint64_t z = 0; z < b->depth; z++)
		for (uint64_t y = 0; y < b->height; y++)
			move_row(b->dst + z * b->dst_slice + y * b->dst_pitch, b->src + z * b->src_slice + y * b->src_pitch, b->width,
				 zeros);
}

static void set_data(const struct op *op)
{
	const struct box *b = &op->box;
	if (memory_is_on_device(b->dst))
		return;
	for (uint64_t y = 0; y < b->height; y++)
		for (uint64_t x = 0; x < b->width; x += op->width)
			/* The value is little endian: its first width bytes are the element. */
			memcpy((char *)(uintptr_t)(b->dst + y * b->dst_pitch + x), &op->value, op->width);
}

void op_move_data(const struct op *op)
{
	switch (op->kind) {
	case OP_COPY: copy_data(&op->box); break;
	case OP_SET: set_data(op); break;
	case OP_WRITE:
		if (!memory_is_on_device(op->write.address))
			memcpy((void *)(uintptr_t)op->write.address, &op->write.value, op->write.width);
		break;
	default: break;
	}
}

/* Address 0 is an array, which is on the device. */
static enum work_kind copy_work(const struct box *b)
{
	if (b->src && !memory_is_on_device(b->src))
		return WORK_COPY_IN;
	return b->dst && !memory_is_on_device(b->dst) ? WORK_COPY_OUT : WORK_COPY_ON_DEVICE;
}

enum work_kind op_work(const struct op *op)
{
	switch (op->kind) {
	case OP_KERNEL: return WORK_KERNEL;
	case OP_SET: return WORK_SET;
	case OP_RECORD: return WORK_EVENT;
	case OP_COPY: return copy_work(&op->box);
	default: return WORK_OTHER;
	}
}

static CUresult host_submit(struct lane *lane, const struct op *op)
{
	/* A host function is no work of the GPU. */
	uint64_t when = channels_on ? atomic_load(&lane->queue->until) : lane_enqueue(lane, WORK_OTHER, 0);
	uint64_t ticket = host_enqueue(when, op->host.run, op->host.data);
	if (!ticket)
		return CUDA_ERROR_OUT_OF_MEMORY;
	timeline_raise(&lane->queue->host_ticket, ticket);
	timeline_raise(&lane->context->ctx.host_ticket, ticket);
	return CUDA_SUCCESS;
}

/* Reports whether an op copies from host memory that the GPU cannot read. */
static bool is_pageable(const struct op *op)
{
	return op->kind == OP_COPY && op_work(op) == WORK_COPY_IN && !memory_is_cuda(op->box.src);
}

/* Copies through a pinned buffer: the GPU copies 1 MiB at a time. */
static uint64_t copy_pageable(struct lane *lane, const struct op *op)
{
	enum { BUFFER = 1 << 20 };
	uint64_t over = 0;
	for (uint64_t left = op->box.width * op->box.height * op->box.depth, n; left > 0; left -= n) {
		n = left < BUFFER ? left : BUFFER;
		over = lane_enqueue(lane, WORK_COPY_IN, copy_ns(n));
	}
	return over;
}

/* Returns the work of an op. As seen on an H100 with driver 580, short copies to the device are in the queue of their
 * stream: those of pageable memory up to 64 KiB, of pinned memory up to 4 KiB, and some up to 24 KiB. */
static enum work_kind submitted_work(const struct op *op)
{
	enum { SHORT = 4 << 10, SHORT_SOMETIMES = 24 << 10, SHORT_PAGEABLE = 64 << 10 };
	enum work_kind kind = op_work(op);
	uint64_t bytes = op->box.width * op->box.height * op->box.depth;

	if (kind != WORK_COPY_IN)
		return kind;
	if (is_pageable(op))
		return bytes <= SHORT_PAGEABLE ? WORK_COPY_SHORT : kind;
	return bytes <= SHORT ? WORK_COPY_SHORT : bytes <= SHORT_SOMETIMES ? WORK_COPY_ANY : kind;
}

CUresult op_submit(struct lane *lane, const struct op *op, uint64_t *over)
{
	*over = 0;
	if (lane->capture)
		return capture_op(lane, op);
	if (op->kind == OP_HOST)
		return host_submit(lane, op);
	op_move_data(op);
	enum work_kind kind = submitted_work(op);
	*over = is_pageable(op) && kind == WORK_COPY_IN ? copy_pageable(lane, op) : lane_enqueue(lane, kind, op->ns);
	return CUDA_SUCCESS;
}

/* ---- nodes ---- */

bool set_add(struct node_set *set, struct object *node)
{
	for (uint32_t i = 0; i < set->len; i++)
		if (set->nodes[i] == node)
			return true;
	if (set->len == set->room) {
		uint32_t room = set->room ? set->room * 2 : 4;
		struct object **bigger = realloc(set->nodes, room * sizeof(*bigger));
		if (!bigger)
			return false;
		set->nodes = bigger;
		set->room = room;
	}
	set->nodes[set->len++] = node;
	return true;
}

void set_free(struct node_set *set)
{
	free(set->nodes);
	*set = (struct node_set){0};
}

static void node_free(struct object *node)
{
	struct op *op = node->node.op;
	if (op->kind == OP_GRAPH)
		graph_free(op->child);
	else if (op->kind == OP_ALLOC || op->kind == OP_FREE)
		graph_memory_release(op->memory);
	free(op);
	set_free(&node->node.after);
	object_free(node);
}

/* Appends a node to the graph. On success the node owns the memory or child graph of the op; on
 * failure the caller still owns it. */
struct object *node_add(struct object *graph, struct object *const *after, uint32_t n, const struct op *op)
{
	struct op *copy = malloc(sizeof(*copy));
	struct object *node = object_new(NODE, NULL);
	bool ok = copy && node;
	if (copy)
		*copy = *op;
	for (uint32_t i = 0; i < n && ok; i++)
		ok = set_add(&node->node.after, after[i]);
	if (!ok) {
		free(copy);
		if (node) {
			set_free(&node->node.after);
			object_free(node);
		}
		return NULL;
	}
	node->node.op = copy;
	node->node.graph = graph;
	node->node.index = graph->graph.len++;
	if (graph->graph.last)
		graph->graph.last->next = node;
	else
		graph->graph.first = node;
	graph->graph.last = node;
	graph->graph.has_memory |= op->kind == OP_ALLOC || op->kind == OP_FREE;
	return node;
}

static void set_remove(struct node_set *set, const struct object *node)
{
	for (uint32_t i = 0; i < set->len; i++)
		if (set->nodes[i] == node)
			set->nodes[i--] = set->nodes[--set->len];
}

/* Removes a node from its graph. Fails if the graph has memory nodes, as in the real driver. */
static CUresult remove_locked(struct object *node)
{
	struct object *graph = node->node.graph, **link = &graph->graph.first, *before = NULL;
	if (graph->graph.has_memory)
		return CUDA_ERROR_NOT_SUPPORTED;
	for (; *link != node; link = &before->next)
		before = *link;
	*link = node->next;
	if (graph->graph.last == node)
		graph->graph.last = before;
	graph->graph.len = 0;
	for (struct object *other = graph->graph.first; other; other = other->next) {
		other->node.index = graph->graph.len++;
		set_remove(&other->node.after, node);
	}
	node_free(node);
	return CUDA_SUCCESS;
}

CUresult node_remove(struct object *node)
{
	if (!node)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&graph_lock);
	CUresult result = remove_locked(node);
	pthread_mutex_unlock(&graph_lock);
	return result;
}

/* ---- graphs ---- */

void graph_free(struct object *graph)
{
	for (struct object *node = graph->graph.first, *next; node; node = next) {
		next = node->next;
		node_free(node);
	}
	object_free(graph);
}

/* Copies a graph. Graphs with memory nodes cannot be copied, so the copy shares no graph memory. */
struct object *graph_copy(struct object *graph)
{
	struct object *copy = object_new(GRAPH, NULL);
	struct object **made = calloc(graph->graph.len + 1, sizeof(*made));
	bool ok = copy && made;
	for (struct object *node = graph->graph.first; node && ok; node = node->next) {
		struct node_set after = {0};
		struct op op = *node->node.op;
		for (uint32_t i = 0; i < node->node.after.len && ok; i++)
			ok = set_add(&after, made[node->node.after.nodes[i]->node.index]);
		if (ok && op.kind == OP_GRAPH)
			ok = (op.child = graph_copy(op.child)) != NULL;
		if (ok && !(made[node->node.index] = node_add(copy, after.nodes, after.len, &op))) {
			ok = false;
			if (op.kind == OP_GRAPH)
				graph_free(op.child);
		}
		set_free(&after);
	}
	free(made);
	if (copy && !ok)
		graph_free(copy);
	return ok ? copy : NULL;
}

static CUresult create(struct call *call, CUgraph *out, unsigned int flags)
{
	if (!out || flags)
		return CUDA_ERROR_INVALID_VALUE;
	struct object *o = object_new(GRAPH, NULL);
	if (!o)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*out = (CUgraph)o;
	call->ptr = H(o);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuGraphCreate(CUgraph *phGraph, unsigned int flags)
{
	BEGIN(cuGraphCreate, NEEDS_INIT, .value = flags);
	DO(create(&call, phGraph, flags));
	return END();
}

static CUresult destroy(CUgraph graph)
{
	pthread_mutex_lock(&graph_lock);
	struct object *o = object_of(graph, GRAPH);
	bool ok = o && !o->graph.capturing;
	if (ok)
		graph_free(o);
	pthread_mutex_unlock(&graph_lock);
	return ok ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuGraphDestroy(CUgraph hGraph)
{
	BEGIN(cuGraphDestroy, NEEDS_INIT, .ptr = H(hGraph));
	DO(destroy(hGraph));
	return END();
}

static CUresult clone_graph(struct call *call, CUgraph *out, CUgraph original)
{
	CUresult result = CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&graph_lock);
	struct object *o = object_of(original, GRAPH);
	if (out && o && o->graph.has_memory) {
		result = CUDA_ERROR_NOT_SUPPORTED;
	} else if (out && o) {
		struct object *copy = graph_copy(o);
		*out = (CUgraph)copy;
		call->ptr = H(copy);
		result = copy ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
	}
	pthread_mutex_unlock(&graph_lock);
	return result;
}

EXPORT CUresult cuGraphClone(CUgraph *phGraphClone, CUgraph originalGraph)
{
	BEGIN(cuGraphClone, NEEDS_INIT, .src_ptr = H(originalGraph));
	DO(clone_graph(&call, phGraphClone, originalGraph));
	return END();
}
