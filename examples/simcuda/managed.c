/* What programs say about managed memory. It never moves here: advice is checked and forgotten, prefetching takes time. */
#include "graph.h"

#include "memory.h"

static CUresult advise(CUdeviceptr address, size_t bytes, CUmem_advise advice, CUmemLocation to)
{
	if (!memory_is_managed(address, bytes) || advice < CU_MEM_ADVISE_SET_READ_MOSTLY || advice > CU_MEM_ADVISE_UNSET_ACCESSED_BY)
		return CUDA_ERROR_INVALID_VALUE;
	return to.type == CU_MEM_LOCATION_TYPE_DEVICE && !device_of(to.id) ? CUDA_ERROR_INVALID_DEVICE : CUDA_SUCCESS;
}

/* Before there were locations, the host was device -1. */
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
	lane_enqueue(lane, copy_ns(bytes));
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
