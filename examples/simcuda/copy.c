/*
 * Copies and sets: simulated time, plus the data where both ends are real memory. A copy from the device fills its host target with
 * zeros, so that programs compute the same every time.
 */
#include "sim.h"

#include <string.h>

enum direction { ANY, HOST_TO_DEVICE, DEVICE_TO_HOST, DEVICE_TO_DEVICE };

static CUresult copy(struct lane *lane, enum direction direction, uint64_t dst, uint64_t src, size_t bytes, uint64_t *over)
{
	*over = 0;
	if (bytes == 0)
		return CUDA_SUCCESS;
	bool dst_must = direction == HOST_TO_DEVICE || direction == DEVICE_TO_DEVICE;
	bool src_must = direction == DEVICE_TO_HOST || direction == DEVICE_TO_DEVICE;
	if (!dst || !src || (dst_must && !memory_is_cuda(dst)) || (src_must && !memory_is_cuda(src)))
		return CUDA_ERROR_INVALID_VALUE;
	if (!memory_is_on_device(dst)) {
		if (memory_is_on_device(src))
			memset((void *)(uintptr_t)dst, 0, bytes);
		else
			memmove((void *)(uintptr_t)dst, (const void *)(uintptr_t)src, bytes);
	}
	*over = lane_enqueue(lane, copy_ns(bytes));
	return CUDA_SUCCESS;
}

#define COPY(fn, zero, direction, dst_type, src_type)                                               \
	EXPORT CUresult fn(dst_type dst, src_type src, size_t ByteCount)                            \
	{                                                                                           \
		BEGIN(fn, NEEDS_CONTEXT, .ptr = H(dst), .src_ptr = H(src), .bytes = ByteCount);     \
		struct lane lane;                                                                   \
		uint64_t over = 0;                                                                  \
		DO(lane_of(&call, NULL, zero, &lane));                                              \
		DO(copy(&lane, direction, H(dst), H(src), ByteCount, &over));                       \
		wait_until(over);                                                                   \
		return END();                                                                       \
	}
COPY(cuMemcpy, LEGACY, ANY, CUdeviceptr, CUdeviceptr)
COPY(cuMemcpy_ptds, PER_THREAD, ANY, CUdeviceptr, CUdeviceptr)
COPY(cuMemcpyHtoD_v2, LEGACY, HOST_TO_DEVICE, CUdeviceptr, const void *)
COPY(cuMemcpyHtoD_v2_ptds, PER_THREAD, HOST_TO_DEVICE, CUdeviceptr, const void *)
COPY(cuMemcpyDtoH_v2, LEGACY, DEVICE_TO_HOST, void *, CUdeviceptr)
COPY(cuMemcpyDtoH_v2_ptds, PER_THREAD, DEVICE_TO_HOST, void *, CUdeviceptr)
COPY(cuMemcpyDtoD_v2, LEGACY, DEVICE_TO_DEVICE, CUdeviceptr, CUdeviceptr)
COPY(cuMemcpyDtoD_v2_ptds, PER_THREAD, DEVICE_TO_DEVICE, CUdeviceptr, CUdeviceptr)

#define COPY_ASYNC(fn, zero, direction, dst_type, src_type)                                         \
	EXPORT CUresult fn(dst_type dst, src_type src, size_t ByteCount, CUstream hStream)          \
	{                                                                                           \
		BEGIN(fn, NEEDS_CONTEXT, .ptr = H(dst), .src_ptr = H(src), .bytes = ByteCount,      \
		      .stream = H(hStream));                                                        \
		struct lane lane;                                                                   \
		uint64_t over;                                                                      \
		DO(lane_of(&call, hStream, zero, &lane));                                           \
		DO(copy(&lane, direction, H(dst), H(src), ByteCount, &over));                       \
		return END();                                                                       \
	}
COPY_ASYNC(cuMemcpyAsync, LEGACY, ANY, CUdeviceptr, CUdeviceptr)
COPY_ASYNC(cuMemcpyAsync_ptsz, PER_THREAD, ANY, CUdeviceptr, CUdeviceptr)
COPY_ASYNC(cuMemcpyHtoDAsync_v2, LEGACY, HOST_TO_DEVICE, CUdeviceptr, const void *)
COPY_ASYNC(cuMemcpyHtoDAsync_v2_ptsz, PER_THREAD, HOST_TO_DEVICE, CUdeviceptr, const void *)
COPY_ASYNC(cuMemcpyDtoHAsync_v2, LEGACY, DEVICE_TO_HOST, void *, CUdeviceptr)
COPY_ASYNC(cuMemcpyDtoHAsync_v2_ptsz, PER_THREAD, DEVICE_TO_HOST, void *, CUdeviceptr)
COPY_ASYNC(cuMemcpyDtoDAsync_v2, LEGACY, DEVICE_TO_DEVICE, CUdeviceptr, CUdeviceptr)
COPY_ASYNC(cuMemcpyDtoDAsync_v2_ptsz, PER_THREAD, DEVICE_TO_DEVICE, CUdeviceptr, CUdeviceptr)

static CUresult set(struct lane *lane, uint64_t dst, const void *value, size_t width, size_t n)
{
	if (n == 0)
		return CUDA_SUCCESS;
	if (!memory_is_cuda(dst) || dst % width)
		return CUDA_ERROR_INVALID_VALUE;
	if (!memory_is_on_device(dst))
		for (size_t i = 0; i < n; i++)
			memcpy((char *)(uintptr_t)dst + i * width, value, width);
	lane_enqueue(lane, copy_ns(n * width));
	return CUDA_SUCCESS;
}

/* Setting does not make the host wait, neither here nor in the real driver. */
#define SET(fn, zero, type)                                                                          \
	EXPORT CUresult fn(CUdeviceptr dstDevice, type value, size_t N)                              \
	{                                                                                            \
		BEGIN(fn, NEEDS_CONTEXT, .ptr = dstDevice, .bytes = N * sizeof(type), .value = value); \
		struct lane lane;                                                                    \
		DO(lane_of(&call, NULL, zero, &lane));                                               \
		DO(set(&lane, dstDevice, &value, sizeof(type), N));                                  \
		return END();                                                                        \
	}
SET(cuMemsetD8_v2, LEGACY, unsigned char)
SET(cuMemsetD8_v2_ptds, PER_THREAD, unsigned char)
SET(cuMemsetD32_v2, LEGACY, unsigned int)
SET(cuMemsetD32_v2_ptds, PER_THREAD, unsigned int)

#define SET_ASYNC(fn, zero, type)                                                                    \
	EXPORT CUresult fn(CUdeviceptr dstDevice, type value, size_t N, CUstream hStream)            \
	{                                                                                            \
		BEGIN(fn, NEEDS_CONTEXT, .ptr = dstDevice, .bytes = N * sizeof(type), .value = value, \
		      .stream = H(hStream));                                                         \
		struct lane lane;                                                                    \
		DO(lane_of(&call, hStream, zero, &lane));                                            \
		DO(set(&lane, dstDevice, &value, sizeof(type), N));                                  \
		return END();                                                                        \
	}
SET_ASYNC(cuMemsetD8Async, LEGACY, unsigned char)
SET_ASYNC(cuMemsetD8Async_ptsz, PER_THREAD, unsigned char)
SET_ASYNC(cuMemsetD32Async, LEGACY, unsigned int)
SET_ASYNC(cuMemsetD32Async_ptsz, PER_THREAD, unsigned int)
