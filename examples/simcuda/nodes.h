/* Functions shared by the files that add nodes to graphs. */
#ifndef SIMCUDA_NODES_H
#define SIMCUDA_NODES_H

#include "copy.h"

#define NODE_ARGUMENTS CUgraphNode *phGraphNode, CUgraph hGraph, const CUgraphNode *dependencies, size_t numDependencies
#define ADD_TO(call, op) node_add_to(call, phGraphNode, hGraph, dependencies, numDependencies, op)
#define ADD(op) ADD_TO(&call, op)

CUresult node_add_to(struct call *call, NODE_ARGUMENTS, const struct op *op);
CUresult add_child(struct call *call, NODE_ARGUMENTS, CUgraph child);
CUresult add_alloc(struct call *call, NODE_ARGUMENTS, CUDA_MEM_ALLOC_NODE_PARAMS *params);
CUresult add_free(struct call *call, NODE_ARGUMENTS, CUdeviceptr dptr);
CUresult set_op_of(const CUDA_MEMSET_NODE_PARAMS *params, struct op *op);
void set_kernel_columns(struct call *call, const CUDA_KERNEL_NODE_PARAMS *params);
void set_kernel_columns_v1(struct call *call, const CUDA_KERNEL_NODE_PARAMS_v1 *params);

#endif
