/* Explicit graph construction: cuGraphAdd…Node. */
#include "nodes.h"

#include "memory.h"

#include <stdlib.h>

/* Adds op as a node that depends on nodes of the same graph. */
static CUresult add_locked(struct object *graph, const CUgraphNode *after, size_t n, const struct op *op, CUgraphNode *out)
{
	struct node_set set = {0};
	CUresult result = CUDA_SUCCESS;
	if (!graph || (n > 0 && !after))
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < n && !result; i++) {
		struct object *node = object_of(after[i], NODE);
		if (!node || node->node.graph != graph)
			result = CUDA_ERROR_INVALID_VALUE;
		else if (!set_add(&set, node))
			result = CUDA_ERROR_OUT_OF_MEMORY;
	}
	struct object *made = result ? NULL : node_add(graph, set.nodes, set.len, op);
	set_free(&set);
	*out = (CUgraphNode)made;
	return result ? result : made ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

CUresult node_add_to(struct call *call, CUgraphNode *out, CUgraph graph, const CUgraphNode *after, size_t n, const struct op *op)
{
	CUgraphNode node = NULL;
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	pthread_mutex_lock(&graph_lock);
	CUresult result = add_locked(object_of(graph, GRAPH), after, n, op, &node);
	pthread_mutex_unlock(&graph_lock);
	if (result)
		return result;
	*out = node;
	call->ptr = H(node);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuGraphAddEmptyNode(NODE_ARGUMENTS)
{
	BEGIN(cuGraphAddEmptyNode, NEEDS_INIT, .src_ptr = H(hGraph));
	struct op op = {.kind = OP_EMPTY};
	DO(ADD(&op));
	return END();
}

void set_kernel_columns(struct call *call, const CUDA_KERNEL_NODE_PARAMS *p)
{
	const void *handle = p->func ? (const void *)p->func : (const void *)p->kern;
	call->function = H(handle);
	call->kernel = kernel_name(handle);
	call->grid[0] = p->gridDimX;
	call->grid[1] = p->gridDimY;
	call->grid[2] = p->gridDimZ;
	call->block[0] = p->blockDimX;
	call->block[1] = p->blockDimY;
	call->block[2] = p->blockDimZ;
	call->shared_bytes = p->sharedMemBytes;
}

/* Converts the first version of the structure, which ends before the CUkernel. */
void set_kernel_columns_v1(struct call *call, const CUDA_KERNEL_NODE_PARAMS_v1 *p)
{
	const CUDA_KERNEL_NODE_PARAMS wide = {p->func, p->gridDimX, p->gridDimY, p->gridDimZ, p->blockDimX, p->blockDimY,
					      p->blockDimZ, p->sharedMemBytes, p->kernelParams, p->extra, NULL, NULL};
	set_kernel_columns(call, &wide);
}

EXPORT CUresult cuGraphAddKernelNode(NODE_ARGUMENTS, const CUDA_KERNEL_NODE_PARAMS_v1 *nodeParams)
{
	BEGIN(cuGraphAddKernelNode, NEEDS_CONTEXT, .src_ptr = H(hGraph));
	struct op op = {.kind = OP_KERNEL};
	if (nodeParams)
		set_kernel_columns_v1(&call, nodeParams);
	op.ns = kernel_ns(call.kernel, call.grid);
	DO(nodeParams ? launch_check(&call) : CUDA_ERROR_INVALID_VALUE);
	DO(ADD(&op));
	return END();
}

EXPORT CUresult cuGraphAddKernelNode_v2(NODE_ARGUMENTS, const CUDA_KERNEL_NODE_PARAMS *nodeParams)
{
	BEGIN(cuGraphAddKernelNode_v2, NEEDS_CONTEXT, .src_ptr = H(hGraph));
	struct op op = {.kind = OP_KERNEL};
	if (nodeParams)
		set_kernel_columns(&call, nodeParams);
	op.ns = kernel_ns(call.kernel, call.grid);
	DO(nodeParams ? launch_check(&call) : CUDA_ERROR_INVALID_VALUE);
	DO(ADD(&op));
	return END();
}

EXPORT CUresult cuGraphAddMemcpyNode(NODE_ARGUMENTS, const CUDA_MEMCPY3D *copyParams, CUcontext ctx)
{
	BEGIN(cuGraphAddMemcpyNode, NEEDS_INIT, .src_ptr = H(hGraph));
	struct op op;
	DO(object_of(ctx, CONTEXT) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT);
	DO(copy_op_3d(copyParams, &op));
	DO(ADD(&op));
	return END();
}

CUresult set_op_of(const CUDA_MEMSET_NODE_PARAMS *p, struct op *op)
{
	if (!p || (p->elementSize != 1 && p->elementSize != 2 && p->elementSize != 4))
		return CUDA_ERROR_INVALID_VALUE;
	return set_op(p->dst, p->pitch, p->value, p->elementSize, p->width, p->height, op);
}

EXPORT CUresult cuGraphAddMemsetNode(NODE_ARGUMENTS, const CUDA_MEMSET_NODE_PARAMS *memsetParams, CUcontext ctx)
{
	BEGIN(cuGraphAddMemsetNode, NEEDS_INIT, .src_ptr = H(hGraph));
	struct op op;
	DO(object_of(ctx, CONTEXT) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT);
	DO(set_op_of(memsetParams, &op));
	DO(ADD(&op));
	return END();
}

/* Adds a child graph node. The node owns a copy, so later changes of the child do not affect it. */
CUresult add_child(struct call *call, NODE_ARGUMENTS, CUgraph child)
{
	CUresult result = CUDA_ERROR_INVALID_VALUE;
	CUgraphNode node = NULL;
	struct op op = {.kind = OP_GRAPH};
	pthread_mutex_lock(&graph_lock);
	struct object *o = object_of(child, GRAPH);
	if (phGraphNode && o && o->graph.has_memory) {
		result = CUDA_ERROR_NOT_SUPPORTED;
	} else if (phGraphNode && o && !o->graph.capturing) {
		op.child = graph_copy(o);
		result = op.child ? add_locked(object_of(hGraph, GRAPH), dependencies, numDependencies, &op, &node)
				  : CUDA_ERROR_OUT_OF_MEMORY;
		if (result && op.child)
			graph_free(op.child);
	}
	pthread_mutex_unlock(&graph_lock);
	if (!result) {
		*phGraphNode = node;
		call->ptr = H(node);
	}
	return result;
}

EXPORT CUresult cuGraphAddChildGraphNode(NODE_ARGUMENTS, CUgraph childGraph)
{
	BEGIN(cuGraphAddChildGraphNode, NEEDS_INIT, .src_ptr = H(hGraph));
	DO(add_child(&call, phGraphNode, hGraph, dependencies, numDependencies, childGraph));
	return END();
}

/* Adds a memory allocation node. The ledger's ptr column has the address of the memory, not the
 * node. */
CUresult add_alloc(struct call *call, NODE_ARGUMENTS, CUDA_MEM_ALLOC_NODE_PARAMS *p)
{
	if (!p || !p->bytesize || p->poolProps.allocType != CU_MEM_ALLOCATION_TYPE_PINNED ||
	    p->poolProps.location.type != CU_MEM_LOCATION_TYPE_DEVICE || !device_of(p->poolProps.location.id))
		return CUDA_ERROR_INVALID_VALUE;
	struct op op = {.kind = OP_ALLOC, .memory = graph_memory_new(device_of(p->poolProps.location.id), p->bytesize)};
	if (!op.memory)
		return CUDA_ERROR_OUT_OF_MEMORY;
	CUresult result = node_add_to(call, phGraphNode, hGraph, dependencies, numDependencies, &op);
	call->ptr = 0;
	if (result) {
		graph_memory_release(op.memory);
		return result;
	}
	call->ptr = p->dptr = op.memory->address;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuGraphAddMemAllocNode(NODE_ARGUMENTS, CUDA_MEM_ALLOC_NODE_PARAMS *nodeParams)
{
	BEGIN(cuGraphAddMemAllocNode, NEEDS_CONTEXT, .src_ptr = H(hGraph), .bytes = nodeParams ? nodeParams->bytesize : 0);
	DO(add_alloc(&call, phGraphNode, hGraph, dependencies, numDependencies, nodeParams));
	return END();
}

CUresult add_free(struct call *call, NODE_ARGUMENTS, CUdeviceptr dptr)
{
	struct op op = {.kind = OP_FREE, .memory = graph_memory_at(dptr)};
	if (!op.memory)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult result = node_add_to(call, phGraphNode, hGraph, dependencies, numDependencies, &op);
	call->ptr = dptr;
	if (result)
		graph_memory_release(op.memory);
	return result;
}

EXPORT CUresult cuGraphAddMemFreeNode(NODE_ARGUMENTS, CUdeviceptr dptr)
{
	BEGIN(cuGraphAddMemFreeNode, NEEDS_CONTEXT, .ptr = dptr, .src_ptr = H(hGraph));
	DO(add_free(&call, phGraphNode, hGraph, dependencies, numDependencies, dptr));
	return END();
}
