/* The random calls of storm. The choice of calls depends only on the seed, not on results that
 * vary with other threads or the clock. */
#include "storm.h"

#include <stdio.h>
#include <stdlib.h>

/* Functions that recorders see as named stack frames. */
#define STACK_FRAME __attribute__((noinline))

const char storm_ptx[] =
	".version 7.0\n.target sm_52\n.address_size 64\n"
	".visible .entry _Z4gemmPKfS0_Pfi() { ret; }\n"
	".visible .entry _Z7softmaxPfi() { ret; }\n"
	".visible .entry _Z10layer_normPKfPfi() { ret; }\n"
	".visible .entry _Z4geluPfi() { ret; }\n"
	".visible .entry _Z9embeddingPKiPKfPfi() { ret; }\n"
	".visible .entry _ZN4adam4stepEPfS0_f() { ret; }\n"
	".visible .entry _Z6reduceIfLi256EEvPKT_PS0_i() { ret; }\n"
	".visible .entry scale_kernel() { ret; }\n";

const size_t storm_ptx_size = sizeof(storm_ptx);

const char *const storm_kernels[KERNELS] = {
	"_Z4gemmPKfS0_Pfi", "_Z7softmaxPfi", "_Z10layer_normPKfPfi", "_Z4geluPfi",
	"_Z9embeddingPKiPKfPfi", "_ZN4adam4stepEPfS0_f", "_Z6reduceIfLi256EEvPKT_PS0_i", "scale_kernel",
};

enum { UNKNOWN_POINTER = 0xdead000 };
#define HUGE_BYTES ((size_t)1 << 50)
#define UNKNOWN_HANDLE 0xbad0

/* Accepts CUDA_SUCCESS and CUDA_ERROR_NOT_READY: completion depends on time. */
#define EXPECT_DONE_OR_NOT(fn, ...)                                                             \
	do {                                                                                    \
		CUresult got = CALL(fn, __VA_ARGS__);                                           \
		w->unexpected += got != CUDA_SUCCESS && got != CUDA_ERROR_NOT_READY;            \
	} while (0)

uint32_t below(struct worker *w, uint32_t n)
{
	w->random ^= w->random << 13;
	w->random ^= w->random >> 7;
	w->random ^= w->random << 17;
	return (uint32_t)((w->random >> 32) % n);
}

CUstream any_stream(struct worker *w)
{
	return w->streams[below(w, STREAMS + 1)];
}

STACK_FRAME static void launch(struct worker *w)
{
	CUfunction f = w->functions[below(w, KERNELS)];
	CUlaunchConfig c = {
		.gridDimX = 1 + below(w, 4096), .gridDimY = 1 + below(w, 4), .gridDimZ = 1 + below(w, 2),
		.blockDimX = 32 * (1 + below(w, 8)), .blockDimY = 1 + below(w, 2), .blockDimZ = 1 + below(w, 2),
		.sharedMemBytes = 1024 * below(w, 48), .hStream = any_stream(w),
	};
	void *arguments[1] = {NULL};
#define AS_ARGUMENTS f, c.gridDimX, c.gridDimY, c.gridDimZ, c.blockDimX, c.blockDimY, c.blockDimZ, c.sharedMemBytes, c.hStream
	uint32_t which = below(w, 10);
	if (which < 6)
		EXPECT(CUDA_SUCCESS, cuLaunchKernel, AS_ARGUMENTS, arguments, NULL);
	else if (which < 7)
		EXPECT(CUDA_SUCCESS, cuLaunchKernel_ptsz, AS_ARGUMENTS, arguments, NULL);
	else if (which < 9)
		EXPECT(CUDA_SUCCESS, cuLaunchKernelEx, &c, f, arguments, NULL);
	else
		EXPECT(CUDA_SUCCESS, cuLaunchKernelEx_ptsz, &c, f, arguments, NULL);
}

STACK_FRAME static void copy(struct worker *w)
{
	size_t n = 4 * (1 + below(w, BUFFER_BYTES / 4));
	CUdeviceptr host = (CUdeviceptr)(uintptr_t)w->host;
	CUstream s = any_stream(w);
	switch (below(w, 16)) {
	case 0: EXPECT(CUDA_SUCCESS, cuMemcpyHtoD_v2, w->buffer_a, w->host, n); break;
	case 1: EXPECT(CUDA_SUCCESS, cuMemcpyDtoH_v2, w->host, w->buffer_a, n); break;
	case 2: EXPECT(CUDA_SUCCESS, cuMemcpyDtoD_v2, w->buffer_b, w->buffer_a, n); break;
	case 3: EXPECT(CUDA_SUCCESS, cuMemcpyHtoD_v2_ptds, w->buffer_a, w->host, n); break;
	case 4: EXPECT(CUDA_SUCCESS, cuMemcpyDtoH_v2_ptds, w->host, w->buffer_a, n); break;
	case 5: EXPECT(CUDA_SUCCESS, cuMemcpyDtoD_v2_ptds, w->buffer_b, w->buffer_a, n); break;
	case 6: EXPECT(CUDA_SUCCESS, cuMemcpyHtoDAsync_v2, w->buffer_a, w->host, n, s); break;
	case 7: EXPECT(CUDA_SUCCESS, cuMemcpyDtoHAsync_v2, w->host, w->buffer_a, n, s); break;
	case 8: EXPECT(CUDA_SUCCESS, cuMemcpyDtoDAsync_v2, w->buffer_b, w->buffer_a, n, s); break;
	case 9: EXPECT(CUDA_SUCCESS, cuMemcpyHtoDAsync_v2_ptsz, w->buffer_a, w->host, n, s); break;
	case 10: EXPECT(CUDA_SUCCESS, cuMemcpyDtoHAsync_v2_ptsz, w->host, w->buffer_a, n, s); break;
	case 11: EXPECT(CUDA_SUCCESS, cuMemcpyDtoDAsync_v2_ptsz, w->buffer_b, w->buffer_a, n, s); break;
	case 12: EXPECT(CUDA_SUCCESS, cuMemcpy, w->buffer_a, host, n); break;
	case 13: EXPECT(CUDA_SUCCESS, cuMemcpy_ptds, host, w->buffer_a, n); break;
	case 14: EXPECT(CUDA_SUCCESS, cuMemcpyAsync, w->buffer_b, host, n, s); break;
	case 15: EXPECT(CUDA_SUCCESS, cuMemcpyAsync_ptsz, w->buffer_b, w->buffer_a, n, s); break;
	}
}

STACK_FRAME static void set(struct worker *w)
{
	size_t n = 1 + below(w, BUFFER_BYTES / 4);
	CUstream s = any_stream(w);
	switch (below(w, 8)) {
	case 0: EXPECT(CUDA_SUCCESS, cuMemsetD8_v2, w->buffer_a, 1, n); break;
	case 1: EXPECT(CUDA_SUCCESS, cuMemsetD32_v2, w->buffer_a, 2, n); break;
	case 2: EXPECT(CUDA_SUCCESS, cuMemsetD8_v2_ptds, w->buffer_a, 3, n); break;
	case 3: EXPECT(CUDA_SUCCESS, cuMemsetD32_v2_ptds, w->buffer_a, 4, n); break;
	case 4: EXPECT(CUDA_SUCCESS, cuMemsetD8Async, w->buffer_b, 5, n, s); break;
	case 5: EXPECT(CUDA_SUCCESS, cuMemsetD32Async, w->buffer_b, 6, n, s); break;
	case 6: EXPECT(CUDA_SUCCESS, cuMemsetD8Async_ptsz, w->buffer_b, 7, n, s); break;
	case 7: EXPECT(CUDA_SUCCESS, cuMemsetD32Async_ptsz, w->buffer_b, 8, n, s); break;
	}
}

STACK_FRAME static void take(struct worker *w)
{
	size_t n = 1 + below(w, LIVE_BYTES_MAX), pitch;
	CUdeviceptr address = 0;
	void *host = NULL;
	CUstream s = any_stream(w);
	CUresult result;
	enum freed_by by = FREE;
	uint32_t which = below(w, 100);
	if (which < 55) {
		result = CALL(cuMemAlloc_v2, &address, n);
	} else if (which < 65) {
		result = CALL(cuMemAllocPitch_v2, &address, &pitch, 1 + n % 4096, 1 + n % 16, 4);
	} else if (which < 80) {
		by = FREE_ASYNC;
		result = CALL(cuMemAllocAsync, &address, n, s);
	} else if (which < 90) {
		by = FREE_ASYNC;
		result = CALL(cuMemAllocAsync_ptsz, &address, n, s);
	} else if (which < 94) {
		result = CALL(cuMemAllocManaged, &address, n, CU_MEM_ATTACH_GLOBAL);
	} else {
		by = FREE_HOST;
		result = which < 97 ? CALL(cuMemHostAlloc, &host, n, 0) : CALL(cuMemAllocHost_v2, &host, n);
		address = (CUdeviceptr)(uintptr_t)host;
	}
	w->unexpected += result != CUDA_SUCCESS;
	if (!result) {
		w->live[w->live_len].address = address;
		w->live[w->live_len++].by = by;
	}
}

STACK_FRAME static void give(struct worker *w)
{
	int i = (int)below(w, (uint32_t)w->live_len);
	CUdeviceptr address = w->live[i].address;
	enum freed_by by = w->live[i].by;
	uint32_t which = below(w, 4);
	w->live[i] = w->live[--w->live_len];
	if (by == FREE_HOST)
		EXPECT(CUDA_SUCCESS, cuMemFreeHost, (void *)(uintptr_t)address);
	else if (by == FREE || which == 0) /* cuMemFree accepts pool memory too */
		EXPECT(CUDA_SUCCESS, cuMemFree_v2, address);
	else if (which < 3)
		EXPECT(CUDA_SUCCESS, cuMemFreeAsync, address, any_stream(w));
	else
		EXPECT(CUDA_SUCCESS, cuMemFreeAsync_ptsz, address, any_stream(w));
}

STACK_FRAME static void synchronise(struct worker *w)
{
	CUstream s = any_stream(w), made;
	CUevent e = w->events[below(w, EVENTS)], other = w->events[below(w, EVENTS)];
	float ms;
	switch (below(w, 16)) {
	case 0: EXPECT(CUDA_SUCCESS, cuStreamSynchronize, s); break;
	case 1: EXPECT(CUDA_SUCCESS, cuStreamSynchronize_ptsz, s); break;
	case 2: EXPECT(CUDA_SUCCESS, cuCtxSynchronize); break;
	case 3: EXPECT_DONE_OR_NOT(cuStreamQuery, s); break;
	case 4: EXPECT_DONE_OR_NOT(cuStreamQuery_ptsz, s); break;
	case 5: EXPECT(CUDA_SUCCESS, cuStreamWaitEvent, s, e, 0); break;
	case 6: EXPECT(CUDA_SUCCESS, cuStreamWaitEvent_ptsz, s, e, 0); break;
	case 7: case 8: EXPECT(CUDA_SUCCESS, cuEventRecord, e, s); break;
	case 9: EXPECT(CUDA_SUCCESS, cuEventRecord_ptsz, e, s); break;
	case 10: EXPECT(CUDA_SUCCESS, cuEventSynchronize, e); break;
	case 11: EXPECT_DONE_OR_NOT(cuEventQuery, e); break;
	case 12: EXPECT_DONE_OR_NOT(cuEventElapsedTime, &ms, e, other); break;
	case 13: EXPECT_DONE_OR_NOT(cuEventElapsedTime_v2, &ms, e, other); break;
	case 14:
		EXPECT(CUDA_SUCCESS, cuEventCreate, &e, CU_EVENT_DISABLE_TIMING);
		EXPECT(CUDA_SUCCESS, cuEventDestroy_v2, e);
		break;
	case 15:
		if (below(w, 2))
			EXPECT(CUDA_SUCCESS, cuStreamCreate, &made, CU_STREAM_DEFAULT);
		else
			EXPECT(CUDA_SUCCESS, cuStreamCreateWithPriority, &made, CU_STREAM_NON_BLOCKING, -1);
		EXPECT(CUDA_SUCCESS, cuStreamDestroy_v2, made);
		break;
	}
}

STACK_FRAME static void load_and_unload(struct worker *w)
{
	CUmodule module;
	CUlibrary library;
	CUfunction f;
	CUkernel k;
	const char *name, *want = storm_kernels[below(w, KERNELS)];
	if (below(w, 2)) {
		EXPECT(CUDA_SUCCESS, cuModuleLoadData, &module, storm_ptx);
		EXPECT(CUDA_SUCCESS, cuModuleGetFunction, &f, module, want);
		EXPECT(CUDA_SUCCESS, cuModuleUnload, module);
		return;
	}
	EXPECT(CUDA_SUCCESS, cuLibraryLoadData, &library, storm_ptx, NULL, NULL, 0, NULL, NULL, 0);
	EXPECT(CUDA_SUCCESS, cuLibraryGetKernel, &k, library, want);
	EXPECT(CUDA_SUCCESS, cuKernelGetFunction, &f, k);
	EXPECT(CUDA_SUCCESS, cuFuncGetName, &name, f);
	EXPECT(CUDA_SUCCESS, cuLibraryUnload, library);
}

STACK_FRAME static void change_context(struct worker *w)
{
	CUcontext c;
	switch (below(w, 4)) {
	case 0:
		EXPECT(CUDA_SUCCESS, cuCtxPushCurrent_v2, w->context);
		EXPECT(CUDA_SUCCESS, cuCtxPopCurrent_v2, &c);
		return;
	case 1:
		EXPECT(CUDA_SUCCESS, cuDevicePrimaryCtxRetain, &c, w->device);
		EXPECT(CUDA_SUCCESS, cuDevicePrimaryCtxRelease_v2, w->device);
		return;
	case 2: EXPECT(CUDA_SUCCESS, cuCtxSetCurrent, w->context); return;
	}
	/* Rarely create contexts: simcuda never reuses a context handle, so many contexts would
	 * exhaust the slab. */
	if (below(w, 64)) {
		EXPECT(CUDA_SUCCESS, cuCtxGetCurrent, &c);
		return;
	}
	switch (below(w, 3)) {
	case 0: EXPECT(CUDA_SUCCESS, cuCtxCreate_v2, &c, 0, w->device); break;
	case 1: EXPECT(CUDA_SUCCESS, cuCtxCreate_v3, &c, NULL, 0, 0, w->device); break;
	case 2: EXPECT(CUDA_SUCCESS, cuCtxCreate_v4, &c, NULL, 0, w->device); break;
	}
	EXPECT(CUDA_SUCCESS, cuCtxDestroy_v2, c);
}

STACK_FRAME static void ask(struct worker *w)
{
	int n;
	size_t bytes, total;
	CUuuid uuid;
	char text[64];
	void *function;
	switch (below(w, 13)) {
	case 0: EXPECT(CUDA_SUCCESS, cuMemGetInfo_v2, &bytes, &total); break;
	case 1: EXPECT(CUDA_SUCCESS, cuDriverGetVersion, &n); break;
	case 2: EXPECT(CUDA_SUCCESS, cuDeviceGetCount, &n); break;
	case 3: EXPECT(CUDA_SUCCESS, cuDeviceGet, &n, w->device); break;
	case 4: EXPECT(CUDA_SUCCESS, cuDeviceGetName, text, sizeof(text), w->device); break;
	case 5: EXPECT(CUDA_SUCCESS, cuDeviceGetUuid, &uuid, w->device); break;
	case 6: EXPECT(CUDA_SUCCESS, cuDeviceGetUuid_v2, &uuid, w->device); break;
	case 7: EXPECT(CUDA_SUCCESS, cuDeviceTotalMem_v2, &bytes, w->device); break;
	case 8: EXPECT(CUDA_SUCCESS, cuDeviceGetAttribute, &n, CU_DEVICE_ATTRIBUTE_WARP_SIZE, w->device); break;
	case 9: EXPECT(CUDA_SUCCESS, cuDeviceGetPCIBusId, text, sizeof(text), w->device); break;
	case 10: EXPECT(CUDA_SUCCESS, cuCtxGetDevice, &n); break;
	case 11: EXPECT(CUDA_SUCCESS, cuGetProcAddress_v2, "cuMemAlloc", &function, 13000, 0, NULL); break;
	case 12: EXPECT(CUDA_SUCCESS, cuInit, 0); break;
	}
}

STACK_FRAME static void fail(struct worker *w)
{
	CUdeviceptr address;
	CUfunction f = w->functions[0];
	switch (below(w, 9)) {
	case 0: EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2, UNKNOWN_POINTER); break;
	case 1: EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemFreeAsync, UNKNOWN_POINTER, w->streams[0]); break;
	case 2: EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemFreeHost, w->host + 1); break;
	case 3: EXPECT(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2, &address, HUGE_BYTES); break;
	case 4: EXPECT(CUDA_ERROR_INVALID_VALUE, cuMemAlloc_v2, &address, 0); break;
	case 5: EXPECT(CUDA_ERROR_INVALID_HANDLE, cuLaunchKernel, NULL, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL); break;
	case 6: EXPECT(CUDA_ERROR_INVALID_VALUE, cuLaunchKernel, f, 1, 1, 1, 2048, 1, 1, 0, NULL, NULL, NULL); break;
	case 7: EXPECT(CUDA_ERROR_INVALID_HANDLE, cuStreamSynchronize, (CUstream)UNKNOWN_HANDLE); break;
	case 8: EXPECT(CUDA_ERROR_NOT_FOUND, cuModuleGetFunction, &f, w->module, "no_such_kernel"); break;
	}
}

void worker_act(struct worker *w)
{
	if (w->left <= w->live_len) {
		give(w);
		return;
	}
	uint32_t which = below(w, 100);
	/* Near the end, make only single calls that allocate nothing. */
	if (w->left <= w->live_len + SEQUENCE_CALLS_MAX || which < 51)
		launch(w);
	else if (which < 61)
		copy(w);
	else if (which < 65)
		set(w);
	else if (which < 85)
		(w->live_len == LIVE_MAX || (w->live_len && below(w, 2)) ? give : take)(w);
	else if (which < 90)
		synchronise(w);
	else if (which < 92)
		fail(w);
	else if (which < 93)
		load_and_unload(w);
	else if (which < 94)
		change_context(w);
	else if (which < 95)
		ask(w);
	else
		worker_run_sequence(w);
}

static void must(CUresult result, const char *call)
{
	if (result == CUDA_SUCCESS)
		return;
	fprintf(stderr, "storm: %s: error %d\n", call, (int)result);
	exit(1);
}
#define MUST(fn, ...) must(api.fn(__VA_ARGS__), #fn)

void worker_set_up(struct worker *w, CUdevice device, CUcontext context)
{
	CUlibrary library;
	void *host;
	const CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, device}};
	CUcontext popped;
	w->device = device;
	w->context = context;
	MUST(cuCtxSetCurrent, context);
	MUST(cuModuleLoadData, &w->module, storm_ptx);
	MUST(cuLibraryLoadData, &library, storm_ptx, NULL, NULL, 0, NULL, NULL, 0);
	for (int i = 0; i < KERNELS; i++) {
		CUkernel kernel;
		if (i % 2) {
			MUST(cuModuleGetFunction, &w->functions[i], w->module, storm_kernels[i]);
			continue;
		}
		MUST(cuLibraryGetKernel, &kernel, library, storm_kernels[i]);
		if (i % 4) /* a launch accepts a kernel handle too */
			w->functions[i] = (CUfunction)kernel;
		else
			MUST(cuKernelGetFunction, &w->functions[i], kernel);
	}
	for (int i = 0; i < STREAMS; i++)
		MUST(cuStreamCreate, &w->streams[i], CU_STREAM_NON_BLOCKING);
	for (int i = 0; i < EVENTS; i++) {
		MUST(cuEventCreate, &w->events[i], CU_EVENT_DEFAULT);
		MUST(cuEventRecord, w->events[i], w->streams[0]);
	}
	MUST(cuCtxCreate_v4, &w->capture_context, NULL, 0, device);
	for (int i = 0; i < 2; i++)
		MUST(cuStreamCreate, &w->capturing[i], CU_STREAM_NON_BLOCKING);
	MUST(cuEventCreate, &w->fork, CU_EVENT_DISABLE_TIMING);
	MUST(cuEventCreate, &w->join, CU_EVENT_DISABLE_TIMING);
	MUST(cuCtxPopCurrent_v2, &popped);
	MUST(cuMemPoolCreate, &w->pool, &props);
	MUST(cuMemAlloc_v2, &w->buffer_a, BUFFER_BYTES);
	MUST(cuMemAlloc_v2, &w->buffer_b, BUFFER_BYTES);
	MUST(cuMemHostAlloc, &host, BUFFER_BYTES, 0);
	w->host = host;
}
