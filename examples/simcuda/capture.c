/*
 * Stream capture: work submitted to a capturing stream becomes graph nodes instead of running.
 *
 * A stream joins a capture when it waits for an event that was recorded in the capture. Before the
 * capture ends, the origin stream must wait in the same way for every stream that joined.
 *
 * A queue's tail is the set of nodes that its next node will depend on: its last node, and the
 * nodes of events it has waited for since. An operation that is not allowed during capture returns
 * an error and invalidates the capture. Later operations in an invalid capture fail, and ending it
 * returns no graph.
 */
#include "graph.h"

#include <stdlib.h>

atomic_uint captures_active;

/* The list of active captures and two counters, guarded by graph_lock. */
static struct object *captures;
static uint64_t last_id;
static uint32_t last_mark;

static bool in_context(const struct object *capture, const struct object *context, bool blocking_only)
{
	for (struct queue *q = capture->capture.queues; q; q = q->next)
		if (q->capturing_in == context && (q->blocking || !blocking_only))
			return true;
	return false;
}

CUresult capture_implicit(struct object *context)
{
	pthread_mutex_lock(&graph_lock);
	for (struct object *c = captures; c; c = c->capture.next)
		if (in_context(c, context, true))
			c->capture.invalid = true;
	pthread_mutex_unlock(&graph_lock);
	return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
}

CUresult capture_forbids_waiting(struct object *context)
{
	CUresult result = CUDA_SUCCESS;
	if (!atomic_load_explicit(&captures_active, memory_order_relaxed))
		return result;
	pthread_mutex_lock(&graph_lock);
	for (struct object *c = captures; c; c = c->capture.next) {
		if (!in_context(c, context, false))
			continue;
		c->capture.invalid = true;
		result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	}
	pthread_mutex_unlock(&graph_lock);
	return result;
}

/* Returns an error if a thread makes an unsafe call while it captures, or while any thread
 * captures in global mode. Threads in relaxed mode may make unsafe calls. */
CUresult capture_forbids(struct call *call)
{
	CUresult result = CUDA_SUCCESS;
	CUstreamCaptureMode mine = call->thread->capture_mode;
	if (mine == CU_STREAM_CAPTURE_MODE_RELAXED)
		return result;
	pthread_mutex_lock(&graph_lock);
	for (struct object *c = captures; c; c = c->capture.next) {
		CUstreamCaptureMode mode = c->capture.mode;
		bool own = c->capture.thread == call->thread && mode != CU_STREAM_CAPTURE_MODE_RELAXED;
		if (!own && !(mine == CU_STREAM_CAPTURE_MODE_GLOBAL && mode == CU_STREAM_CAPTURE_MODE_GLOBAL))
			continue;
		c->capture.invalid = true;
		result = CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	}
	pthread_mutex_unlock(&graph_lock);
	return result;
}

CUresult capture_unsupported(struct lane *lane)
{
	pthread_mutex_lock(&graph_lock);
	struct object *c = lane->queue->capture;
	if (c)
		c->capture.invalid = true;
	pthread_mutex_unlock(&graph_lock);
	return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
}

static void join(struct queue *queue, struct object *capture, struct object *context)
{
	queue->next = capture->capture.queues;
	capture->capture.queues = queue;
	queue->capturing_in = context;
	if (queue->blocking)
		atomic_fetch_add(&context->ctx.captures, 1);
	atomic_store_explicit(&queue->capture, capture, memory_order_release);
}

static void leave(struct queue *queue)
{
	if (queue->blocking)
		atomic_fetch_sub(&queue->capturing_in->ctx.captures, 1);
	atomic_store(&queue->capture, NULL);
	set_free(&queue->tail);
	queue->next = NULL;
}

static void finish(struct object *capture, bool keep_graph)
{
	struct object *graph = capture->capture.graph, **link = &captures;
	for (struct queue *q = capture->capture.queues, *next; q; q = next) {
		next = q->next;
		leave(q);
	}
	while (*link != capture)
		link = &(*link)->capture.next;
	*link = capture->capture.next;
	graph->graph.capturing = false;
	if (!keep_graph && capture->capture.own_graph)
		graph_free(graph);
	object_free(capture);
	atomic_fetch_sub(&captures_active, 1);
}

void capture_leave(struct queue *queue)
{
	if (!atomic_load(&queue->capture))
		return;
	pthread_mutex_lock(&graph_lock);
	struct object *c = queue->capture;
	if (c && c->capture.origin == queue) {
		finish(c, false);
	} else if (c) {
		struct queue **link = &c->capture.queues;
		while (*link != queue)
			link = &(*link)->next;
		*link = queue->next;
		leave(queue);
		c->capture.invalid = true;
	}
	pthread_mutex_unlock(&graph_lock);
}

/* ---- operations on capturing streams ---- */

CUresult capture_op(struct lane *lane, const struct op *op)
{
	CUresult result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	struct queue *q = lane->queue;
	pthread_mutex_lock(&graph_lock);
	struct object *c = q->capture;
	if (c && !c->capture.invalid) {
		struct object *node = node_add(c->capture.graph, q->tail.nodes, q->tail.len, op);
		q->tail.len = 0;
		result = node && set_add(&q->tail, node) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
	}
	pthread_mutex_unlock(&graph_lock);
	return result;
}

static bool add_all(struct node_set *to, const struct node_set *from)
{
	bool ok = true;
	for (uint32_t i = 0; i < from->len && ok; i++)
		ok = set_add(to, from->nodes[i]);
	return ok;
}

CUresult capture_record(struct lane *lane, struct object *event)
{
	CUresult result = CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	pthread_mutex_lock(&graph_lock);
	struct object *c = lane->queue->capture;
	if (c && !c->capture.invalid) {
		event->event.after.len = 0;
		event->event.capture = c;
		event->event.capture_id = c->capture.id;
		event->event.captured = true;
		result = add_all(&event->event.after, &lane->queue->tail) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
	}
	pthread_mutex_unlock(&graph_lock);
	return result;
}

void capture_forget_event(struct object *event)
{
	if (!event->event.captured)
		return;
	pthread_mutex_lock(&graph_lock);
	event->event.captured = false;
	set_free(&event->event.after);
	pthread_mutex_unlock(&graph_lock);
}

static CUresult wait_locked(struct lane *lane, struct object *event)
{
	struct queue *q = lane->queue;
	struct object *c = q->capture, *from = event->event.captured ? object_of(event->event.capture, CAPTURE) : NULL;
	if (from && from->capture.id != event->event.capture_id)
		from = NULL; /* the capture of the event has already ended */
	if (c && c->capture.invalid)
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	if (!from) {
		if (!c)
			return CUDA_ERROR_CAPTURED_EVENT;
		c->capture.invalid = true;
		return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
	}
	if (from->capture.invalid)
		return CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
	if (c && c != from) {
		c->capture.invalid = from->capture.invalid = true;
		return CUDA_ERROR_STREAM_CAPTURE_MERGE;
	}
	if (!c && q == &lane->context->ctx.legacy) {
		from->capture.invalid = true;
		return CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
	}
	if (!c)
		join(q, from, lane->context);
	return add_all(&q->tail, &event->event.after) ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult capture_wait(struct lane *lane, struct object *event)
{
	pthread_mutex_lock(&graph_lock);
	CUresult result = wait_locked(lane, event);
	pthread_mutex_unlock(&graph_lock);
	return result;
}

/* ---- begin and end of a capture ---- */

static bool tail_from(struct queue *queue, struct object *graph, const CUgraphNode *after, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		struct object *node = after ? object_of(after[i], NODE) : NULL;
		if (!node || node->node.graph != graph || !set_add(&queue->tail, node)) {
			set_free(&queue->tail);
			return false;
		}
	}
	return true;
}

static CUresult begin_locked(struct call *call, struct lane *lane, CUstreamCaptureMode mode, struct object *graph,
			     const CUgraphNode *after, size_t n)
{
	struct queue *q = lane->queue;
	if (q->capture)
		return CUDA_ERROR_ILLEGAL_STATE;
	if (graph && (graph->graph.capturing || !tail_from(q, graph, after, n)))
		return CUDA_ERROR_INVALID_VALUE;
	struct object *c = object_new(CAPTURE, NULL), *own = graph ? NULL : object_new(GRAPH, NULL);
	if (!c || (!graph && !own)) {
		if (c)
			object_free(c);
		set_free(&q->tail);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	c->capture.graph = graph ? graph : own;
	c->capture.graph->graph.capturing = true;
	c->capture.own_graph = own != NULL;
	c->capture.origin = q;
	c->capture.thread = call->thread;
	c->capture.id = ++last_id;
	c->capture.mode = mode;
	c->capture.next = captures;
	captures = c;
	atomic_fetch_add(&captures_active, 1);
	join(q, c, lane->context);
	return CUDA_SUCCESS;
}

static CUresult begin(struct call *call, struct lane *lane, CUstreamCaptureMode mode, struct object *graph, const CUgraphNode *after,
		      size_t n)
{
	if (lane->queue == &lane->context->ctx.legacy)
		return CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED;
	if ((unsigned)mode > CU_STREAM_CAPTURE_MODE_RELAXED)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&graph_lock);
	CUresult result = begin_locked(call, lane, mode, graph, after, n);
	pthread_mutex_unlock(&graph_lock);
	return result;
}

#define STREAM_BEGIN_CAPTURE(fn, zero)                                             \
	EXPORT CUresult fn(CUstream hStream, CUstreamCaptureMode mode)             \
	{                                                                          \
		BEGIN(fn, NEEDS_CONTEXT, .stream = H(hStream), .value = mode);     \
		struct lane lane;                                                  \
		DO(lane_of(&call, hStream, zero, &lane));                          \
		DO(begin(&call, &lane, mode, NULL, NULL, 0));                      \
		return END();                                                      \
	}
STREAM_BEGIN_CAPTURE(cuStreamBeginCapture_v2, LEGACY)
STREAM_BEGIN_CAPTURE(cuStreamBeginCapture_v2_ptsz, PER_THREAD)

/* cuStreamBeginCapture without suffix is the first version, which has no mode argument. */
#define STREAM_BEGIN_CAPTURE_V1(fn, zero)                                                      \
	EXPORT CUresult fn(CUstream hStream)                                                   \
	{                                                                                      \
		BEGIN(fn, NEEDS_CONTEXT, .stream = H(hStream));                                \
		struct lane lane;                                                              \
		DO(lane_of(&call, hStream, zero, &lane));                                      \
		DO(begin(&call, &lane, CU_STREAM_CAPTURE_MODE_RELAXED, NULL, NULL, 0));        \
		return END();                                                                  \
	}
STREAM_BEGIN_CAPTURE_V1(cuStreamBeginCapture, LEGACY)
STREAM_BEGIN_CAPTURE_V1(cuStreamBeginCapture_ptsz, PER_THREAD)

#define STREAM_BEGIN_CAPTURE_TO_GRAPH(fn, zero)                                                                              \
	EXPORT CUresult fn(CUstream hStream, CUgraph hGraph, const CUgraphNode *dependencies,                                \
			   const CUgraphEdgeData *dependencyData, size_t numDependencies, CUstreamCaptureMode mode)          \
	{                                                                                                                    \
		BEGIN(fn, NEEDS_CONTEXT, .ptr = H(hGraph), .stream = H(hStream), .value = mode);                             \
		(void)dependencyData;                                                                                        \
		struct lane lane;                                                                                            \
		struct object *graph = object_of(hGraph, GRAPH);                                                             \
		DO(lane_of(&call, hStream, zero, &lane));                                                                    \
		DO(graph ? begin(&call, &lane, mode, graph, dependencies, numDependencies) : CUDA_ERROR_INVALID_VALUE);      \
		return END();                                                                                                \
	}
STREAM_BEGIN_CAPTURE_TO_GRAPH(cuStreamBeginCaptureToGraph, LEGACY)
STREAM_BEGIN_CAPTURE_TO_GRAPH(cuStreamBeginCaptureToGraph_ptsz, PER_THREAD)

/* Returns true if the origin stream has waited for every stream that joined the capture. Marks
 * all nodes that the origin's tail depends on; a joined stream's tail must be marked. */
static bool all_streams_joined(struct object *capture)
{
	struct node_set reached = {0};
	uint32_t mark = ++last_mark;
	bool ok = add_all(&reached, &capture->capture.origin->tail);
	for (uint32_t i = 0; i < reached.len; i++)
		reached.nodes[i]->node.mark = mark;
	while (reached.len > 0 && ok) {
		const struct node_set *after = &reached.nodes[--reached.len]->node.after;
		for (uint32_t i = 0; i < after->len && ok; i++) {
			if (after->nodes[i]->node.mark == mark)
				continue;
			after->nodes[i]->node.mark = mark;
			ok = set_add(&reached, after->nodes[i]);
		}
	}
	set_free(&reached);
	for (struct queue *q = capture->capture.queues; q; q = q->next)
		for (uint32_t i = 0; i < q->tail.len; i++)
			ok &= q->tail.nodes[i]->node.mark == mark;
	return ok;
}

static CUresult end_locked(struct call *call, struct queue *queue, CUgraph *out)
{
	struct object *c = queue->capture;
	if (!c)
		return CUDA_ERROR_ILLEGAL_STATE;
	if (c->capture.origin != queue) {
		c->capture.invalid = true;
		return CUDA_ERROR_STREAM_CAPTURE_UNMATCHED;
	}
	if (c->capture.mode != CU_STREAM_CAPTURE_MODE_RELAXED && c->capture.thread != call->thread)
		return CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
	CUresult result = c->capture.invalid ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
			  : !all_streams_joined(c)       ? CUDA_ERROR_STREAM_CAPTURE_UNJOINED
					     : CUDA_SUCCESS;
	*out = result ? NULL : (CUgraph)c->capture.graph;
	call->ptr = H(*out);
	finish(c, !result);
	return result;
}

static CUresult end(struct call *call, struct lane *lane, CUgraph *out)
{
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&graph_lock);
	CUresult result = end_locked(call, lane->queue, out);
	pthread_mutex_unlock(&graph_lock);
	return result;
}

/* Like lane_of, but accepts an invalidated capture: queries and cuStreamEndCapture must still
 * work on it. */
static CUresult lane_of_capture(struct call *call, CUstream stream, enum default_stream zero, struct lane *lane)
{
	CUresult result = lane_of(call, stream, zero, lane);
	return result == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED ? CUDA_SUCCESS : result;
}

#define STREAM_END_CAPTURE(fn, zero)                                        \
	EXPORT CUresult fn(CUstream hStream, CUgraph *phGraph)              \
	{                                                                   \
		BEGIN(fn, NEEDS_CONTEXT, .stream = H(hStream));             \
		struct lane lane;                                           \
		DO(lane_of_capture(&call, hStream, zero, &lane));           \
		DO(end(&call, &lane, phGraph));                             \
		return END();                                               \
	}
STREAM_END_CAPTURE(cuStreamEndCapture, LEGACY)
STREAM_END_CAPTURE(cuStreamEndCapture_ptsz, PER_THREAD)

/* ---- queries about captures ---- */

static CUresult info(struct call *call, struct lane *lane, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
		     const CUgraphNode **after, size_t *n)
{
	if (!status)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&graph_lock);
	struct object *c = lane->queue->capture;
	*status = !c                  ? CU_STREAM_CAPTURE_STATUS_NONE
		  : c->capture.invalid ? CU_STREAM_CAPTURE_STATUS_INVALIDATED
				       : CU_STREAM_CAPTURE_STATUS_ACTIVE;
	bool active = *status == CU_STREAM_CAPTURE_STATUS_ACTIVE;
	call->value = *status;
	if (active && id)
		*id = c->capture.id;
	if (active && graph) {
		*graph = (CUgraph)c->capture.graph;
		call->ptr = H(*graph);
	}
	if (active && after)
		/* The node array is valid until the stream's next call. */
		*after = (const CUgraphNode *)lane->queue->tail.nodes;
	if (active && n)
		*n = lane->queue->tail.len;
	pthread_mutex_unlock(&graph_lock);
	return CUDA_SUCCESS;
}

#define STREAM_IS_CAPTURING(fn, zero)                                                    \
	EXPORT CUresult fn(CUstream hStream, CUstreamCaptureStatus *captureStatus)       \
	{                                                                                \
		BEGIN(fn, NEEDS_CONTEXT, .stream = H(hStream));                          \
		struct lane lane;                                                        \
		DO(lane_of_capture(&call, hStream, zero, &lane));                        \
		DO(info(&call, &lane, captureStatus, NULL, NULL, NULL, NULL));           \
		return END();                                                            \
	}
STREAM_IS_CAPTURING(cuStreamIsCapturing, LEGACY)
STREAM_IS_CAPTURING(cuStreamIsCapturing_ptsz, PER_THREAD)

#define STREAM_GET_CAPTURE_INFO(fn, zero)                                                                                      \
	EXPORT CUresult fn(CUstream hStream, CUstreamCaptureStatus *captureStatus_out, cuuint64_t *id_out, CUgraph *graph_out, \
			   const CUgraphNode **dependencies_out, size_t *numDependencies_out)                                  \
	{                                                                                                                      \
		BEGIN(fn, NEEDS_CONTEXT, .stream = H(hStream));                                                                \
		struct lane lane;                                                                                              \
		DO(lane_of_capture(&call, hStream, zero, &lane));                                                              \
		DO(info(&call, &lane, captureStatus_out, id_out, graph_out, dependencies_out, numDependencies_out));           \
		return END();                                                                                                  \
	}
STREAM_GET_CAPTURE_INFO(cuStreamGetCaptureInfo_v2, LEGACY)
STREAM_GET_CAPTURE_INFO(cuStreamGetCaptureInfo_v2_ptsz, PER_THREAD)

#define STREAM_GET_CAPTURE_INFO_V3(fn, zero)                                                                                   \
	EXPORT CUresult fn(CUstream hStream, CUstreamCaptureStatus *captureStatus_out, cuuint64_t *id_out, CUgraph *graph_out, \
			   const CUgraphNode **dependencies_out, const CUgraphEdgeData **edgeData_out,                         \
			   size_t *numDependencies_out)                                                                        \
	{                                                                                                                      \
		BEGIN(fn, NEEDS_CONTEXT, .stream = H(hStream));                                                                \
		struct lane lane;                                                                                              \
		DO(lane_of_capture(&call, hStream, zero, &lane));                                                              \
		DO(info(&call, &lane, captureStatus_out, id_out, graph_out, dependencies_out, numDependencies_out));           \
		if (!call.result && edgeData_out)                                                                              \
			*edgeData_out = NULL; /* simcuda's edges have no data */                                               \
		return END();                                                                                                  \
	}
STREAM_GET_CAPTURE_INFO_V3(cuStreamGetCaptureInfo_v3, LEGACY)
STREAM_GET_CAPTURE_INFO_V3(cuStreamGetCaptureInfo_v3_ptsz, PER_THREAD)

static CUresult exchange(struct thread *t, CUstreamCaptureMode *mode)
{
	if (!mode || (unsigned)*mode > CU_STREAM_CAPTURE_MODE_RELAXED)
		return CUDA_ERROR_INVALID_VALUE;
	CUstreamCaptureMode old = t->capture_mode;
	t->capture_mode = *mode;
	*mode = old;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuThreadExchangeStreamCaptureMode(CUstreamCaptureMode *mode)
{
	BEGIN(cuThreadExchangeStreamCaptureMode, NEEDS_INIT, .value = mode ? *mode : 0);
	DO(exchange(call.thread, mode));
	return END();
}
