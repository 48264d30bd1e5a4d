/* Devices, contexts and modules: set-up, tear-down and queries. */
#include "every.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

struct every every;

const char every_ptx[] =
	".version 7.0\n.target sm_52\n.address_size 64\n"
	".visible .global .align 4 .f32 every_table[300];\n"
	".visible .entry _Z9every_onePf(.param .u64 .ptr .global .align 4 every_one_0) { ret; }\n"
	".visible .entry _Z9every_twoPfi(.param .u64 every_two_0, .param .u32 every_two_1) { ret; }\n";
const size_t every_ptx_size = sizeof(every_ptx);

static void devices(void)
{
	int n;
	size_t bytes;
	char text[64];
	CUuuid uuid;
	void *function;
	const char *name;
	FAILS(CUDA_ERROR_NOT_INITIALIZED, cuDeviceGetCount, &n);
	OK(cuInit, 0);
	OK(cuDriverGetVersion, &n);
	OK(cuGetErrorName, CUDA_ERROR_OUT_OF_MEMORY, &name);
	OK(cuGetErrorString, CUDA_ERROR_OUT_OF_MEMORY, &name);
	OK(cuDeviceGetCount, &n);
	OK(cuDeviceGet, &every.device, 0);
	OK(cuDeviceGet, &every.other_device, n > 1 ? 1 : 0);
	OK(cuDeviceGetName, text, sizeof(text), every.device);
	OK(cuDeviceGetUuid, &uuid, every.device);
	OK(cuDeviceGetUuid_v2, &uuid, every.other_device);
	OK(cuDeviceTotalMem_v2, &bytes, every.device);
	OK(cuDeviceGetAttribute, &n, CU_DEVICE_ATTRIBUTE_WARP_SIZE, every.device);
	OK(cuDeviceGetPCIBusId, text, sizeof(text), every.device);
	OK(cuGetProcAddress, "cuMemAlloc", &function, 11030, 0);
	OK(cuGetProcAddress_v2, "cuMemFree", &function, 12000, 1, NULL);
	FAILS(CUDA_ERROR_INVALID_CONTEXT, cuMemAlloc_v2, &(CUdeviceptr){0}, 64);
}

static void contexts(void)
{
	CUcontext made = NULL, popped = NULL;
	CUdevice device;
	OK(cuDevicePrimaryCtxRetain, &every.other_context, every.other_device);
	OK(cuDevicePrimaryCtxRetain, &every.context, every.device);
	OK(cuCtxSetCurrent, every.context);
	OK(cuCtxCreate_v2, &made, 0, every.other_device);
	OK(cuCtxDestroy_v2, made);
	OK(cuCtxCreate_v3, &made, NULL, 0, 0, every.other_device);
	OK(cuCtxDestroy_v2, made);
	OK(cuCtxCreate, &made, 0, every.other_device);
	OK(cuCtxDestroy, made);
	OK(cuGLCtxCreate, &made, 0, every.other_device);
	OK(cuCtxPopCurrent, &popped);
	OK(cuCtxPushCurrent, made);
	OK(cuCtxDestroy, made);
	OK(cuGLCtxCreate_v2, &made, 0, every.other_device);
	OK(cuCtxAttach, &popped, 0);
	OK(cuCtxDetach, made);
	OK(cuCtxSetLimit, CU_LIMIT_STACK_SIZE, 2048);
	OK(cuCtxDetach, made);
	OK(cuVDPAUCtxCreate, &made, 0, every.device, 5, NULL);
	OK(cuCtxDestroy_v2, made);
	OK(cuVDPAUCtxCreate_v2, &made, 0, every.device, 5, NULL);
	OK(cuCtxDestroy_v2, made);
	FAILS(CUDA_ERROR_INVALID_CONTEXT, cuCtxDetach, made);
	OK(cuCtxCreate_v4, &made, NULL, 0, every.other_device);
	OK(cuCtxPopCurrent_v2, &popped);
	OK(cuCtxPushCurrent_v2, made);
	OK(cuCtxGetCurrent, &popped);
	OK(cuCtxGetDevice, &device);
	OK(cuCtxDestroy_v2, made);
	OK(cuCtxGetDevice_v2, &device, every.other_context);
	OK(cuCtxSetLimit, CU_LIMIT_MALLOC_HEAP_SIZE, 9 << 20);
	FAILS(CUDA_ERROR_UNSUPPORTED_LIMIT, cuCtxSetLimit, (CUlimit)99, 1);
	FAILS(CUDA_ERROR_INVALID_CONTEXT, cuCtxDestroy_v2, BAD_HANDLE(CUcontext));
	if (every.device != every.other_device) {
		OK(cuCtxEnablePeerAccess, every.other_context, 0);
		FAILS(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, cuCtxEnablePeerAccess, every.other_context, 0);
		OK(cuCtxDisablePeerAccess, every.other_context);
	} else {
		FAILS(CUDA_ERROR_INVALID_DEVICE, cuCtxEnablePeerAccess, every.context, 0);
	}
	FAILS(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, cuCtxDisablePeerAccess, every.other_context);
}

static void green(void)
{
	CUdevResource resource;
	CUdevResourceDesc desc = NULL;
	CUgreenCtx ctx = NULL;
	CUcontext context = NULL, popped = NULL;
	CUdeviceptr p = 0;
	OK(cuDeviceGetDevResource, every.device, &resource, CU_DEV_RESOURCE_TYPE_SM);
	OK(cuDevResourceGenerateDesc, &desc, &resource, 1);
	OK(cuGreenCtxCreate, &ctx, desc, every.device, CU_GREEN_CTX_DEFAULT_STREAM);
	OK(cuCtxFromGreenCtx, &context, ctx);
	CUstream stream = NULL;
	CUevent event = NULL;
	OK(cuCtxPushCurrent_v2, context);
	OK(cuGreenCtxStreamCreate, &stream, ctx, CU_STREAM_NON_BLOCKING, 0);
	OK(cuEventCreate, &event, CU_EVENT_DISABLE_TIMING);
	OK(cuGreenCtxRecordEvent, ctx, event);
	OK(cuGreenCtxWaitEvent, ctx, event);
	OK(cuEventDestroy_v2, event);
	OK(cuStreamDestroy_v2, stream);
	FAILS(CUDA_ERROR_INVALID_VALUE, cuGreenCtxStreamCreate, &stream, ctx, CU_STREAM_DEFAULT, 0);
	OK(cuMemAlloc_v2, &p, unique_bytes());
	OK(cuMemFree_v2, p);
	OK(cuCtxPopCurrent_v2, &popped);
	OK(cuGreenCtxDestroy, ctx);
	FAILS(CUDA_ERROR_INVALID_VALUE, cuGreenCtxCreate, &ctx, desc, every.device, 0);
}

void every_set_up(void)
{
	const CUDA_ARRAY_DESCRIPTOR desc = {128, 64, CU_AD_FORMAT_FLOAT, 4};
	void *host = NULL;
	devices();
	contexts();
	green();
	OK(cuModuleLoadData, &every.module, every_ptx);
	OK(cuModuleGetFunction, &every.function, every.module, "_Z9every_onePf");
	OK(cuLibraryLoadData, &every.library, every_ptx, NULL, NULL, 0, NULL, NULL, 0);
	OK(cuLibraryGetKernel, &every.kernel, every.library, "_Z9every_twoPfi");
	for (int i = 0; i < STREAMS; i++)
		OK(cuStreamCreate, &every.streams[i], CU_STREAM_NON_BLOCKING);
	OK(cuEventCreate, &every.event, CU_EVENT_DISABLE_TIMING);
	OK(cuEventCreate, &every.join, CU_EVENT_DISABLE_TIMING);
	OK(cuMemAlloc_v2, &every.buffer_a, BUFFER);
	OK(cuMemAlloc_v2, &every.buffer_b, BUFFER + 4096);
	OK(cuMemHostAlloc, &host, BUFFER, 0);
	OK(cuArrayCreate_v2, &every.array, &desc);
	every.host = host;
}

/* Writes the PTX text to a temporary file, for the calls that load files. */
static bool write_file(char *path)
{
	int fd = mkstemp(path);
	bool ok = fd >= 0 && write(fd, every_ptx, every_ptx_size - 1) == (ssize_t)every_ptx_size - 1;
	if (fd >= 0)
		close(fd);
	return ok;
}

static void linker(const char *path)
{
	CUlinkState state = NULL;
	CUmodule module = NULL;
	void *image = NULL;
	size_t size = 0;
	OK(cuLinkCreate_v2, 0, NULL, NULL, &state);
	OK(cuLinkAddData_v2, state, CU_JIT_INPUT_PTX, (void *)(uintptr_t)every_ptx, every_ptx_size, "every", 0, NULL, NULL);
	FAILS(CUDA_ERROR_INVALID_IMAGE, cuLinkAddData_v2, state, CU_JIT_INPUT_PTX, (void *)(uintptr_t)"no PTX", 6, "wrong", 0, NULL,
	      NULL);
	OK(cuLinkComplete, state, &image, &size);
	OK(cuModuleLoadFatBinary, &module, image);
	OK(cuLinkDestroy, state);
	OK(cuModuleUnload, module);
	OK(cuLinkCreate, 0, NULL, NULL, &state);
	OK(cuLinkAddData, state, CU_JIT_INPUT_PTX, (void *)(uintptr_t)every_ptx, every_ptx_size, "again", 0, NULL, NULL);
	OK(cuLinkAddFile, state, CU_JIT_INPUT_PTX, path, 0, NULL, NULL);
	OK(cuLinkAddFile_v2, state, CU_JIT_INPUT_PTX, path, 0, NULL, NULL);
	FAILS(CUDA_ERROR_FILE_NOT_FOUND, cuLinkAddFile_v2, state, CU_JIT_INPUT_PTX, "/nonexistent", 0, NULL, NULL);
	OK(cuLinkDestroy, state);
	FAILS(CUDA_ERROR_INVALID_HANDLE, cuLinkDestroy, state);
}

static void from_files(void)
{
	char path[] = "/tmp/every-XXXXXX";
	CUmodule module = NULL;
	CUlibrary library = NULL;
	if (!write_file(path)) {
		perror("every: /tmp");
		exit(1);
	}
	OK(cuModuleLoad, &module, path);
	OK(cuModuleUnload, module);
	OK(cuLibraryLoadFromFile, &library, path, NULL, NULL, 0, NULL, NULL, 0);
	OK(cuLibraryUnload, library);
	linker(path);
	unlink(path);
	FAILS(CUDA_ERROR_FILE_NOT_FOUND, cuModuleLoad, &module, path);
	FAILS(CUDA_ERROR_FILE_NOT_FOUND, cuLibraryLoadFromFile, &library, path, NULL, NULL, 0, NULL, NULL, 0);
}

void every_module(void)
{
	CUmodule module = NULL;
	CUfunction functions[2] = {NULL};
	CUkernel kernels[2] = {NULL};
	CUdeviceptr p = 0;
	size_t bytes = 0, offset = 0;
	unsigned int n = 0;
	const char *name;
	OK(cuModuleLoadDataEx, &module, every_ptx, 0, NULL, NULL);
	OK(cuModuleGetFunctionCount, &n, module);
	OK(cuModuleEnumerateFunctions, functions, 2, module);
	OK(cuModuleGetGlobal_v2, &p, &bytes, module, "every_table");
	OK(cuModuleUnload, module);
	OK(cuFuncGetName, &name, every.function);
	OK(cuFuncLoad, every.function);
	OK(cuFuncGetParamInfo, every.function, 0, &offset, &bytes);
	FAILS(CUDA_ERROR_INVALID_VALUE, cuFuncGetParamInfo, every.function, 1, &offset, &bytes);
	OK(cuKernelGetParamInfo, every.kernel, 1, &offset, &bytes);
	FAILS(CUDA_ERROR_INVALID_HANDLE, cuKernelGetParamInfo, BAD_HANDLE(CUkernel), 2, &offset, &bytes);
	OK(cuLibraryGetGlobal, &p, &bytes, every.library, "every_table");
	OK(cuLibraryGetManaged, &p, &bytes, every.library, "every_table");
	FAILS(CUDA_ERROR_NOT_FOUND, cuLibraryGetGlobal, &p, &bytes, every.library, "nothing");
	OK(cuLibraryGetKernelCount, &n, every.library);
	OK(cuLibraryEnumerateKernels, kernels, 2, every.library);
	OK(cuLibraryGetModule, &module, every.library);
	OK(cuKernelGetFunction, &functions[0], every.kernel);
	OK(cuKernelGetName, &name, every.kernel);
	FAILS(CUDA_ERROR_NOT_FOUND, cuModuleGetGlobal_v2, &p, &bytes, every.module, "nothing");
	FAILS(CUDA_ERROR_NOT_FOUND, cuModuleGetFunction, &functions[0], every.module, "nothing");
	FAILS(CUDA_ERROR_NOT_FOUND, cuLibraryGetKernel, &kernels[0], every.library, "nothing");
	FAILS(CUDA_ERROR_INVALID_IMAGE, cuModuleLoadData, &module, "no image");
	FAILS(CUDA_ERROR_INVALID_IMAGE, cuModuleLoadDataEx, &module, "neither is this", 0, NULL, NULL);
	FAILS(CUDA_ERROR_INVALID_VALUE, cuModuleLoadFatBinary, &module, NULL);
	FAILS(CUDA_ERROR_INVALID_HANDLE, cuModuleUnload, BAD_HANDLE(CUmodule));
	from_files();
}

void every_tear_down(void)
{
	OK(cuArrayDestroy, every.array);
	OK(cuMemFreeHost, every.host);
	OK(cuMemFree_v2, every.buffer_b);
	OK(cuMemFree_v2, every.buffer_a);
	OK(cuEventDestroy_v2, every.event);
	OK(cuEventDestroy_v2, every.join);
	for (int i = 0; i < STREAMS; i++)
		OK(cuStreamDestroy_v2, every.streams[i]);
	OK(cuLibraryUnload, every.library);
	OK(cuModuleUnload, every.module);
	OK(cuDevicePrimaryCtxRelease_v2, every.device);
	OK(cuDevicePrimaryCtxRetain, &every.context, every.device);
	OK(cuDevicePrimaryCtxRelease, every.device);
	OK(cuDevicePrimaryCtxReset, every.device);
	if (every.device != every.other_device)
		OK(cuDevicePrimaryCtxReset_v2, every.other_device);
	else
		OK(cuDevicePrimaryCtxReset_v2, every.device);
}
