/* Executable graphs. Instantiation flattens a graph and its child graphs into a list of steps.
 * Each step has the times at which it starts and ends, relative to the launch. Later changes of
 * the graph do not affect the executable graph. */
#include "graph.h"

#include "memory.h"

#include <stdlib.h>

struct step {
	struct op op;
	uint64_t starts, ends; /* in ns after the launch */
	uint64_t shape;        /* hash of the node's dependencies: an update must not change it */
};

struct steps {
	struct step *list;
	uint32_t len, room;
	uint64_t ns;
};

static struct step *step_new(struct steps *s)
{
	if (s->len == s->room) {
		uint32_t room = s->room ? s->room * 2 : 16;
		struct step *bigger = realloc(s->list, room * sizeof(*bigger));
		if (!bigger)
			return NULL;
		s->list = bigger;
		s->room = room;
	}
	return &s->list[s->len++];
}

static void steps_free(struct steps *s)
{
	for (uint32_t i = 0; s && i < s->len; i++)
		if (s->list[i].op.kind == OP_ALLOC || s->list[i].op.kind == OP_FREE)
			graph_memory_release(s->list[i].op.memory);
	if (s)
		free(s->list);
	free(s);
}

/* Appends the graph's nodes to the list of steps. A node depends only on earlier nodes, so the
 * order of creation is a valid order of execution. Stores the end of the last node in *end.
 * Returns false if out of memory. */
static bool append_steps(struct steps *s, const struct object *graph, uint64_t start, uint64_t *end)
{
	uint64_t *ends = calloc(graph->graph.len + 1, sizeof(*ends));
	bool ok = ends != NULL;
	*end = start;
	for (struct object *node = graph->graph.first; node && ok; node = node->next) {
		struct step *step = step_new(s);
		uint64_t from = start, shape = graph->graph.len;
		for (uint32_t i = 0; i < node->node.after.len; i++) {
			uint32_t index = node->node.after.nodes[i]->node.index;
			from = ends[index] > from ? ends[index] : from;
			shape = shape * 0x9e3779b97f4a7c15ull + index + 1;
		}
		ok = step != NULL;
		if (!ok)
			break;
		uint64_t *over = &ends[node->node.index];
		*over = from + node->node.op->ns;
		*step = (struct step){*node->node.op, from, *over, shape};
		if (step->op.kind == OP_ALLOC || step->op.kind == OP_FREE)
			graph_memory_retain(step->op.memory);
		if (step->op.kind == OP_GRAPH)
			/* The recursive call may move the list, so step is invalid afterwards. */
			ok = append_steps(s, step->op.child, from, over);
		*end = *over > *end ? *over : *end;
	}
	free(ends);
	return ok;
}

static CUresult steps_of(CUgraph graph, struct steps **out)
{
	struct object *o = object_of(graph, GRAPH);
	if (!o || o->graph.capturing)
		return CUDA_ERROR_INVALID_VALUE;
	struct steps *s = calloc(1, sizeof(*s));
	if (!s || !append_steps(s, o, 0, &s->ns)) {
		steps_free(s);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	*out = s;
	return CUDA_SUCCESS;
}

static CUresult instantiate(struct call *call, CUgraphExec *out, CUgraph graph, uint64_t flags)
{
	enum { ALL = 15 /* the flags auto free, upload, device launch and node priority */ };
	struct steps *s = NULL;
	if (!out || flags & ~(uint64_t)ALL)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&graph_lock);
	CUresult result = steps_of(graph, &s);
	struct object *o = result ? NULL : object_new(EXEC, NULL);
	if (o) {
		o->exec.steps = s;
		o->exec.frees_on_launch = flags & CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
		*out = (CUgraphExec)o;
		call->ptr = H(o);
	} else if (!result) {
		steps_free(s);
		result = CUDA_ERROR_OUT_OF_MEMORY;
	}
	pthread_mutex_unlock(&graph_lock);
	return result;
}

EXPORT CUresult cuGraphInstantiateWithFlags(CUgraphExec *phGraphExec, CUgraph hGraph, unsigned long long flags)
{
	BEGIN(cuGraphInstantiateWithFlags, NEEDS_CONTEXT, .src_ptr = H(hGraph), .value = (int64_t)flags);
	DO(instantiate(&call, phGraphExec, hGraph, flags));
	return END();
}

#define GRAPH_INSTANTIATE(fn)                                                                                            \
	EXPORT CUresult fn(CUgraphExec *phGraphExec, CUgraph hGraph, CUgraphNode *phErrorNode, char *logBuffer,          \
			   size_t bufferSize)                                                                            \
	{                                                                                                                \
		BEGIN(fn, NEEDS_CONTEXT, .src_ptr = H(hGraph));                                                          \
		DO(instantiate(&call, phGraphExec, hGraph, 0));                                                          \
		if (phErrorNode)                                                                                         \
			*phErrorNode = NULL;                                                                             \
		if (logBuffer && bufferSize)                                                                             \
			*logBuffer = 0;                                                                                  \
		return END();                                                                                            \
	}
GRAPH_INSTANTIATE(cuGraphInstantiate)
GRAPH_INSTANTIATE(cuGraphInstantiate_v2)

#define GRAPH_INSTANTIATE_WITH_PARAMS(fn)                                                                                       \
	EXPORT CUresult fn(CUgraphExec *phGraphExec, CUgraph hGraph, CUDA_GRAPH_INSTANTIATE_PARAMS *instantiateParams)          \
	{                                                                                                                       \
		BEGIN(fn, NEEDS_CONTEXT, .src_ptr = H(hGraph), .value = instantiateParams ? (int64_t)instantiateParams->flags : 0); \
		DO(instantiateParams ? instantiate(&call, phGraphExec, hGraph, instantiateParams->flags) : CUDA_ERROR_INVALID_VALUE); \
		if (instantiateParams) {                                                                                        \
			instantiateParams->hErrNode_out = NULL;                                                                 \
			instantiateParams->result_out = call.result ? 1 : 0;                                                    \
		}                                                                                                               \
		return END();                                                                                                   \
	}
GRAPH_INSTANTIATE_WITH_PARAMS(cuGraphInstantiateWithParams)
GRAPH_INSTANTIATE_WITH_PARAMS(cuGraphInstantiateWithParams_ptsz)

/* Updates the parameters of an executable graph. The number of nodes, their types and their
 * dependencies must be unchanged. */
static CUresult update_locked(struct object *exec, CUgraph graph, CUgraphExecUpdateResultInfo *info)
{
	enum { ERROR = 1, TOPOLOGY_CHANGED = 2, NODE_TYPE_CHANGED = 3 };
	struct steps *new = NULL, *old = exec ? exec->exec.steps : NULL;
	info->errorNode = info->errorFromNode = NULL;
	info->result = ERROR;
	if (!exec)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult result = steps_of(graph, &new);
	if (result)
		return result;
	info->result = new->len == old->len ? 0 : TOPOLOGY_CHANGED;
	for (uint32_t i = 0; i < new->len && !info->result; i++) {
		if (new->list[i].shape != old->list[i].shape)
			info->result = TOPOLOGY_CHANGED;
		else if (new->list[i].op.kind != old->list[i].op.kind)
			info->result = NODE_TYPE_CHANGED;
	}
	exec->exec.steps = info->result ? old : new;
	steps_free(info->result ? new : old);
	return info->result ? CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE : CUDA_SUCCESS;
}

static CUresult update(CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo *info)
{
	if (!info)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&graph_lock);
	CUresult result = update_locked(object_of(exec, EXEC), graph, info);
	pthread_mutex_unlock(&graph_lock);
	return result;
}

EXPORT CUresult cuGraphExecUpdate_v2(CUgraphExec hGraphExec, CUgraph hGraph, CUgraphExecUpdateResultInfo *resultInfo)
{
	BEGIN(cuGraphExecUpdate_v2, NEEDS_CONTEXT, .ptr = H(hGraphExec), .src_ptr = H(hGraph));
	DO(update(hGraphExec, hGraph, resultInfo));
	return END();
}

EXPORT CUresult cuGraphExecUpdate(CUgraphExec hGraphExec, CUgraph hGraph, CUgraphNode *hErrorNode_out,
				  CUgraphExecUpdateResult *updateResult_out)
{
	BEGIN(cuGraphExecUpdate, NEEDS_CONTEXT, .ptr = H(hGraphExec), .src_ptr = H(hGraph));
	CUgraphExecUpdateResultInfo info = {0};
	DO(updateResult_out ? update(hGraphExec, hGraph, &info) : CUDA_ERROR_INVALID_VALUE);
	if (hErrorNode_out)
		*hErrorNode_out = info.errorNode;
	if (updateResult_out)
		*updateResult_out = info.result;
	return END();
}

static CUresult destroy(CUgraphExec exec)
{
	pthread_mutex_lock(&graph_lock);
	struct object *o = object_of(exec, EXEC);
	if (o) {
		steps_free(o->exec.steps);
		object_free(o);
	}
	pthread_mutex_unlock(&graph_lock);
	return o ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuGraphExecDestroy(CUgraphExec hGraphExec)
{
	BEGIN(cuGraphExecDestroy, NEEDS_INIT, .ptr = H(hGraphExec));
	DO(destroy(hGraphExec));
	return END();
}

/* ---- graph launch ---- */

static void run_host(struct lane *lane, const struct op *op, uint64_t when)
{
	uint64_t ticket = host_enqueue(when, op->host.run, op->host.data);
	timeline_raise(&lane->queue->host_ticket, ticket);
	timeline_raise(&lane->context->ctx.host_ticket, ticket);
}

/* Returns a time after the launch of a graph that takes ns and is over at `over`. An unknown time is the
 * end of the whole graph. */
static uint64_t step_time(uint64_t over, uint64_t ns, uint64_t after)
{
	return time_known(over, &over) ? over - ns + after : over;
}

static void run_step(struct lane *lane, const struct step *step, uint64_t over, uint64_t ns)
{
	const struct op *op = &step->op;
	struct object *event = op->kind == OP_RECORD ? object_of(op->event, EVENT) : NULL;
	switch (op->kind) {
	case OP_HOST: run_host(lane, op, over ? step_time(over, ns, step->starts) : 0); break;
	case OP_FREE: graph_memory_end(op->memory); break;
	case OP_RECORD:
		if (event)
			event->event.done_at = over ? step_time(over, ns, step->ends) : now_ns() + step->ends;
		break;
	default: op_move_data(op); break;
	}
}

/* Charges the memory of all allocation nodes. If one does not fit, releases the others, and the
 * launch does nothing. */
static CUresult begin_memory(const struct object *exec)
{
	const struct steps *s = exec->exec.steps;
	for (uint32_t i = 0; i < s->len; i++) {
		if (s->list[i].op.kind != OP_ALLOC)
			continue;
		CUresult result = graph_memory_begin(s->list[i].op.memory, exec->exec.frees_on_launch);
		for (uint32_t back = i; result && back-- > 0;)
			if (s->list[back].op.kind == OP_ALLOC)
				graph_memory_end(s->list[back].op.memory);
		if (result)
			return result;
	}
	return CUDA_SUCCESS;
}

static bool is_engine_copy(const struct step *step)
{
	enum work_kind kind = op_work(&step->op);
	return kind == WORK_COPY_IN || kind == WORK_COPY_OUT;
}

/* Submits a launch as the GPU sees it: one operation for the nodes between two copies, and one for each
 * copy of a copy engine. Returns the end of the last one. */
static uint64_t enqueue_segments(struct lane *lane, const struct steps *s)
{
	uint64_t from = 0, to = 0, over = 0;
	bool any = false;
	for (uint32_t i = 0; i < s->len; i++) {
		const struct step *step = &s->list[i];
		if (!is_engine_copy(step)) {
			to = step->ends > to ? step->ends : to;
			any = true;
			continue;
		}
		if (any)
			lane_enqueue(lane, WORK_GRAPH, to > from ? to - from : 0);
		over = lane_enqueue(lane, op_work(&step->op), step->ends - step->starts);
		from = to = step->ends > to ? step->ends : to;
		any = false;
	}
	return any || !over ? lane_enqueue(lane, WORK_GRAPH, to - from) : over;
}

static CUresult launch(struct lane *lane, CUgraphExec exec)
{
	pthread_mutex_lock(&graph_lock);
	struct object *o = object_of(exec, EXEC);
	CUresult result = o ? begin_memory(o) : CUDA_ERROR_INVALID_VALUE;
	if (!result) {
		const struct steps *s = o->exec.steps;
		uint64_t over = channels_on ? enqueue_segments(lane, s) : lane_enqueue(lane, WORK_GRAPH, s->ns);
		for (uint32_t i = 0; i < s->len; i++)
			run_step(lane, &s->list[i], over, s->ns);
	}
	pthread_mutex_unlock(&graph_lock);
	return result;
}

static CUresult upload(struct lane *lane, CUgraphExec exec)
{
	(void)lane; /* an upload takes no simulated time */
	return object_of(exec, EXEC) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

#define ON_STREAM(fn, zero, work)                                                                  \
	EXPORT CUresult fn(CUgraphExec hGraphExec, CUstream hStream)                               \
	{                                                                                          \
		BEGIN(fn, NEEDS_CONTEXT, .ptr = H(hGraphExec), .stream = H(hStream));              \
		struct lane lane;                                                                  \
		DO(lane_of_running(&call, hStream, zero, &lane));                                  \
		DO(work(&lane, hGraphExec));                                                       \
		return END();                                                                      \
	}
ON_STREAM(cuGraphLaunch, LEGACY, launch)
ON_STREAM(cuGraphLaunch_ptsz, PER_THREAD, launch)
ON_STREAM(cuGraphUpload, LEGACY, upload)
ON_STREAM(cuGraphUpload_ptsz, PER_THREAD, upload)
