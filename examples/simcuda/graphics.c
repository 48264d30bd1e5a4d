/* Graphics interoperability without a graphics API. Any non-zero number is the name of a buffer
 * of 64 KiB or an image of 16 KiB. A buffer has an address, and an image an array, while it is
 * mapped. */
#include "memory.h"

enum { BUFFER_BYTES = 64 << 10, ROW_BYTES = 256, ROWS = 64 };

static CUresult add(struct call *call, CUgraphicsResource *out, unsigned int name, bool image)
{
	if (!out || !name)
		return CUDA_ERROR_INVALID_VALUE;
	struct object *o = object_new(GRAPHICS, call->current);
	if (!o)
		return CUDA_ERROR_OUT_OF_MEMORY;
	o->graphics.image = image;
	*out = (CUgraphicsResource)o;
	call->ptr = H(o);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuGraphicsGLRegisterBuffer(CUgraphicsResource *pCudaResource, unsigned int buffer, unsigned int Flags)
{
	BEGIN(cuGraphicsGLRegisterBuffer, NEEDS_CONTEXT, .value = Flags);
	DO(add(&call, pCudaResource, buffer, false));
	return END();
}

EXPORT CUresult cuGraphicsGLRegisterImage(CUgraphicsResource *pCudaResource, unsigned int image, unsigned int target,
					  unsigned int Flags)
{
	BEGIN(cuGraphicsGLRegisterImage, NEEDS_CONTEXT, .value = Flags);
	(void)target;
	DO(add(&call, pCudaResource, image, true));
	return END();
}

static CUresult map_one(struct call *call, struct object *o)
{
	if (!o || o->graphics.mapped)
		return o ? CUDA_ERROR_UNKNOWN : CUDA_ERROR_INVALID_HANDLE;
	if (o->graphics.image && !o->graphics.array) {
		struct object *array = object_new(ARRAY, call->current);
		if (!array)
			return CUDA_ERROR_OUT_OF_MEMORY;
		array->array.device = call->current->ctx.device;
		array->array.row = ROW_BYTES;
		array->array.height = ROWS;
		o->graphics.array = array;
	} else if (!o->graphics.image) {
		o->graphics.address = memory_place(call->current->ctx.device, BUFFER_BYTES, EXTERNAL_MEMORY, NULL, call->current);
		o->graphics.size = BUFFER_BYTES;
		if (!o->graphics.address)
			return CUDA_ERROR_OUT_OF_MEMORY;
	}
	o->graphics.mapped = true;
	return CUDA_SUCCESS;
}

static CUresult unmap_one(struct call *call, struct object *o)
{
	(void)call;
	if (!o || !o->graphics.mapped)
		return o ? CUDA_ERROR_UNKNOWN : CUDA_ERROR_INVALID_HANDLE;
	if (o->graphics.image)
		object_free(o->graphics.array);
	else
		memory_unplace(device_at(o->graphics.address), o->graphics.address);
	o->graphics.array = NULL;
	o->graphics.mapped = false;
	return CUDA_SUCCESS;
}

static CUresult for_each_resource(struct call *call, CUresult (*work)(struct call *, struct object *), const CUgraphicsResource *list,
		     unsigned int n)
{
	CUresult result = list && n ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	for (unsigned int i = 0; i < n && !result; i++)
		result = work(call, object_of(list[i], GRAPHICS));
	return result;
}

#define ON_RESOURCES(fn, zero, work)                                                                     \
	EXPORT CUresult fn(unsigned int count, CUgraphicsResource *resources, CUstream hStream)          \
	{                                                                                                \
		BEGIN(fn, NEEDS_CONTEXT, .ptr = resources && count ? H(resources[0]) : 0,                \
		      .stream = H(hStream), .value = count);                                             \
		struct lane lane;                                                                        \
		DO(lane_of_running(&call, hStream, zero, &lane));                                        \
		DO(for_each_resource(&call, work, resources, count));                                                 \
		return END();                                                                            \
	}
ON_RESOURCES(cuGraphicsMapResources, LEGACY, map_one)
ON_RESOURCES(cuGraphicsMapResources_ptsz, PER_THREAD, map_one)
ON_RESOURCES(cuGraphicsUnmapResources, LEGACY, unmap_one)
ON_RESOURCES(cuGraphicsUnmapResources_ptsz, PER_THREAD, unmap_one)

static CUresult check(const struct object *o, const void *out, bool image)
{
	if (!o)
		return CUDA_ERROR_INVALID_HANDLE;
	return out && o->graphics.mapped && o->graphics.image == image ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuGraphicsResourceGetMappedPointer_v2(CUdeviceptr *pDevPtr, size_t *pSize, CUgraphicsResource resource)
{
	BEGIN(cuGraphicsResourceGetMappedPointer_v2, NEEDS_CONTEXT, .src_ptr = H(resource));
	struct object *o = object_of(resource, GRAPHICS);
	DO(check(o, pDevPtr, false));
	if (!call.result) {
		*pDevPtr = call.ptr = o->graphics.address;
		if (pSize)
			*pSize = call.bytes = o->graphics.size;
	}
	return END();
}

EXPORT CUresult cuGraphicsSubResourceGetMappedArray(CUarray *pArray, CUgraphicsResource resource, unsigned int arrayIndex,
						    unsigned int mipLevel)
{
	BEGIN(cuGraphicsSubResourceGetMappedArray, NEEDS_CONTEXT, .src_ptr = H(resource));
	struct object *o = object_of(resource, GRAPHICS);
	DO(arrayIndex || mipLevel ? CUDA_ERROR_INVALID_VALUE : check(o, pArray, true));
	if (!call.result) {
		*pArray = (CUarray)o->graphics.array;
		call.ptr = H(*pArray);
	}
	return END();
}

/* Returns the resource's array: it has one mipmap level only. */
EXPORT CUresult cuGraphicsResourceGetMappedMipmappedArray(CUmipmappedArray *pMipmappedArray, CUgraphicsResource resource)
{
	BEGIN(cuGraphicsResourceGetMappedMipmappedArray, NEEDS_CONTEXT, .src_ptr = H(resource));
	struct object *o = object_of(resource, GRAPHICS);
	DO(check(o, pMipmappedArray, true));
	if (!call.result) {
		*pMipmappedArray = (CUmipmappedArray)o->graphics.array;
		call.ptr = H(*pMipmappedArray);
	}
	return END();
}

static CUresult unregister(struct call *call, struct object *o)
{
	if (!o)
		return CUDA_ERROR_INVALID_HANDLE;
	if (o->graphics.mapped)
		unmap_one(call, o);
	object_free(o);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuGraphicsUnregisterResource(CUgraphicsResource resource)
{
	BEGIN(cuGraphicsUnregisterResource, NEEDS_CONTEXT, .ptr = H(resource));
	DO(unregister(&call, object_of(resource, GRAPHICS)));
	return END();
}
