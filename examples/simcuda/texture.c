/* Texture and surface objects: views of arrays or of linear memory. simcuda checks the resource and
 * the handle. */
#include "memory.h"

static CUresult check_resource(const CUDA_RESOURCE_DESC *desc, bool surface)
{
	if (!desc || desc->flags)
		return CUDA_ERROR_INVALID_VALUE;
	switch (desc->resType) {
	case CU_RESOURCE_TYPE_ARRAY: return object_of(desc->res.array.hArray, ARRAY) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
	case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY:
		return !surface && object_of(desc->res.mipmap.hMipmappedArray, MIPMAPPED_ARRAY) ? CUDA_SUCCESS :
												  CUDA_ERROR_INVALID_HANDLE;
	case CU_RESOURCE_TYPE_LINEAR: return !surface && desc->res.linear.devPtr ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	}
	return CUDA_ERROR_INVALID_VALUE;
}

static CUresult create(struct call *call, enum kind kind, unsigned long long *out, const CUDA_RESOURCE_DESC *desc)
{
	CUresult result = out ? check_resource(desc, kind == SURFACE) : CUDA_ERROR_INVALID_VALUE;
	if (result)
		return result;
	struct object *o = object_new(kind, call->current);
	if (!o)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*out = H(o);
	call->ptr = H(o);
	return CUDA_SUCCESS;
}

static CUresult destroy(unsigned long long handle, enum kind kind)
{
	struct object *o = object_of((const void *)(uintptr_t)handle, kind);
	if (!o)
		return CUDA_ERROR_INVALID_VALUE;
	object_free(o);
	return CUDA_SUCCESS;
}

/* Sets the ledger columns of a resource: what it is, and its handle or address. */
#define BEGIN_CREATE(fn, desc)                                                                  \
	BEGIN(fn, NEEDS_CONTEXT, .src_ptr = desc ? H(desc->res.array.hArray) : 0,               \
	      .value = desc ? (int64_t)desc->resType : 0)

EXPORT CUresult cuTexObjectCreate(CUtexObject *pTexObject, const CUDA_RESOURCE_DESC *pResDesc, const CUDA_TEXTURE_DESC *pTexDesc,
				  const CUDA_RESOURCE_VIEW_DESC *pResViewDesc)
{
	BEGIN_CREATE(cuTexObjectCreate, pResDesc);
	(void)pResViewDesc;
	DO(pTexDesc ? create(&call, TEXTURE, pTexObject, pResDesc) : CUDA_ERROR_INVALID_VALUE);
	return END();
}

EXPORT CUresult cuTexObjectDestroy(CUtexObject texObject)
{
	BEGIN(cuTexObjectDestroy, NEEDS_CONTEXT, .ptr = texObject);
	DO(destroy(texObject, TEXTURE));
	return END();
}

EXPORT CUresult cuSurfObjectCreate(CUsurfObject *pSurfObject, const CUDA_RESOURCE_DESC *pResDesc)
{
	BEGIN_CREATE(cuSurfObjectCreate, pResDesc);
	DO(create(&call, SURFACE, pSurfObject, pResDesc));
	return END();
}

EXPORT CUresult cuSurfObjectDestroy(CUsurfObject surfObject)
{
	BEGIN(cuSurfObjectDestroy, NEEDS_CONTEXT, .ptr = surfObject);
	DO(destroy(surfObject, SURFACE));
	return END();
}
