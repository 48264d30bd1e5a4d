/* Memory sets. They are asynchronous to the host, as in the real driver. */
#include "copy.h"

#include "memory.h"

CUresult set_op(CUdeviceptr dst, size_t pitch, uint32_t value, uint32_t element, size_t width, size_t height, struct op *op)
{
	uint64_t row = width * element;
	if (!memory_is_cuda(dst) || dst % element || (height > 1 && (pitch < row || pitch % element)))
		return CUDA_ERROR_INVALID_VALUE;
	*op = (struct op){.kind = OP_SET, .ns = copy_ns(row * height), .value = value, .width = element,
			  .box = {.dst = dst, .dst_pitch = pitch, .width = row, .height = height, .depth = 1}};
	return CUDA_SUCCESS;
}

static CUresult set(struct lane *lane, CUdeviceptr dst, size_t pitch, uint32_t value, uint32_t element, size_t width, size_t height)
{
	struct op op;
	uint64_t over;
	if (width == 0 || height == 0)
		return CUDA_SUCCESS;
	CUresult result = set_op(dst, pitch, value, element, width, height, &op);
	return result ? result : op_submit(lane, &op, &over);
}

#define SET(fn, zero, type)                                                                          \
	EXPORT CUresult fn(CUdeviceptr dstDevice, type value, size_t N)                              \
	{                                                                                            \
		BEGIN(fn, NEEDS_CONTEXT, .ptr = dstDevice, .bytes = N * sizeof(type), .value = value); \
		struct lane lane;                                                                    \
		DO(lane_of_running(&call, NULL, zero, &lane));                                       \
		DO(set(&lane, dstDevice, 0, value, sizeof(type), N, 1));                             \
		return END();                                                                        \
	}
SET(cuMemsetD8_v2, LEGACY, unsigned char)
SET(cuMemsetD8_v2_ptds, PER_THREAD, unsigned char)
SET(cuMemsetD16_v2, LEGACY, unsigned short)
SET(cuMemsetD16_v2_ptds, PER_THREAD, unsigned short)
SET(cuMemsetD32_v2, LEGACY, unsigned int)
SET(cuMemsetD32_v2_ptds, PER_THREAD, unsigned int)

#define SET_ASYNC(fn, zero, type)                                                                    \
	EXPORT CUresult fn(CUdeviceptr dstDevice, type value, size_t N, CUstream hStream)            \
	{                                                                                            \
		BEGIN(fn, NEEDS_CONTEXT, .ptr = dstDevice, .bytes = N * sizeof(type), .value = value, \
		      .stream = H(hStream));                                                         \
		struct lane lane;                                                                    \
		DO(lane_of(&call, hStream, zero, &lane));                                            \
		DO(set(&lane, dstDevice, 0, value, sizeof(type), N, 1));                             \
		return END();                                                                        \
	}
SET_ASYNC(cuMemsetD8Async, LEGACY, unsigned char)
SET_ASYNC(cuMemsetD8Async_ptsz, PER_THREAD, unsigned char)
SET_ASYNC(cuMemsetD16Async, LEGACY, unsigned short)
SET_ASYNC(cuMemsetD16Async_ptsz, PER_THREAD, unsigned short)
SET_ASYNC(cuMemsetD32Async, LEGACY, unsigned int)
SET_ASYNC(cuMemsetD32Async_ptsz, PER_THREAD, unsigned int)

#define SET_2D(fn, zero, type)                                                                                      \
	EXPORT CUresult fn(CUdeviceptr dstDevice, size_t dstPitch, type value, size_t Width, size_t Height)         \
	{                                                                                                           \
		BEGIN(fn, NEEDS_CONTEXT, .ptr = dstDevice, .bytes = Width * Height * sizeof(type), .value = value); \
		struct lane lane;                                                                                   \
		DO(lane_of_running(&call, NULL, zero, &lane));                                                      \
		DO(set(&lane, dstDevice, dstPitch, value, sizeof(type), Width, Height));                            \
		return END();                                                                                       \
	}
SET_2D(cuMemsetD2D8_v2, LEGACY, unsigned char)
SET_2D(cuMemsetD2D8_v2_ptds, PER_THREAD, unsigned char)
SET_2D(cuMemsetD2D16_v2, LEGACY, unsigned short)
SET_2D(cuMemsetD2D16_v2_ptds, PER_THREAD, unsigned short)
SET_2D(cuMemsetD2D32_v2, LEGACY, unsigned int)
SET_2D(cuMemsetD2D32_v2_ptds, PER_THREAD, unsigned int)

#define SET_2D_ASYNC(fn, zero, type)                                                                                          \
	EXPORT CUresult fn(CUdeviceptr dstDevice, size_t dstPitch, type value, size_t Width, size_t Height, CUstream hStream) \
	{                                                                                                                     \
		BEGIN(fn, NEEDS_CONTEXT, .ptr = dstDevice, .bytes = Width * Height * sizeof(type), .value = value,            \
		      .stream = H(hStream));                                                                                  \
		struct lane lane;                                                                                             \
		DO(lane_of(&call, hStream, zero, &lane));                                                                     \
		DO(set(&lane, dstDevice, dstPitch, value, sizeof(type), Width, Height));                                      \
		return END();                                                                                                 \
	}
SET_2D_ASYNC(cuMemsetD2D8Async, LEGACY, unsigned char)
SET_2D_ASYNC(cuMemsetD2D8Async_ptsz, PER_THREAD, unsigned char)
SET_2D_ASYNC(cuMemsetD2D16Async, LEGACY, unsigned short)
SET_2D_ASYNC(cuMemsetD2D16Async_ptsz, PER_THREAD, unsigned short)
SET_2D_ASYNC(cuMemsetD2D32Async, LEGACY, unsigned int)
SET_2D_ASYNC(cuMemsetD2D32Async_ptsz, PER_THREAD, unsigned int)
