/*
 * Simulated time. Each stream has one number: the time at which all work submitted so far will be
 * complete. New work starts when the stream is idle and moves this time forward. To wait is to
 * sleep until this time. Streams run in parallel at full speed. Simplification: the legacy default
 * stream does not wait for other streams.
 */
#include "graph.h"
#include "state.h"

#include <errno.h>

CUresult lane_of(struct call *call, CUstream stream, enum default_stream zero, struct lane *lane)
{
	lane->call = call;
	lane->context = call->current;
	if ((!stream && zero == PER_THREAD) || stream == CU_STREAM_PER_THREAD) {
		lane->queue = &call->thread->queue;
	} else if (!stream || stream == CU_STREAM_LEGACY) {
		lane->queue = &call->current->ctx.legacy;
		/* The legacy stream cannot capture. Its use would make capturing streams wait,
		 * which is an error. */
		lane->capture = NULL;
		return call->current->ctx.captures ? capture_implicit(call->current) : CUDA_SUCCESS;
	} else {
		struct object *o = object_of(stream, STREAM);
		if (!o)
			return CUDA_ERROR_INVALID_HANDLE;
		lane->context = o->context;
		lane->queue = &o->queue;
	}
	lane->capture = atomic_load_explicit(&lane->queue->capture, memory_order_acquire);
	return lane->capture && lane->capture->capture.invalid ? CUDA_ERROR_STREAM_CAPTURE_INVALIDATED : CUDA_SUCCESS;
}

CUresult lane_of_running(struct call *call, CUstream stream, enum default_stream zero, struct lane *lane)
{
	CUresult result = lane_of(call, stream, zero, lane);
	return !result && lane->capture ? capture_unsupported(lane) : result;
}

void timeline_raise(_Atomic uint64_t *until, uint64_t to)
{
	uint64_t old = atomic_load(until), later;
	while ((later = time_later(old, to)) != old && !atomic_compare_exchange_weak(until, &old, later))
		;
}

uint64_t kernel_ns(const char *name, const uint32_t grid[3])
{
	return channels_on ? channel_kernel_ns(name, grid) : config.kernel_ns;
}

uint64_t lane_enqueue(struct lane *lane, enum work_kind kind, uint64_t duration)
{
	if (channels_on)
		return channel_enqueue(lane, kind, duration, NULL);
	const struct gate *gate = lane->call->gate.end ? &lane->call->gate : NULL;
	int device = lane->context->ctx.device->ordinal;
	if (config.instant) {
		if (gate) /* other ranks wait for the start of this kernel */
			gate_open(gate, now_ns(), device);
		return 0;
	}
	uint64_t opened = 0, now = now_ns(), old = atomic_load(&lane->queue->until), start, end;
	do {
		start = time_later(old, now);
		if (gate && !opened)
			opened = gate_open(gate, start, device);
		end = gate ? opened : time_add(start, duration);
	} while (!atomic_compare_exchange_weak(&lane->queue->until, &old, end));
	timeline_raise(&lane->context->ctx.until, end);
	if (end < UNKNOWN_TIME)
		state_busy(device, start, end);
	return end;
}

bool time_reached(uint64_t when)
{
	if (!time_known(when, &when) || when > now_ns())
		return false;
	if (channels_on)
		channels_publish(when); /* an operation is over when its slot says so */
	return true;
}

void wait_until(uint64_t when)
{
	if (when == 0 || time_reached(when))
		return;
	when = time_wait(when);
	struct timespec t = {.tv_sec = (time_t)(when / 1000000000), .tv_nsec = (long)(when % 1000000000)};
	while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR)
		;
	time_reached(when);
}

uint64_t copy_ns(uint64_t bytes)
{
	return (uint64_t)((double)bytes / config.bytes_per_ns);
}
