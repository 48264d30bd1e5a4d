/* Sequences of calls for storm. Each sequence frees all that it allocates, and makes at most
 * SEQUENCE_CALLS_MAX calls. */
#include "storm.h"

/* Functions that recorders see as named stack frames. */
#define STACK_FRAME __attribute__((noinline))

enum { GRANULE = 2 << 20, PITCH = 512, ROWS = 8 };

STACK_FRAME static void use_pool(struct worker *w)
{
	CUdeviceptr p, q;
	CUmemoryPool pool;
	CUstream s = any_stream(w);
	size_t n = 1 + below(w, LIVE_BYTES_MAX);
	uint64_t bytes = 0;
	EXPECT(CUDA_SUCCESS, cuMemAllocFromPoolAsync, &p, n, w->pool, s);
	EXPECT(CUDA_SUCCESS, cuMemAllocFromPoolAsync_ptsz, &q, n * 2, w->pool, s);
	EXPECT(CUDA_SUCCESS, cuMemPoolGetAttribute, w->pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &bytes);
	EXPECT(CUDA_SUCCESS, cuMemFreeAsync, p, s);
	EXPECT(CUDA_SUCCESS, cuMemFreeAsync_ptsz, q, s);
	bytes = n;
	switch (below(w, 4)) {
	case 0: EXPECT(CUDA_SUCCESS, cuMemPoolTrimTo, w->pool, n); break;
	case 1: EXPECT(CUDA_SUCCESS, cuMemPoolSetAttribute, w->pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &bytes); break;
	case 2: EXPECT(CUDA_SUCCESS, cuDeviceGetDefaultMemPool, &pool, w->device); break;
	case 3: EXPECT(CUDA_SUCCESS, cuDeviceGetMemPool, &pool, w->device); break;
	}
}

STACK_FRAME static void grow_segment(struct worker *w)
{
	const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
					  .location = {CU_MEM_LOCATION_TYPE_DEVICE, w->device}};
	const CUmemAccessDesc access = {prop.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUmemGenericAllocationHandle handle = 0, again = 0;
	CUdeviceptr at = 0;
	size_t n = GRANULE * (1 + below(w, 2));
	EXPECT(CUDA_SUCCESS, cuMemAddressReserve, &at, 4 * n, 0, 0, 0);
	EXPECT(CUDA_SUCCESS, cuMemCreate, &handle, n, &prop, 0);
	EXPECT(CUDA_SUCCESS, cuMemMap, at + n, n, 0, handle, 0);
	EXPECT(CUDA_SUCCESS, cuMemSetAccess, at + n, n, &access, 1);
	EXPECT(CUDA_SUCCESS, cuMemRelease, handle);
	EXPECT(CUDA_SUCCESS, cuMemsetD8Async, at + n, 9, n, any_stream(w));
	EXPECT(CUDA_SUCCESS, cuMemRetainAllocationHandle, &again, (void *)(uintptr_t)(at + n));
	EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemAddressFree, at, 4 * n);
	EXPECT(CUDA_SUCCESS, cuMemUnmap, at + n, n);
	EXPECT(CUDA_SUCCESS, cuMemRelease, again);
	EXPECT(CUDA_SUCCESS, cuMemAddressFree, at, 4 * n);
}

STACK_FRAME static void use_array(struct worker *w)
{
	const CUDA_ARRAY_DESCRIPTOR flat = {64 + below(w, 64), 1 + below(w, 16), CU_AD_FORMAT_FLOAT, 4};
	const CUDA_ARRAY3D_DESCRIPTOR deep = {32, 16, 1 + below(w, 8), CU_AD_FORMAT_HALF, 2, 0};
	CUarray a = NULL;
	CUmipmappedArray m = NULL;
	CUstream s = any_stream(w);
	size_t n = 64 + below(w, 512);
	switch (below(w, 3)) {
	case 0:
		EXPECT(CUDA_SUCCESS, cuArrayCreate_v2, &a, &flat);
		EXPECT(CUDA_SUCCESS, cuMemcpyHtoA_v2, a, 0, w->host, n);
		EXPECT(CUDA_SUCCESS, cuMemcpyAtoHAsync_v2, w->host, a, 16, n, s);
		EXPECT(CUDA_SUCCESS, cuMemcpyAtoA_v2_ptds, a, 0, a, 128, n);
		EXPECT(CUDA_SUCCESS, cuArrayDestroy, a);
		break;
	case 1:
		EXPECT(CUDA_SUCCESS, cuArray3DCreate_v2, &a, &deep);
		EXPECT(CUDA_SUCCESS, cuMemcpyDtoA_v2, a, 0, w->buffer_a, n);
		EXPECT(CUDA_SUCCESS, cuMemcpyAtoD_v2_ptds, w->buffer_b, a, 0, n);
		EXPECT(CUDA_SUCCESS, cuMemcpyHtoAAsync_v2_ptsz, a, 0, w->host, n, s);
		EXPECT(CUDA_SUCCESS, cuArrayDestroy, a);
		break;
	case 2:
		EXPECT(CUDA_SUCCESS, cuMipmappedArrayCreate, &m, &deep, 3);
		EXPECT(CUDA_SUCCESS, cuMipmappedArrayDestroy, m);
		break;
	}
}

STACK_FRAME static void copy_shapes(struct worker *w)
{
	CUDA_MEMCPY2D flat = {.srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = w->host, .srcPitch = PITCH,
			      .dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = w->buffer_a, .dstPitch = PITCH,
			      .WidthInBytes = 1 + below(w, PITCH), .Height = 1 + below(w, ROWS)};
	CUDA_MEMCPY3D deep = {.srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = w->buffer_a, .srcPitch = PITCH, .srcHeight = ROWS,
			      .srcContext = w->context, .dstContext = w->context,
			      .dstMemoryType = CU_MEMORYTYPE_DEVICE, .dstDevice = w->buffer_b, .dstPitch = PITCH, .dstHeight = ROWS,
			      .WidthInBytes = 1 + below(w, PITCH), .Height = 1 + below(w, ROWS), .Depth = 1 + below(w, 4)};
	CUdeviceptr dsts[3] = {w->buffer_b, w->buffer_b + 4096, w->buffer_b + 8192}, srcs[3] = {w->buffer_a, w->buffer_a + 4096, w->buffer_a + 8192};
	size_t sizes[3] = {1 + below(w, 1000), 1 + below(w, 1000), 1 + below(w, 1000)}, index = 0, fail;
	CUmemcpyAttributes attributes = {.srcAccessOrder = 1};
	CUstream s = any_stream(w);
	switch (below(w, 14)) {
	case 0: EXPECT(CUDA_SUCCESS, cuMemcpy2D_v2, &flat); break;
	case 1: EXPECT(CUDA_SUCCESS, cuMemcpy2D_v2_ptds, &flat); break;
	case 2: EXPECT(CUDA_SUCCESS, cuMemcpy2DUnaligned_v2, &flat); break;
	case 3: EXPECT(CUDA_SUCCESS, cuMemcpy2DAsync_v2, &flat, s); break;
	case 4: EXPECT(CUDA_SUCCESS, cuMemcpy2DAsync_v2_ptsz, &flat, s); break;
	case 5: EXPECT(CUDA_SUCCESS, cuMemcpy3D_v2, &deep); break;
	case 6: EXPECT(CUDA_SUCCESS, cuMemcpy3DAsync_v2, &deep, s); break;
	case 7: EXPECT(CUDA_SUCCESS, cuMemcpy3DPeer, &deep); break;
	case 8: EXPECT(CUDA_SUCCESS, cuMemcpy3DPeerAsync_ptsz, &deep, s); break;
	case 9: EXPECT(CUDA_SUCCESS, cuMemcpyPeer, w->buffer_b, w->context, w->buffer_a, w->context, sizes[0]); break;
	case 10: EXPECT(CUDA_SUCCESS, cuMemcpyPeerAsync, w->buffer_b, w->context, w->buffer_a, w->context, sizes[1], s); break;
	case 11:
		EXPECT(CUDA_SUCCESS, cuMemcpyBatchAsync, dsts, srcs, sizes, 3, &attributes, &index, 1, &fail, w->streams[0]);
		break;
	case 12: EXPECT(CUDA_SUCCESS, cuMemcpyBatchAsync_v2, dsts, srcs, sizes, 2, &attributes, &index, 1, w->streams[1]); break;
	case 13: EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemcpy2D_v2, NULL); break;
	}
}

STACK_FRAME static void set_shapes(struct worker *w)
{
	size_t width = 1 + below(w, PITCH / 4), height = 1 + below(w, ROWS);
	CUstream s = any_stream(w);
	switch (below(w, 8)) {
	case 0: EXPECT(CUDA_SUCCESS, cuMemsetD16_v2, w->buffer_a, 11, width); break;
	case 1: EXPECT(CUDA_SUCCESS, cuMemsetD16Async, w->buffer_a, 12, width, s); break;
	case 2: EXPECT(CUDA_SUCCESS, cuMemsetD2D8_v2, w->buffer_a, PITCH, 13, width, height); break;
	case 3: EXPECT(CUDA_SUCCESS, cuMemsetD2D16_v2, w->buffer_a, PITCH, 14, width, height); break;
	case 4: EXPECT(CUDA_SUCCESS, cuMemsetD2D32_v2_ptds, w->buffer_a, PITCH, 15, width, height); break;
	case 5: EXPECT(CUDA_SUCCESS, cuMemsetD2D8Async, w->buffer_a, PITCH, 16, width, height, s); break;
	case 6: EXPECT(CUDA_SUCCESS, cuMemsetD2D16Async_ptsz, w->buffer_a, PITCH, 17, width, height, s); break;
	case 7: EXPECT(CUDA_SUCCESS, cuMemsetD2D32Async, w->buffer_a, PITCH, 18, width, height, s); break;
	}
}

/* Captures in a context of the thread's own. Other threads synchronise with the common context,
 * which would invalidate the capture. */
STACK_FRAME static void capture_and_replay(struct worker *w)
{
	CUstream a = w->capturing[0], b = w->capturing[1];
	CUfunction f = w->functions[below(w, KERNELS)];
	CUgraph graph = NULL, copy = NULL;
	CUgraphExec exec = NULL;
	CUgraphExecUpdateResultInfo changed;
	CUstreamCaptureStatus status;
	CUcontext c;
	CUdeviceptr p = 0;
	EXPECT(CUDA_SUCCESS, cuCtxPushCurrent_v2, w->capture_context);
	EXPECT(CUDA_SUCCESS, cuStreamBeginCapture_v2, a, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
	EXPECT(CUDA_SUCCESS, cuLaunchKernel, f, 1 + below(w, 64), 1, 1, 64, 1, 1, 0, a, NULL, NULL);
	EXPECT(CUDA_SUCCESS, cuEventRecord, w->fork, a);
	EXPECT(CUDA_SUCCESS, cuStreamWaitEvent, b, w->fork, 0);
	EXPECT(CUDA_SUCCESS, cuMemcpyDtoDAsync_v2, w->buffer_b, w->buffer_a, 256 + below(w, 256), b);
	EXPECT(CUDA_SUCCESS, cuEventRecord, w->join, b);
	EXPECT(CUDA_SUCCESS, cuStreamWaitEvent, a, w->join, 0);
	if (below(w, 2)) {
		EXPECT(CUDA_SUCCESS, cuMemAllocAsync, &p, 1 + below(w, 4096), a);
		EXPECT(CUDA_SUCCESS, cuMemFreeAsync, p, a);
	} else {
		EXPECT(CUDA_SUCCESS, cuMemsetD32Async, w->buffer_a, 19, 64, a);
		EXPECT(CUDA_SUCCESS, cuStreamIsCapturing, b, &status);
	}
	EXPECT(CUDA_SUCCESS, cuStreamEndCapture, a, &graph);
	if (!p) {
		EXPECT(CUDA_SUCCESS, cuGraphClone, &copy, graph);
		EXPECT(CUDA_SUCCESS, cuGraphDestroy, copy);
	}
	EXPECT(CUDA_SUCCESS, cuGraphInstantiateWithFlags, &exec, graph, 0);
	EXPECT(CUDA_SUCCESS, cuGraphExecUpdate_v2, exec, graph, &changed);
	EXPECT(CUDA_SUCCESS, cuGraphDestroy, graph);
	EXPECT(CUDA_SUCCESS, cuGraphUpload, exec, a);
	EXPECT(CUDA_SUCCESS, cuGraphLaunch, exec, a);
	EXPECT(CUDA_SUCCESS, cuGraphLaunch, exec, b);
	EXPECT(CUDA_SUCCESS, cuGraphExecDestroy, exec);
	EXPECT(CUDA_SUCCESS, cuCtxPopCurrent_v2, &c);
}

STACK_FRAME static void build_graph(struct worker *w)
{
	CUDA_KERNEL_NODE_PARAMS kernel = {.func = w->functions[below(w, KERNELS)], .gridDimX = 1 + below(w, 64), .gridDimY = 2,
					  .gridDimZ = 1, .blockDimX = 32, .blockDimY = 2, .blockDimZ = 1, .sharedMemBytes = 64};
	CUDA_MEMSET_NODE_PARAMS set = {.dst = w->buffer_a, .value = 20, .elementSize = 4, .width = 1 + below(w, 64), .height = 1};
	CUDA_MEM_ALLOC_NODE_PARAMS memory = {.poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
							   .location = {CU_MEM_LOCATION_TYPE_DEVICE, w->device}},
					     .bytesize = 1 + below(w, LIVE_BYTES_MAX)};
	CUDA_GRAPH_INSTANTIATE_PARAMS how = {.flags = 0};
	CUgraph graph = NULL, child = NULL;
	CUgraphNode first = NULL, node = NULL;
	CUgraphExec exec = NULL;
	EXPECT(CUDA_SUCCESS, cuGraphCreate, &graph, 0);
	EXPECT(CUDA_SUCCESS, cuGraphCreate, &child, 0);
	EXPECT(CUDA_SUCCESS, cuGraphAddEmptyNode, &node, child, NULL, 0);
	EXPECT(CUDA_SUCCESS, cuGraphAddKernelNode_v2, &first, graph, NULL, 0, &kernel);
	EXPECT(CUDA_SUCCESS, cuGraphAddMemsetNode, &node, graph, &first, 1, &set, w->context);
	EXPECT(CUDA_SUCCESS, cuGraphAddChildGraphNode, &node, graph, &first, 1, child);
	EXPECT(CUDA_SUCCESS, cuGraphAddMemAllocNode, &first, graph, &node, 1, &memory);
	EXPECT(CUDA_SUCCESS, cuGraphAddMemFreeNode, &node, graph, &first, 1, memory.dptr);
	EXPECT(CUDA_SUCCESS, cuGraphInstantiateWithParams, &exec, graph, &how);
	EXPECT(CUDA_SUCCESS, cuGraphLaunch_ptsz, exec, any_stream(w));
	EXPECT(CUDA_SUCCESS, cuGraphExecDestroy, exec);
	EXPECT(CUDA_SUCCESS, cuGraphDestroy, child);
	EXPECT(CUDA_SUCCESS, cuGraphDestroy, graph);
}

static void count_up(void *number)
{
	__atomic_fetch_add((int *)number, 1, __ATOMIC_RELAXED);
}

STACK_FRAME static void order_host_and_memory(struct worker *w)
{
	CUstreamBatchMemOpParams operations[2] = {
		{.value = {CU_STREAM_MEM_OP_WRITE_VALUE_32, w->buffer_a, 5, 0, 0}},
		{.value = {CU_STREAM_MEM_OP_WAIT_VALUE_64, w->buffer_a + 8, 6, 0, 0}},
	};
	CUstream s = any_stream(w);
	uint32_t value = below(w, 1000);
	switch (below(w, 8)) {
	case 0: EXPECT(CUDA_SUCCESS, cuLaunchHostFunc, s, count_up, &w->counted); break;
	case 1: EXPECT(CUDA_SUCCESS, cuLaunchHostFunc_ptsz, s, count_up, &w->counted); break;
	case 2: EXPECT(CUDA_SUCCESS, cuStreamWriteValue32_v2, s, w->buffer_a + 4, value, 0); break;
	case 3: EXPECT(CUDA_SUCCESS, cuStreamWriteValue64_v2, s, w->buffer_a + 16, value, 0); break;
	case 4: EXPECT(CUDA_SUCCESS, cuStreamWaitValue32_v2, s, w->buffer_a + 4, value, 0); break;
	case 5: EXPECT(CUDA_SUCCESS, cuStreamWaitValue64_v2_ptsz, s, w->buffer_a + 16, value, 0); break;
	case 6: EXPECT(CUDA_SUCCESS, cuStreamBatchMemOp_v2, s, 2, operations, 0); break;
	case 7: EXPECT(CUDA_SUCCESS, cuEventRecordWithFlags, w->events[0], w->streams[0], 0); break;
	}
}

STACK_FRAME static void use_host_memory(struct worker *w)
{
	const CUmemLocation device = {CU_MEM_LOCATION_TYPE_DEVICE, w->device};
	CUdeviceptr p = 0;
	CUipcMemHandle handle;
	CUstream s = any_stream(w);
	size_t n = 1 + below(w, BUFFER_BYTES);
	switch (below(w, 3)) {
	case 0:
		EXPECT(CUDA_SUCCESS, cuMemHostRegister_v2, w->plain, n, 0);
		EXPECT(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, cuMemHostRegister_v2, w->plain, 1, 0);
		EXPECT(CUDA_SUCCESS, cuMemHostUnregister, w->plain);
		break;
	case 1:
		EXPECT(CUDA_SUCCESS, cuMemAllocManaged, &p, n, CU_MEM_ATTACH_GLOBAL);
		EXPECT(CUDA_SUCCESS, cuMemAdvise, p, n, CU_MEM_ADVISE_SET_READ_MOSTLY, w->device);
		EXPECT(CUDA_SUCCESS, cuMemAdvise_v2, p, n, CU_MEM_ADVISE_SET_READ_MOSTLY, device);
		EXPECT(CUDA_SUCCESS, cuMemPrefetchAsync, p, n, w->device, s);
		EXPECT(CUDA_SUCCESS, cuMemPrefetchAsync_v2_ptsz, p, n, device, 0, s);
		EXPECT(CUDA_SUCCESS, cuMemFree_v2, p);
		break;
	case 2: EXPECT(CUDA_SUCCESS, cuIpcGetMemHandle, &handle, w->buffer_a); break;
	}
}

STACK_FRAME static void link_and_list(struct worker *w)
{
	CUlinkState state = NULL;
	CUmodule module = NULL;
	CUfunction functions[KERNELS];
	unsigned int n = 0;
	void *image = NULL;
	size_t size = 0;
	EXPECT(CUDA_SUCCESS, cuLinkCreate_v2, 0, NULL, NULL, &state);
	EXPECT(CUDA_SUCCESS, cuLinkAddData_v2, state, CU_JIT_INPUT_PTX, (void *)(uintptr_t)storm_ptx, storm_ptx_size, "storm", 0, NULL,
	       NULL);
	EXPECT(CUDA_SUCCESS, cuLinkComplete, state, &image, &size);
	EXPECT(CUDA_SUCCESS, cuModuleLoadDataEx, &module, image, 0, NULL, NULL);
	EXPECT(CUDA_SUCCESS, cuLinkDestroy, state);
	EXPECT(CUDA_SUCCESS, cuModuleGetFunctionCount, &n, module);
	EXPECT(CUDA_SUCCESS, cuModuleEnumerateFunctions, functions, KERNELS, module);
	w->unexpected += n != KERNELS;
	EXPECT(CUDA_SUCCESS, cuModuleUnload, module);
}

STACK_FRAME static void launch_together(struct worker *w)
{
	CUfunction f = w->functions[below(w, KERNELS)];
	CUstream s = any_stream(w);
	if (below(w, 2))
		EXPECT(CUDA_SUCCESS, cuLaunchCooperativeKernel, f, 1 + below(w, 132), 1, 1, 128, 1, 1, 32, s, NULL);
	else
		EXPECT(CUDA_SUCCESS, cuLaunchCooperativeKernel_ptsz, f, 1, 1 + below(w, 64), 1, 64, 2, 1, 0, s, NULL);
}

void worker_run_sequence(struct worker *w)
{
	static void (*const stories[])(struct worker *) = {
		use_pool, grow_segment, use_array, capture_and_replay, build_graph, use_host_memory, link_and_list,
		/* The functions below make one call each, so they are listed more often. */
		copy_shapes, copy_shapes, copy_shapes, set_shapes, set_shapes, set_shapes, order_host_and_memory, order_host_and_memory,
		order_host_and_memory, launch_together, launch_together,
	};
	stories[below(w, sizeof(stories) / sizeof(*stories))](w);
}
