/* 2D and 3D copies, and copies to and from arrays. Arrays have a size but hold no data. */
#include "copy.h"

#include "memory.h"

/* One side of a copy, source or destination: the address of the first byte, and strides in
 * bytes. */
struct end {
	uint64_t first; /* address; 0 = an array */
	uint64_t pitch, slice;
};

static CUresult end_of(CUmemorytype type, uint64_t host, uint64_t device, CUarray array, uint64_t x, uint64_t y, uint64_t z,
		       uint64_t pitch, uint64_t height, const CUDA_MEMCPY3D_PEER *c, struct end *end)
{
	uint64_t rows = height ? height : c->Height;
	if (type == CU_MEMORYTYPE_ARRAY) {
		struct object *o = object_of(array, ARRAY);
		if (!o)
			return CUDA_ERROR_INVALID_HANDLE;
		bool inside = x <= o->array.row && c->WidthInBytes <= o->array.row - x &&
			      y + c->Height <= (o->array.height ? o->array.height : 1) &&
			      z + c->Depth <= (o->array.depth ? o->array.depth : 1);
		return inside ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	}
	uint64_t base = type == CU_MEMORYTYPE_HOST ? host : device;
	if (type != CU_MEMORYTYPE_HOST && type != CU_MEMORYTYPE_DEVICE && type != CU_MEMORYTYPE_UNIFIED)
		return CUDA_ERROR_INVALID_VALUE;
	if (!base || (type == CU_MEMORYTYPE_DEVICE && !memory_is_cuda(base)))
		return CUDA_ERROR_INVALID_VALUE;
	if (pitch == 0)
		pitch = c->WidthInBytes;
	if ((c->Height > 1 || c->Depth > 1) && pitch < x + c->WidthInBytes)
		return CUDA_ERROR_INVALID_VALUE;
	if (c->Depth > 1 && rows < y + c->Height)
		return CUDA_ERROR_INVALID_VALUE;
	end->pitch = pitch;
	end->slice = pitch * rows;
	end->first = base + x + y * pitch + z * end->slice;
	return CUDA_SUCCESS;
}

CUresult copy_op_3d(const CUDA_MEMCPY3D_PEER *c, struct op *op)
{
	struct end dst = {0}, src = {0};
	if (!c)
		return CUDA_ERROR_INVALID_VALUE;
	CUresult result = end_of(c->dstMemoryType, H(c->dstHost), c->dstDevice, c->dstArray, c->dstXInBytes, c->dstY, c->dstZ,
				 c->dstPitch, c->dstHeight, c, &dst);
	if (!result)
		result = end_of(c->srcMemoryType, H(c->srcHost), c->srcDevice, c->srcArray, c->srcXInBytes, c->srcY, c->srcZ,
				c->srcPitch, c->srcHeight, c, &src);
	if (result)
		return result;
	*op = (struct op){.kind = OP_COPY, .ns = copy_ns(c->WidthInBytes * c->Height * c->Depth),
			  .box = {dst.first, src.first, dst.pitch, src.pitch, dst.slice, src.slice, c->WidthInBytes, c->Height,
				  c->Depth}};
	return CUDA_SUCCESS;
}

static CUresult copy_3d(struct lane *lane, const CUDA_MEMCPY3D_PEER *c, uint64_t *over)
{
	struct op op;
	*over = 0;
	if (c && (!c->WidthInBytes || !c->Height || !c->Depth))
		return CUDA_SUCCESS;
	CUresult result = copy_op_3d(c, &op);
	return result ? result : op_submit(lane, &op, over);
}

static CUresult copy_peer(struct lane *lane, const CUDA_MEMCPY3D_PEER *c, uint64_t *over)
{
	if (c && (!object_of(c->dstContext, CONTEXT) || !object_of(c->srcContext, CONTEXT)))
		return CUDA_ERROR_INVALID_CONTEXT;
	return copy_3d(lane, c, over);
}

/* Converts a 2D copy to a 3D copy of depth 1. */
static CUDA_MEMCPY3D_PEER in_3d(const CUDA_MEMCPY2D *c)
{
	return (CUDA_MEMCPY3D_PEER){
		.srcXInBytes = c->srcXInBytes, .srcY = c->srcY, .srcMemoryType = c->srcMemoryType, .srcHost = c->srcHost,
		.srcDevice = c->srcDevice, .srcArray = c->srcArray, .srcPitch = c->srcPitch,
		.dstXInBytes = c->dstXInBytes, .dstY = c->dstY, .dstMemoryType = c->dstMemoryType, .dstHost = c->dstHost,
		.dstDevice = c->dstDevice, .dstArray = c->dstArray, .dstPitch = c->dstPitch,
		.WidthInBytes = c->WidthInBytes, .Height = c->Height, .Depth = 1,
	};
}

static CUresult copy_2d(struct lane *lane, const CUDA_MEMCPY2D *c, uint64_t *over)
{
	*over = 0;
	if (!c)
		return CUDA_ERROR_INVALID_VALUE;
	CUDA_MEMCPY3D_PEER wide = in_3d(c);
	return copy_3d(lane, &wide, over);
}

/* Returns the ledger's value for one side of a copy, which depends on the memory type. */
static uint64_t ledger_address(CUmemorytype type, uint64_t host, uint64_t device, uint64_t array)
{
	switch (type) {
	case CU_MEMORYTYPE_HOST: return host;
	case CU_MEMORYTYPE_DEVICE: case CU_MEMORYTYPE_UNIFIED: return device;
	case CU_MEMORYTYPE_ARRAY: return array;
	}
	return 0;
}

#define TAKE_ENDS(call, c)                                                                           \
	do {                                                                                         \
		(call)->ptr = ledger_address(c->dstMemoryType, H(c->dstHost), c->dstDevice, H(c->dstArray));  \
		(call)->src_ptr = ledger_address(c->srcMemoryType, H(c->srcHost), c->srcDevice, H(c->srcArray)); \
	} while (0)

static void take_2d(struct call *call, const CUDA_MEMCPY2D *c)
{
	if (!c)
		return;
	TAKE_ENDS(call, c);
	call->bytes = c->WidthInBytes * c->Height;
}

static void take_3d(struct call *call, const CUDA_MEMCPY3D_PEER *c)
{
	if (!c)
		return;
	TAKE_ENDS(call, c);
	call->bytes = c->WidthInBytes * c->Height * c->Depth;
}

#define SHAPED(fn, zero, type, take, work)                         \
	EXPORT CUresult fn(const type *pCopy)                      \
	{                                                          \
		BEGIN(fn, NEEDS_CONTEXT);                          \
		struct lane lane;                                  \
		uint64_t over = 0;                                 \
		take(&call, pCopy);                                \
		DO(lane_of_running(&call, NULL, zero, &lane));     \
		DO(work(&lane, pCopy, &over));                     \
		wait_until(over);                                  \
		return END();                                      \
	}
SHAPED(cuMemcpy2D_v2, LEGACY, CUDA_MEMCPY2D, take_2d, copy_2d)
SHAPED(cuMemcpy2D_v2_ptds, PER_THREAD, CUDA_MEMCPY2D, take_2d, copy_2d)
SHAPED(cuMemcpy2DUnaligned_v2, LEGACY, CUDA_MEMCPY2D, take_2d, copy_2d)
SHAPED(cuMemcpy2DUnaligned_v2_ptds, PER_THREAD, CUDA_MEMCPY2D, take_2d, copy_2d)
SHAPED(cuMemcpy3D_v2, LEGACY, CUDA_MEMCPY3D, take_3d, copy_3d)
SHAPED(cuMemcpy3D_v2_ptds, PER_THREAD, CUDA_MEMCPY3D, take_3d, copy_3d)
SHAPED(cuMemcpy3DPeer, LEGACY, CUDA_MEMCPY3D_PEER, take_3d, copy_peer)
SHAPED(cuMemcpy3DPeer_ptds, PER_THREAD, CUDA_MEMCPY3D_PEER, take_3d, copy_peer)

#define SHAPED_ASYNC(fn, zero, type, take, work)                       \
	EXPORT CUresult fn(const type *pCopy, CUstream hStream)        \
	{                                                              \
		BEGIN(fn, NEEDS_CONTEXT, .stream = H(hStream));        \
		struct lane lane;                                      \
		uint64_t over;                                         \
		take(&call, pCopy);                                    \
		DO(lane_of(&call, hStream, zero, &lane));              \
		DO(work(&lane, pCopy, &over));                         \
		return END();                                          \
	}
SHAPED_ASYNC(cuMemcpy2DAsync_v2, LEGACY, CUDA_MEMCPY2D, take_2d, copy_2d)
SHAPED_ASYNC(cuMemcpy2DAsync_v2_ptsz, PER_THREAD, CUDA_MEMCPY2D, take_2d, copy_2d)
SHAPED_ASYNC(cuMemcpy3DAsync_v2, LEGACY, CUDA_MEMCPY3D, take_3d, copy_3d)
SHAPED_ASYNC(cuMemcpy3DAsync_v2_ptsz, PER_THREAD, CUDA_MEMCPY3D, take_3d, copy_3d)
SHAPED_ASYNC(cuMemcpy3DPeerAsync, LEGACY, CUDA_MEMCPY3D_PEER, take_3d, copy_peer)
SHAPED_ASYNC(cuMemcpy3DPeerAsync_ptsz, PER_THREAD, CUDA_MEMCPY3D_PEER, take_3d, copy_peer)

/* ---- 1D copies to and from arrays ---- */

/* Checks a byte range of an array. The offset counts bytes through all rows, so only the total
 * size matters. */
static CUresult check_array(CUarray array, uint64_t offset, uint64_t bytes)
{
	struct object *o = object_of(array, ARRAY);
	if (!o)
		return CUDA_ERROR_INVALID_HANDLE;
	uint64_t size = o->array.row * (o->array.height ? o->array.height : 1);
	return offset <= size && bytes <= size - offset ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult copy_row(struct lane *lane, uint64_t dst, uint64_t src, uint64_t bytes, uint64_t *over)
{
	struct op op = {.kind = OP_COPY, .ns = copy_ns(bytes), .box = {dst, src, 0, 0, 0, 0, bytes, 1, 1}};
	return op_submit(lane, &op, over);
}

#define IN_ARRAY(array, offset) check_array(array, offset, ByteCount)
#define ON_DEVICE(address) (memory_is_cuda(address) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE)
#define ON_HOST(address) ((address) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE)

#define ARRAY_COPY(fn, zero, parameters, dst, src, dst_row, src_row, dst_check, src_check)                       \
	EXPORT CUresult fn parameters                                                                            \
	{                                                                                                        \
		BEGIN(fn, NEEDS_CONTEXT, .ptr = H(dst), .src_ptr = H(src), .bytes = ByteCount);                  \
		struct lane lane;                                                                                \
		uint64_t over = 0;                                                                               \
		DO(lane_of_running(&call, NULL, zero, &lane));                                                   \
		DO(dst_check);                                                                                   \
		DO(src_check);                                                                                   \
		DO(copy_row(&lane, dst_row, src_row, ByteCount, &over));                                         \
		wait_until(over);                                                                                \
		return END();                                                                                    \
	}
#define BOTH(fn, ...) ARRAY_COPY(fn, LEGACY, __VA_ARGS__) ARRAY_COPY(fn##_ptds, PER_THREAD, __VA_ARGS__)
BOTH(cuMemcpyHtoA_v2, (CUarray dstArray, size_t dstOffset, const void *srcHost, size_t ByteCount), dstArray, srcHost, 0, H(srcHost),
     IN_ARRAY(dstArray, dstOffset), ON_HOST(srcHost))
BOTH(cuMemcpyDtoA_v2, (CUarray dstArray, size_t dstOffset, CUdeviceptr srcDevice, size_t ByteCount), dstArray, srcDevice, 0,
     srcDevice, IN_ARRAY(dstArray, dstOffset), ON_DEVICE(srcDevice))
BOTH(cuMemcpyAtoH_v2, (void *dstHost, CUarray srcArray, size_t srcOffset, size_t ByteCount), dstHost, srcArray, H(dstHost), 0,
     ON_HOST(dstHost), IN_ARRAY(srcArray, srcOffset))
BOTH(cuMemcpyAtoD_v2, (CUdeviceptr dstDevice, CUarray srcArray, size_t srcOffset, size_t ByteCount), dstDevice, srcArray, dstDevice,
     0, ON_DEVICE(dstDevice), IN_ARRAY(srcArray, srcOffset))
BOTH(cuMemcpyAtoA_v2, (CUarray dstArray, size_t dstOffset, CUarray srcArray, size_t srcOffset, size_t ByteCount), dstArray, srcArray,
     0, 0, IN_ARRAY(dstArray, dstOffset), IN_ARRAY(srcArray, srcOffset))

#define ARRAY_COPY_ASYNC(fn, zero, parameters, dst, src, dst_row, src_row, dst_check, src_check)                                \
	EXPORT CUresult fn parameters                                                                                           \
	{                                                                                                                       \
		BEGIN(fn, NEEDS_CONTEXT, .ptr = H(dst), .src_ptr = H(src), .bytes = ByteCount, .stream = H(hStream));           \
		struct lane lane;                                                                                               \
		uint64_t over;                                                                                                  \
		DO(lane_of(&call, hStream, zero, &lane));                                                                       \
		DO(dst_check);                                                                                                  \
		DO(src_check);                                                                                                  \
		DO(copy_row(&lane, dst_row, src_row, ByteCount, &over));                                                        \
		return END();                                                                                                   \
	}
#define BOTH_ASYNC(fn, ...) ARRAY_COPY_ASYNC(fn, LEGACY, __VA_ARGS__) ARRAY_COPY_ASYNC(fn##_ptsz, PER_THREAD, __VA_ARGS__)
BOTH_ASYNC(cuMemcpyHtoAAsync_v2, (CUarray dstArray, size_t dstOffset, const void *srcHost, size_t ByteCount, CUstream hStream),
	   dstArray, srcHost, 0, H(srcHost), IN_ARRAY(dstArray, dstOffset), ON_HOST(srcHost))
BOTH_ASYNC(cuMemcpyAtoHAsync_v2, (void *dstHost, CUarray srcArray, size_t srcOffset, size_t ByteCount, CUstream hStream), dstHost,
	   srcArray, H(dstHost), 0, ON_HOST(dstHost), IN_ARRAY(srcArray, srcOffset))

/* ---- batches of copies ---- */

static CUDA_MEMCPY3D_PEER from_batch(const CUDA_MEMCPY3D_BATCH_OP *op)
{
	CUDA_MEMCPY3D_PEER c = {.WidthInBytes = op->extent.width, .Height = op->extent.height, .Depth = op->extent.depth};
	if (op->src.type == CU_MEMCPY_OPERAND_TYPE_ARRAY) {
		c.srcMemoryType = CU_MEMORYTYPE_ARRAY;
		c.srcArray = op->src.op.array.array;
	} else {
		c.srcMemoryType = CU_MEMORYTYPE_UNIFIED;
		c.srcDevice = op->src.op.ptr.ptr;
		c.srcPitch = op->src.op.ptr.rowLength;
		c.srcHeight = op->src.op.ptr.layerHeight;
	}
	if (op->dst.type == CU_MEMCPY_OPERAND_TYPE_ARRAY) {
		c.dstMemoryType = CU_MEMORYTYPE_ARRAY;
		c.dstArray = op->dst.op.array.array;
	} else {
		c.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
		c.dstDevice = op->dst.op.ptr.ptr;
		c.dstPitch = op->dst.op.ptr.rowLength;
		c.dstHeight = op->dst.op.ptr.layerHeight;
	}
	return c;
}

/* Sets the ledger columns of a 3D batch. Array copies have extents in elements, so the column
 * bytes is 0 if the batch has one. */
static void set_batch_columns(struct call *call, const CUDA_MEMCPY3D_BATCH_OP *list, size_t n)
{
	bool arrays = false;
	call->value = (int64_t)n;
	for (size_t i = 0; list && i < n; i++) {
		CUDA_MEMCPY3D_PEER c = from_batch(&list[i]), *p = &c;
		if (i == 0)
			TAKE_ENDS(call, p);
		call->bytes += c.WidthInBytes * c.Height * c.Depth;
		arrays |= c.srcMemoryType == CU_MEMORYTYPE_ARRAY || c.dstMemoryType == CU_MEMORYTYPE_ARRAY;
	}
	if (arrays)
		call->bytes = 0;
}

static CUresult copy_batch(struct lane *lane, const CUDA_MEMCPY3D_BATCH_OP *list, size_t n)
{
	CUresult result = list && n ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	uint64_t over;
	for (size_t i = 0; i < n && !result; i++) {
		CUDA_MEMCPY3D_PEER c = from_batch(&list[i]);
		result = c.WidthInBytes && c.Height && c.Depth ? copy_3d(lane, &c, &over) : CUDA_ERROR_INVALID_VALUE;
	}
	return result;
}

#define COPY_3D_BATCH(fn, zero, fail_parameter)                                                             \
	EXPORT CUresult fn(size_t numOps, CUDA_MEMCPY3D_BATCH_OP *opList, fail_parameter                    \
			   unsigned long long flags, CUstream hStream)                                      \
	{                                                                                                   \
		BEGIN(fn, NEEDS_CONTEXT, .stream = H(hStream));                                             \
		struct lane lane;                                                                           \
		set_batch_columns(&call, opList, numOps);                                                          \
		DO(flags ? CUDA_ERROR_INVALID_VALUE : lane_of_running(&call, hStream, zero, &lane));        \
		DO(copy_batch(&lane, opList, numOps));                                                      \
		return END();                                                                               \
	}
#define FAIL_PARAMETER size_t *failIdx __attribute__((unused)),
COPY_3D_BATCH(cuMemcpy3DBatchAsync, LEGACY, FAIL_PARAMETER)
COPY_3D_BATCH(cuMemcpy3DBatchAsync_ptsz, PER_THREAD, FAIL_PARAMETER)
COPY_3D_BATCH(cuMemcpy3DBatchAsync_v2, LEGACY, )
COPY_3D_BATCH(cuMemcpy3DBatchAsync_v2_ptsz, PER_THREAD, )
