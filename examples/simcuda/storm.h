/* Declarations shared by the source files of the program storm: driver functions and the state
 * of a thread. */
#ifndef STORM_H
#define STORM_H

#include "cuda_sim.h"

#include <stdbool.h>

/* Additional driver functions that the call sequences in storm_sequences.c use. */
#define STORM_SEQUENCE_FUNCTIONS(X)                                                                             \
	X(cuMemAllocFromPoolAsync, cuMemAllocFromPoolAsync) X(cuMemAllocFromPoolAsync_ptsz, cuMemAllocFromPoolAsync)    \
	X(cuMemPoolCreate, cuMemPoolCreate) X(cuMemPoolGetAttribute, cuMemPoolGetAttribute)                             \
	X(cuMemPoolSetAttribute, cuMemPoolSetAttribute) X(cuMemPoolTrimTo, cuMemPoolTrimTo)                             \
	X(cuDeviceGetDefaultMemPool, cuDeviceGetDefaultMemPool) X(cuDeviceGetMemPool, cuDeviceGetMemPool)               \
	X(cuMemAddressReserve, cuMemAddressReserve) X(cuMemAddressFree, cuMemAddressFree) X(cuMemCreate, cuMemCreate)   \
	X(cuMemRelease, cuMemRelease) X(cuMemMap, cuMemMap) X(cuMemUnmap, cuMemUnmap)                                   \
	X(cuMemSetAccess, cuMemSetAccess) X(cuMemRetainAllocationHandle, cuMemRetainAllocationHandle)                   \
	X(cuArrayCreate_v2, cuArrayCreate_v2) X(cuArray3DCreate_v2, cuArray3DCreate_v2)                                 \
	X(cuArrayDestroy, cuArrayDestroy) X(cuMipmappedArrayCreate, cuMipmappedArrayCreate)                             \
	X(cuMipmappedArrayDestroy, cuMipmappedArrayDestroy) X(cuMemcpyHtoA_v2, cuMemcpyHtoA_v2)                         \
	X(cuMemcpyAtoHAsync_v2, cuMemcpyAtoHAsync_v2) X(cuMemcpyAtoA_v2_ptds, cuMemcpyAtoA_v2)                          \
	X(cuMemcpyDtoA_v2, cuMemcpyDtoA_v2) X(cuMemcpyAtoD_v2_ptds, cuMemcpyAtoD_v2)                                    \
	X(cuMemcpyHtoAAsync_v2_ptsz, cuMemcpyHtoAAsync_v2) X(cuMemcpy2D_v2, cuMemcpy2D_v2)                              \
	X(cuMemcpy2D_v2_ptds, cuMemcpy2D_v2) X(cuMemcpy2DUnaligned_v2, cuMemcpy2DUnaligned_v2)                          \
	X(cuMemcpy2DAsync_v2, cuMemcpy2DAsync_v2) X(cuMemcpy2DAsync_v2_ptsz, cuMemcpy2DAsync_v2)                        \
	X(cuMemcpy3D_v2, cuMemcpy3D_v2) X(cuMemcpy3DAsync_v2, cuMemcpy3DAsync_v2) X(cuMemcpy3DPeer, cuMemcpy3DPeer)     \
	X(cuMemcpy3DPeerAsync_ptsz, cuMemcpy3DPeerAsync) X(cuMemcpyPeer, cuMemcpyPeer)                                  \
	X(cuMemcpyPeerAsync, cuMemcpyPeerAsync) X(cuMemcpyBatchAsync, cuMemcpyBatchAsync)                               \
	X(cuMemcpyBatchAsync_v2, cuMemcpyBatchAsync_v2) X(cuMemsetD16_v2, cuMemsetD16_v2)                               \
	X(cuMemsetD16Async, cuMemsetD16Async) X(cuMemsetD2D8_v2, cuMemsetD2D8_v2)                                       \
	X(cuMemsetD2D16_v2, cuMemsetD2D16_v2) X(cuMemsetD2D32_v2_ptds, cuMemsetD2D32_v2)                                \
	X(cuMemsetD2D8Async, cuMemsetD2D8Async) X(cuMemsetD2D16Async_ptsz, cuMemsetD2D16Async)                          \
	X(cuMemsetD2D32Async, cuMemsetD2D32Async) X(cuStreamBeginCapture_v2, cuStreamBeginCapture_v2)                   \
	X(cuStreamEndCapture, cuStreamEndCapture) X(cuStreamIsCapturing, cuStreamIsCapturing)                           \
	X(cuGraphClone, cuGraphClone) X(cuGraphDestroy, cuGraphDestroy)                                                 \
	X(cuGraphInstantiateWithFlags, cuGraphInstantiateWithFlags)                                                     \
	X(cuGraphInstantiateWithParams, cuGraphInstantiateWithParams) X(cuGraphExecUpdate_v2, cuGraphExecUpdate_v2)     \
	X(cuGraphUpload, cuGraphUpload) X(cuGraphLaunch, cuGraphLaunch) X(cuGraphLaunch_ptsz, cuGraphLaunch)            \
	X(cuGraphExecDestroy, cuGraphExecDestroy) X(cuGraphCreate, cuGraphCreate)                                       \
	X(cuGraphAddEmptyNode, cuGraphAddEmptyNode) X(cuGraphAddKernelNode_v2, cuGraphAddKernelNode_v2)                 \
	X(cuGraphAddMemsetNode, cuGraphAddMemsetNode) X(cuGraphAddChildGraphNode, cuGraphAddChildGraphNode)             \
	X(cuGraphAddMemAllocNode, cuGraphAddMemAllocNode) X(cuGraphAddMemFreeNode, cuGraphAddMemFreeNode)               \
	X(cuLaunchHostFunc, cuLaunchHostFunc) X(cuLaunchHostFunc_ptsz, cuLaunchHostFunc)                                \
	X(cuStreamWriteValue32_v2, cuStreamWriteValue32_v2) X(cuStreamWriteValue64_v2, cuStreamWriteValue64_v2)         \
	X(cuStreamWaitValue32_v2, cuStreamWaitValue32_v2) X(cuStreamWaitValue64_v2_ptsz, cuStreamWaitValue64_v2)        \
	X(cuStreamBatchMemOp_v2, cuStreamBatchMemOp_v2) X(cuEventRecordWithFlags, cuEventRecordWithFlags)               \
	X(cuMemHostRegister_v2, cuMemHostRegister_v2) X(cuMemHostUnregister, cuMemHostUnregister)                       \
	X(cuMemAdvise, cuMemAdvise) X(cuMemAdvise_v2, cuMemAdvise_v2) X(cuMemPrefetchAsync, cuMemPrefetchAsync)         \
	X(cuMemPrefetchAsync_v2_ptsz, cuMemPrefetchAsync_v2) X(cuIpcGetMemHandle, cuIpcGetMemHandle)                    \
	X(cuLinkCreate_v2, cuLinkCreate_v2) X(cuLinkAddData_v2, cuLinkAddData_v2) X(cuLinkComplete, cuLinkComplete)     \
	X(cuLinkDestroy, cuLinkDestroy) X(cuModuleLoadDataEx, cuModuleLoadDataEx)                                       \
	X(cuModuleGetFunctionCount, cuModuleGetFunctionCount)                                                           \
	X(cuModuleEnumerateFunctions, cuModuleEnumerateFunctions)                                                       \
	X(cuLaunchCooperativeKernel, cuLaunchCooperativeKernel)                                                         \
	X(cuLaunchCooperativeKernel_ptsz, cuLaunchCooperativeKernel)

/* Driver functions as X(exported name, function that has the type). */
#define STORM_FUNCTIONS(X)                                                                                                       \
	X(cuInit, cuInit) X(cuDriverGetVersion, cuDriverGetVersion) X(cuGetProcAddress_v2, cuGetProcAddress_v2)                  \
	X(cuGetErrorName, cuGetErrorName) X(cuGetErrorString, cuGetErrorString)                                                  \
	X(cuDeviceGetCount, cuDeviceGetCount) X(cuDeviceGet, cuDeviceGet) X(cuDeviceGetName, cuDeviceGetName)                    \
	X(cuDeviceGetUuid, cuDeviceGetUuid) X(cuDeviceGetUuid_v2, cuDeviceGetUuid_v2)                                            \
	X(cuDeviceTotalMem_v2, cuDeviceTotalMem_v2) X(cuDeviceGetAttribute, cuDeviceGetAttribute)                                \
	X(cuDeviceGetPCIBusId, cuDeviceGetPCIBusId)                                                                              \
	X(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain) X(cuDevicePrimaryCtxRelease_v2, cuDevicePrimaryCtxRelease_v2)      \
	X(cuCtxCreate_v2, cuCtxCreate_v2) X(cuCtxCreate_v3, cuCtxCreate_v3) X(cuCtxCreate_v4, cuCtxCreate_v4)                    \
	X(cuCtxDestroy_v2, cuCtxDestroy_v2) X(cuCtxSetCurrent, cuCtxSetCurrent) X(cuCtxGetCurrent, cuCtxGetCurrent)              \
	X(cuCtxPushCurrent_v2, cuCtxPushCurrent_v2) X(cuCtxPopCurrent_v2, cuCtxPopCurrent_v2)                                    \
	X(cuCtxGetDevice, cuCtxGetDevice) X(cuCtxSynchronize, cuCtxSynchronize)                                                  \
	X(cuMemAlloc_v2, cuMemAlloc_v2) X(cuMemAllocPitch_v2, cuMemAllocPitch_v2) X(cuMemFree_v2, cuMemFree_v2)                  \
	X(cuMemAllocAsync, cuMemAllocAsync) X(cuMemAllocAsync_ptsz, cuMemAllocAsync)                                             \
	X(cuMemFreeAsync, cuMemFreeAsync) X(cuMemFreeAsync_ptsz, cuMemFreeAsync)                                                 \
	X(cuMemAllocManaged, cuMemAllocManaged) X(cuMemHostAlloc, cuMemHostAlloc) X(cuMemAllocHost_v2, cuMemAllocHost_v2)        \
	X(cuMemFreeHost, cuMemFreeHost) X(cuMemGetInfo_v2, cuMemGetInfo_v2)                                                      \
	X(cuMemcpy, cuMemcpy) X(cuMemcpy_ptds, cuMemcpy) X(cuMemcpyAsync, cuMemcpyAsync) X(cuMemcpyAsync_ptsz, cuMemcpyAsync)    \
	X(cuMemcpyHtoD_v2, cuMemcpyHtoD_v2) X(cuMemcpyHtoD_v2_ptds, cuMemcpyHtoD_v2)                                             \
	X(cuMemcpyDtoH_v2, cuMemcpyDtoH_v2) X(cuMemcpyDtoH_v2_ptds, cuMemcpyDtoH_v2)                                             \
	X(cuMemcpyDtoD_v2, cuMemcpyDtoD_v2) X(cuMemcpyDtoD_v2_ptds, cuMemcpyDtoD_v2)                                             \
	X(cuMemcpyHtoDAsync_v2, cuMemcpyHtoDAsync_v2) X(cuMemcpyHtoDAsync_v2_ptsz, cuMemcpyHtoDAsync_v2)                         \
	X(cuMemcpyDtoHAsync_v2, cuMemcpyDtoHAsync_v2) X(cuMemcpyDtoHAsync_v2_ptsz, cuMemcpyDtoHAsync_v2)                         \
	X(cuMemcpyDtoDAsync_v2, cuMemcpyDtoDAsync_v2) X(cuMemcpyDtoDAsync_v2_ptsz, cuMemcpyDtoDAsync_v2)                         \
	X(cuMemsetD8_v2, cuMemsetD8_v2) X(cuMemsetD8_v2_ptds, cuMemsetD8_v2)                                                     \
	X(cuMemsetD32_v2, cuMemsetD32_v2) X(cuMemsetD32_v2_ptds, cuMemsetD32_v2)                                                 \
	X(cuMemsetD8Async, cuMemsetD8Async) X(cuMemsetD8Async_ptsz, cuMemsetD8Async)                                             \
	X(cuMemsetD32Async, cuMemsetD32Async) X(cuMemsetD32Async_ptsz, cuMemsetD32Async)                                         \
	X(cuStreamCreate, cuStreamCreate) X(cuStreamCreateWithPriority, cuStreamCreateWithPriority)                              \
	X(cuStreamDestroy_v2, cuStreamDestroy_v2) X(cuStreamQuery, cuStreamQuery) X(cuStreamQuery_ptsz, cuStreamQuery)           \
	X(cuStreamSynchronize, cuStreamSynchronize) X(cuStreamSynchronize_ptsz, cuStreamSynchronize)                             \
	X(cuStreamWaitEvent, cuStreamWaitEvent) X(cuStreamWaitEvent_ptsz, cuStreamWaitEvent)                                     \
	X(cuEventCreate, cuEventCreate) X(cuEventRecord, cuEventRecord) X(cuEventRecord_ptsz, cuEventRecord)                     \
	X(cuEventSynchronize, cuEventSynchronize) X(cuEventQuery, cuEventQuery) X(cuEventDestroy_v2, cuEventDestroy_v2)          \
	X(cuEventElapsedTime, cuEventElapsedTime) X(cuEventElapsedTime_v2, cuEventElapsedTime_v2)                                \
	X(cuModuleLoadData, cuModuleLoadData) X(cuModuleUnload, cuModuleUnload) X(cuModuleGetFunction, cuModuleGetFunction)      \
	X(cuLibraryLoadData, cuLibraryLoadData) X(cuLibraryUnload, cuLibraryUnload) X(cuLibraryGetKernel, cuLibraryGetKernel)    \
	X(cuKernelGetFunction, cuKernelGetFunction) X(cuFuncGetName, cuFuncGetName)                                              \
	X(cuLaunchKernel, cuLaunchKernel) X(cuLaunchKernel_ptsz, cuLaunchKernel)                                                 \
	X(cuLaunchKernelEx, cuLaunchKernelEx) X(cuLaunchKernelEx_ptsz, cuLaunchKernelEx)                                         \
	STORM_SEQUENCE_FUNCTIONS(X)

struct api {
#define X(name, type) __typeof__(type) *name;
	STORM_FUNCTIONS(X)
#undef X
};
extern struct api api;

enum {
	KERNELS = 8,
	STREAMS = 3, EVENTS = 4,
	LIVE_MAX = 24,
	/* 24 × 256 KiB × threads is far below any capacity, so only intended failures occur. */
	LIVE_BYTES_MAX = 256 << 10,
	BUFFER_BYTES = 64 << 10,
	SEQUENCE_CALLS_MAX = 24, /* most calls in one sequence */
};

extern const char storm_ptx[];
extern const size_t storm_ptx_size;
extern const char *const storm_kernels[KERNELS];

enum freed_by { FREE, FREE_ASYNC, FREE_HOST };

struct worker {
	uint64_t random;
	long left;                   /* remaining calls */
	long calls_made;
	long unexpected;             /* unexpected results */
	CUdevice device;
	CUcontext context;
	CUmodule module;
	CUfunction functions[KERNELS];
	CUstream streams[STREAMS + 1]; /* the last one is 0, the default stream */
	CUevent events[EVENTS];
	CUdeviceptr buffer_a, buffer_b; /* device buffers for copies, BUFFER_BYTES each */
	char *host;
	CUmemoryPool pool;
	CUcontext capture_context;   /* the thread's own, with the streams and events below */
	CUstream capturing[2];
	CUevent fork, join;
	int counted;                 /* host functions that ran */
	/* Ordinary memory of the program, for cuMemHostRegister. */
	_Alignas(4096) char plain[BUFFER_BYTES];
	struct {
		CUdeviceptr address;
		enum freed_by by;
	} live[LIVE_MAX];
	int live_len;
};

/* CALL makes a driver call and counts it. EXPECT also counts an unexpected result. */
#define CALL(fn, ...) (w->calls_made++, w->left--, api.fn(__VA_ARGS__))
#define EXPECT(want, fn, ...) (w->unexpected += CALL(fn, __VA_ARGS__) != (want))

uint32_t below(struct worker *worker, uint32_t n);
CUstream any_stream(struct worker *worker);

void worker_set_up(struct worker *worker, CUdevice device, CUcontext context);
/* Makes one random operation of one or more calls, at most worker->left. Near the end, frees all
 * live allocations. */
void worker_act(struct worker *worker);
/* Runs a random sequence of at most SEQUENCE_CALLS_MAX calls. */
void worker_run_sequence(struct worker *worker);

#endif
