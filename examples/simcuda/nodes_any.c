/* cuGraphAddNode, whose node type is an argument; nodes for events, semaphores and memory
 * operations; and updates of nodes. */
#include "graph.h"

#include "memory.h"
#include "nodes.h"

/* Semaphore and batch memory operation nodes have no effect. */
#define EMPTY_NODE(fn, type)                                                        \
	EXPORT CUresult fn(NODE_ARGUMENTS, const type *nodeParams)                  \
	{                                                                           \
		BEGIN(fn, NEEDS_CONTEXT, .src_ptr = H(hGraph));                     \
		struct op op = {.kind = OP_EMPTY};                                  \
		DO(nodeParams ? ADD(&op) : CUDA_ERROR_INVALID_VALUE);               \
		return END();                                                       \
	}
EMPTY_NODE(cuGraphAddBatchMemOpNode, CUDA_BATCH_MEM_OP_NODE_PARAMS)
EMPTY_NODE(cuGraphAddExternalSemaphoresSignalNode, CUDA_EXT_SEM_NODE_PARAMS)
EMPTY_NODE(cuGraphAddExternalSemaphoresWaitNode, CUDA_EXT_SEM_NODE_PARAMS)

#define EVENT_NODE(fn, op_kind)                                                          \
	EXPORT CUresult fn(NODE_ARGUMENTS, CUevent event)                                \
	{                                                                                \
		BEGIN(fn, NEEDS_CONTEXT, .src_ptr = H(hGraph));                          \
		struct op op = {.kind = op_kind, .event = object_of(event, EVENT)};      \
		DO(op.event ? ADD(&op) : CUDA_ERROR_INVALID_HANDLE);                     \
		return END();                                                            \
	}
EVENT_NODE(cuGraphAddEventRecordNode, OP_RECORD)
EVENT_NODE(cuGraphAddEventWaitNode, OP_WAIT)

EXPORT CUresult cuGraphAddHostNode(NODE_ARGUMENTS, const CUDA_HOST_NODE_PARAMS *nodeParams)
{
	BEGIN(cuGraphAddHostNode, NEEDS_CONTEXT, .src_ptr = H(hGraph));
	struct op op = {.kind = OP_HOST};
	DO(nodeParams && nodeParams->fn ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
	if (!call.result) {
		op.host.run = nodeParams->fn;
		op.host.data = nodeParams->userData;
	}
	DO(ADD(&op));
	return END();
}

/* ---- cuGraphAddNode ---- */

static void set_columns(struct call *call, const CUgraphNodeParams *p)
{
	switch (p->type) {
	case CU_GRAPH_NODE_TYPE_KERNEL: set_kernel_columns(call, &p->kernel); break;
	case CU_GRAPH_NODE_TYPE_GRAPH: call->value = (int64_t)H(p->graph.graph); break;
	case CU_GRAPH_NODE_TYPE_MEM_ALLOC: call->bytes = p->alloc.bytesize; break;
	default: break;
	}
}

static CUresult add_any(struct call *call, NODE_ARGUMENTS, CUgraphNodeParams *p)
{
	struct op op = {.kind = OP_EMPTY};
	CUresult result = CUDA_SUCCESS;
	switch (p->type) {
	case CU_GRAPH_NODE_TYPE_KERNEL:
		op = (struct op){.kind = OP_KERNEL, .ns = kernel_ns(call->kernel, call->grid)};
		result = launch_check(call);
		break;
	case CU_GRAPH_NODE_TYPE_MEMCPY: result = copy_op_3d(&p->memcpy.copyParams, &op); break;
	case CU_GRAPH_NODE_TYPE_MEMSET: result = set_op_of(&p->memset, &op); break;
	case CU_GRAPH_NODE_TYPE_HOST: op = (struct op){.kind = OP_HOST, .host = {p->host.fn, p->host.userData}}; break;
	case CU_GRAPH_NODE_TYPE_GRAPH:
		return add_child(call, phGraphNode, hGraph, dependencies, numDependencies, p->graph.graph);
	case CU_GRAPH_NODE_TYPE_MEM_ALLOC:
		return add_alloc(call, phGraphNode, hGraph, dependencies, numDependencies, &p->alloc);
	case CU_GRAPH_NODE_TYPE_MEM_FREE:
		result = add_free(call, phGraphNode, hGraph, dependencies, numDependencies, p->free.dptr);
		call->ptr = result ? 0 : p->free.dptr;
		return result;
	case CU_GRAPH_NODE_TYPE_EMPTY: break;
	default: result = CUDA_ERROR_NOT_SUPPORTED;
	}
	return result ? result : ADD_TO(call, &op);
}

EXPORT CUresult cuGraphAddNode(NODE_ARGUMENTS, CUgraphNodeParams *nodeParams)
{
	BEGIN(cuGraphAddNode, NEEDS_CONTEXT, .src_ptr = H(hGraph));
	if (nodeParams)
		set_columns(&call, nodeParams);
	DO(nodeParams ? add_any(&call, phGraphNode, hGraph, dependencies, numDependencies, nodeParams) : CUDA_ERROR_INVALID_VALUE);
	return END();
}

EXPORT CUresult cuGraphAddNode_v2(CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies,
				  const CUgraphEdgeData *dependencyData, size_t numDependencies, CUgraphNodeParams *nodeParams)
{
	BEGIN(cuGraphAddNode_v2, NEEDS_CONTEXT, .src_ptr = H(hGraph));
	(void)dependencyData;
	if (nodeParams)
		set_columns(&call, nodeParams);
	DO(nodeParams ? add_any(&call, phGraphNode, hGraph, dependencies, numDependencies, nodeParams) : CUDA_ERROR_INVALID_VALUE);
	return END();
}

/* ---- updates of nodes ---- */

/* Checks new kernel parameters. Nothing else changes, because all kernels take the same time. */
static CUresult change_kernel(struct call *call, struct object *node)
{
	CUresult result = node && node->node.op->kind == OP_KERNEL ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	return result ? result : launch_check(call);
}

#define IS_EXEC(exec) (object_of(exec, EXEC) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE)

#define KERNEL_NODE_SET_PARAMS(fn, type, take_it)                                                        \
	EXPORT CUresult fn(CUgraphNode hNode, const type *nodeParams)                                    \
	{                                                                                                \
		BEGIN(fn, NEEDS_CONTEXT, .ptr = H(hNode));                                               \
		if (nodeParams)                                                                          \
			take_it(&call, nodeParams);                                                      \
		DO(nodeParams ? change_kernel(&call, object_of(hNode, NODE)) : CUDA_ERROR_INVALID_VALUE); \
		return END();                                                                            \
	}
KERNEL_NODE_SET_PARAMS(cuGraphKernelNodeSetParams, CUDA_KERNEL_NODE_PARAMS_v1, set_kernel_columns_v1)
KERNEL_NODE_SET_PARAMS(cuGraphKernelNodeSetParams_v2, CUDA_KERNEL_NODE_PARAMS, set_kernel_columns)

#define EXEC_KERNEL_NODE_SET_PARAMS(fn, type, take_it)                                                       \
	EXPORT CUresult fn(CUgraphExec hGraphExec, CUgraphNode hNode, const type *nodeParams)                \
	{                                                                                                    \
		BEGIN(fn, NEEDS_CONTEXT, .ptr = H(hGraphExec), .src_ptr = H(hNode));                         \
		if (nodeParams)                                                                              \
			take_it(&call, nodeParams);                                                          \
		DO(nodeParams ? IS_EXEC(hGraphExec) : CUDA_ERROR_INVALID_VALUE);                             \
		DO(change_kernel(&call, object_of(hNode, NODE)));                                            \
		return END();                                                                                \
	}
EXEC_KERNEL_NODE_SET_PARAMS(cuGraphExecKernelNodeSetParams, CUDA_KERNEL_NODE_PARAMS_v1, set_kernel_columns_v1)
EXEC_KERNEL_NODE_SET_PARAMS(cuGraphExecKernelNodeSetParams_v2, CUDA_KERNEL_NODE_PARAMS, set_kernel_columns)

static CUresult change(struct call *call, struct object *node, const CUgraphNodeParams *p)
{
	if (!node || !p)
		return CUDA_ERROR_INVALID_VALUE;
	return p->type == CU_GRAPH_NODE_TYPE_KERNEL ? change_kernel(call, node) : CUDA_SUCCESS;
}

EXPORT CUresult cuGraphNodeSetParams(CUgraphNode hNode, CUgraphNodeParams *nodeParams)
{
	BEGIN(cuGraphNodeSetParams, NEEDS_CONTEXT, .ptr = H(hNode));
	if (nodeParams)
		set_columns(&call, nodeParams);
	DO(change(&call, object_of(hNode, NODE), nodeParams));
	return END();
}

EXPORT CUresult cuGraphExecNodeSetParams(CUgraphExec hGraphExec, CUgraphNode hNode, CUgraphNodeParams *nodeParams)
{
	BEGIN(cuGraphExecNodeSetParams, NEEDS_CONTEXT, .ptr = H(hGraphExec), .src_ptr = H(hNode));
	if (nodeParams)
		set_columns(&call, nodeParams);
	DO(IS_EXEC(hGraphExec));
	DO(change(&call, object_of(hNode, NODE), nodeParams));
	return END();
}

/* Checks a node and its new state. A disabled node still takes its time in simcuda. */
EXPORT CUresult cuGraphNodeSetEnabled(CUgraphExec hGraphExec, CUgraphNode hNode, unsigned int isEnabled)
{
	BEGIN(cuGraphNodeSetEnabled, NEEDS_CONTEXT, .ptr = H(hGraphExec), .src_ptr = H(hNode), .value = isEnabled);
	DO(IS_EXEC(hGraphExec));
	DO(object_of(hNode, NODE) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
	return END();
}

EXPORT CUresult cuGraphDestroyNode(CUgraphNode hNode)
{
	BEGIN(cuGraphDestroyNode, NEEDS_CONTEXT, .ptr = H(hNode));
	DO(node_remove(object_of(hNode, NODE)));
	return END();
}
