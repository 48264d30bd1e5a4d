/* Events. A recorded event stores the time at which the work submitted to its stream so far will
 * end. */
#include "graph.h"

#include "memory.h"

static CUresult event_create(struct call *call, CUevent *out, unsigned int flags)
{
	enum { INTERPROCESS = 4, ALL = CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING | INTERPROCESS };
	if (!out || flags & ~(unsigned)ALL)
		return CUDA_ERROR_INVALID_VALUE;
	struct object *o = object_new(EVENT, call->current);
	if (!o)
		return CUDA_ERROR_OUT_OF_MEMORY;
	o->event.untimed = flags & CU_EVENT_DISABLE_TIMING;
	o->event.slot = o->event.untimed ? NULL : channel_event_slot(call->current);
	*out = (CUevent)o;
	call->ptr = H(o);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuEventCreate(CUevent *phEvent, unsigned int Flags)
{
	BEGIN(cuEventCreate, NEEDS_CONTEXT, .value = Flags);
	DO(event_create(&call, phEvent, Flags));
	return END();
}

static CUresult event_destroy(CUevent event)
{
	struct object *o = object_of(event, EVENT);
	if (!o)
		return CUDA_ERROR_INVALID_HANDLE;
	capture_forget_event(o);
	channel_event_slot_give(o->context, o->event.slot);
	object_free(o);
	return CUDA_SUCCESS;
}

#define EVENT_DESTROY(fn)                                        \
	EXPORT CUresult fn(CUevent hEvent)                       \
	{                                                        \
		BEGIN(fn, NEEDS_CONTEXT, .ptr = H(hEvent));      \
		DO(event_destroy(hEvent));                       \
		return END();                                    \
	}
EVENT_DESTROY(cuEventDestroy)
EVENT_DESTROY(cuEventDestroy_v2)

static CUresult event_record(CUevent event, struct lane *lane, unsigned int flags)
{
	struct object *o = object_of(event, EVENT);
	if (!o || o->context != lane->context)
		return CUDA_ERROR_INVALID_HANDLE;
	if (flags & ~(unsigned)CU_EVENT_RECORD_EXTERNAL)
		return CUDA_ERROR_INVALID_VALUE;
	if (lane->capture && flags == CU_EVENT_RECORD_EXTERNAL) {
		struct op op = {.kind = OP_RECORD, .event = o};
		return capture_op(lane, &op);
	}
	if (lane->capture)
		return capture_record(lane, o);
	capture_forget_event(o);
	uint64_t now = now_ns(), until = lane->queue->until;
	if (channels_on && !o->event.untimed) /* without timing it is no operation */
		until = channel_enqueue(lane, WORK_EVENT, 0, o->event.slot);
	o->event.done_at = until > now ? until : now;
	o->event.host_ticket = lane->queue->host_ticket;
	return CUDA_SUCCESS;
}

#define EVENT_RECORD(fn, zero)                                                           \
	EXPORT CUresult fn(CUevent hEvent, CUstream hStream)                             \
	{                                                                                \
		BEGIN(fn, NEEDS_CONTEXT, .ptr = H(hEvent), .stream = H(hStream));        \
		struct lane lane;                                                        \
		DO(lane_of(&call, hStream, zero, &lane));                                \
		DO(event_record(hEvent, &lane, CU_EVENT_RECORD_DEFAULT));                \
		return END();                                                            \
	}
EVENT_RECORD(cuEventRecord, LEGACY)
EVENT_RECORD(cuEventRecord_ptsz, PER_THREAD)

#define EVENT_RECORD_WITH_FLAGS(fn, zero)                                                             \
	EXPORT CUresult fn(CUevent hEvent, CUstream hStream, unsigned int flags)                      \
	{                                                                                             \
		BEGIN(fn, NEEDS_CONTEXT, .ptr = H(hEvent), .stream = H(hStream), .value = flags);     \
		struct lane lane;                                                                     \
		DO(lane_of(&call, hStream, zero, &lane));                                             \
		DO(event_record(hEvent, &lane, flags));                                               \
		return END();                                                                         \
	}
EVENT_RECORD_WITH_FLAGS(cuEventRecordWithFlags, LEGACY)
EVENT_RECORD_WITH_FLAGS(cuEventRecordWithFlags_ptsz, PER_THREAD)

/* Returns CUDA_SUCCESS if the event has completed. An event that was never recorded counts as
 * completed. */
static CUresult event_query(CUevent event)
{
	struct object *o = object_of(event, EVENT);
	if (!o)
		return CUDA_ERROR_INVALID_HANDLE;
	if (o->event.captured)
		return CUDA_ERROR_CAPTURED_EVENT;
	return !time_reached(o->event.done_at) || !host_done(o->event.host_ticket) ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

EXPORT CUresult cuEventQuery(CUevent hEvent)
{
	BEGIN(cuEventQuery, NEEDS_CONTEXT, .ptr = H(hEvent));
	DO(event_query(hEvent));
	return END();
}

static CUresult event_synchronize(CUevent event)
{
	struct object *o = object_of(event, EVENT);
	if (!o)
		return CUDA_ERROR_INVALID_HANDLE;
	if (o->event.captured)
		return CUDA_ERROR_CAPTURED_EVENT;
	wait_until(o->event.done_at);
	host_wait(o->event.host_ticket);
	pools_trim(o->context->ctx.device);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuEventSynchronize(CUevent hEvent)
{
	BEGIN(cuEventSynchronize, NEEDS_CONTEXT, .ptr = H(hEvent));
	DO(event_synchronize(hEvent));
	return END();
}

static CUresult elapsed(struct call *call, float *out, CUevent start, CUevent end)
{
	struct object *a = object_of(start, EVENT), *b = object_of(end, EVENT);
	if (!out || !a || !b || a->event.untimed || b->event.untimed)
		return CUDA_ERROR_INVALID_HANDLE;
	if (a->event.captured || b->event.captured)
		return CUDA_ERROR_CAPTURED_EVENT;
	uint64_t from = a->event.done_at, to = b->event.done_at;
	if (!from || !to)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!time_reached(from) || !time_reached(to) || !time_known(from, &from) || !time_known(to, &to))
		return CUDA_ERROR_NOT_READY;
	*out = (float)((double)(int64_t)(to - from) / 1e6);
	/* Computed from the rounded float, because a recorder reads that float. */
	double ns = (double)*out * 1e6;
	call->value = (int64_t)(ns < 0 ? ns - 0.5 : ns + 0.5);
	return CUDA_SUCCESS;
}

#define EVENT_ELAPSED_TIME(fn)                                                             \
	EXPORT CUresult fn(float *pMilliseconds, CUevent hStart, CUevent hEnd)             \
	{                                                                                  \
		BEGIN(fn, NEEDS_CONTEXT, .ptr = H(hStart), .src_ptr = H(hEnd));            \
		DO(elapsed(&call, pMilliseconds, hStart, hEnd));                           \
		return END();                                                              \
	}
EVENT_ELAPSED_TIME(cuEventElapsedTime)
EVENT_ELAPSED_TIME(cuEventElapsedTime_v2)

/* ---- events of all work of a context, and IPC events ---- */

static CUresult context_event(struct object *context, CUevent event, bool record)
{
	struct object *o = object_of(event, EVENT);
	if (!context || !o)
		return context ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_INVALID_CONTEXT;
	if (record) {
		uint64_t now = now_ns(), until = context->ctx.until;
		o->event.done_at = until > now ? until : now;
		o->event.host_ticket = context->ctx.host_ticket;
	} else if (!config.instant) {
		timeline_raise(&context->ctx.legacy.until, o->event.done_at);
	}
	return CUDA_SUCCESS;
}

static struct object *made_of(CUgreenCtx green)
{
	struct object *o = object_of(green, GREEN_CONTEXT);
	return o ? o->green.context : NULL;
}

#define CONTEXT_EVENT(fn, type, context_of, record)                                          \
	EXPORT CUresult fn(type hCtx, CUevent hEvent)                                        \
	{                                                                                    \
		BEGIN(fn, NEEDS_INIT, .ptr = H(hEvent), .src_ptr = H(hCtx));                 \
		DO(context_event(context_of(hCtx), hEvent, record));                         \
		return END();                                                                \
	}
#define CONTEXT_OF(ctx) object_of(ctx, CONTEXT)
CONTEXT_EVENT(cuCtxRecordEvent, CUcontext, CONTEXT_OF, true)
CONTEXT_EVENT(cuCtxWaitEvent, CUcontext, CONTEXT_OF, false)
CONTEXT_EVENT(cuGreenCtxRecordEvent, CUgreenCtx, made_of, true)
CONTEXT_EVENT(cuGreenCtxWaitEvent, CUgreenCtx, made_of, false)

static CUresult get_handle(CUipcEventHandle *out, CUevent event)
{
	if (!object_of(event, EVENT))
		return CUDA_ERROR_INVALID_HANDLE;
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	*out = (CUipcEventHandle){{1}};
	return CUDA_SUCCESS;
}

EXPORT CUresult cuIpcGetEventHandle(CUipcEventHandle *pHandle, CUevent event)
{
	BEGIN(cuIpcGetEventHandle, NEEDS_CONTEXT, .ptr = H(event));
	DO(get_handle(pHandle, event));
	return END();
}

/* Returns a completed event: simulated processes do not see each other's streams. */
EXPORT CUresult cuIpcOpenEventHandle(CUevent *phEvent, CUipcEventHandle handle)
{
	BEGIN(cuIpcOpenEventHandle, NEEDS_CONTEXT);
	DO(handle.reserved[0] == 1 ? event_create(&call, phEvent, CU_EVENT_DISABLE_TIMING) : CUDA_ERROR_INVALID_VALUE);
	return END();
}
