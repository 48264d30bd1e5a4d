/* Graph nodes of every type, first versions of graph functions, and updates of nodes. */
#include "every.h"

static void nothing(void *unused)
{
	(void)unused;
}

static CUDA_KERNEL_NODE_PARAMS some_kernel(void)
{
	return (CUDA_KERNEL_NODE_PARAMS){.func = every.function, .gridDimX = unique_number(), .gridDimY = 2, .gridDimZ = 1,
					 .blockDimX = 32, .blockDimY = 3, .blockDimZ = 1, .sharedMemBytes = unique_number()};
}

static CUDA_KERNEL_NODE_PARAMS_v1 old_kernel(void)
{
	return (CUDA_KERNEL_NODE_PARAMS_v1){.func = every.function, .gridDimX = unique_number(), .gridDimY = 3, .gridDimZ = 1,
					    .blockDimX = 64, .blockDimY = 1, .blockDimZ = 2, .sharedMemBytes = unique_number()};
}

/* Returns a graph without memory nodes: it can be a child graph, and its nodes can be removed. */
static CUgraph plain_graph(CUgraphNode *kernel, CUgraphNode *spare)
{
	CUgraph graph = NULL;
	CUgraphNode node = NULL;
	CUDA_KERNEL_NODE_PARAMS_v1 old = old_kernel();
	const CUDA_HOST_NODE_PARAMS host = {nothing, NULL};
	const CUDA_BATCH_MEM_OP_NODE_PARAMS values = {.ctx = every.context};
	const CUDA_EXT_SEM_NODE_PARAMS semaphores = {.numExtSems = 0};
	OK(cuGraphCreate, &graph, 0);
	OK(cuGraphAddKernelNode, kernel, graph, NULL, 0, &old);
	OK(cuGraphAddHostNode, &node, graph, kernel, 1, &host);
	OK(cuGraphAddEventRecordNode, &node, graph, NULL, 0, every.event);
	OK(cuGraphAddEventWaitNode, &node, graph, NULL, 0, every.event);
	OK(cuGraphAddBatchMemOpNode, &node, graph, NULL, 0, &values);
	OK(cuGraphAddExternalSemaphoresSignalNode, &node, graph, NULL, 0, &semaphores);
	OK(cuGraphAddExternalSemaphoresWaitNode, spare, graph, kernel, 1, &semaphores);
	old.func = NULL;
	FAILS(CUDA_ERROR_INVALID_HANDLE, cuGraphAddKernelNode, &node, graph, NULL, 0, &old);
	FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphAddHostNode, &node, graph, NULL, 0, NULL);
	return graph;
}

/* Returns a graph with one node of every type that cuGraphAddNode accepts. */
static CUgraph typed_graph(CUgraph child)
{
	CUgraph graph = NULL;
	CUgraphNode n = NULL, allocated = NULL;
	CUgraphNodeParams kernel = {.type = CU_GRAPH_NODE_TYPE_KERNEL, .kernel = some_kernel()};
	CUgraphNodeParams copy = {.type = CU_GRAPH_NODE_TYPE_MEMCPY,
				  .memcpy.copyParams = {.srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = every.buffer_a,
							.dstMemoryType = CU_MEMORYTYPE_HOST, .dstHost = every.host,
							.WidthInBytes = 99, .Height = 1, .Depth = 1}};
	CUgraphNodeParams set = {.type = CU_GRAPH_NODE_TYPE_MEMSET, .memset = {every.buffer_a, 0, 4, 1, 55, 1}};
	CUgraphNodeParams host = {.type = CU_GRAPH_NODE_TYPE_HOST, .host = {nothing, NULL}};
	CUgraphNodeParams inner = {.type = CU_GRAPH_NODE_TYPE_GRAPH, .graph.graph = child};
	CUgraphNodeParams empty = {.type = CU_GRAPH_NODE_TYPE_EMPTY};
	CUgraphNodeParams memory = {.type = CU_GRAPH_NODE_TYPE_MEM_ALLOC,
				    .alloc = {.poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
							    .location = {CU_MEM_LOCATION_TYPE_DEVICE, every.device}},
					      .bytesize = unique_bytes()}};
	CUgraphNodeParams gone = {.type = CU_GRAPH_NODE_TYPE_MEM_FREE};
	CUgraphNodeParams unknown = {.type = CU_GRAPH_NODE_TYPE_CONDITIONAL};
	OK(cuGraphCreate, &graph, 0);
	OK(cuGraphAddNode, &n, graph, NULL, 0, &kernel);
	kernel.kernel = some_kernel();
	kernel.kernel.func = NULL;
	kernel.kernel.kern = every.kernel;
	OK(cuGraphAddNode_v2, &n, graph, NULL, NULL, 0, &kernel);
	OK(cuGraphAddNode, &n, graph, NULL, 0, &copy);
	OK(cuGraphAddNode_v2, &n, graph, NULL, NULL, 0, &set);
	OK(cuGraphAddNode, &n, graph, NULL, 0, &host);
	OK(cuGraphAddNode_v2, &n, graph, NULL, NULL, 0, &inner);
	OK(cuGraphAddNode, &n, graph, NULL, 0, &empty);
	OK(cuGraphAddNode, &allocated, graph, NULL, 0, &memory);
	gone.free.dptr = memory.alloc.dptr;
	OK(cuGraphAddNode_v2, &n, graph, &allocated, NULL, 1, &gone);
	OK(cuGraphNodeSetParams, n, &set);
	FAILS(CUDA_ERROR_NOT_SUPPORTED, cuGraphAddNode, &n, graph, NULL, 0, &unknown);
	memory.alloc.bytesize = 0;
	FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphAddNode_v2, &n, graph, NULL, NULL, 0, &memory);
	gone.free.dptr = 0xdead000;
	FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphAddNode, &n, graph, NULL, 0, &gone);
	FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphAddNode, &n, graph, NULL, 0, NULL);
	FAILS(CUDA_ERROR_NOT_SUPPORTED, cuGraphDestroyNode, allocated);
	return graph;
}

static void change(CUgraphExec exec, CUgraphNode kernel)
{
	CUDA_KERNEL_NODE_PARAMS new = some_kernel();
	CUDA_KERNEL_NODE_PARAMS_v1 old = old_kernel();
	CUgraphNodeParams any = {.type = CU_GRAPH_NODE_TYPE_KERNEL, .kernel = some_kernel()};
	OK(cuGraphKernelNodeSetParams, kernel, &old);
	OK(cuGraphKernelNodeSetParams_v2, kernel, &new);
	OK(cuGraphNodeSetParams, kernel, &any);
	old.gridDimX = unique_number();
	new.gridDimX = unique_number();
	any.kernel.gridDimX = unique_number();
	OK(cuGraphExecKernelNodeSetParams, exec, kernel, &old);
	OK(cuGraphExecKernelNodeSetParams_v2, exec, kernel, &new);
	OK(cuGraphExecNodeSetParams, exec, kernel, &any);
	OK(cuGraphNodeSetEnabled, exec, kernel, 1);
	new.blockDimX = 4096;
	FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphExecKernelNodeSetParams_v2, exec, kernel, &new);
	FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphNodeSetEnabled, BAD_HANDLE(CUgraphExec), kernel, 0);
}

void every_nodes(void)
{
	CUgraphNode kernel = NULL, spare = NULL, wrong = NULL;
	CUgraph plain = plain_graph(&kernel, &spare), typed = typed_graph(plain), captured = NULL;
	CUgraphExec a = NULL, b = NULL;
	CUgraphExecUpdateResult why = 0;
	CUstream s = every.streams[0];
	char log[16];
	OK(cuGraphInstantiate, &a, plain, &wrong, log, sizeof(log));
	OK(cuGraphInstantiateWithFlags, &b, typed, 0);
	OK(cuGraphExecUpdate, a, plain, &wrong, &why);
	FAILS(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, cuGraphExecUpdate, a, typed, &wrong, &why);
	OK(cuGraphLaunch, b, s);
	OK(cuGraphLaunch, a, s);
	change(a, kernel);
	OK(cuGraphDestroyNode, spare);
	FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphDestroyNode, spare);
	OK(cuGraphLaunch, a, s);
	OK(cuStreamSynchronize, s);
	OK(cuGraphExecDestroy, a);
	OK(cuGraphExecDestroy, b);
	OK(cuGraphDestroy, typed);
	OK(cuGraphDestroy, plain);

	OK(cuStreamBeginCapture, s);
	OK(cuLaunchKernel, every.function, unique_number(), 1, 1, 32, 1, 1, 0, s, NULL, NULL);
	OK(cuStreamEndCapture, s, &captured);
	OK(cuGraphDestroy, captured);
	OK_AS(cuStreamBeginCapture_ptsz, cuStreamBeginCapture, every.streams[1]);
	OK(cuStreamEndCapture, every.streams[1], &captured);
	OK(cuGraphDestroy, captured);
}
