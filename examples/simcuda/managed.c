/* Advice, prefetches and discards of managed memory. Managed memory never moves in simcuda:
 * advice is only checked, and prefetches only take time. */
#include "graph.h"

#include "memory.h"

static CUresult advise(CUdeviceptr address, size_t bytes, CUmem_advise advice, CUmemLocation to)
{
	if (!memory_is_managed(address, bytes) || advice < CU_MEM_ADVISE_SET_READ_MOSTLY || advice > CU_MEM_ADVISE_UNSET_ACCESSED_BY)
		return CUDA_ERROR_INVALID_VALUE;
	return to.type == CU_MEM_LOCATION_TYPE_DEVICE && !device_of(to.id) ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

/* Converts a device ordinal to a location. Device -1 is the host, as in functions without
 * locations. */
static CUmemLocation location_of(CUdevice device)
{
	return (CUmemLocation){device == -1 ? CU_MEM_LOCATION_TYPE_HOST : CU_MEM_LOCATION_TYPE_DEVICE, device};
}

EXPORT CUresult cuMemAdvise(CUdeviceptr devPtr, size_t count, CUmem_advise advice, CUdevice device)
{
	BEGIN(cuMemAdvise, NEEDS_CONTEXT, .ptr = devPtr, .bytes = count, .value = advice);
	DO(advise(devPtr, count, advice, location_of(device)));
	return END();
}

EXPORT CUresult cuMemAdvise_v2(CUdeviceptr devPtr, size_t count, CUmem_advise advice, CUmemLocation location)
{
	BEGIN(cuMemAdvise_v2, NEEDS_CONTEXT, .ptr = devPtr, .bytes = count, .value = advice);
	DO(advise(devPtr, count, advice, location));
	return END();
}

static CUresult prefetch(struct lane *lane, CUdeviceptr address, size_t bytes, CUmemLocation to, unsigned int flags)
{
	if (!memory_is_managed(address, bytes) || flags)
		return CUDA_ERROR_INVALID_VALUE;
	if (to.type == CU_MEM_LOCATION_TYPE_DEVICE && !device_of(to.id))
		return CUDA_ERROR_INVALID_DEVICE;
	lane_enqueue(lane, WORK_OTHER, copy_ns(bytes));
	return CUDA_SUCCESS;
}

#define MEM_PREFETCH_ASYNC(fn, zero)                                                                      \
	EXPORT CUresult fn(CUdeviceptr devPtr, size_t count, CUdevice dstDevice, CUstream hStream)        \
	{                                                                                                 \
		BEGIN(fn, NEEDS_CONTEXT, .ptr = devPtr, .bytes = count, .stream = H(hStream));            \
		struct lane lane;                                                                         \
		DO(lane_of_running(&call, hStream, zero, &lane));                                         \
		DO(prefetch(&lane, devPtr, count, location_of(dstDevice), 0));                            \
		return END();                                                                             \
	}
MEM_PREFETCH_ASYNC(cuMemPrefetchAsync, LEGACY)
MEM_PREFETCH_ASYNC(cuMemPrefetchAsync_ptsz, PER_THREAD)

#define MEM_PREFETCH_ASYNC_V2(fn, zero)                                                                                      \
	EXPORT CUresult fn(CUdeviceptr devPtr, size_t count, CUmemLocation location, unsigned int flags, CUstream hStream)   \
	{                                                                                                                    \
		BEGIN(fn, NEEDS_CONTEXT, .ptr = devPtr, .bytes = count, .stream = H(hStream));                               \
		struct lane lane;                                                                                            \
		DO(lane_of_running(&call, hStream, zero, &lane));                                                            \
		DO(prefetch(&lane, devPtr, count, location, flags));                                                         \
		return END();                                                                                                \
	}
MEM_PREFETCH_ASYNC_V2(cuMemPrefetchAsync_v2, LEGACY)
MEM_PREFETCH_ASYNC_V2(cuMemPrefetchAsync_v2_ptsz, PER_THREAD)

static CUresult attach(struct lane *lane, CUdeviceptr address, size_t length, unsigned int flags)
{
	(void)lane;
	if (!memory_is_managed(address, length) ||
	    (flags != CU_MEM_ATTACH_GLOBAL && flags != CU_MEM_ATTACH_HOST && flags != CU_MEM_ATTACH_SINGLE))
		return CUDA_ERROR_INVALID_VALUE;
	return CUDA_SUCCESS;
}

#define STREAM_ATTACH_MEM_ASYNC(fn, zero)                                                                             \
	EXPORT CUresult fn(CUstream hStream, CUdeviceptr dptr, size_t length, unsigned int flags)                     \
	{                                                                                                             \
		BEGIN(fn, NEEDS_CONTEXT, .ptr = dptr, .bytes = length, .stream = H(hStream), .value = flags);         \
		struct lane lane;                                                                                     \
		DO(lane_of_running(&call, hStream, zero, &lane));                                                     \
		DO(attach(&lane, dptr, length, flags));                                                               \
		return END();                                                                                         \
	}
STREAM_ATTACH_MEM_ASYNC(cuStreamAttachMemAsync, LEGACY)
STREAM_ATTACH_MEM_ASYNC(cuStreamAttachMemAsync_ptsz, PER_THREAD)

/* ---- batches of ranges ---- */

static void set_range_columns(struct call *call, const CUdeviceptr *ptrs, const size_t *sizes, size_t count)
{
	call->value = (int64_t)count;
	if (ptrs && count)
		call->ptr = ptrs[0];
	for (size_t i = 0; i < count && sizes; i++)
		call->bytes += sizes[i];
}

/* Simulates a batch of prefetches or discards. A discard takes no time. A prefetch checks only
 * the first location. */
static CUresult ranges(struct lane *lane, const CUdeviceptr *ptrs, const size_t *sizes, size_t count, const CUmemLocation *to,
		       bool prefetched)
{
	CUresult result = ptrs && sizes && count && (to || !prefetched) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	for (size_t i = 0; i < count && !result; i++) {
		if (prefetched)
			result = prefetch(lane, ptrs[i], sizes[i], to[0], 0);
		else if (!memory_is_managed(ptrs[i], sizes[i]))
			result = CUDA_ERROR_INVALID_VALUE;
	}
	return result;
}

#define MEM_PREFETCH_BATCH(fn, zero)                                                                                        \
	EXPORT CUresult fn(CUdeviceptr *dptrs, size_t *sizes, size_t count, CUmemLocation *prefetchLocs,                    \
			   size_t *prefetchLocIdxs, size_t numPrefetchLocs, unsigned long long flags, CUstream hStream)     \
	{                                                                                                                   \
		BEGIN(fn, NEEDS_CONTEXT, .stream = H(hStream));                                                             \
		(void)prefetchLocIdxs, (void)flags;                                                                         \
		struct lane lane;                                                                                           \
		set_range_columns(&call, dptrs, sizes, count);                                                                    \
		DO(lane_of_running(&call, hStream, zero, &lane));                                                           \
		DO(ranges(&lane, dptrs, sizes, count, numPrefetchLocs ? prefetchLocs : NULL, true));                        \
		return END();                                                                                               \
	}
MEM_PREFETCH_BATCH(cuMemPrefetchBatchAsync, LEGACY)
MEM_PREFETCH_BATCH(cuMemPrefetchBatchAsync_ptsz, PER_THREAD)
MEM_PREFETCH_BATCH(cuMemDiscardAndPrefetchBatchAsync, LEGACY)
MEM_PREFETCH_BATCH(cuMemDiscardAndPrefetchBatchAsync_ptsz, PER_THREAD)

#define MEM_DISCARD_BATCH(fn, zero)                                                                                        \
	EXPORT CUresult fn(CUdeviceptr *dptrs, size_t *sizes, size_t count, unsigned long long flags, CUstream hStream)    \
	{                                                                                                                  \
		BEGIN(fn, NEEDS_CONTEXT, .stream = H(hStream));                                                            \
		(void)flags;                                                                                               \
		struct lane lane;                                                                                          \
		set_range_columns(&call, dptrs, sizes, count);                                                                   \
		DO(lane_of_running(&call, hStream, zero, &lane));                                                          \
		DO(ranges(&lane, dptrs, sizes, count, NULL, false));                                                       \
		return END();                                                                                              \
	}
MEM_DISCARD_BATCH(cuMemDiscardBatchAsync, LEGACY)
MEM_DISCARD_BATCH(cuMemDiscardBatchAsync_ptsz, PER_THREAD)
