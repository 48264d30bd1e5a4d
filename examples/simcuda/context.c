/* Contexts: one reference-counted primary context per device, and any number of other contexts.
 * Every thread has a stack of current contexts. */
#include "graph.h"

#include "memory.h"
#include "state.h"

/* Returns true if the context exists and is not destroyed. A primary context keeps its handle
 * for ever: the last release or a reset ends it, and the next retain makes it alive again. */
bool context_alive(struct object *context)
{
	return object_of(context, CONTEXT) && atomic_load_explicit(&context->ctx.alive, memory_order_acquire);
}

static void set_alive(struct object *context, bool alive)
{
	if (atomic_exchange(&context->ctx.alive, alive) != alive)
		state_contexts(context->ctx.device->ordinal, alive ? +1 : -1);
}

static void destroy_owned(struct object *o)
{
	switch ((enum kind)atomic_load(&o->kind)) {
	case MODULE: module_free(o); break;
	case STREAM: capture_leave(&o->queue); channel_leave(&o->queue, H(o)); object_free(o); break;
	case EVENT: capture_forget_event(o); object_free(o); break;
	case ARRAY: case MIPMAPPED_ARRAY: array_free(o); break;
	case EXTERNAL: external_free(o); break;
	case LINK: link_free(o); break;
	case TEXTURE: case SURFACE: object_free(o); break;
	default: break; /* functions are freed with their module */
	}
}

/* Frees everything that a context owns. Destroying or resetting a context calls it. */
void context_empty(struct object *context)
{
	channels_of_context_end(context);
	objects_of_context(context, destroy_owned);
	opened_of_context(context);
	memory_of_context(context);
	context->ctx.peers = 0;
	if (atomic_load(&context->ctx.device->failed) == context)
		atomic_store(&context->ctx.device->failed, NULL);
}

static CUresult push(struct thread *t, struct object *context)
{
	if (t->depth == CONTEXT_STACK)
		return CUDA_ERROR_INVALID_CONTEXT;
	t->stack[t->depth++] = context;
	return CUDA_SUCCESS;
}

static struct object *create(struct device *d, bool primary)
{
	struct object *o = object_new(CONTEXT, NULL);
	if (!o)
		return NULL;
	o->ctx.device = d;
	o->ctx.primary = primary;
	return o;
}

static CUresult primary_retain(struct call *call, CUcontext *out, CUdevice dev)
{
	struct device *d = device_of(dev);
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	if (!d)
		return CUDA_ERROR_INVALID_DEVICE;
	pthread_mutex_lock(&d->lock);
	if (!d->primary)
		d->primary = create(d, true);
	if (d->primary) {
		d->primary_refs++;
		set_alive(d->primary, true);
	}
	*out = (CUcontext)d->primary;
	call->ptr = H(d->primary);
	pthread_mutex_unlock(&d->lock);
	return *out ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

static CUresult primary_release(CUdevice dev)
{
	struct device *d = device_of(dev);
	if (!d)
		return CUDA_ERROR_INVALID_DEVICE;
	pthread_mutex_lock(&d->lock);
	int left = d->primary_refs > 0 ? --d->primary_refs : -1;
	pthread_mutex_unlock(&d->lock);
	if (left < 0)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (left == 0) {
		set_alive(d->primary, false);
		context_empty(d->primary);
	}
	return CUDA_SUCCESS;
}

static CUresult primary_reset(CUdevice dev)
{
	struct device *d = device_of(dev);
	if (!d)
		return CUDA_ERROR_INVALID_DEVICE;
	if (d->primary) {
		set_alive(d->primary, false);
		context_empty(d->primary);
	}
	return CUDA_SUCCESS;
}

EXPORT CUresult cuDevicePrimaryCtxRetain(CUcontext *pctx, CUdevice dev)
{
	BEGIN(cuDevicePrimaryCtxRetain, NEEDS_INIT, .value = dev);
	DO(primary_retain(&call, pctx, dev));
	return END();
}

/* The first version of each call (without _v2) has the same arguments as the second. */
#define PRIMARY_CTX(fn, work)                              \
	EXPORT CUresult fn(CUdevice dev)                   \
	{                                                  \
		BEGIN(fn, NEEDS_INIT, .value = dev);       \
		DO(work(dev));                             \
		return END();                              \
	}
PRIMARY_CTX(cuDevicePrimaryCtxRelease_v2, primary_release)
PRIMARY_CTX(cuDevicePrimaryCtxRelease, primary_release)
PRIMARY_CTX(cuDevicePrimaryCtxReset_v2, primary_reset)
PRIMARY_CTX(cuDevicePrimaryCtxReset, primary_reset)

static CUresult context_create(struct call *call, CUcontext *out, CUdevice dev)
{
	struct device *d = device_of(dev);
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	if (!d)
		return CUDA_ERROR_INVALID_DEVICE;
	struct object *o = create(d, false);
	if (!o)
		return CUDA_ERROR_OUT_OF_MEMORY;
	CUresult result = push(call->thread, o);
	if (result) {
		object_free(o);
		return result;
	}
	set_alive(o, true);
	*out = (CUcontext)o;
	call->ptr = H(o);
	return CUDA_SUCCESS;
}

#define CTX_CREATE(fn)                                                                \
	EXPORT CUresult fn(CUcontext *pctx, unsigned int flags, CUdevice dev)         \
	{                                                                             \
		BEGIN(fn, NEEDS_INIT, .value = dev);                                  \
		(void)flags;                                                          \
		DO(context_create(&call, pctx, dev));                                 \
		return END();                                                         \
	}
CTX_CREATE(cuCtxCreate)
CTX_CREATE(cuCtxCreate_v2)
CTX_CREATE(cuGLCtxCreate)
CTX_CREATE(cuGLCtxCreate_v2)

#define VDPAU_CTX_CREATE(fn)                                                                                        \
	EXPORT CUresult fn(CUcontext *pCtx, unsigned int flags, CUdevice device, uint32_t vdpDevice,                \
			   void *vdpGetProcAddress)                                                                 \
	{                                                                                                           \
		BEGIN(fn, NEEDS_INIT, .value = device);                                                             \
		(void)flags, (void)vdpDevice, (void)vdpGetProcAddress;                                              \
		DO(context_create(&call, pCtx, device));                                                            \
		return END();                                                                                       \
	}
VDPAU_CTX_CREATE(cuVDPAUCtxCreate)
VDPAU_CTX_CREATE(cuVDPAUCtxCreate_v2)

EXPORT CUresult cuCtxCreate_v3(CUcontext *pctx, CUexecAffinityParam *paramsArray, int numParams, unsigned int flags, CUdevice dev)
{
	BEGIN(cuCtxCreate_v3, NEEDS_INIT, .value = dev);
	(void)paramsArray, (void)numParams, (void)flags;
	DO(context_create(&call, pctx, dev));
	return END();
}

EXPORT CUresult cuCtxCreate_v4(CUcontext *pctx, CUctxCreateParams *ctxCreateParams, unsigned int flags, CUdevice dev)
{
	BEGIN(cuCtxCreate_v4, NEEDS_INIT, .value = dev);
	(void)ctxCreateParams, (void)flags;
	DO(context_create(&call, pctx, dev));
	return END();
}

/* Creates the context of a green context. Its life ends with the green context. */
struct object *context_new_green(struct device *d)
{
	struct object *o = create(d, false);
	if (o) {
		o->ctx.green = true;
		set_alive(o, true);
	}
	return o;
}

void context_end_green(struct object *context)
{
	set_alive(context, false);
	context_empty(context);
	object_free(context);
}

static CUresult context_destroy(struct call *call, CUcontext ctx)
{
	struct object *o = object_of(ctx, CONTEXT);
	struct thread *t = call->thread;
	if (!o || o->ctx.primary || o->ctx.green)
		return CUDA_ERROR_INVALID_CONTEXT;
	set_alive(o, false);
	context_empty(o);
	object_free(o);
	if (t->depth > 0 && t->stack[t->depth - 1] == o)
		t->depth--;
	return CUDA_SUCCESS;
}

#define CTX_DESTROY(fn)                                         \
	EXPORT CUresult fn(CUcontext ctx)                       \
	{                                                       \
		BEGIN(fn, NEEDS_INIT, .ptr = H(ctx));           \
		DO(context_destroy(&call, ctx));                \
		return END();                                   \
	}
CTX_DESTROY(cuCtxDestroy)
CTX_DESTROY(cuCtxDestroy_v2)

static CUresult attach(struct call *call, CUcontext *out, unsigned int flags)
{
	if (!out || flags)
		return CUDA_ERROR_INVALID_VALUE;
	call->current->ctx.attached++;
	*out = (CUcontext)call->current;
	call->ptr = call->context;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxAttach(CUcontext *pctx, unsigned int flags)
{
	BEGIN(cuCtxAttach, NEEDS_CONTEXT);
	DO(attach(&call, pctx, flags));
	return END();
}

static CUresult detach(struct call *call, CUcontext ctx)
{
	struct object *o = object_of(ctx, CONTEXT);
	if (!o || !o->ctx.attached)
		return context_destroy(call, ctx);
	o->ctx.attached--;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxDetach(CUcontext ctx)
{
	BEGIN(cuCtxDetach, NEEDS_INIT, .ptr = H(ctx));
	DO(detach(&call, ctx));
	return END();
}

static CUresult set_current(struct thread *t, CUcontext ctx)
{
	if (!ctx) {
		if (t->depth > 0)
			t->depth--;
		return CUDA_SUCCESS;
	}
	struct object *o = object_of(ctx, CONTEXT);
	if (!o)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (t->depth == 0)
		return push(t, o);
	t->stack[t->depth - 1] = o;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxSetCurrent(CUcontext ctx)
{
	BEGIN(cuCtxSetCurrent, NEEDS_INIT, .ptr = H(ctx));
	DO(set_current(call.thread, ctx));
	return END();
}

EXPORT CUresult cuCtxGetCurrent(CUcontext *pctx)
{
	BEGIN(cuCtxGetCurrent, NEEDS_INIT);
	DO(pctx ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
	if (!call.result) {
		*pctx = (CUcontext)call.current;
		call.ptr = call.context;
	}
	return END();
}

#define CTX_PUSH_CURRENT(fn)                                                     \
	EXPORT CUresult fn(CUcontext ctx)                                        \
	{                                                                        \
		BEGIN(fn, NEEDS_INIT, .ptr = H(ctx));                            \
		struct object *o = object_of(ctx, CONTEXT);                      \
		DO(o ? push(call.thread, o) : CUDA_ERROR_INVALID_CONTEXT);       \
		return END();                                                    \
	}
CTX_PUSH_CURRENT(cuCtxPushCurrent)
CTX_PUSH_CURRENT(cuCtxPushCurrent_v2)

static CUresult pop(struct call *call, CUcontext *out)
{
	if (!call->current)
		return CUDA_ERROR_INVALID_CONTEXT;
	call->thread->depth--;
	call->ptr = call->context;
	if (out)
		*out = (CUcontext)call->current;
	return CUDA_SUCCESS;
}

#define CTX_POP_CURRENT(fn)                        \
	EXPORT CUresult fn(CUcontext *pctx)        \
	{                                          \
		BEGIN(fn, NEEDS_INIT);             \
		DO(pop(&call, pctx));              \
		return END();                      \
	}
CTX_POP_CURRENT(cuCtxPopCurrent)
CTX_POP_CURRENT(cuCtxPopCurrent_v2)

EXPORT CUresult cuCtxGetDevice(CUdevice *device)
{
	BEGIN(cuCtxGetDevice, NEEDS_INIT); /* succeeds for a destroyed context too */
	DO(call.current ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT);
	DO(device ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
	if (!call.result)
		call.value = *device = call.device;
	return END();
}

static CUresult device_of_context(struct call *call, CUdevice *out, CUcontext ctx)
{
	struct object *o = ctx ? object_of(ctx, CONTEXT) : call->current;
	if (!o)
		return CUDA_ERROR_INVALID_CONTEXT;
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	call->value = *out = o->ctx.device->ordinal;
	return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxGetDevice_v2(CUdevice *device, CUcontext ctx)
{
	BEGIN(cuCtxGetDevice_v2, NEEDS_INIT, .ptr = H(ctx));
	DO(device_of_context(&call, device, ctx));
	return END();
}

static CUresult synchronize(struct object *context)
{
	if (!context)
		return CUDA_ERROR_INVALID_CONTEXT;
	CUresult result = capture_forbids_waiting(context);
	if (result)
		return result;
	wait_until(context->ctx.until);
	host_wait(context->ctx.host_ticket);
	pools_trim(context->ctx.device);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuCtxSynchronize(void)
{
	BEGIN(cuCtxSynchronize, NEEDS_CONTEXT);
	DO(synchronize(call.current));
	return END();
}

EXPORT CUresult cuCtxSynchronize_v2(CUcontext ctx)
{
	BEGIN(cuCtxSynchronize_v2, NEEDS_INIT, .ptr = H(ctx));
	struct object *o = ctx ? object_of(ctx, CONTEXT) : call.current;
	DO(o && !context_alive(o) ? CUDA_ERROR_CONTEXT_IS_DESTROYED : CUDA_SUCCESS);
	DO(synchronize(o));
	return END();
}

static CUresult set_limit(CUlimit limit)
{
	return (unsigned)limit <= CU_LIMIT_PERSISTING_L2_CACHE_SIZE ? CUDA_SUCCESS : CUDA_ERROR_UNSUPPORTED_LIMIT;
}

EXPORT CUresult cuCtxSetLimit(CUlimit limit, size_t value)
{
	BEGIN(cuCtxSetLimit, NEEDS_CONTEXT, .value = limit, .bytes = value);
	DO(set_limit(limit)); /* checked only: no limit has an effect in simcuda */
	return END();
}
