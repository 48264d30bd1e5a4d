/* Kernel launches. A simulated kernel computes nothing and occupies its stream for
 * SIMCUDA_KERNEL_US. */
#include "arguments.h"
#include "graph.h"

CUresult launch_check(const struct call *call)
{
	const uint32_t *g = call->grid, *b = call->block;
	enum { THREADS_MAX = 1024, BLOCK_Z_MAX = 64, GRID_YZ_MAX = 65535, SHARED_MAX = 48 << 10 };
	/* Accepts a function or a kernel handle, as the real driver does. */
	if (!call->kernel)
		return CUDA_ERROR_INVALID_HANDLE;
	if (!g[0] || !g[1] || !g[2] || !b[0] || !b[1] || !b[2] || g[0] > INT32_MAX || g[1] > GRID_YZ_MAX || g[2] > GRID_YZ_MAX)
		return CUDA_ERROR_INVALID_VALUE;
	if (b[0] > THREADS_MAX || b[1] > THREADS_MAX || b[2] > BLOCK_Z_MAX || (uint64_t)b[0] * b[1] * b[2] > THREADS_MAX)
		return CUDA_ERROR_INVALID_VALUE;
	/* Larger shared memory would need a function attribute, which simcuda does not offer. */
	return call->shared_bytes > SHARED_MAX ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

static CUresult submit(struct lane *lane)
{
	const struct call *call = lane->call;
	const struct op op = {.kind = OP_KERNEL, .ns = call->duration_ns ? call->duration_ns : kernel_ns(call->kernel, call->grid)};
	if (lane->capture)
		return capture_op(lane, &op);
	uint64_t end = lane_enqueue(lane, WORK_KERNEL, op.ns);
	if (call->faults) {
		lane->context->ctx.device->failed_at = end;
		atomic_store(&lane->context->ctx.device->failed, lane->context);
	}
	return CUDA_SUCCESS;
}

static CUresult launch(struct call *call, CUstream stream, enum default_stream zero)
{
	struct lane lane;
	CUresult result = lane_of(call, stream, zero, &lane);
	if (!result)
		result = launch_check(call);
	return result ? result : submit(&lane);
}

/* A cooperative launch fails if its blocks do not all fit on the device at once. */
static CUresult launch_cooperative(struct call *call, CUstream stream, enum default_stream zero)
{
	enum { MULTIPROCESSORS = 132, THREADS_EACH = 2048, BLOCKS_EACH = 32 };
	struct lane lane;
	CUresult result = lane_of(call, stream, zero, &lane);
	if (!result)
		result = launch_check(call);
	if (result)
		return result;
	uint64_t each = THREADS_EACH / ((uint64_t)call->block[0] * call->block[1] * call->block[2]);
	uint64_t blocks = (uint64_t)call->grid[0] * call->grid[1] * call->grid[2];
	if (blocks > MULTIPROCESSORS * (each < BLOCKS_EACH ? each : BLOCKS_EACH))
		return CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
	return submit(&lane);
}

#define LAUNCH_KERNEL(fn, zero)                                                                                              \
	EXPORT CUresult fn(CUfunction f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ,                \
			   unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ,                           \
			   unsigned int sharedMemBytes, CUstream hStream, void **kernelParams, void **extra)                 \
	{                                                                                                                    \
		BEGIN(fn, NEEDS_CONTEXT, .function = H(f), .grid = {gridDimX, gridDimY, gridDimZ},                           \
		      .block = {blockDimX, blockDimY, blockDimZ}, .shared_bytes = sharedMemBytes, .stream = H(hStream));     \
		call.kernel = kernel_name(f);                                                                                \
		arguments_note(&call, f, kernelParams, extra);                                                               \
		call.duration_ns = channels_on ? kernel_duration(f, kernelParams) : 0;                                       \
		DO(launch(&call, hStream, zero));                                                                            \
		return END();                                                                                                \
	}
LAUNCH_KERNEL(cuLaunchKernel, LEGACY)
LAUNCH_KERNEL(cuLaunchKernel_ptsz, PER_THREAD)

#define LAUNCH_COOPERATIVE(fn, zero)                                                                                         \
	EXPORT CUresult fn(CUfunction f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ,                \
			   unsigned int blockDimX, unsigned int blockDimY, unsigned int blockDimZ,                           \
			   unsigned int sharedMemBytes, CUstream hStream, void **kernelParams)                               \
	{                                                                                                                    \
		BEGIN(fn, NEEDS_CONTEXT, .function = H(f), .grid = {gridDimX, gridDimY, gridDimZ},                           \
		      .block = {blockDimX, blockDimY, blockDimZ}, .shared_bytes = sharedMemBytes, .stream = H(hStream));     \
		call.kernel = kernel_name(f);                                                                                \
		arguments_note(&call, f, kernelParams, NULL);                                                                \
		DO(launch_cooperative(&call, hStream, zero));                                                                \
		return END();                                                                                                \
	}
LAUNCH_COOPERATIVE(cuLaunchCooperativeKernel, LEGACY)
LAUNCH_COOPERATIVE(cuLaunchCooperativeKernel_ptsz, PER_THREAD)

#define LAUNCH_KERNEL_EX(fn, zero)                                                                            \
	EXPORT CUresult fn(const CUlaunchConfig *config, CUfunction f, void **kernelParams, void **extra)     \
	{                                                                                                     \
		BEGIN(fn, NEEDS_CONTEXT, .function = H(f));                                                   \
		call.kernel = kernel_name(f);                                                                 \
		call.gate = gate_take();                                                                      \
		if (config)                                                                                   \
			take_config(&call, config);                                                           \
		arguments_note(&call, f, kernelParams, extra);                                                \
		DO(config ? launch(&call, config->hStream, zero) : CUDA_ERROR_INVALID_VALUE);                 \
		return END();                                                                                 \
	}

static void take_params(struct call *call, const CUDA_LAUNCH_PARAMS *p)
{
	call->function = H(p->function);
	call->kernel = kernel_name(p->function);
	call->grid[0] = p->gridDimX;
	call->grid[1] = p->gridDimY;
	call->grid[2] = p->gridDimZ;
	call->block[0] = p->blockDimX;
	call->block[1] = p->blockDimY;
	call->block[2] = p->blockDimZ;
	call->shared_bytes = p->sharedMemBytes;
	call->stream = H(p->hStream);
}

static void take_config(struct call *call, const CUlaunchConfig *c)
{
	call->grid[0] = c->gridDimX;
	call->grid[1] = c->gridDimY;
	call->grid[2] = c->gridDimZ;
	call->block[0] = c->blockDimX;
	call->block[1] = c->blockDimY;
	call->block[2] = c->blockDimZ;
	call->shared_bytes = c->sharedMemBytes;
	call->stream = H(c->hStream);
	for (unsigned i = 0; i < c->numAttrs; i++)
		if (c->attrs[i].id == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION)
			call->early = c->attrs[i].value.programmaticStreamSerializationAllowed;
}

LAUNCH_KERNEL_EX(cuLaunchKernelEx, LEGACY)
LAUNCH_KERNEL_EX(cuLaunchKernelEx_ptsz, PER_THREAD)

/* ---- launches on several devices, and cuLaunch, whose block size is an attribute of the
 * function ---- */

static CUresult launch_list(struct call *call, const CUDA_LAUNCH_PARAMS *list, unsigned int n)
{
	CUresult result = list && n > 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
	for (unsigned int i = 0; i < n && !result; i++) {
		struct call one = *call;
		take_params(&one, &list[i]);
		result = launch(&one, list[i].hStream, LEGACY);
	}
	return result;
}

EXPORT CUresult cuLaunchCooperativeKernelMultiDevice(CUDA_LAUNCH_PARAMS *launchParamsList, unsigned int numDevices,
						     unsigned int flags)
{
	BEGIN(cuLaunchCooperativeKernelMultiDevice, NEEDS_CONTEXT, .value = numDevices);
	(void)flags;
	if (launchParamsList && numDevices)
		take_params(&call, launchParamsList);
	DO(launch_list(&call, launchParamsList, numDevices));
	return END();
}

static CUresult launch_old(struct call *call, CUstream stream)
{
	struct call checked = *call;
	for (int i = 0; i < 3; i++)
		checked.block[i] = 1;
	struct lane lane;
	CUresult result = lane_of(call, stream, LEGACY, &lane);
	if (!result)
		result = launch_check(&checked);
	return result ? result : submit(&lane);
}

#define LAUNCH_OLD(fn, parameters, stream_argument, width, height)                                                  \
	EXPORT CUresult fn parameters                                                                               \
	{                                                                                                           \
		BEGIN(fn, NEEDS_CONTEXT, .function = H(f), .grid = {(uint32_t)(width), (uint32_t)(height), 1},      \
		      .stream = H(stream_argument));                                                                \
		call.kernel = kernel_name(f);                                                                       \
		DO(launch_old(&call, stream_argument));                                                             \
		return END();                                                                                       \
	}
LAUNCH_OLD(cuLaunch, (CUfunction f), NULL, 1, 1)
LAUNCH_OLD(cuLaunchGrid, (CUfunction f, int grid_width, int grid_height), NULL, grid_width, grid_height)
LAUNCH_OLD(cuLaunchGridAsync, (CUfunction f, int grid_width, int grid_height, CUstream hStream), hStream, grid_width, grid_height)
