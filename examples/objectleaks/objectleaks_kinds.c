/* Creates and destroys objects of all kinds. */
#include "objectleaks.h"

#include <string.h>
#include <unistd.h>

const char *const kind_names[KIND_COUNT] = {
#define X(kind, name) [kind] = name,
	KINDS(X)
#undef X
};

static const char ptx[] = ".version 7.0\n.target sm_52\n.address_size 64\n.visible .entry work() { ret; }\n";
static CUgraph template;
static CUstream capturing;
static CUipcMemHandle exported;
static CUDA_RESOURCE_DESC linear = {.resType = CU_RESOURCE_TYPE_LINEAR}, array = {.resType = CU_RESOURCE_TYPE_ARRAY};
static const CUDA_TEXTURE_DESC how;
static const CUmemPoolProps pool_properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};

/* CREATE is a macro, because the function around it must be the innermost frame of the program. */
#define MADE(type, call, ...) ({ type made_ = 0; CUDA(call, &made_, ##__VA_ARGS__); (uint64_t)(uintptr_t)made_; })
#define CREATE(kind)                                                                                            \
	({                                                                                                      \
		uint64_t handle_ = 0;                                                                           \
		CUlinkState link_;                                                                              \
		CUcontext current_;                                                                             \
		CUgraph graph_;                                                                                 \
		switch (kind) {                                                                                 \
		case EVENT: handle_ = MADE(CUevent, cuEventCreate, CU_EVENT_DISABLE_TIMING); break;             \
		case STREAM: handle_ = MADE(CUstream, cuStreamCreate, CU_STREAM_NON_BLOCKING); break;           \
		case GRAPH: handle_ = MADE(CUgraph, cuGraphCreate, 0); break;                                   \
		case CLONE: handle_ = MADE(CUgraph, cuGraphClone, template); break;                             \
		case EXEC: handle_ = MADE(CUgraphExec, cuGraphInstantiateWithFlags, template, 0); break;        \
		case MODULE: handle_ = MADE(CUmodule, cuModuleLoadData, ptx); break;                            \
		case LIBRARY: handle_ = MADE(CUlibrary, cuLibraryLoadData, ptx, 0, 0, 0, 0, 0, 0); break;       \
		case PRIMARY: handle_ = MADE(CUcontext, cuDevicePrimaryCtxRetain, 0); break;                    \
		case IPC: handle_ = MADE(CUdeviceptr, cuIpcOpenMemHandle_v2, exported, 1); break;               \
		case POOL: handle_ = MADE(CUmemoryPool, cuMemPoolCreate, &pool_properties); break;              \
		case TEXTURE: handle_ = MADE(CUtexObject, cuTexObjectCreate, &linear, &how, NULL); break;       \
		case SURFACE: handle_ = MADE(CUsurfObject, cuSurfObjectCreate, &array); break;                  \
		case CAPTURED:                                                                                  \
			CUDA(cuStreamBeginCapture_v2, capturing, CU_STREAM_CAPTURE_MODE_RELAXED);               \
			CUDA(cuStreamEndCapture, capturing, &graph_);                                           \
			handle_ = (uintptr_t)graph_;                                                            \
			break;                                                                                  \
		case LINK:                                                                                      \
			CUDA(cuLinkCreate_v2, 0, NULL, NULL, &link_);                                           \
			handle_ = (uintptr_t)link_;                                                             \
			break;                                                                                  \
		case CONTEXT:                                                                                   \
			handle_ = MADE(CUcontext, cuCtxCreate_v2, 0, 0);                                        \
			CUDA(cuCtxPopCurrent_v2, &current_);                                                    \
			break;                                                                                  \
		case KIND_COUNT: break;                                                                         \
		}                                                                                               \
		handle_;                                                                                        \
	})

#define X(name) \
	static __attribute__((noinline)) uint64_t name(enum kind kind) { return CREATE(kind); }
SITES(X)
#undef X

const struct site_functions sites[SITE_COUNT] = {
#define X(site) {#site, site},
	SITES(X)
#undef X
};

__attribute__((noinline)) CUcontext worker_context(void)
{
	CUcontext context;
	CUDA(cuCtxCreate_v2, &context, 0, 0);
	return context;
}

void destroy(enum kind kind, uint64_t handle)
{
	void *object = (void *)(uintptr_t)handle;
	switch (kind) {
	case EVENT: CUDA(cuEventDestroy_v2, object); break;
	case STREAM: CUDA(cuStreamDestroy_v2, object); break;
	case GRAPH: case CAPTURED: case CLONE: CUDA(cuGraphDestroy, object); break;
	case EXEC: CUDA(cuGraphExecDestroy, object); break;
	case MODULE: CUDA(cuModuleUnload, object); break;
	case LIBRARY: CUDA(cuLibraryUnload, object); break;
	case LINK: CUDA(cuLinkDestroy, object); break;
	case CONTEXT: CUDA(cuCtxDestroy_v2, object); break;
	case PRIMARY: CUDA(cuDevicePrimaryCtxRelease_v2, 0); break;
	case IPC: CUDA(cuIpcCloseMemHandle, handle); break;
	case POOL: CUDA(cuMemPoolDestroy, object); break;
	case TEXTURE: CUDA(cuTexObjectDestroy, handle); break;
	case SURFACE: CUDA(cuSurfObjectDestroy, handle); break;
	case KIND_COUNT: break;
	}
}

bool ends_with_context(enum kind kind)
{
	return kind == EVENT || kind == STREAM || kind == MODULE || kind == LINK || kind == TEXTURE || kind == SURFACE;
}

/* Starts a process that exports memory until this process ends: a process cannot open its own. */
static void start_exporter(void)
{
	int out[2], life[2];
	if (pipe(out) || pipe(life))
		exit(1);
	fflush(stdout);
	if (fork() == 0) {
		CUcontext context;
		CUdeviceptr memory;
		char byte;
		close(life[1]);
		CUDA(cuInit, 0);
		CUDA(cuDevicePrimaryCtxRetain, &context, 0);
		CUDA(cuCtxSetCurrent, context);
		CUDA(cuMemAlloc_v2, &memory, 2 << 20);
		CUDA(cuIpcGetMemHandle, &exported, memory);
		if (write(out[1], &exported, sizeof exported) != sizeof exported)
			_exit(1);
		while (read(life[0], &byte, 1) > 0)
			;
		_exit(0);
	}
	close(life[0]);
	if (read(out[0], &exported, sizeof exported) != sizeof exported)
		exit(1);
}

void set_up_objects(void)
{
	const CUDA_ARRAY_DESCRIPTOR small = {64, 64, CU_AD_FORMAT_FLOAT, 1};
	CUgraphNode node;
	CUcontext context;
	start_exporter();
	CUDA(cuInit, 0);
	CUDA(cuDevicePrimaryCtxRetain, &context, 0);
	CUDA(cuCtxSetCurrent, context);
	CUDA(cuMemAlloc_v2, &linear.res.linear.devPtr, 4096);
	CUDA(cuArrayCreate_v2, &array.res.array.hArray, &small);
	CUDA(cuStreamCreate, &capturing, CU_STREAM_NON_BLOCKING);
	CUDA(cuGraphCreate, &template, 0);
	CUDA(cuGraphAddEmptyNode, &node, template, NULL, 0);
}
