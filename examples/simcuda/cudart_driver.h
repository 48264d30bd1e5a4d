/* How the simulated runtime reaches the driver: dlopen, then cuGetProcAddress for every
 * function. The real runtime has done the same since CUDA 11.3. */
#ifndef SIMCUDA_CUDART_DRIVER_H
#define SIMCUDA_CUDART_DRIVER_H

#include "cuda_sim.h"
#include "cudart_sim.h"

#define EXPORT __attribute__((visibility("default")))
#define D(pointer) ((CUdeviceptr)(uintptr_t)(pointer))
#define FORWARD(driver_call)                               \
	cudaError_t error = runtime_ready();               \
	return error ? error : runtime_result(driver_call)

/* Every driver function that the runtime calls, as X(name passed to cuGetProcAddress, exported
 * function that has the type). */
#define DRIVER_FUNCTIONS(X)                                                                                           \
	X(cuInit, cuInit)                                                                                             \
	X(cuDeviceGetCount, cuDeviceGetCount)                                                                         \
	X(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain)                                                         \
	X(cuCtxGetCurrent, cuCtxGetCurrent)                                                                           \
	X(cuCtxSetCurrent, cuCtxSetCurrent)                                                                           \
	X(cuCtxSynchronize, cuCtxSynchronize)                                                                         \
	X(cuMemAlloc, cuMemAlloc_v2)                                                                                  \
	X(cuMemFree, cuMemFree_v2)                                                                                    \
	X(cuMemAllocAsync, cuMemAllocAsync)                                                                           \
	X(cuMemFreeAsync, cuMemFreeAsync)                                                                             \
	X(cuMemAllocManaged, cuMemAllocManaged)                                                                       \
	X(cuMemHostAlloc, cuMemHostAlloc)                                                                             \
	X(cuMemFreeHost, cuMemFreeHost)                                                                               \
	X(cuMemcpy, cuMemcpy)                                                                                         \
	X(cuMemcpyAsync, cuMemcpyAsync)                                                                               \
	X(cuMemcpyHtoD, cuMemcpyHtoD_v2)                                                                              \
	X(cuMemcpyDtoH, cuMemcpyDtoH_v2)                                                                              \
	X(cuMemcpyDtoD, cuMemcpyDtoD_v2)                                                                              \
	X(cuMemcpyHtoDAsync, cuMemcpyHtoDAsync_v2)                                                                    \
	X(cuMemcpyDtoHAsync, cuMemcpyDtoHAsync_v2)                                                                    \
	X(cuMemcpyDtoDAsync, cuMemcpyDtoDAsync_v2)                                                                    \
	X(cuMemsetD8, cuMemsetD8_v2)                                                                                  \
	X(cuMemsetD8Async, cuMemsetD8Async)                                                                           \
	X(cuStreamCreate, cuStreamCreate)                                                                             \
	X(cuStreamDestroy, cuStreamDestroy_v2)                                                                        \
	X(cuStreamSynchronize, cuStreamSynchronize)                                                                   \
	X(cuEventCreate, cuEventCreate)                                                                               \
	X(cuEventRecord, cuEventRecord)                                                                               \
	X(cuEventSynchronize, cuEventSynchronize)                                                                     \
	X(cuEventDestroy, cuEventDestroy_v2)                                                                          \
	X(cuLibraryLoadData, cuLibraryLoadData)                                                                       \
	X(cuLibraryUnload, cuLibraryUnload)                                                                           \
	X(cuLibraryGetKernel, cuLibraryGetKernel)                                                                     \
	X(cuLaunchKernel, cuLaunchKernel)                                                                             \
	X(cuMemHostRegister, cuMemHostRegister_v2)                                                                    \
	X(cuMemHostUnregister, cuMemHostUnregister)                                                                   \
	X(cuMemcpy2DUnaligned, cuMemcpy2DUnaligned_v2)                                                                \
	X(cuMemcpy2DAsync, cuMemcpy2DAsync_v2)                                                                        \
	X(cuStreamBeginCapture, cuStreamBeginCapture_v2)                                                              \
	X(cuStreamEndCapture, cuStreamEndCapture)                                                                     \
	X(cuStreamIsCapturing, cuStreamIsCapturing)                                                                   \
	X(cuGraphInstantiate, cuGraphInstantiateWithFlags)                                                            \
	X(cuGraphLaunch, cuGraphLaunch)                                                                               \
	X(cuGraphExecDestroy, cuGraphExecDestroy)                                                                     \
	X(cuGraphDestroy, cuGraphDestroy)                                                                             \
	X(cuLaunchKernelEx, cuLaunchKernelEx)                                                                         \
	X(cuLaunchCooperativeKernel, cuLaunchCooperativeKernel)                                                       \
	X(cuLaunchHostFunc, cuLaunchHostFunc)                                                                         \
	X(cuGetErrorName, cuGetErrorName)                                                                             \
	X(cuGetErrorString, cuGetErrorString)

/* Driver functions whose per-thread default stream variant (_ptsz) the runtime also calls. */
#define DRIVER_FUNCTIONS_PTSZ(X)                                                                                      \
	X(cuLaunchKernel, cuLaunchKernel)                                                                             \
	X(cuLaunchKernelEx, cuLaunchKernelEx)                                                                         \
	X(cuGraphLaunch, cuGraphLaunch)

struct driver {
#define X(name, type) __typeof__(type) *name;
	DRIVER_FUNCTIONS(X)
#undef X
#define X(name, type) __typeof__(type) *name##_ptsz;
	DRIVER_FUNCTIONS_PTSZ(X)
#undef X
};
extern struct driver driver;

/* Loads and initialises the driver once per process. Creates no context. */
cudaError_t runtime_load(void);
/* Like runtime_load, and ensures that the calling thread has a current context. */
cudaError_t runtime_ready(void);
cudaError_t runtime_set_device(int device);
int runtime_device(void);
/* Stores the error for cudaGetLastError and returns it. Driver and runtime use the same error
 * numbers. */
cudaError_t runtime_result(CUresult result);
cudaError_t runtime_last_error(void);

#endif
