/* Streams: creation, destruction, queries and synchronisation. */
#include "graph.h"

#include "memory.h"

static CUresult stream_create(struct call *call, CUstream *out, unsigned int flags, int priority)
{
	if (!out || flags > CU_STREAM_NON_BLOCKING)
		return CUDA_ERROR_INVALID_VALUE;
	struct object *o = object_new(STREAM, call->current);
	if (!o)
		return CUDA_ERROR_OUT_OF_MEMORY;
	o->queue.blocking = !(flags & CU_STREAM_NON_BLOCKING);
	o->queue.high_priority = priority < 0;
	channel_choose(&o->queue, call->current);
	*out = (CUstream)o;
	call->ptr = H(o);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuStreamCreate(CUstream *phStream, unsigned int Flags)
{
	BEGIN(cuStreamCreate, NEEDS_CONTEXT, .value = Flags);
	DO(stream_create(&call, phStream, Flags, 0));
	return END();
}

EXPORT CUresult cuStreamCreateWithPriority(CUstream *phStream, unsigned int flags, int priority)
{
	BEGIN(cuStreamCreateWithPriority, NEEDS_CONTEXT, .value = flags);
	DO(stream_create(&call, phStream, flags, priority)); /* it only selects the channel */
	return END();
}

/* Destroys a stream without waiting: submitted work still completes. */
static CUresult stream_destroy(CUstream stream)
{
	struct object *o = object_of(stream, STREAM);
	if (!o)
		return CUDA_ERROR_INVALID_HANDLE;
	capture_leave(&o->queue);
	channel_leave(&o->queue, H(o));
	object_free(o);
	return CUDA_SUCCESS;
}

#define STREAM_DESTROY(fn)                                                                \
	EXPORT CUresult fn(CUstream hStream)                                              \
	{                                                                                 \
		BEGIN(fn, NEEDS_CONTEXT, .ptr = H(hStream), .stream = H(hStream));        \
		DO(stream_destroy(hStream));                                              \
		return END();                                                             \
	}
STREAM_DESTROY(cuStreamDestroy)
STREAM_DESTROY(cuStreamDestroy_v2)

static CUresult green_stream(struct call *call, CUstream *out, CUgreenCtx green, unsigned int flags)
{
	struct object *o = object_of(green, GREEN_CONTEXT);
	/* Only non-blocking streams are allowed, as in the real driver. */
	if (!o || !o->green.context || flags != CU_STREAM_NON_BLOCKING)
		return o ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_INVALID_CONTEXT;
	CUresult result = stream_create(call, out, flags, 0);
	if (!result)
		object_of(*out, STREAM)->context = o->green.context;
	return result;
}

EXPORT CUresult cuGreenCtxStreamCreate(CUstream *phStream, CUgreenCtx greenCtx, unsigned int flags, int priority)
{
	BEGIN(cuGreenCtxStreamCreate, NEEDS_CONTEXT, .src_ptr = H(greenCtx), .value = flags);
	(void)priority;
	DO(green_stream(&call, phStream, greenCtx, flags));
	return END();
}

static CUresult stream_synchronize(struct lane *lane)
{
	wait_until(lane->queue->until);
	host_wait(lane->queue->host_ticket);
	pools_trim(lane->context->ctx.device);
	return CUDA_SUCCESS;
}

static CUresult stream_query(struct lane *lane)
{
	return !time_reached(lane->queue->until) || !host_done(lane->queue->host_ticket) ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

#define ASK_STREAM(fn, zero, ask)                                      \
	EXPORT CUresult fn(CUstream hStream)                           \
	{                                                              \
		BEGIN(fn, NEEDS_CONTEXT, .stream = H(hStream));        \
		struct lane lane;                                      \
		DO(lane_of_running(&call, hStream, zero, &lane));      \
		DO(ask(&lane));                                        \
		return END();                                          \
	}
ASK_STREAM(cuStreamSynchronize, LEGACY, stream_synchronize)
ASK_STREAM(cuStreamSynchronize_ptsz, PER_THREAD, stream_synchronize)
ASK_STREAM(cuStreamQuery, LEGACY, stream_query)
ASK_STREAM(cuStreamQuery_ptsz, PER_THREAD, stream_query)

static CUresult stream_wait_event(struct lane *lane, CUevent event, unsigned int flags)
{
	enum { EXTERNAL = 1 };
	struct object *e = object_of(event, EVENT);
	if (!e)
		return CUDA_ERROR_INVALID_HANDLE;
	if (flags & ~(unsigned)EXTERNAL)
		return CUDA_ERROR_INVALID_VALUE;
	if (lane->capture && flags == EXTERNAL) {
		struct op op = {.kind = OP_WAIT, .event = e};
		return capture_op(lane, &op);
	}
	if (lane->capture || e->event.captured)
		return capture_wait(lane, e);
	if (!config.instant)
		timeline_raise(&lane->queue->until, e->event.done_at);
	if (e->event.host_ticket)
		timeline_raise(&lane->queue->host_ticket, e->event.host_ticket);
	return CUDA_SUCCESS;
}

#define STREAM_WAIT_EVENT(fn, zero)                                                                        \
	EXPORT CUresult fn(CUstream hStream, CUevent hEvent, unsigned int Flags)                           \
	{                                                                                                  \
		BEGIN(fn, NEEDS_CONTEXT, .ptr = H(hEvent), .stream = H(hStream), .value = Flags);          \
		struct lane lane;                                                                          \
		DO(lane_of(&call, hStream, zero, &lane));                                                  \
		DO(stream_wait_event(&lane, hEvent, Flags));                                               \
		return END();                                                                              \
	}
STREAM_WAIT_EVENT(cuStreamWaitEvent, LEGACY)
STREAM_WAIT_EVENT(cuStreamWaitEvent_ptsz, PER_THREAD)
