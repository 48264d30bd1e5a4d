/* Peer access between contexts, and green contexts, which use a part of a device. */
#include "sim.h"

#include <string.h>

/* Enables or disables peer access. The access is stored per device: contexts of one device share
 * their memory in simcuda. */
static CUresult change_peer(struct object *current, CUcontext peer, bool enable)
{
	struct object *o = object_of(peer, CONTEXT);
	if (!o || !context_alive(o))
		return CUDA_ERROR_INVALID_CONTEXT;
	if (o->ctx.device == current->ctx.device)
		return enable ? CUDA_ERROR_INVALID_DEVICE : CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
	uint8_t bit = (uint8_t)(1u << o->ctx.device->ordinal);
	uint8_t old = enable ? atomic_fetch_or(&current->ctx.peers, bit) : atomic_fetch_and(&current->ctx.peers, (uint8_t)~bit);
	if (enable == !(old & bit))
		return CUDA_SUCCESS;
	return enable ? CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED : CUDA_ERROR_PEER_ACCESS_NOT_ENABLED;
}

EXPORT CUresult cuCtxEnablePeerAccess(CUcontext peerContext, unsigned int Flags)
{
	BEGIN(cuCtxEnablePeerAccess, NEEDS_CONTEXT, .ptr = H(peerContext), .value = Flags);
	DO(Flags ? CUDA_ERROR_INVALID_VALUE : change_peer(call.current, peerContext, true));
	return END();
}

EXPORT CUresult cuCtxDisablePeerAccess(CUcontext peerContext)
{
	BEGIN(cuCtxDisablePeerAccess, NEEDS_CONTEXT, .ptr = H(peerContext));
	DO(change_peer(call.current, peerContext, false));
	return END();
}

/* ---- green contexts: device resources → resource description → green context ---- */

static CUresult resource_of(CUdevice dev, CUdevResource *out, CUdevResourceType type)
{
	enum { MULTIPROCESSORS = 132 };
	if (!device_of(dev))
		return CUDA_ERROR_INVALID_DEVICE;
	if (!out || type != CU_DEV_RESOURCE_TYPE_SM)
		return CUDA_ERROR_INVALID_VALUE;
	memset(out, 0, sizeof(*out));
	out->type = type;
	out->sm.smCount = MULTIPROCESSORS;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuDeviceGetDevResource(CUdevice device, CUdevResource *resource, CUdevResourceType type)
{
	BEGIN(cuDeviceGetDevResource, NEEDS_INIT, .value = device);
	DO(resource_of(device, resource, type));
	return END();
}

/* Creates a resource description. CUDA has no call that frees one. */
static CUresult describe(struct call *call, CUdevResourceDesc *out, const CUdevResource *resources, unsigned int n)
{
	if (!out || !resources || n != 1 || resources->type != CU_DEV_RESOURCE_TYPE_SM || !resources->sm.smCount)
		return CUDA_ERROR_INVALID_VALUE;
	struct object *o = object_new(RESOURCES, NULL);
	if (!o)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*out = (CUdevResourceDesc)o;
	call->ptr = H(o);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuDevResourceGenerateDesc(CUdevResourceDesc *phDesc, CUdevResource *resources, unsigned int nbResources)
{
	BEGIN(cuDevResourceGenerateDesc, NEEDS_INIT);
	DO(describe(&call, phDesc, resources, nbResources));
	return END();
}

static CUresult create(struct call *call, CUgreenCtx *out, CUdevResourceDesc desc, CUdevice dev, unsigned int flags)
{
	struct device *d = device_of(dev);
	if (!out || !object_of(desc, RESOURCES) || flags != CU_GREEN_CTX_DEFAULT_STREAM)
		return CUDA_ERROR_INVALID_VALUE;
	if (!d)
		return CUDA_ERROR_INVALID_DEVICE;
	struct object *o = object_new(GREEN_CONTEXT, NULL);
	if (!o)
		return CUDA_ERROR_OUT_OF_MEMORY;
	o->green.device = d;
	*out = (CUgreenCtx)o;
	call->ptr = H(o);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuGreenCtxCreate(CUgreenCtx *phCtx, CUdevResourceDesc desc, CUdevice dev, unsigned int flags)
{
	BEGIN(cuGreenCtxCreate, NEEDS_INIT, .value = dev);
	DO(create(&call, phCtx, desc, dev, flags));
	return END();
}

static CUresult destroy(struct object *o)
{
	if (!o)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (o->green.context)
		context_end_green(o->green.context);
	object_free(o);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuGreenCtxDestroy(CUgreenCtx hCtx)
{
	BEGIN(cuGreenCtxDestroy, NEEDS_INIT, .ptr = H(hCtx));
	DO(destroy(object_of(hCtx, GREEN_CONTEXT)));
	return END();
}

static CUresult to_context(struct call *call, CUcontext *out, struct object *o)
{
	if (!out || !o)
		return out ? CUDA_ERROR_INVALID_CONTEXT : CUDA_ERROR_INVALID_VALUE;
	if (!o->green.context)
		o->green.context = context_new_green(o->green.device);
	*out = (CUcontext)o->green.context;
	call->ptr = H(*out);
	return *out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

EXPORT CUresult cuCtxFromGreenCtx(CUcontext *pContext, CUgreenCtx hCtx)
{
	BEGIN(cuCtxFromGreenCtx, NEEDS_INIT, .src_ptr = H(hCtx));
	DO(to_context(&call, pContext, object_of(hCtx, GREEN_CONTEXT)));
	return END();
}
