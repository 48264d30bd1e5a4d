/* Streams, events, launches, graphs and stream capture. */
#include "every.h"

void every_stream(void)
{
	CUstream *s = every.streams, made = NULL;
	CUevent start = NULL, end = NULL;
	float ms;
	OK(cuStreamCreate, &made, CU_STREAM_DEFAULT);
	OK(cuStreamDestroy_v2, made);
	OK(cuStreamCreateWithPriority, &made, CU_STREAM_NON_BLOCKING, -1);
	OK(cuStreamDestroy, made);
	FAILS(CUDA_ERROR_INVALID_HANDLE, cuStreamDestroy_v2, made);
	OK(cuEventCreate, &start, CU_EVENT_DEFAULT);
	OK(cuEventCreate, &end, CU_EVENT_DEFAULT);
	OK(cuEventRecord, start, s[0]);
	OK_AS(cuEventRecord_ptsz, cuEventRecord, end, NULL);
	OK(cuEventRecordWithFlags, start, s[1], CU_EVENT_RECORD_DEFAULT);
	OK_AS(cuEventRecordWithFlags_ptsz, cuEventRecordWithFlags, end, s[2], CU_EVENT_RECORD_DEFAULT);
	OK(cuStreamWaitEvent, s[3], start, 0);
	OK_AS(cuStreamWaitEvent_ptsz, cuStreamWaitEvent, s[0], end, 0);
	OK(cuEventSynchronize, start);
	OK(cuEventSynchronize, end);
	OK(cuEventQuery, end);
	OK(cuEventElapsedTime, &ms, start, end);
	OK(cuEventElapsedTime_v2, &ms, start, end);
	CUipcEventHandle handle;
	CUevent opened = NULL;
	OK(cuIpcGetEventHandle, &handle, start);
	OK(cuIpcOpenEventHandle, &opened, handle);
	OK(cuEventDestroy, opened);
	OK(cuCtxRecordEvent, every.context, start);
	OK(cuCtxWaitEvent, every.context, start);
	FAILS(CUDA_ERROR_INVALID_HANDLE, cuCtxWaitEvent, every.context, opened);
	OK(cuEventDestroy_v2, start);
	OK(cuEventDestroy_v2, end);
	FAILS(CUDA_ERROR_INVALID_HANDLE, cuEventRecord, start, s[0]);
	FAILS(CUDA_ERROR_INVALID_HANDLE, cuEventSynchronize, end);
	OK(cuStreamSynchronize, s[0]);
	OK_AS(cuStreamSynchronize_ptsz, cuStreamSynchronize, NULL);
	OK(cuStreamQuery, s[0]);
	OK_AS(cuStreamQuery_ptsz, cuStreamQuery, NULL);
	FAILS(CUDA_ERROR_INVALID_HANDLE, cuStreamSynchronize, BAD_HANDLE(CUstream));
	OK(cuCtxSynchronize);
	OK(cuCtxSynchronize_v2, every.other_context);

	CUstreamBatchMemOpParams operations[3] = {
		{.value = {CU_STREAM_MEM_OP_WRITE_VALUE_32, every.buffer_a + 256, 5, 0, 0}},
		{.value = {CU_STREAM_MEM_OP_WRITE_VALUE_64, every.buffer_a + 264, 6, 0, 0}},
		{.value = {CU_STREAM_MEM_OP_WAIT_VALUE_32, every.buffer_a + 272, 7, 0, 0}},
	};
	OK(cuStreamWriteValue32_v2, s[0], every.buffer_a + 4, 101, 0);
	OK_AS(cuStreamWriteValue32_v2_ptsz, cuStreamWriteValue32_v2, s[1], every.buffer_a + 8, 102, 1);
	OK(cuStreamWriteValue64_v2, s[2], every.buffer_a + 16, 103, 0);
	OK_AS(cuStreamWriteValue64_v2_ptsz, cuStreamWriteValue64_v2, s[3], every.buffer_a + 24, 104, 0);
	OK(cuStreamWaitValue32_v2, s[0], every.buffer_a + 32, 105, 0);
	OK_AS(cuStreamWaitValue32_v2_ptsz, cuStreamWaitValue32_v2, s[1], every.buffer_a + 36, 106, 1);
	OK(cuStreamWaitValue64_v2, s[2], every.buffer_a + 40, 107, 0);
	OK_AS(cuStreamWaitValue64_v2_ptsz, cuStreamWaitValue64_v2, s[3], every.buffer_a + 48, 108, 0);
	OK(cuStreamWriteValue32, s[0], every.buffer_a + 52, 201, 0);
	OK_AS(cuStreamWriteValue32_ptsz, cuStreamWriteValue32, s[1], every.buffer_a + 56, 202, 0);
	OK(cuStreamWriteValue64, s[2], every.buffer_a + 64, 203, 0);
	OK_AS(cuStreamWriteValue64_ptsz, cuStreamWriteValue64, s[3], every.buffer_a + 72, 204, 0);
	OK(cuStreamWaitValue32, s[0], every.buffer_a + 80, 205, 0);
	OK_AS(cuStreamWaitValue32_ptsz, cuStreamWaitValue32, s[1], every.buffer_a + 84, 206, 0);
	OK(cuStreamWaitValue64, s[2], every.buffer_a + 88, 207, 0);
	OK_AS(cuStreamWaitValue64_ptsz, cuStreamWaitValue64, s[3], every.buffer_a + 96, 208, 0);
	OK(cuStreamBatchMemOp, s[2], 1, operations, 0);
	OK_AS(cuStreamBatchMemOp_ptsz, cuStreamBatchMemOp, s[3], 2, operations, 0);
	OK(cuStreamBatchMemOp_v2, s[0], 2, operations, 0);
	OK_AS(cuStreamBatchMemOp_v2_ptsz, cuStreamBatchMemOp_v2, s[1], 3, operations, 0);
	FAILS(CUDA_ERROR_INVALID_VALUE, cuStreamWriteValue32_v2, s[0], every.buffer_a + 2, 109, 0);
	FAILS(CUDA_ERROR_INVALID_VALUE, cuStreamBatchMemOp_v2, s[1], 257, operations, 0);
}

static void add_to(void *number)
{
	__atomic_fetch_add((int *)number, 1, __ATOMIC_RELAXED);
}

static void callback(CUstream stream, CUresult status, void *number)
{
	if (stream == every.streams[2] && !status)
		add_to(number);
}

/* Returns arguments that no other launch has: an address and a number. */
static void **unique_arguments(void)
{
	static CUdeviceptr pointer;
	static unsigned int number;
	static void *arguments[2] = {&pointer, &number};
	pointer = every.buffer_a + unique_number();
	number = unique_number();
	return arguments;
}

#define GRID unique_number(), 2, 3
#define LAUNCH GRID, unique_number() % 32 + 1, 4, 5, unique_number()

void every_launch(void)
{
	CUfunction f = every.function, k = (CUfunction)every.kernel;
	CUstream *s = every.streams;
	CUlaunchConfig c = {.gridDimX = unique_number(), .gridDimY = 6, .gridDimZ = 7, .blockDimX = 8, .blockDimY = 9, .blockDimZ = 10,
			    .sharedMemBytes = unique_number(), .hStream = s[0]};
	static int ran;
	void *arguments[1] = {NULL}, *extra[5];
	struct { CUdeviceptr pointer; unsigned int number; } buffer = {every.buffer_b + 12, 77};
	size_t buffer_bytes = sizeof(buffer);
	OK(cuLaunchKernel, f, LAUNCH, s[1], unique_arguments(), NULL);
	OK_AS(cuLaunchKernel_ptsz, cuLaunchKernel, k, LAUNCH, NULL, unique_arguments(), NULL);
	OK(cuLaunchKernelEx, &c, f, unique_arguments(), NULL);
	c.gridDimX = unique_number();
	c.hStream = s[3];
	OK_AS(cuLaunchKernelEx_ptsz, cuLaunchKernelEx, &c, k, unique_arguments(), NULL);
	OK(cuLaunchCooperativeKernel, f, unique_number() % 100, 1, 1, 64, 2, 1, unique_number(), s[2], unique_arguments());
	OK_AS(cuLaunchCooperativeKernel_ptsz, cuLaunchCooperativeKernel, k, 1, unique_number() % 100, 1, 32, 1, 2, unique_number(), s[1],
	      unique_arguments());
	extra[0] = (void *)1; /* CU_LAUNCH_PARAM_BUFFER_POINTER */
	extra[1] = &buffer;
	extra[2] = (void *)2; /* CU_LAUNCH_PARAM_BUFFER_SIZE */
	extra[3] = &buffer_bytes;
	extra[4] = NULL;
	OK(cuLaunchKernel, k, LAUNCH, s[2], NULL, extra);
	FAILS(CUDA_ERROR_INVALID_HANDLE, cuLaunchKernel, BAD_HANDLE(CUfunction), LAUNCH, s[0], unique_arguments(), NULL);
	FAILS(CUDA_ERROR_INVALID_VALUE, cuLaunchKernel, f, 0, unique_number(), 1, 32, 1, 1, 0, s[0], unique_arguments(), NULL);
	c.blockDimX = 2048;
	FAILS(CUDA_ERROR_INVALID_VALUE, cuLaunchKernelEx, &c, f, unique_arguments(), NULL);
	FAILS(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE, cuLaunchCooperativeKernel, f, 100000, 1, 1, 128, 1, 1, 0, s[3], arguments);

	CUDA_LAUNCH_PARAMS list[2] = {{f, unique_number(), 2, 1, 64, 1, 2, unique_number(), s[0], arguments},
				      {k, unique_number(), 1, 1, 32, 1, 1, 0, s[1], arguments}};
	OK(cuLaunchCooperativeKernelMultiDevice, list, 2, 0);
	OK(cuLaunch, f);
	OK(cuLaunchGrid, f, 5, (int)unique_number());
	OK(cuLaunchGridAsync, f, (int)unique_number(), 4, s[2]);
	list[0].function = NULL;
	FAILS(CUDA_ERROR_INVALID_HANDLE, cuLaunchCooperativeKernelMultiDevice, list, 2, 0);
	FAILS(CUDA_ERROR_INVALID_HANDLE, cuLaunchGridAsync, BAD_HANDLE(CUfunction), 3, 2, s[3]);

	OK(cuLaunchHostFunc, s[0], add_to, &ran);
	OK_AS(cuLaunchHostFunc_ptsz, cuLaunchHostFunc, s[1], add_to, &ran);
	OK(cuStreamAddCallback, s[2], callback, &ran, 0);
	OK_AS(cuStreamAddCallback_ptsz, cuStreamAddCallback, s[2], callback, &ran, 0);
	FAILS(CUDA_ERROR_INVALID_VALUE, cuLaunchHostFunc, s[3], NULL, &ran);
	OK(cuCtxSynchronize);
	every_check(ran == 4, "four host functions ran");
}

void every_graph(void)
{
	CUDA_KERNEL_NODE_PARAMS kernel = {.func = every.function, .gridDimX = unique_number(), .gridDimY = 2, .gridDimZ = 1,
					  .blockDimX = 32, .blockDimY = 3, .blockDimZ = 1, .sharedMemBytes = unique_number()};
	CUDA_MEMSET_NODE_PARAMS set = {.dst = every.buffer_a, .value = 3, .elementSize = 2, .width = 77, .height = 1};
	CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE, .srcDevice = every.buffer_a, .dstMemoryType = CU_MEMORYTYPE_HOST,
			      .dstHost = every.host, .WidthInBytes = 88, .Height = 1, .Depth = 1};
	CUDA_MEM_ALLOC_NODE_PARAMS memory = {.poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
							   .location = {CU_MEM_LOCATION_TYPE_DEVICE, every.device}},
					     .bytesize = unique_bytes()};
	CUDA_GRAPH_INSTANTIATE_PARAMS how = {.flags = 0};
	CUgraphExecUpdateResultInfo changed;
	CUgraph graph = NULL, child = NULL, with_memory = NULL, twin = NULL;
	CUgraphNode nodes[8] = {NULL};
	CUgraphExec a = NULL, b = NULL, c = NULL, d = NULL;
	char log[16];
	OK(cuGraphCreate, &graph, 0);
	OK(cuGraphCreate, &child, 0);
	OK(cuGraphCreate, &with_memory, 0);
	OK(cuGraphAddEmptyNode, &nodes[0], child, NULL, 0);
	OK(cuGraphAddKernelNode_v2, &nodes[1], graph, NULL, 0, &kernel);
	kernel.func = NULL;
	kernel.kern = every.kernel;
	kernel.gridDimX = unique_number();
	OK(cuGraphAddKernelNode_v2, &nodes[2], graph, &nodes[1], 1, &kernel);
	OK(cuGraphAddMemsetNode, &nodes[3], graph, &nodes[1], 1, &set, every.context);
	OK(cuGraphAddMemcpyNode, &nodes[4], graph, &nodes[2], 2, &copy, every.context);
	OK(cuGraphAddChildGraphNode, &nodes[5], graph, &nodes[4], 1, child);
	OK(cuGraphAddMemAllocNode, &nodes[6], with_memory, NULL, 0, &memory);
	OK(cuGraphAddMemFreeNode, &nodes[7], with_memory, &nodes[6], 1, memory.dptr);
	OK(cuGraphClone, &twin, graph);
	OK(cuGraphInstantiateWithFlags, &a, graph, 0);
	OK(cuGraphInstantiateWithParams, &b, with_memory, &how);
	OK_AS(cuGraphInstantiateWithParams_ptsz, cuGraphInstantiateWithParams, &c, twin, &how);
	OK(cuGraphInstantiate_v2, &d, child, NULL, log, sizeof(log));
	OK(cuGraphExecUpdate_v2, a, twin, &changed);
	FAILS(CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE, cuGraphExecUpdate_v2, a, child, &changed);
	OK(cuGraphUpload, a, every.streams[0]);
	OK_AS(cuGraphUpload_ptsz, cuGraphUpload, b, every.streams[1]);
	OK(cuGraphLaunch, a, every.streams[2]);
	OK_AS(cuGraphLaunch_ptsz, cuGraphLaunch, b, NULL);
	OK(cuGraphLaunch, c, every.streams[3]);

	CUgraphNode none = NULL;
	FAILS(CUDA_ERROR_NOT_SUPPORTED, cuGraphClone, &twin, with_memory);
	memory.bytesize = 0;
	FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphAddMemAllocNode, &none, with_memory, NULL, 0, &memory);
	FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphAddMemFreeNode, &none, graph, NULL, 0, 0xdead000);
	kernel.kern = NULL;
	FAILS(CUDA_ERROR_INVALID_HANDLE, cuGraphAddKernelNode_v2, &none, graph, NULL, 0, &kernel);
	FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphAddEmptyNode, &none, BAD_HANDLE(CUgraph), NULL, 0);
	OK(cuGraphExecDestroy, a);
	OK(cuGraphExecDestroy, b);
	OK(cuGraphExecDestroy, c);
	OK(cuGraphExecDestroy, d);
	OK(cuGraphDestroy, graph);
	OK(cuGraphDestroy, child);
	OK(cuGraphDestroy, with_memory);
	OK(cuGraphDestroy, twin);
	FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphLaunch, a, every.streams[0]);
	FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphInstantiateWithFlags, &a, graph, 0);
	FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphDestroy, graph);
}

/* Makes calls that stream capture forbids. Each of them invalidates one capture. */
static void make_forbidden_calls(void)
{
	CUstream a = every.streams[0], b = every.streams[1];
	CUdeviceptr p = 0;
	CUgraph graph = NULL;
	OK(cuStreamBeginCapture_v2, a, CU_STREAM_CAPTURE_MODE_GLOBAL);
	FAILS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuMemAlloc_v2, &p, unique_bytes());
	FAILS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuLaunchKernel, every.function, LAUNCH, a, NULL, NULL);
	FAILS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture, a, &graph);
	OK(cuStreamBeginCapture_v2, a, CU_STREAM_CAPTURE_MODE_RELAXED);
	FAILS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamSynchronize, a);
	FAILS(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, cuStreamEndCapture, a, &graph);
	OK(cuStreamBeginCapture_v2, a, CU_STREAM_CAPTURE_MODE_RELAXED);
	OK(cuEventRecord, every.event, a);
	FAILS(CUDA_ERROR_CAPTURED_EVENT, cuEventQuery, every.event);
	OK(cuStreamWaitEvent, b, every.event, 0);
	OK(cuLaunchKernel, every.function, LAUNCH, b, NULL, NULL);
	FAILS(CUDA_ERROR_STREAM_CAPTURE_UNJOINED, cuStreamEndCapture, a, &graph);
	FAILS(CUDA_ERROR_ILLEGAL_STATE, cuStreamEndCapture, a, &graph);
	FAILS(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, cuStreamBeginCapture_v2, NULL, CU_STREAM_CAPTURE_MODE_GLOBAL);
}

void every_capture(void)
{
	CUstream a = every.streams[0], b = every.streams[1];
	CUgraph graph = NULL, existing = NULL, which = NULL;
	CUgraphExec exec = NULL;
	CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
	CUstreamCaptureStatus status;
	const CUgraphNode *after;
	const CUgraphEdgeData *edges;
	CUdeviceptr p = 0;
	cuuint64_t id;
	size_t n;
	OK(cuThreadExchangeStreamCaptureMode, &mode);
	OK(cuThreadExchangeStreamCaptureMode, &mode);
	OK(cuStreamBeginCapture_v2, a, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
	OK(cuLaunchKernel, every.function, LAUNCH, a, NULL, NULL);
	OK(cuEventRecord, every.event, a);
	OK(cuStreamWaitEvent, b, every.event, 0);
	OK(cuMemcpyHtoDAsync_v2, every.buffer_a, every.host, unique_bytes(), b);
	OK(cuMemAllocAsync, &p, unique_bytes(), b);
	OK(cuMemFreeAsync, p, b);
	OK(cuStreamIsCapturing, b, &status);
	OK_AS(cuStreamIsCapturing_ptsz, cuStreamIsCapturing, a, &status);
	OK(cuStreamGetCaptureInfo_v2, a, &status, &id, &which, &after, &n);
	OK_AS(cuStreamGetCaptureInfo_v2_ptsz, cuStreamGetCaptureInfo_v2, b, &status, &id, &which, &after, &n);
	OK(cuStreamGetCaptureInfo_v3, a, &status, &id, &which, &after, &edges, &n);
	OK_AS(cuStreamGetCaptureInfo_v3_ptsz, cuStreamGetCaptureInfo_v3, every.streams[2], &status, &id, &which, &after, &edges, &n);
	OK(cuEventRecord, every.join, b);
	OK(cuStreamWaitEvent, a, every.join, 0);
	OK(cuStreamEndCapture, a, &graph);
	OK(cuGraphInstantiateWithFlags, &exec, graph, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH);
	OK(cuGraphLaunch, exec, a);
	OK(cuGraphExecDestroy, exec);
	OK(cuGraphDestroy, graph);

	OK_AS(cuStreamBeginCapture_v2_ptsz, cuStreamBeginCapture_v2, NULL, CU_STREAM_CAPTURE_MODE_RELAXED);
	OK_AS(cuLaunchKernel_ptsz, cuLaunchKernel, every.function, LAUNCH, NULL, NULL, NULL);
	OK_AS(cuStreamEndCapture_ptsz, cuStreamEndCapture, NULL, &graph);
	OK(cuGraphDestroy, graph);
	OK(cuGraphCreate, &existing, 0);
	OK(cuStreamBeginCaptureToGraph, a, existing, NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_RELAXED);
	OK(cuMemsetD8Async, every.buffer_a, 6, unique_bytes(), a);
	OK(cuStreamEndCapture, a, &graph);
	OK_AS(cuStreamBeginCaptureToGraph_ptsz, cuStreamBeginCaptureToGraph, b, existing, NULL, NULL, 0,
	      CU_STREAM_CAPTURE_MODE_RELAXED);
	OK(cuStreamEndCapture, b, &graph);
	OK(cuGraphDestroy, existing);
	make_forbidden_calls();
}
