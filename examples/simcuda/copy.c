/*
 * One-dimensional copies. A copy takes simulated time, and moves data if both ends are
 * host-accessible memory. A copy from the device fills its host destination with zeros, so that
 * programs give the same results in every run. Copies of other shapes are in shape.c, memory sets
 * in set.c.
 */
#include "copy.h"

#include "memory.h"

CUresult copy_op(enum direction direction, uint64_t dst, uint64_t src, size_t bytes, struct op *op)
{
	bool dst_must = direction == HOST_TO_DEVICE || direction == DEVICE_TO_DEVICE;
	bool src_must = direction == DEVICE_TO_HOST || direction == DEVICE_TO_DEVICE;
	if (!dst || !src || (dst_must && !memory_is_cuda(dst)) || (src_must && !memory_is_cuda(src)))
		return CUDA_ERROR_INVALID_VALUE;
	*op = (struct op){.kind = OP_COPY, .ns = copy_ns(bytes), .box = {dst, src, 0, 0, 0, 0, bytes, 1, 1}};
	return CUDA_SUCCESS;
}

static CUresult copy(struct lane *lane, enum direction direction, uint64_t dst, uint64_t src, size_t bytes, uint64_t *over)
{
	struct op op;
	*over = 0;
	if (bytes == 0)
		return CUDA_SUCCESS;
	CUresult result = copy_op(direction, dst, src, bytes, &op);
	return result ? result : op_submit(lane, &op, over);
}

/* Synchronous copies wait for their end, so a capture does not allow them. */
#define COPY(fn, zero, direction, dst_type, src_type)                                               \
	EXPORT CUresult fn(dst_type dst, src_type src, size_t ByteCount)                            \
	{                                                                                           \
		BEGIN(fn, NEEDS_CONTEXT, .ptr = H(dst), .src_ptr = H(src), .bytes = ByteCount);     \
		struct lane lane;                                                                   \
		uint64_t over = 0;                                                                  \
		DO(lane_of_running(&call, NULL, zero, &lane));                                      \
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

/* ---- copies between contexts ---- */

static CUresult check_contexts(CUcontext dst, CUcontext src)
{
	struct object *a = object_of(dst, CONTEXT), *b = object_of(src, CONTEXT);
	return a && b && context_alive(a) && context_alive(b) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

#define COPY_PEER(fn, zero)                                                                                                   \
	EXPORT CUresult fn(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice, CUcontext srcContext,          \
			   size_t ByteCount)                                                                                  \
	{                                                                                                                     \
		BEGIN(fn, NEEDS_CONTEXT, .ptr = dstDevice, .src_ptr = srcDevice, .bytes = ByteCount);                         \
		struct lane lane;                                                                                             \
		uint64_t over = 0;                                                                                            \
		DO(lane_of_running(&call, NULL, zero, &lane));                                                                \
		DO(check_contexts(dstContext, srcContext));                                                                   \
		DO(copy(&lane, DEVICE_TO_DEVICE, dstDevice, srcDevice, ByteCount, &over));                                    \
		wait_until(over);                                                                                             \
		return END();                                                                                                 \
	}
COPY_PEER(cuMemcpyPeer, LEGACY)
COPY_PEER(cuMemcpyPeer_ptds, PER_THREAD)

#define COPY_PEER_ASYNC(fn, zero)                                                                                             \
	EXPORT CUresult fn(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice, CUcontext srcContext,          \
			   size_t ByteCount, CUstream hStream)                                                                \
	{                                                                                                                     \
		BEGIN(fn, NEEDS_CONTEXT, .ptr = dstDevice, .src_ptr = srcDevice, .bytes = ByteCount, .stream = H(hStream));   \
		struct lane lane;                                                                                             \
		uint64_t over;                                                                                                \
		DO(lane_of(&call, hStream, zero, &lane));                                                                     \
		DO(check_contexts(dstContext, srcContext));                                                                   \
		DO(copy(&lane, DEVICE_TO_DEVICE, dstDevice, srcDevice, ByteCount, &over));                                    \
		return END();                                                                                                 \
	}
COPY_PEER_ASYNC(cuMemcpyPeerAsync, LEGACY)
COPY_PEER_ASYNC(cuMemcpyPeerAsync_ptsz, PER_THREAD)

/* ---- batches of copies ---- */

static CUresult batch(struct lane *lane, const CUdeviceptr *dsts, const CUdeviceptr *srcs, const size_t *sizes, size_t count,
		      const CUmemcpyAttributes *attrs, const size_t *idxs, size_t attrs_len, size_t *fail)
{
	uint64_t over;
	/* The real driver also rejects batches on the default stream. */
	if (!dsts || !srcs || !sizes || !count || !attrs || !idxs || !attrs_len || attrs_len > count ||
	    lane->queue == &lane->context->ctx.legacy)
		return CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < count; i++) {
		CUresult result = sizes[i] ? copy(lane, ANY, dsts[i], srcs[i], sizes[i], &over) : CUDA_ERROR_INVALID_VALUE;
		if (!result)
			continue;
		if (fail)
			*fail = i;
		return result;
	}
	return CUDA_SUCCESS;
}

static void take_batch(struct call *call, const CUdeviceptr *dsts, const CUdeviceptr *srcs, const size_t *sizes, size_t count)
{
	call->value = (int64_t)count;
	if (count > 0 && dsts)
		call->ptr = dsts[0];
	if (count > 0 && srcs)
		call->src_ptr = srcs[0];
	for (size_t i = 0; i < count && sizes; i++)
		call->bytes += sizes[i];
}

#define COPY_BATCH(fn, zero, fail_parameter, fail)                                                                            \
	EXPORT CUresult fn(CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t count, CUmemcpyAttributes *attrs,      \
			   size_t *attrsIdxs, size_t numAttrs, fail_parameter CUstream hStream)                               \
	{                                                                                                                     \
		BEGIN(fn, NEEDS_CONTEXT, .stream = H(hStream));                                                               \
		struct lane lane;                                                                                             \
		take_batch(&call, dsts, srcs, sizes, count);                                                                  \
		DO(lane_of_running(&call, hStream, zero, &lane));                                                             \
		DO(batch(&lane, dsts, srcs, sizes, count, attrs, attrsIdxs, numAttrs, fail));                                 \
		return END();                                                                                                 \
	}
#define FAIL_PARAMETER size_t *failIdx,
COPY_BATCH(cuMemcpyBatchAsync, LEGACY, FAIL_PARAMETER, failIdx)
COPY_BATCH(cuMemcpyBatchAsync_ptsz, PER_THREAD, FAIL_PARAMETER, failIdx)
COPY_BATCH(cuMemcpyBatchAsync_v2, LEGACY, , NULL)
COPY_BATCH(cuMemcpyBatchAsync_v2_ptsz, PER_THREAD, , NULL)

/* Simulates decompression: it takes the time of a copy and fills the output buffer. */
static CUresult decompress(struct lane *lane, const CUmemDecompressParams *list, size_t n, unsigned int flags)
{
	CUresult result = list && n && !flags ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < n && !result; i++) {
		if (!memory_is_cuda(H(list[i].src)) || !memory_is_cuda(H(list[i].dst)))
			result = CUDA_ERROR_INVALID_VALUE;
		else
			lane_enqueue(lane, WORK_OTHER, copy_ns(list[i].dstNumBytes));
	}
	return result;
}

#define DECOMPRESS(fn, zero)                                                                                             \
	EXPORT CUresult fn(CUmemDecompressParams *paramsArray, size_t count, unsigned int flags, size_t *errorIndex,     \
			   CUstream stream)                                                                              \
	{                                                                                                                \
		BEGIN(fn, NEEDS_CONTEXT, .stream = H(stream), .value = (int64_t)count);                                  \
		struct lane lane;                                                                                        \
		(void)errorIndex;                                                                                        \
		if (paramsArray && count) {                                                                              \
			call.ptr = H(paramsArray[0].dst);                                                                \
			call.src_ptr = H(paramsArray[0].src);                                                            \
		}                                                                                                        \
		DO(lane_of_running(&call, stream, zero, &lane));                                                         \
		DO(decompress(&lane, paramsArray, count, flags));                                                        \
		return END();                                                                                            \
	}
DECOMPRESS(cuMemBatchDecompressAsync, LEGACY)
DECOMPRESS(cuMemBatchDecompressAsync_ptsz, PER_THREAD)
