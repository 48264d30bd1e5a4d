/* CUDA arrays. A simulated array has a size and no address; its bytes count as device memory. */
#include "memory.h"

static uint64_t element_bytes(CUarray_format format)
{
	switch (format) {
	case CU_AD_FORMAT_UNSIGNED_INT8: case CU_AD_FORMAT_SIGNED_INT8: return 1;
	case CU_AD_FORMAT_UNSIGNED_INT16: case CU_AD_FORMAT_SIGNED_INT16: case CU_AD_FORMAT_HALF: return 2;
	case CU_AD_FORMAT_UNSIGNED_INT32: case CU_AD_FORMAT_SIGNED_INT32: case CU_AD_FORMAT_FLOAT: return 4;
	}
	return 0;
}

static uint64_t at_least_1(uint64_t n)
{
	return n ? n : 1;
}

static uint64_t array_bytes(const CUDA_ARRAY3D_DESCRIPTOR *d)
{
	return d->Width * at_least_1(d->Height) * at_least_1(d->Depth) * d->NumChannels * element_bytes(d->Format);
}

static CUDA_ARRAY3D_DESCRIPTOR flat(const CUDA_ARRAY_DESCRIPTOR *d)
{
	return (CUDA_ARRAY3D_DESCRIPTOR){d->Width, d->Height, 0, d->Format, d->NumChannels, 0};
}

static bool is_valid(const CUDA_ARRAY3D_DESCRIPTOR *d)
{
	enum { SIDE_MAX = 1 << 17 };
	return d->Width > 0 && d->Width <= SIDE_MAX && d->Height <= SIDE_MAX && d->Depth <= SIDE_MAX && element_bytes(d->Format) &&
	       (d->NumChannels == 1 || d->NumChannels == 2 || d->NumChannels == 4);
}

/* Returns the bytes of all mipmap levels. Each level has half the width, height and depth of the
 * level before. */
static uint64_t mipmapped_bytes(CUDA_ARRAY3D_DESCRIPTOR d, unsigned int levels)
{
	uint64_t sum = 0;
	for (unsigned int i = 0; i < levels; i++) {
		sum += array_bytes(&d);
		d.Width = at_least_1(d.Width / 2);
		d.Height /= 2;
		d.Depth /= 2;
	}
	return sum;
}

static CUresult create(struct call *call, enum kind kind, const CUDA_ARRAY3D_DESCRIPTOR *desc, unsigned int levels,
		       struct object **out)
{
	if (!desc || !is_valid(desc) || !levels)
		return CUDA_ERROR_INVALID_VALUE;
	struct device *d = call->current->ctx.device;
	uint64_t bytes = (mipmapped_bytes(*desc, levels) + 511) & ~511ull;
	struct object *o = object_new(kind, call->current);
	if (!o || !memory_charge(d, bytes)) {
		if (o)
			object_free(o);
		return CUDA_ERROR_OUT_OF_MEMORY;
	}
	o->array.device = d;
	o->array.charged = bytes;
	o->array.row = desc->Width * desc->NumChannels * element_bytes(desc->Format);
	o->array.height = desc->Height;
	o->array.depth = desc->Depth;
	*out = o;
	call->ptr = H(o);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuArrayCreate_v2(CUarray *pHandle, const CUDA_ARRAY_DESCRIPTOR *pAllocateArray)
{
	BEGIN(cuArrayCreate_v2, NEEDS_CONTEXT);
	struct object *o = NULL;
	CUDA_ARRAY3D_DESCRIPTOR desc = {0};
	if (pAllocateArray)
		desc = flat(pAllocateArray);
	call.bytes = array_bytes(&desc);
	DO(unsafe_in_capture(&call));
	DO(pHandle ? create(&call, ARRAY, &desc, 1, &o) : CUDA_ERROR_INVALID_VALUE);
	if (!call.result)
		*pHandle = (CUarray)o;
	return END();
}

EXPORT CUresult cuArray3DCreate_v2(CUarray *pHandle, const CUDA_ARRAY3D_DESCRIPTOR *pAllocateArray)
{
	BEGIN(cuArray3DCreate_v2, NEEDS_CONTEXT, .bytes = pAllocateArray ? array_bytes(pAllocateArray) : 0);
	struct object *o = NULL;
	DO(unsafe_in_capture(&call));
	DO(pHandle ? create(&call, ARRAY, pAllocateArray, 1, &o) : CUDA_ERROR_INVALID_VALUE);
	if (!call.result)
		*pHandle = (CUarray)o;
	return END();
}

EXPORT CUresult cuMipmappedArrayCreate(CUmipmappedArray *pHandle, const CUDA_ARRAY3D_DESCRIPTOR *pMipmappedArrayDesc,
				       unsigned int numMipmapLevels)
{
	BEGIN(cuMipmappedArrayCreate, NEEDS_CONTEXT, .bytes = pMipmappedArrayDesc ? array_bytes(pMipmappedArrayDesc) : 0,
	      .value = numMipmapLevels);
	struct object *o = NULL;
	DO(unsafe_in_capture(&call));
	DO(pHandle ? create(&call, MIPMAPPED_ARRAY, pMipmappedArrayDesc, numMipmapLevels, &o) : CUDA_ERROR_INVALID_VALUE);
	if (!call.result)
		*pHandle = (CUmipmappedArray)o;
	return END();
}

void array_free(struct object *array)
{
	memory_discharge(array->array.device, array->array.charged);
	object_free(array);
}

static CUresult destroy(struct object *array)
{
	if (!array)
		return CUDA_ERROR_INVALID_HANDLE;
	array_free(array);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuArrayDestroy(CUarray hArray)
{
	BEGIN(cuArrayDestroy, NEEDS_CONTEXT, .ptr = H(hArray));
	DO(unsafe_in_capture(&call));
	DO(destroy(object_of(hArray, ARRAY)));
	return END();
}

EXPORT CUresult cuMipmappedArrayDestroy(CUmipmappedArray hMipmappedArray)
{
	BEGIN(cuMipmappedArrayDestroy, NEEDS_CONTEXT, .ptr = H(hMipmappedArray));
	DO(unsafe_in_capture(&call));
	DO(destroy(object_of(hMipmappedArray, MIPMAPPED_ARRAY)));
	return END();
}

/* Creates a mipmapped array over the memory of another API. Its bytes are not charged to any
 * process. */
static CUresult map_external(struct call *call, CUmipmappedArray *out, struct object *memory,
			     const CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC *desc)
{
	if (!memory)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!out || !desc || !desc->numLevels || desc->offset > memory->external.size)
		return CUDA_ERROR_INVALID_VALUE;
	struct object *o = object_new(MIPMAPPED_ARRAY, call->current);
	if (!o)
		return CUDA_ERROR_OUT_OF_MEMORY;
	o->array.device = call->current->ctx.device;
	*out = (CUmipmappedArray)o;
	call->ptr = H(o);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuExternalMemoryGetMappedMipmappedArray(CUmipmappedArray *mipmap, CUexternalMemory extMem,
							const CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC *mipmapDesc)
{
	BEGIN(cuExternalMemoryGetMappedMipmappedArray, NEEDS_CONTEXT, .src_ptr = H(extMem));
	DO(map_external(&call, mipmap, object_of(extMem, EXTERNAL), mipmapDesc));
	return END();
}

/* Checks the arguments of cuMemMapArrayAsync. simcuda has no sparse arrays: every array already
 * has its memory. */
static CUresult map_arrays(const CUarrayMapInfo *list, unsigned int n)
{
	CUresult result = list && n ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	for (unsigned int i = 0; i < n && !result; i++)
		if (!object_of(list[i].resource.array, ARRAY) || (list[i].memHandle && !physical_of(list[i].memHandle)))
			result = CUDA_ERROR_INVALID_VALUE;
	return result;
}

#define MEM_MAP_ARRAY_ASYNC(fn, zero)                                                                        \
	EXPORT CUresult fn(CUarrayMapInfo *mapInfoList, unsigned int count, CUstream hStream)                \
	{                                                                                                    \
		BEGIN(fn, NEEDS_CONTEXT, .stream = H(hStream), .value = count);                              \
		struct lane lane;                                                                            \
		if (mapInfoList && count) {                                                                  \
			call.ptr = H(mapInfoList[0].resource.array);                                         \
			call.src_ptr = mapInfoList[0].memHandle;                                             \
		}                                                                                            \
		DO(lane_of_running(&call, hStream, zero, &lane));                                            \
		DO(map_arrays(mapInfoList, count));                                                          \
		return END();                                                                                \
	}
MEM_MAP_ARRAY_ASYNC(cuMemMapArrayAsync, LEGACY)
MEM_MAP_ARRAY_ASYNC(cuMemMapArrayAsync_ptsz, PER_THREAD)
