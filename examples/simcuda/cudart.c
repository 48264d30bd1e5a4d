/* libcudart.so.13: the simulated CUDA runtime. Each runtime function ensures that the thread has
 * a context, then makes one driver call. */
#include "cudart_driver.h"

#include <stdint.h>

EXPORT cudaError_t cudaGetDeviceCount(int *count)
{
	cudaError_t error = runtime_load();
	return error ? error : runtime_result(driver.cuDeviceGetCount(count));
}

EXPORT cudaError_t cudaSetDevice(int device)
{
	return runtime_set_device(device);
}

EXPORT cudaError_t cudaGetDevice(int *device)
{
	if (!device)
		return runtime_result(CUDA_ERROR_INVALID_VALUE);
	*device = runtime_device();
	return cudaSuccess;
}

EXPORT cudaError_t cudaGetLastError(void)
{
	return runtime_last_error();
}

EXPORT const char *cudaGetErrorName(cudaError_t error)
{
	const char *text = NULL;
	if (!runtime_load())
		driver.cuGetErrorName((CUresult)error, &text);
	return text ? text : "unrecognized error code";
}

EXPORT const char *cudaGetErrorString(cudaError_t error)
{
	const char *text = NULL;
	if (!runtime_load())
		driver.cuGetErrorString((CUresult)error, &text);
	return text ? text : "unrecognized error code";
}

EXPORT cudaError_t cudaDeviceSynchronize(void)
{
	FORWARD(driver.cuCtxSynchronize());
}

EXPORT cudaError_t cudaMalloc(void **devPtr, size_t size)
{
	FORWARD(driver.cuMemAlloc((CUdeviceptr *)devPtr, size));
}

/* Programs call cudaFree(0) to create the context early. */
EXPORT cudaError_t cudaFree(void *devPtr)
{
	FORWARD(devPtr ? driver.cuMemFree(D(devPtr)) : CUDA_SUCCESS);
}

EXPORT cudaError_t cudaMallocAsync(void **devPtr, size_t size, cudaStream_t hStream)
{
	FORWARD(driver.cuMemAllocAsync((CUdeviceptr *)devPtr, size, hStream));
}

EXPORT cudaError_t cudaFreeAsync(void *devPtr, cudaStream_t hStream)
{
	FORWARD(driver.cuMemFreeAsync(D(devPtr), hStream));
}

EXPORT cudaError_t cudaMallocManaged(void **devPtr, size_t size, unsigned int flags)
{
	FORWARD(driver.cuMemAllocManaged((CUdeviceptr *)devPtr, size, flags));
}

EXPORT cudaError_t cudaMallocHost(void **ptr, size_t size)
{
	FORWARD(driver.cuMemHostAlloc(ptr, size, 0));
}

EXPORT cudaError_t cudaHostAlloc(void **pHost, size_t size, unsigned int flags)
{
	FORWARD(driver.cuMemHostAlloc(pHost, size, flags));
}

EXPORT cudaError_t cudaFreeHost(void *ptr)
{
	FORWARD(ptr ? driver.cuMemFreeHost(ptr) : CUDA_SUCCESS);
}

static CUresult copy(void *dst, const void *src, size_t count, enum cudaMemcpyKind kind)
{
	switch (kind) {
	case cudaMemcpyHostToDevice: return driver.cuMemcpyHtoD(D(dst), src, count);
	case cudaMemcpyDeviceToHost: return driver.cuMemcpyDtoH(dst, D(src), count);
	case cudaMemcpyDeviceToDevice: return driver.cuMemcpyDtoD(D(dst), D(src), count);
	case cudaMemcpyHostToHost: case cudaMemcpyDefault: return driver.cuMemcpy(D(dst), D(src), count);
	}
	return (CUresult)cudaErrorInvalidMemcpyDirection;
}

EXPORT cudaError_t cudaMemcpy(void *dst, const void *src, size_t count, enum cudaMemcpyKind kind)
{
	FORWARD(copy(dst, src, count, kind));
}

static CUresult copy_async(void *dst, const void *src, size_t count, enum cudaMemcpyKind kind, cudaStream_t stream)
{
	switch (kind) {
	case cudaMemcpyHostToDevice: return driver.cuMemcpyHtoDAsync(D(dst), src, count, stream);
	case cudaMemcpyDeviceToHost: return driver.cuMemcpyDtoHAsync(dst, D(src), count, stream);
	case cudaMemcpyDeviceToDevice: return driver.cuMemcpyDtoDAsync(D(dst), D(src), count, stream);
	case cudaMemcpyHostToHost: case cudaMemcpyDefault: return driver.cuMemcpyAsync(D(dst), D(src), count, stream);
	}
	return (CUresult)cudaErrorInvalidMemcpyDirection;
}

EXPORT cudaError_t cudaMemcpyAsync(void *dst, const void *src, size_t count, enum cudaMemcpyKind kind, cudaStream_t stream)
{
	FORWARD(copy_async(dst, src, count, kind, stream));
}

EXPORT cudaError_t cudaMemset(void *devPtr, int value, size_t count)
{
	FORWARD(driver.cuMemsetD8(D(devPtr), (unsigned char)value, count));
}

EXPORT cudaError_t cudaMemsetAsync(void *devPtr, int value, size_t count, cudaStream_t stream)
{
	FORWARD(driver.cuMemsetD8Async(D(devPtr), (unsigned char)value, count, stream));
}

EXPORT cudaError_t cudaStreamCreate(cudaStream_t *pStream)
{
	FORWARD(driver.cuStreamCreate(pStream, CU_STREAM_DEFAULT));
}

EXPORT cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
	FORWARD(driver.cuStreamDestroy(stream));
}

EXPORT cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
	FORWARD(driver.cuStreamSynchronize(stream));
}

EXPORT cudaError_t cudaEventCreate(cudaEvent_t *event)
{
	FORWARD(driver.cuEventCreate(event, CU_EVENT_DEFAULT));
}

EXPORT cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
	FORWARD(driver.cuEventRecord(event, stream));
}

EXPORT cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
	FORWARD(driver.cuEventSynchronize(event));
}

EXPORT cudaError_t cudaEventDestroy(cudaEvent_t event)
{
	FORWARD(driver.cuEventDestroy(event));
}
