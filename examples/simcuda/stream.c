/* Streams. */
#include "sim.h"

static CUresult stream_create(struct call *call, CUstream *out, unsigned int flags)
{
	if (!out || flags > CU_STREAM_NON_BLOCKING)
		return CUDA_ERROR_INVALID_VALUE;
	struct object *o = object_new(STREAM, call->current);
	if (!o)
		return CUDA_ERROR_OUT_OF_MEMORY;
	*out = (CUstream)o;
	call->ptr = H(o);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuStreamCreate(CUstream *phStream, unsigned int Flags)
{
	BEGIN(cuStreamCreate, NEEDS_CONTEXT, .value = Flags);
	DO(stream_create(&call, phStream, Flags));
	return END();
}

EXPORT CUresult cuStreamCreateWithPriority(CUstream *phStream, unsigned int flags, int priority)
{
	BEGIN(cuStreamCreateWithPriority, NEEDS_CONTEXT, .value = flags);
	(void)priority; /* streams do not compete here */
	DO(stream_create(&call, phStream, flags));
	return END();
}

/* Returns at once: what was submitted still runs to its end on the device. */
static CUresult stream_destroy(CUstream stream)
{
	struct object *o = object_of(stream, STREAM);
	if (!o)
		return CUDA_ERROR_INVALID_HANDLE;
	object_free(o);
	return CUDA_SUCCESS;
}

EXPORT CUresult cuStreamDestroy_v2(CUstream hStream)
{
	BEGIN(cuStreamDestroy_v2, NEEDS_CONTEXT, .ptr = H(hStream), .stream = H(hStream));
	DO(stream_destroy(hStream));
	return END();
}

static CUresult stream_synchronize(struct lane *lane)
{
	wait_until(*lane->until);
	memory_trim_pool(lane->context->ctx.device);
	return CUDA_SUCCESS;
}

#define STREAM_SYNCHRONIZE(fn, zero)                           \
	EXPORT CUresult fn(CUstream hStream)                   \
	{                                                      \
		BEGIN(fn, NEEDS_CONTEXT, .stream = H(hStream)); \
		struct lane lane;                              \
		DO(lane_of(&call, hStream, zero, &lane));      \
		DO(stream_synchronize(&lane));                 \
		return END();                                  \
	}
STREAM_SYNCHRONIZE(cuStreamSynchronize, LEGACY)
STREAM_SYNCHRONIZE(cuStreamSynchronize_ptsz, PER_THREAD)

#define STREAM_QUERY(fn, zero)                                                         \
	EXPORT CUresult fn(CUstream hStream)                                           \
	{                                                                              \
		BEGIN(fn, NEEDS_CONTEXT, .stream = H(hStream));                        \
		struct lane lane;                                                      \
		DO(lane_of(&call, hStream, zero, &lane));                              \
		DO(*lane.until > now_ns() ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS);      \
		return END();                                                          \
	}
STREAM_QUERY(cuStreamQuery, LEGACY)
STREAM_QUERY(cuStreamQuery_ptsz, PER_THREAD)

static CUresult stream_wait_event(struct lane *lane, CUevent event)
{
	struct object *e = object_of(event, EVENT);
	if (!e)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!config.instant)
		timeline_raise(lane->until, e->event.done_at);
	return CUDA_SUCCESS;
}

#define STREAM_WAIT_EVENT(fn, zero)                                                                        \
	EXPORT CUresult fn(CUstream hStream, CUevent hEvent, unsigned int Flags)                           \
	{                                                                                                  \
		BEGIN(fn, NEEDS_CONTEXT, .ptr = H(hEvent), .stream = H(hStream), .value = Flags);          \
		struct lane lane;                                                                          \
		DO(lane_of(&call, hStream, zero, &lane));                                                  \
		DO(stream_wait_event(&lane, hEvent));                                                      \
		return END();                                                                              \
	}
STREAM_WAIT_EVENT(cuStreamWaitEvent, LEGACY)
STREAM_WAIT_EVENT(cuStreamWaitEvent_ptsz, PER_THREAD)
