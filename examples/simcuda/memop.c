/* Stream memory operations: streams write values to memory, or wait for values in memory. Waits
 * end at once: simulated device memory holds no values, and polling host memory would cost too
 * much. */
#include "graph.h"

#include "memory.h"

/* Allowed flags of waits (GEQ, EQ, AND, NOR, FLUSH) and of writes (NO_MEMORY_BARRIER). */
enum { WAIT_FLAGS = 0x40000007, WRITE_FLAGS = 1 };

static CUresult check(uint64_t address, uint32_t width, unsigned int flags, unsigned int allowed)
{
	return memory_is_cuda(address) && address % width == 0 && !(flags & ~allowed) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult wait_value(struct lane *lane, uint64_t address, uint64_t value, uint32_t width, unsigned int flags)
{
	struct op op = {.kind = OP_EMPTY};
	uint64_t over;
	(void)value;
	CUresult result = check(address, width, flags, WAIT_FLAGS);
	return result ? result : op_submit(lane, &op, &over);
}

static CUresult write_value(struct lane *lane, uint64_t address, uint64_t value, uint32_t width, unsigned int flags)
{
	struct op op = {.kind = OP_WRITE, .write = {address, value, width}};
	uint64_t over;
	CUresult result = check(address, width, flags, WRITE_FLAGS);
	return result ? result : op_submit(lane, &op, &over);
}

#define VALUE(fn, zero, type, work)                                                                                 \
	EXPORT CUresult fn(CUstream stream, CUdeviceptr addr, type value, unsigned int flags)                       \
	{                                                                                                           \
		BEGIN(fn, NEEDS_CONTEXT, .ptr = addr, .value = (int64_t)value, .stream = H(stream));                \
		struct lane lane;                                                                                   \
		DO(lane_of(&call, stream, zero, &lane));                                                            \
		DO(work(&lane, addr, value, sizeof(type), flags));                                                  \
		return END();                                                                                       \
	}
VALUE(cuStreamWaitValue32, LEGACY, uint32_t, wait_value)
VALUE(cuStreamWaitValue32_ptsz, PER_THREAD, uint32_t, wait_value)
VALUE(cuStreamWaitValue32_v2, LEGACY, uint32_t, wait_value)
VALUE(cuStreamWaitValue32_v2_ptsz, PER_THREAD, uint32_t, wait_value)
VALUE(cuStreamWaitValue64, LEGACY, cuuint64_t, wait_value)
VALUE(cuStreamWaitValue64_ptsz, PER_THREAD, cuuint64_t, wait_value)
VALUE(cuStreamWaitValue64_v2, LEGACY, cuuint64_t, wait_value)
VALUE(cuStreamWaitValue64_v2_ptsz, PER_THREAD, cuuint64_t, wait_value)
VALUE(cuStreamWriteValue32, LEGACY, uint32_t, write_value)
VALUE(cuStreamWriteValue32_ptsz, PER_THREAD, uint32_t, write_value)
VALUE(cuStreamWriteValue32_v2, LEGACY, uint32_t, write_value)
VALUE(cuStreamWriteValue32_v2_ptsz, PER_THREAD, uint32_t, write_value)
VALUE(cuStreamWriteValue64, LEGACY, cuuint64_t, write_value)
VALUE(cuStreamWriteValue64_ptsz, PER_THREAD, cuuint64_t, write_value)
VALUE(cuStreamWriteValue64_v2, LEGACY, cuuint64_t, write_value)
VALUE(cuStreamWriteValue64_v2_ptsz, PER_THREAD, cuuint64_t, write_value)

static CUresult memory_op(struct lane *lane, const CUstreamBatchMemOpParams *p)
{
	switch (p->operation) {
	case CU_STREAM_MEM_OP_WAIT_VALUE_32: return wait_value(lane, p->value.address, p->value.value, 4, p->value.flags);
	case CU_STREAM_MEM_OP_WAIT_VALUE_64: return wait_value(lane, p->value.address, p->value.value, 8, p->value.flags);
	case CU_STREAM_MEM_OP_WRITE_VALUE_32: return write_value(lane, p->value.address, p->value.value, 4, p->value.flags);
	case CU_STREAM_MEM_OP_WRITE_VALUE_64: return write_value(lane, p->value.address, p->value.value, 8, p->value.flags);
	case CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES: case CU_STREAM_MEM_OP_BARRIER: return CUDA_SUCCESS;
	}
	return CUDA_ERROR_INVALID_VALUE;
}

static CUresult batch(struct lane *lane, const CUstreamBatchMemOpParams *list, unsigned int count, unsigned int flags)
{
	enum { COUNT_MAX = 256 };
	CUresult result = list && count > 0 && count <= COUNT_MAX && !flags ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	for (unsigned int i = 0; i < count && !result; i++)
		result = memory_op(lane, &list[i]);
	return result;
}

#define BATCH(fn, zero)                                                                                                      \
	EXPORT CUresult fn(CUstream stream, unsigned int count, CUstreamBatchMemOpParams *paramArray, unsigned int flags)    \
	{                                                                                                                    \
		BEGIN(fn, NEEDS_CONTEXT, .value = count, .stream = H(stream));                                               \
		struct lane lane;                                                                                            \
		DO(lane_of(&call, stream, zero, &lane));                                                                     \
		DO(batch(&lane, paramArray, count, flags));                                                                  \
		return END();                                                                                                \
	}
BATCH(cuStreamBatchMemOp, LEGACY)
BATCH(cuStreamBatchMemOp_ptsz, PER_THREAD)
BATCH(cuStreamBatchMemOp_v2, LEGACY)
BATCH(cuStreamBatchMemOp_v2_ptsz, PER_THREAD)
