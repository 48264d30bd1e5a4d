/* The random operations of the program works. */
#include "works.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BUFFER = 4 << 20, COPY_MAX = 128 << 10 };

static const char *const names[KERNELS] = {
	"_Z4gemmPKfS0_Pfi", "ampere_sgemm_128x64_tn", "cutlass_80_tensorop_gemm_f16", "_Z9layernormPKfPfi", "_Z7softmaxPKfPfi",
	"_Z4geluPfi", "_Z9embeddingPKiPKfPf", "_Z4adamPfPKff", "_Z8dropoutPfPKfm", "_Z6reducePKfPf", "_Z9transposePKfPfii",
	"_Z3addPKfS0_Pf", "_Z5scalePff", "_Z4castPKfPt", "_Z6gatherPKfPKiPf", "_Z7scatterPfPKiPKf", "_Z4normPKfPf", "_Z4fillPff",
	"_Z3expPfi", "_Z5attnfPKfS0_S0_Pf", "_Z5attnbPKfS0_S0_Pf", "_Z7forwardPKfPf", "_Z8backwardPKfPf", "_Z9allreducePfi",
};

static uint64_t random_next(struct worker *w)
{
	w->random ^= w->random << 13;
	w->random ^= w->random >> 7;
	return w->random ^= w->random << 17;
}

static int below(struct worker *w, int n)
{
	return (int)(random_next(w) % (uint64_t)n);
}

static void pause_us(int us)
{
	struct timespec t = {.tv_nsec = us * 1000L};
	nanosleep(&t, NULL);
}

/* Every eighth kernel of a thread may begin before the one before it has ended. */
static void launch(CUfunction kernel, int grid, CUstream stream)
{
	static __thread unsigned launches;
	void *arguments[1] = {NULL};
	CUlaunchAttribute attributes[] = {
		{.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION, .value.clusterDim = {1, 1, 1}},
		{.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION, .value.programmaticStreamSerializationAllowed = 1},
	};
	CUlaunchConfig config = {.gridDimX = (unsigned)grid, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 128, .blockDimY = 1,
				 .blockDimZ = 1, .hStream = stream, .attrs = attributes, .numAttrs = 2};
	if (launches++ % 8 == 7)
		CALL(cuLaunchKernelEx, &config, kernel, arguments, NULL);
	else
		CALL(cuLaunchKernel, kernel, (unsigned)grid, 1, 1, 128, 1, 1, 0, stream, arguments, NULL);
}

/* ---- set-up ---- */

static void load_kernels(struct program *p)
{
	static char ptx[16 << 10];
	size_t n = (size_t)sprintf(ptx, ".version 7.0\n.target sm_52\n.address_size 64\n");
	for (int i = 0; i < KERNELS; i++)
		n += (size_t)snprintf(ptx + n, sizeof(ptx) - n, ".visible .entry %s() { ret; }\n", names[i]);
	CUmodule module;
	CALL(cuModuleLoadData, &module, ptx);
	for (int i = 0; i < KERNELS; i++)
		CALL(cuModuleGetFunction, &p->kernels[i], module, names[i]);
}

/* Captures ten kernels; a kernel, a copy and a kernel; three kernels and a memory set. */
static void capture_graphs(struct program *p)
{
	CUstream stream;
	CUgraph graph;
	CUdeviceptr device;
	void *host;
	CALL(cuMemAlloc_v2, &device, BUFFER);
	CALL(cuMemHostAlloc, &host, BUFFER, 0);
	CALL(cuStreamCreateWithPriority, &stream, CU_STREAM_NON_BLOCKING, 0);
	for (int g = 0; g < GRAPHS; g++) {
		static const int kernels[GRAPHS] = {10, 1, 3};
		CALL(cuStreamBeginCapture_v2, stream, CU_STREAM_CAPTURE_MODE_RELAXED);
		for (int i = 0; i < kernels[g]; i++)
			launch(p->kernels[i + g], 32, stream);
		if (g == 1 && !p->plain_graphs) {
			CALL(cuMemcpyHtoDAsync_v2, device, host, 4096, stream);
			launch(p->kernels[7], 64, stream);
		} else if (g == 2) {
			CALL(cuMemsetD8Async, device, 0, 4096, stream);
		}
		CALL(cuStreamEndCapture, stream, &graph);
		CALL(cuGraphInstantiateWithFlags, &p->graphs[g], graph, 0);
		CALL(cuGraphDestroy, graph);
	}
	CALL(cuStreamDestroy_v2, stream);
}

void program_set_up(struct program *p)
{
	CALL(cuDevicePrimaryCtxRetain, &p->context, p->device);
	CALL(cuCtxSetCurrent, p->context);
	load_kernels(p);
	capture_graphs(p);
}

static CUstream new_stream(struct worker *w)
{
	CUstream stream;
	CALL(cuStreamCreateWithPriority, &stream, below(w, 4) ? CU_STREAM_NON_BLOCKING : 0, below(w, 4) ? 0 : -1);
	return stream;
}

void worker_set_up(struct worker *w, const struct worker *shared)
{
	CALL(cuCtxSetCurrent, w->program->context);
	CALL(cuMemAlloc_v2, &w->device, 2 * BUFFER);
	CALL(cuMemHostAlloc, &w->host, BUFFER, 0);
	w->unpinned = w->pageable ? calloc(1, BUFFER) : NULL;
	for (int i = w->uses_default; i < w->streams_len; i++)
		w->streams[i] = shared ? shared->streams[i] : new_stream(w);
	for (int i = 0; i < EVENTS; i++)
		CALL(cuEventCreate, &w->events[i], i % 2 ? CU_EVENT_DISABLE_TIMING : 0);
}

void worker_warm_up(struct worker *w)
{
	for (int i = 0; i < w->streams_len; i++)
		launch(w->program->kernels[i % KERNELS], 16, w->streams[i]);
	CALL(cuMemcpyHtoDAsync_v2, w->device, w->host, 4096, w->streams[0]);
	CALL(cuMemcpyDtoHAsync_v2, w->host, w->device, 4096, w->streams[0]);
	CALL(cuCtxSynchronize);
}

/* ---- operations ---- */

static void launch_any(struct worker *w, CUstream stream)
{
	/* The smaller of two random numbers: some kernels are much more frequent than others. */
	int a = below(w, KERNELS * GRIDS), b = below(w, KERNELS * GRIDS), i = a < b ? a : b;
	launch(w->program->kernels[i / GRIDS], 16 << i % GRIDS, stream);
}

static void record_event(struct worker *w, CUstream stream)
{
	int i = below(w, EVENTS);
	CALL(cuEventRecord, w->events[i], stream);
	w->recorded[i] = true;
}

/* Copies up to 4 MiB that are not pinned. The driver copies 1 MiB at a time. */
static void copy_unpinned(struct worker *w)
{
	CALL(cuMemcpyHtoD_v2, w->device, w->unpinned, (size_t)(1 + below(w, 4)) * (BUFFER / 4));
	w->left--;
}

/* Copies to the device. The driver puts those up to 4 KiB into the queue of the stream, and gives those of more than
 * 24 KiB to a copy engine. */
static void copy_in(struct worker *w, CUstream stream)
{
	enum { SHORT = 4 << 10, LONG = 24 << 10 };
	int bytes = below(w, 2) ? 4 * (1 + below(w, SHORT / 4)) : LONG + 256 * (1 + below(w, (COPY_MAX - LONG) / 256));
	CALL(cuMemcpyHtoDAsync_v2, w->device, w->host, (size_t)bytes, stream);
}

static void submit(struct worker *w, CUstream stream)
{
	if (w->pageable && below(w, 100) < w->pageable) {
		copy_unpinned(w);
		return;
	}
	int bytes = 256 * (1 + below(w, COPY_MAX / 256)), kind = below(w, 100), event = below(w, EVENTS);
	if (kind < 72)
		launch_any(w, stream);
	else if (kind < 77)
		CALL(cuMemsetD8Async, w->device, 1, (size_t)bytes, stream);
	else if (kind < 81)
		copy_in(w, stream);
	else if (kind < 85)
		CALL(cuMemcpyDtoHAsync_v2, w->host, w->device, (size_t)bytes, stream);
	else if (kind < 89)
		CALL(cuMemcpyDtoDAsync_v2, w->device, w->device + BUFFER, (size_t)bytes, stream);
	else if (kind < 94)
		record_event(w, stream);
	else if (kind < 98)
		CALL(cuGraphLaunch, w->program->graphs[below(w, GRAPHS)], stream);
	else if (w->recorded[event])
		CALL(cuStreamWaitEvent, stream, w->events[event], 0), w->left++; /* not an operation */
	else
		launch_any(w, stream);
	w->left--;
}

static CUstream any_stream(struct worker *w)
{
	return w->streams[below(w, w->streams_len)];
}

static void synchronize(struct worker *w, CUstream stream)
{
	int event = below(w, EVENTS);
	switch (below(w, 4)) {
	case 0: CALL(cuCtxSynchronize); break;
	case 1:
		CALL(cuMemcpyDtoH_v2, w->host, w->device, 4096);
		w->left--;
		break;
	case 2:
		CALL(cuEventRecord, w->events[event], stream);
		CALL(cuEventSynchronize, w->events[event]);
		w->recorded[event] = true;
		w->left--;
		break;
	default: CALL(cuStreamSynchronize, stream);
	}
}

/* ---- phases ---- */

/* The GPU always has work: calls are faster than kernels. */
static void fill_queues(struct worker *w)
{
	for (int n = 300 + below(w, 2700); n > 0 && w->left > 0; n--)
		submit(w, any_stream(w));
	if (below(w, 4))
		CALL(cuCtxSynchronize);
}

/* The GPU waits for the program most of the time. */
static void submit_few(struct worker *w)
{
	CUstream stream = any_stream(w);
	for (int rounds = 50 + below(w, 200); rounds > 0 && w->left > 2; rounds--) {
		for (int n = 1 + below(w, 4); n > 0 && w->left > 2; n--)
			submit(w, stream);
		synchronize(w, stream);
		if (!below(w, 8))
			pause_us(below(w, 50));
	}
}

static void use_new_stream(struct worker *w)
{
	CUstream stream = new_stream(w);
	for (int n = 10 + below(w, 90); n > 0 && w->left > 0; n--)
		submit(w, stream);
	if (below(w, 2))
		CALL(cuStreamSynchronize, stream);
	CALL(cuStreamDestroy_v2, stream);
}

static void replace_event(struct worker *w)
{
	int i = below(w, EVENTS);
	CALL(cuEventDestroy_v2, w->events[i]);
	CALL(cuEventCreate, &w->events[i], i % 2 ? CU_EVENT_DISABLE_TIMING : 0);
	w->recorded[i] = false;
}

void worker_run_phase(struct worker *w)
{
	int kind = below(w, 100);
	replace_event(w);
	if (kind < 45)
		fill_queues(w);
	else if (kind < 75)
		submit_few(w);
	else if (kind < 90)
		use_new_stream(w);
	else
		pause_us(1000 + below(w, 4000));
}
