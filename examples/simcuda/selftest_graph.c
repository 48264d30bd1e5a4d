/* Tests of graphs, stream capture, host functions and stream memory operations. */
#include "selftest.h"

#include <pthread.h>

static CUfunction function(void)
{
	CUmodule module;
	CUfunction f;
	CHECK_OK(CU(cuModuleLoadData, &module, test_ptx));
	CHECK_OK(CU(cuModuleGetFunction, &f, module, "scale_kernel"));
	return f;
}

static CUstream new_stream(unsigned int flags)
{
	CUstream s;
	CHECK_OK(CU(cuStreamCreate, &s, flags));
	return s;
}

static CUresult launch(CUfunction f, CUstream s)
{
	return CU(cuLaunchKernel, f, 1, 1, 1, 32, 1, 1, 0, s, NULL, NULL);
}

static size_t free_bytes(void)
{
	size_t bytes, total;
	CHECK_OK(CU(cuMemGetInfo_v2, &bytes, &total));
	return bytes;
}

#define BEGIN_CAPTURE(s, mode) CHECK_OK(CU(cuStreamBeginCapture_v2, s, CU_STREAM_CAPTURE_MODE_##mode))
#define END_FAILS(want, s)                                                  \
	do {                                                                \
		CUgraph graph_ = (CUgraph)1;                                \
		CHECK_RESULT(want, CU(cuStreamEndCapture, s, &graph_));     \
		CHECK(!graph_);                                             \
	} while (0)

/* Stream capture records work, and nothing runs before the graph launch. */
void test_capture(void)
{
	CUstream a, b;
	CUevent fork, join;
	CUdeviceptr m, d;
	CUgraph graph, clone;
	CUgraphExec exec;
	CUstreamCaptureStatus status;
	const CUgraphNode *after;
	cuuint64_t id;
	size_t n;
	start_cuda();
	CUfunction f = function();
	a = new_stream(CU_STREAM_NON_BLOCKING);
	b = new_stream(CU_STREAM_NON_BLOCKING);
	CHECK_OK(CU(cuEventCreate, &fork, CU_EVENT_DISABLE_TIMING));
	CHECK_OK(CU(cuEventCreate, &join, CU_EVENT_DISABLE_TIMING));
	CHECK_OK(CU(cuMemAllocManaged, &m, 4096, CU_MEM_ATTACH_GLOBAL));
	CHECK_OK(CU(cuMemAlloc_v2, &d, 4096));
	unsigned int *data = (unsigned int *)(uintptr_t)m;
	BEGIN_CAPTURE(a, GLOBAL);
	CHECK_OK(launch(f, a));
	CHECK_OK(launch(f, a));
	CHECK_OK(CU(cuEventRecord, fork, a));
	CHECK_OK(CU(cuStreamWaitEvent, b, fork, 0));
	CHECK_OK(launch(f, b)); /* parallel to the next one */
	CHECK_OK(launch(f, a));
	CHECK_OK(CU(cuMemsetD32Async, m, 5, 10, b));
	CHECK_OK(CU(cuStreamIsCapturing, b, &status));
	CHECK(status == CU_STREAM_CAPTURE_STATUS_ACTIVE);
	CHECK_OK(CU(cuEventRecord, join, b));
	CHECK_OK(CU(cuStreamWaitEvent, a, join, 0));
	CHECK_OK(CU(cuStreamGetCaptureInfo_v2, a, &status, &id, &graph, &after, &n));
	CHECK(status == CU_STREAM_CAPTURE_STATUS_ACTIVE && n == 2);
	/* The capture is still in progress. */
	CHECK_RESULT(CUDA_ERROR_INVALID_VALUE, CU(cuGraphDestroy, graph));
	CHECK_OK(CU(cuMemcpyDtoHAsync_v2, data + 5, d, 4, a));
	CHECK_OK(CU(cuStreamEndCapture, a, &graph));
	CHECK_OK(CU(cuStreamIsCapturing, b, &status));
	CHECK(status == CU_STREAM_CAPTURE_STATUS_NONE && data[0] == 0);
	CHECK_OK(CU(cuGraphClone, &clone, graph));
	CHECK_OK(CU(cuGraphInstantiateWithFlags, &exec, clone, 0));
	CHECK_OK(CU(cuGraphDestroy, clone));
	CHECK_OK(CU(cuStreamQuery, a));
	double start = now_ms();
	CHECK_OK(CU(cuGraphLaunch, exec, a));
	CHECK(data[9] == 5 && data[5] == 0 && data[10] == 0);
	CHECK_RESULT(CUDA_ERROR_NOT_READY, CU(cuStreamQuery, a));
	CHECK_OK(CU(cuStreamSynchronize, a));
	/* Three kernels in sequence, the fourth in parallel. */
	CHECK(now_ms() - start >= 60 && now_ms() - start < 78);
	CHECK_OK(CU(cuGraphExecDestroy, exec));
	CHECK_RESULT(CUDA_ERROR_INVALID_VALUE, CU(cuGraphLaunch, exec, a));
	CHECK_OK(CU(cuGraphDestroy, graph));

	/* The per-thread default stream can capture too. cuStreamBeginCaptureToGraph adds nodes
	 * to an existing graph. */
	CHECK_OK(CU(cuGraphCreate, &clone, 0));
	CHECK_OK(CU(cuStreamBeginCaptureToGraph, CU_STREAM_PER_THREAD, clone, NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_RELAXED));
	CHECK_OK(CU_VARIANT(cuLaunchKernel_ptsz, cuLaunchKernel, f, 1, 1, 1, 1, 1, 1, 0, NULL, NULL, NULL));
	CHECK_OK(CU_VARIANT(cuStreamEndCapture_ptsz, cuStreamEndCapture, NULL, &graph));
	CHECK(graph == clone);
	CHECK_OK(CU(cuGraphDestroy, graph));
}

static void *end_in_other_thread(void *stream)
{
	CUgraph graph = NULL;
	CUcontext context;
	CUdeviceptr p;
	CHECK_OK(CU(cuDevicePrimaryCtxRetain, &context, 0));
	CHECK_OK(CU(cuCtxSetCurrent, context));
	CHECK_OK(CU(cuMemAlloc_v2, &p, 1)); /* another thread's capture does not affect this call */
	CHECK_RESULT(CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD, CU(cuStreamEndCapture, stream, &graph));
	return NULL;
}

void test_capture_errors(void)
{
	CUstream a, b, blocking;
	CUevent e, plain;
	CUdeviceptr p;
	CUgraph graph;
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	pthread_t thread;
	char host[16];
	start_cuda();
	CUfunction f = function();
	a = new_stream(CU_STREAM_NON_BLOCKING);
	b = new_stream(CU_STREAM_NON_BLOCKING);
	blocking = new_stream(CU_STREAM_DEFAULT);
	CHECK_OK(CU(cuEventCreate, &e, CU_EVENT_DISABLE_TIMING));
	CHECK_OK(CU(cuEventCreate, &plain, CU_EVENT_DISABLE_TIMING));
	CHECK_OK(CU(cuEventRecord, plain, b));

	CHECK_RESULT(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, CU(cuStreamBeginCapture_v2, NULL, CU_STREAM_CAPTURE_MODE_GLOBAL));
	CHECK_RESULT(CUDA_ERROR_INVALID_VALUE, CU(cuStreamBeginCapture_v2, a, (CUstreamCaptureMode)9));
	CHECK_RESULT(CUDA_ERROR_ILLEGAL_STATE, CU(cuStreamEndCapture, a, &graph));

	BEGIN_CAPTURE(a, GLOBAL);
	CHECK_RESULT(CUDA_ERROR_ILLEGAL_STATE, CU(cuStreamBeginCapture_v2, a, CU_STREAM_CAPTURE_MODE_GLOBAL));
	CHECK_RESULT(900, CU(cuMemAlloc_v2, &p, 1));
	CHECK_RESULT(901, launch(f, a));
	END_FAILS(901, a);
	CHECK_OK(CU(cuMemAlloc_v2, &p, 1));

	BEGIN_CAPTURE(a, GLOBAL);
	/* Allocators use relaxed mode to allocate during a capture. */
	CHECK_OK(CU(cuThreadExchangeStreamCaptureMode, &mode));
	CHECK_OK(CU(cuMemAlloc_v2, &p, 1));
	CHECK_OK(CU(cuThreadExchangeStreamCaptureMode, &mode));
	CHECK(mode == CU_STREAM_CAPTURE_MODE_RELAXED);
	CHECK_RESULT(900, CU(cuStreamSynchronize, a));
	END_FAILS(901, a);

	BEGIN_CAPTURE(a, RELAXED);
	CHECK_OK(CU(cuMemAlloc_v2, &p, 1));
	CHECK_OK(launch(f, NULL)); /* a non-blocking stream does not affect the legacy stream */
	CHECK_RESULT(900, CU(cuCtxSynchronize));
	END_FAILS(901, a);

	BEGIN_CAPTURE(blocking, RELAXED);
	CHECK_RESULT(906, CU(cuMemcpyDtoH_v2, host, p, 1));
	END_FAILS(901, blocking);

	BEGIN_CAPTURE(a, RELAXED);
	CHECK_RESULT(905, CU(cuStreamWaitEvent, a, plain, 0));
	END_FAILS(901, a);

	BEGIN_CAPTURE(a, RELAXED);
	CHECK_OK(CU(cuEventRecord, e, a));
	CHECK_RESULT(907, CU(cuEventQuery, e));
	CHECK_RESULT(907, CU(cuEventSynchronize, e));
	BEGIN_CAPTURE(b, RELAXED);
	CHECK_RESULT(902, CU(cuStreamWaitEvent, b, e, 0));
	END_FAILS(901, a);
	END_FAILS(901, b);
	CHECK_OK(CU(cuEventRecord, e, a));
	CHECK_OK(CU(cuEventSynchronize, e));

	BEGIN_CAPTURE(a, RELAXED);
	CHECK_OK(CU(cuEventRecord, e, a));
	CHECK_OK(CU(cuStreamWaitEvent, b, e, 0));
	graph = NULL;
	CHECK_RESULT(903, CU(cuStreamEndCapture, b, &graph));
	END_FAILS(901, a);

	BEGIN_CAPTURE(a, RELAXED);
	CHECK_OK(CU(cuEventRecord, e, a));
	CHECK_OK(CU(cuStreamWaitEvent, b, e, 0));
	CHECK_OK(launch(f, b));
	END_FAILS(904, a);
	CHECK_OK(CU(cuStreamSynchronize, b));

	BEGIN_CAPTURE(a, RELAXED);
	CHECK_RESULT(900, CU(cuStreamAddCallback, a, (CUstreamCallback)(uintptr_t)1, NULL, 0));
	END_FAILS(901, a);

	BEGIN_CAPTURE(a, THREAD_LOCAL);
	CHECK(!pthread_create(&thread, NULL, end_in_other_thread, a) && !pthread_join(thread, NULL));
	CHECK_OK(CU(cuStreamEndCapture, a, &graph));
	CHECK_OK(CU(cuGraphDestroy, graph));

	BEGIN_CAPTURE(a, RELAXED);
	CHECK_OK(CU(cuStreamDestroy_v2, a)); /* destroying the stream ends its capture */
	CHECK_OK(CU(cuCtxSynchronize));
}

void test_graph_nodes(void)
{
	CUDA_KERNEL_NODE_PARAMS kernel = {.gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 1, .blockDimY = 1, .blockDimZ = 1};
	CUDA_MEMSET_NODE_PARAMS set = {.value = 0x0102, .elementSize = 2, .width = 3, .height = 2, .pitch = 16};
	CUDA_MEM_ALLOC_NODE_PARAMS memory = {.poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
							   .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}}, .bytesize = 1 << 20};
	CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_HOST, .dstMemoryType = CU_MEMORYTYPE_HOST, .WidthInBytes = 8, .Height = 1,
			      .Depth = 1};
	CUgraphExecUpdateResultInfo info;
	CUgraph graph, child;
	CUgraphNode a, b, c;
	CUgraphExec exec;
	CUdeviceptr m;
	char from[8] = "graphs!", to[8] = "";
	CUcontext context = start_cuda();
	size_t before = free_bytes();
	kernel.func = function();
	CHECK_OK(CU(cuMemAllocManaged, &m, 4096, CU_MEM_ATTACH_GLOBAL));
	set.dst = m;
	copy.srcHost = from;
	copy.dstHost = to;
	CHECK_OK(CU(cuGraphCreate, &graph, 0));
	CHECK_OK(CU(cuGraphCreate, &child, 0));
	CHECK_OK(CU(cuGraphAddKernelNode_v2, &a, graph, NULL, 0, &kernel));
	CHECK_OK(CU(cuGraphAddMemsetNode, &b, graph, &a, 1, &set, context));
	CHECK_OK(CU(cuGraphAddMemcpyNode, &c, child, NULL, 0, &copy, context));
	CHECK_OK(CU(cuGraphAddChildGraphNode, &c, graph, &b, 1, child));
	/* The dependency is a node of another graph. */
	CHECK_RESULT(CUDA_ERROR_INVALID_VALUE, CU(cuGraphAddEmptyNode, &c, child, &a, 1));
	CHECK_OK(CU(cuGraphInstantiateWithFlags, &exec, graph, 0));
	CHECK_OK(CU(cuGraphLaunch, exec, NULL));
	CHECK(((char *)(uintptr_t)m)[17] == 1 && ((char *)(uintptr_t)m)[6] == 0 && !strcmp(to, "graphs!"));
	kernel.gridDimX = 7;
	CHECK_OK(CU(cuGraphExecUpdate_v2, exec, graph, &info));
	CHECK_OK(CU(cuGraphAddEmptyNode, &c, graph, NULL, 0));
	CHECK_RESULT(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, CU(cuGraphExecUpdate_v2, exec, graph, &info));
	CHECK(info.result == 2);
	CHECK_OK(CU(cuGraphExecDestroy, exec));
	CHECK_OK(CU(cuGraphDestroy, graph));
	CHECK_OK(CU(cuGraphDestroy, child));

	/* Graph memory has addresses from the creation of the node. Its bytes are used from the
	 * launch to the free, which may be outside of the graph. */
	CHECK_OK(CU(cuGraphCreate, &graph, 0));
	CHECK_OK(CU(cuGraphAddMemAllocNode, &a, graph, NULL, 0, &memory));
	CHECK_RESULT(CUDA_ERROR_NOT_SUPPORTED, CU(cuGraphClone, &child, graph));
	/* Not allocated before the launch. */
	CHECK_RESULT(CUDA_ERROR_INVALID_VALUE, CU(cuMemFree_v2, memory.dptr));
	CHECK_OK(CU(cuGraphInstantiateWithFlags, &exec, graph, 0));
	CHECK(free_bytes() == before);
	CHECK_OK(CU(cuGraphLaunch, exec, NULL));
	CHECK(free_bytes() == before - (1 << 20));
	/* The memory is still allocated. */
	CHECK_RESULT(CUDA_ERROR_INVALID_VALUE, CU(cuGraphLaunch, exec, NULL));
	CHECK_OK(CU(cuMemFreeAsync, memory.dptr, NULL));
	CHECK_OK(CU(cuGraphLaunch, exec, NULL));
	CHECK_OK(CU(cuGraphExecDestroy, exec));
	CHECK_OK(CU(cuGraphDestroy, graph));
	CHECK(free_bytes() == before - (1 << 20)); /* the memory outlives its graph */
	CHECK_OK(CU(cuMemFree_v2, memory.dptr));
	CHECK(free_bytes() == before);
	CHECK_RESULT(CUDA_ERROR_INVALID_VALUE, CU(cuMemFree_v2, memory.dptr));
}

static struct {
	int len, order[8];
} seen;

static void note(void *number)
{
	sleep_ms(10);
	seen.order[seen.len++] = (int)(intptr_t)number;
}

static void note_callback(CUstream stream, CUresult status, void *number)
{
	note(stream && !status ? number : NULL);
}

void test_host_functions(void)
{
	CUgraph graph;
	CUgraphExec exec;
	CUevent e;
	CUdeviceptr m;
	start_cuda();
	CUfunction f = function();
	CUstream a = new_stream(CU_STREAM_NON_BLOCKING), b = new_stream(CU_STREAM_NON_BLOCKING);
	double start = now_ms();
	CHECK_OK(launch(f, a));
	CHECK_OK(CU(cuLaunchHostFunc, a, note, (void *)1));
	CHECK_OK(CU(cuStreamAddCallback, a, note_callback, (void *)2, 0));
	CHECK_RESULT(CUDA_ERROR_NOT_READY, CU(cuStreamQuery, a));
	CHECK_OK(CU(cuStreamSynchronize, b)); /* does not wait for the host function */
	CHECK(now_ms() - start < 20);
	CHECK_OK(CU(cuStreamSynchronize, a));
	CHECK(seen.len == 2 && seen.order[0] == 1 && seen.order[1] == 2 && now_ms() - start >= 40);
	CHECK_OK(CU(cuStreamQuery, a));

	CHECK_OK(CU(cuLaunchHostFunc, a, note, (void *)3));
	CHECK_OK(CU(cuEventCreate, &e, 0));
	CHECK_OK(CU(cuEventRecord, e, a));
	CHECK_OK(CU(cuStreamWaitEvent, b, e, 0));
	CHECK_OK(CU(cuStreamSynchronize, b));
	CHECK(seen.len == 3);
	BEGIN_CAPTURE(a, RELAXED);
	CHECK_OK(CU(cuLaunchHostFunc, a, note, (void *)4));
	CHECK_OK(CU(cuStreamEndCapture, a, &graph));
	CHECK_OK(CU(cuCtxSynchronize));
	CHECK(seen.len == 3);
	CHECK_OK(CU(cuGraphInstantiateWithFlags, &exec, graph, 0));
	CHECK_OK(CU(cuGraphLaunch, exec, a));
	CHECK_OK(CU(cuGraphLaunch, exec, a));
	CHECK_OK(CU(cuCtxSynchronize));
	CHECK(seen.len == 5 && seen.order[4] == 4);
	CHECK_RESULT(CUDA_ERROR_INVALID_VALUE, CU(cuLaunchHostFunc, a, NULL, NULL));

	CHECK_OK(CU(cuMemAllocManaged, &m, 64, CU_MEM_ATTACH_GLOBAL));
	uint64_t *words = (uint64_t *)(uintptr_t)m;
	CUstreamBatchMemOpParams operations[2] = {
		{.value = {CU_STREAM_MEM_OP_WRITE_VALUE_64, m + 8, 1ull << 40, 0, 0}},
		{.value = {CU_STREAM_MEM_OP_WAIT_VALUE_32, m, 5, 0, 0}},
	};
	CHECK_OK(CU(cuStreamWriteValue32_v2, a, m, 5, 0));
	CHECK_OK(CU(cuStreamBatchMemOp_v2, a, 2, operations, 0));
	CHECK(words[0] == 5 && words[1] == 1ull << 40);
	CHECK_RESULT(CUDA_ERROR_INVALID_VALUE, CU(cuStreamWriteValue64_v2, a, m + 4, 5, 0));
	CHECK_RESULT(CUDA_ERROR_INVALID_VALUE, CU(cuStreamWaitValue32_v2, a, 0xdead000, 5, 0));
}
