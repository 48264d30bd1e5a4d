/* Tests of devices, contexts, simulated time, modules, launches and cuGetProcAddress. */
#include "selftest.h"

#include <pthread.h>

void test_init(void)
{
	CUdevice device;
	CUuuid a, b;
	size_t bytes;
	int n;
	char text[64];
	CHECK_RESULT(CUDA_ERROR_NOT_INITIALIZED, CU(cuDeviceGet, &device, 0));
	CHECK_OK(CU(cuDriverGetVersion, &n));
	CHECK(n == 13000);
	CHECK_RESULT(CUDA_ERROR_INVALID_VALUE, CU(cuInit, 1));
	CHECK_OK(CU(cuInit, 0));
	CHECK_OK(CU(cuInit, 0));
	CHECK_OK(CU(cuDeviceGetCount, &n));
	CHECK(n == 2);
	CHECK_OK(CU(cuDeviceGet, &device, 1));
	CHECK(device == 1);
	CHECK_RESULT(CUDA_ERROR_INVALID_DEVICE, CU(cuDeviceGet, &device, 2));
	CHECK_RESULT(CUDA_ERROR_INVALID_DEVICE, CU(cuDeviceGet, &device, -1));
	CHECK_OK(CU(cuDeviceGetName, text, sizeof(text), 0));
	CHECK(!strcmp(text, "SimCUDA GPU"));
	CHECK_OK(CU(cuDeviceTotalMem_v2, &bytes, 0));
	CHECK(bytes == 3ull << 29);
	CHECK_OK(CU(cuDeviceGetUuid_v2, &a, 0));
	CHECK_OK(CU(cuDeviceGetUuid, &b, 0));
	CHECK(!memcmp(&a, &b, sizeof(a)));
	CHECK_OK(CU(cuDeviceGetUuid_v2, &b, 1));
	CHECK(memcmp(&a, &b, sizeof(a)));
	CHECK_OK(CU(cuDeviceGetPCIBusId, text, sizeof(text), 0));
	CHECK(!strcmp(text, "0000:06:00.0"));
	CHECK_OK(CU(cuDeviceGetAttribute, &n, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 0));
	CHECK(n == 32);
	CHECK_RESULT(CUDA_ERROR_INVALID_VALUE, CU(cuDeviceGetAttribute, &n, (CUdevice_attribute)999, 0));
	const char *name;
	CHECK_OK(CU(cuGetErrorName, CUDA_ERROR_OUT_OF_MEMORY, &name));
	CHECK(!strcmp(name, "CUDA_ERROR_OUT_OF_MEMORY"));
	CHECK_RESULT(CUDA_ERROR_INVALID_VALUE, CU(cuGetErrorString, (CUresult)12345, &name));
	CHECK(!name);
}

static size_t free_bytes(void)
{
	size_t bytes, total;
	CHECK_OK(CU(cuMemGetInfo_v2, &bytes, &total));
	return bytes;
}

static void *in_other_thread(void *context)
{
	CUcontext current = (CUcontext)1;
	CUdeviceptr p;
	CHECK_OK(CU(cuCtxGetCurrent, &current));
	CHECK(!current);
	CHECK_RESULT(CUDA_ERROR_INVALID_CONTEXT, CU(cuMemAlloc_v2, &p, 1));
	CHECK_OK(CU(cuCtxSetCurrent, context));
	CHECK_OK(CU(cuMemAlloc_v2, &p, 1));
	return NULL;
}

void test_contexts(void)
{
	CUcontext primary, again, other, current;
	CUdeviceptr p;
	CUstream stream;
	pthread_t thread;
	CUdevice device;
	CHECK_OK(CU(cuInit, 0));
	CHECK_RESULT(CUDA_ERROR_INVALID_CONTEXT, CU(cuMemAlloc_v2, &p, 1));
	CHECK_RESULT(CUDA_ERROR_INVALID_CONTEXT, CU(cuCtxPopCurrent_v2, &current));
	CHECK_RESULT(CUDA_ERROR_INVALID_CONTEXT, CU(cuDevicePrimaryCtxRelease_v2, 0));
	CHECK_RESULT(CUDA_ERROR_INVALID_CONTEXT, CU(cuCtxSetCurrent, (CUcontext)0x1234));
	CHECK_OK(CU(cuDevicePrimaryCtxRetain, &primary, 0));
	CHECK_OK(CU(cuDevicePrimaryCtxRetain, &again, 0));
	CHECK(primary && primary == again);
	CHECK_OK(CU(cuCtxSetCurrent, primary));
	CHECK_OK(CU(cuCtxCreate_v2, &other, 0, 1));
	CHECK_OK(CU(cuCtxGetCurrent, &current));
	CHECK(current == other);
	CHECK_OK(CU(cuCtxGetDevice, &device));
	CHECK(device == 1);

	/* Destroying a context frees the memory that it owns and pops it from the stack. */
	CHECK_OK(CU(cuMemAlloc_v2, &p, 60 << 20));
	CHECK_OK(CU(cuStreamCreate, &stream, 0));
	CHECK_OK(CU(cuCtxDestroy_v2, other));
	CHECK_OK(CU(cuCtxGetCurrent, &current));
	CHECK(current == primary);
	CHECK_RESULT(CUDA_ERROR_INVALID_HANDLE, CU(cuStreamSynchronize, stream));
	CHECK_RESULT(CUDA_ERROR_INVALID_VALUE, CU(cuMemFree_v2, p));
	CHECK_OK(CU(cuCtxCreate_v4, &other, NULL, 0, 1));
	CHECK(free_bytes() == 64 << 20);
	CHECK_OK(CU(cuCtxPopCurrent_v2, &current));
	CHECK(current == other);
	CHECK_OK(CU(cuCtxPushCurrent_v2, other));
	CHECK_OK(CU(cuCtxPushCurrent_v2, primary));
	CHECK_OK(CU(cuCtxDestroy_v2, other));
	CHECK_OK(CU(cuCtxPopCurrent_v2, NULL));
	CHECK_OK(CU(cuCtxGetDevice, &device));
	CHECK(device == 1);
	CHECK_RESULT(CUDA_ERROR_CONTEXT_IS_DESTROYED, CU(cuMemAlloc_v2, &p, 1));
	CHECK_OK(CU(cuCtxSetCurrent, primary));

	CHECK(!pthread_create(&thread, NULL, in_other_thread, primary) && !pthread_join(thread, NULL));
	CHECK(free_bytes() == (64 << 20) - 512);
	CHECK_OK(CU(cuDevicePrimaryCtxReset_v2, 0));
	CHECK_RESULT(CUDA_ERROR_CONTEXT_IS_DESTROYED, CU(cuMemAlloc_v2, &p, 1));
	CHECK_OK(CU(cuDevicePrimaryCtxRetain, &again, 0));
	CHECK(again == primary);
	CHECK_OK(CU(cuDevicePrimaryCtxRelease_v2, 0));
	CHECK(free_bytes() == 64 << 20);
	CHECK_OK(CU(cuMemAlloc_v2, &p, 1));
	CHECK_OK(CU(cuDevicePrimaryCtxRelease_v2, 0));
	CHECK_OK(CU(cuMemFree_v2, p));
	CHECK_OK(CU(cuDevicePrimaryCtxRelease_v2, 0));
	CHECK_RESULT(CUDA_ERROR_CONTEXT_IS_DESTROYED, CU(cuMemAlloc_v2, &p, 1));
	CHECK_OK(CU(cuDevicePrimaryCtxRetain, &again, 0));
	CHECK(again == primary);
	CHECK_OK(CU(cuMemAlloc_v2, &p, 1));
	CHECK_OK(CU(cuCtxSetCurrent, NULL)); /* pops one of two stacked contexts */
	CHECK_OK(CU(cuCtxGetCurrent, &current));
	CHECK(current == primary);
	CHECK_OK(CU(cuCtxSetCurrent, NULL));
	CHECK_OK(CU(cuCtxGetCurrent, &current));
	CHECK(!current);
}

static CUfunction some_function(void)
{
	CUmodule module;
	CUfunction f;
	CHECK_OK(CU(cuModuleLoadData, &module, test_ptx));
	CHECK_OK(CU(cuModuleGetFunction, &f, module, "scale_kernel"));
	return f;
}

static CUresult launch(CUfunction f, CUstream s)
{
	return CU(cuLaunchKernel, f, 1, 1, 1, 32, 1, 1, 0, s, NULL, NULL);
}

/* A kernel takes 20 ms, a copy 1 ms per MB. The upper limits are generous, because the machine
 * may be busy. */
void test_time(void)
{
	static char host[10 << 20];
	CUstream a, b;
	CUevent before, after;
	CUdeviceptr p;
	float ms;
	start_cuda();
	CUfunction f = some_function();
	CHECK_OK(CU(cuStreamCreate, &a, CU_STREAM_NON_BLOCKING));
	CHECK_OK(CU(cuStreamCreateWithPriority, &b, CU_STREAM_NON_BLOCKING, -1));
	CHECK_OK(CU(cuEventCreate, &before, CU_EVENT_DEFAULT));
	CHECK_OK(CU(cuEventCreate, &after, CU_EVENT_DEFAULT));
	CHECK_RESULT(CUDA_ERROR_INVALID_HANDLE, CU(cuEventElapsedTime, &ms, before, after));
	CHECK_OK(CU(cuEventSynchronize, before));

	double start = now_ms();
	CHECK_OK(CU(cuEventRecord, before, a));
	CHECK_OK(launch(f, a));
	CHECK_OK(launch(f, a));
	CHECK_OK(CU(cuEventRecord, after, a));
	CHECK(now_ms() - start < 20);
	CHECK_RESULT(CUDA_ERROR_NOT_READY, CU(cuStreamQuery, a));
	CHECK_RESULT(CUDA_ERROR_NOT_READY, CU(cuEventQuery, after));
	CHECK_RESULT(CUDA_ERROR_NOT_READY, CU(cuEventElapsedTime, &ms, before, after));
	CHECK_OK(CU(cuStreamQuery, b));
	CHECK_OK(CU(cuStreamSynchronize, a));
	CHECK(now_ms() - start >= 40);
	CHECK(now_ms() - start < 400);
	CHECK_OK(CU(cuStreamQuery, a));
	CHECK_OK(CU(cuEventElapsedTime_v2, &ms, before, after));
	CHECK(ms >= 40 && ms < 41);

	/* Streams run in parallel, unless one waits for an event of the other. */
	start = now_ms();
	CHECK_OK(launch(f, a));
	CHECK_OK(launch(f, b));
	CHECK_OK(CU(cuCtxSynchronize));
	CHECK(now_ms() - start >= 20 && now_ms() - start < 38);
	start = now_ms();
	CHECK_OK(launch(f, a));
	CHECK_OK(CU(cuEventRecord, after, a));
	CHECK_OK(CU(cuStreamWaitEvent, b, after, 0));
	CHECK_OK(launch(f, b));
	CHECK_OK(CU(cuStreamSynchronize, b));
	CHECK(now_ms() - start >= 40);

	/* The per-thread and the legacy default stream are two streams. */
	CHECK_OK(CU_VARIANT(cuLaunchKernel_ptsz, cuLaunchKernel, f, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, NULL));
	CHECK_OK(CU(cuStreamQuery, NULL));
	CHECK_RESULT(CUDA_ERROR_NOT_READY, CU_VARIANT(cuStreamQuery_ptsz, cuStreamQuery, NULL));
	CHECK_RESULT(CUDA_ERROR_NOT_READY, CU(cuStreamQuery, CU_STREAM_PER_THREAD));
	CHECK_OK(CU_VARIANT(cuStreamSynchronize_ptsz, cuStreamSynchronize, NULL));

	CHECK_OK(CU(cuMemAlloc_v2, &p, sizeof(host)));
	start = now_ms();
	CHECK_OK(CU(cuMemcpyHtoD_v2, p, host, sizeof(host)));
	CHECK(now_ms() - start >= 10.4);
	start = now_ms();
	CHECK_OK(CU(cuMemcpyHtoDAsync_v2, p, host, sizeof(host), a));
	CHECK(now_ms() - start < 10);
	CHECK_OK(CU(cuMemFree_v2, p)); /* waits for the context's work, as the real driver does */
	CHECK(now_ms() - start >= 10.4);

	CHECK_OK(CU(cuEventDestroy_v2, before));
	CHECK_RESULT(CUDA_ERROR_INVALID_HANDLE, CU(cuEventRecord, before, a));
	CHECK_OK(CU(cuStreamDestroy_v2, a));
	CHECK_RESULT(CUDA_ERROR_INVALID_HANDLE, launch(f, a));
	CHECK_RESULT(CUDA_ERROR_INVALID_HANDLE, CU(cuStreamDestroy_v2, a));
}

void test_modules(void)
{
	static const uint32_t elf[16] = {0x464c457f};
	CUmodule module, binary;
	CUlibrary library;
	CUfunction f, g;
	CUkernel k, l;
	const char *name;
	start_cuda();
	CHECK_RESULT(CUDA_ERROR_INVALID_VALUE, CU(cuModuleLoadData, &module, NULL));
	CHECK_RESULT(CUDA_ERROR_INVALID_IMAGE, CU(cuModuleLoadData, &module, "hello"));
	CHECK_OK(CU(cuModuleLoadData, &module, test_ptx));
	CHECK_RESULT(CUDA_ERROR_NOT_FOUND, CU(cuModuleGetFunction, &f, module, "scale"));
	CHECK_RESULT(CUDA_ERROR_INVALID_VALUE, CU(cuModuleGetFunction, &f, module, ""));
	CHECK_OK(CU(cuModuleGetFunction, &f, module, "_Z4gemmPKfS0_Pfi"));
	CHECK_OK(CU(cuModuleGetFunction, &g, module, "_Z4gemmPKfS0_Pfi"));
	CHECK(f == g);
	CHECK_OK(CU(cuModuleGetFunction, &g, module, "scale_kernel"));
	CHECK(f != g);
	/* The name is at offset 8, as in driver 580. */
	CHECK(!strcmp(((char **)f)[1], "_Z4gemmPKfS0_Pfi"));
	CHECK_OK(CU(cuFuncGetName, &name, g));
	CHECK(!strcmp(name, "scale_kernel"));
	CHECK_OK(CU(cuModuleLoadData, &binary, elf));
	CHECK_OK(CU(cuModuleGetFunction, &g, binary, "anything"));

	CHECK_OK(CU(cuLibraryLoadData, &library, test_ptx, NULL, NULL, 0, NULL, NULL, 0));
	CHECK_OK(CU(cuLibraryGetKernel, &k, library, "scale_kernel"));
	CHECK_OK(CU(cuLibraryGetKernel, &l, library, "scale_kernel"));
	CHECK(k == l);
	CHECK(!strcmp(((char **)k)[1], "scale_kernel"));
	CHECK_OK(CU(cuKernelGetFunction, &g, k));
	CHECK((void *)g != (void *)k && !strcmp(((char **)g)[1], "scale_kernel"));
	CHECK_OK(launch(g, NULL));
	CHECK_OK(launch((CUfunction)k, NULL));
	CHECK_OK(CU(cuLibraryUnload, library));
	CHECK_RESULT(CUDA_ERROR_INVALID_HANDLE, launch(g, NULL));
	CHECK_RESULT(CUDA_ERROR_INVALID_HANDLE, CU(cuLibraryGetKernel, &k, library, "scale_kernel"));
	CHECK_RESULT(CUDA_ERROR_INVALID_HANDLE, CU(cuModuleUnload, (CUmodule)library));

	/* A handle is reused and then means another object. */
	CHECK_OK(CU(cuModuleUnload, module));
	CHECK_RESULT(CUDA_ERROR_INVALID_HANDLE, launch(f, NULL));
	CHECK_OK(CU(cuModuleLoadData, &module, test_ptx));
	bool again = false;
	for (int i = 0; i < 4 && !again; i++) {
		CHECK_OK(CU(cuModuleGetFunction, &g, module, i % 2 ? "scale_kernel" : "_Z4gemmPKfS0_Pfi"));
		again = g == f;
	}
	CHECK(again);
}

void test_launches(void)
{
	CUlaunchConfig c = {.gridDimX = 1, .gridDimY = 1, .gridDimZ = 1, .blockDimX = 64, .blockDimY = 1, .blockDimZ = 1};
	start_cuda();
	CUfunction f = some_function();
#define LAUNCH(gx, gy, gz, bx, by, bz, shared) CU(cuLaunchKernel, f, gx, gy, gz, bx, by, bz, shared, NULL, NULL, NULL)
	CHECK_OK(LAUNCH(2147483647, 65535, 65535, 1024, 1, 1, 48 << 10));
	CHECK_RESULT(CUDA_ERROR_INVALID_VALUE, LAUNCH(0, 1, 1, 1, 1, 1, 0));
	CHECK_RESULT(CUDA_ERROR_INVALID_VALUE, LAUNCH(1, 65536, 1, 1, 1, 1, 0));
	CHECK_RESULT(CUDA_ERROR_INVALID_VALUE, LAUNCH(1, 1, 1, 1025, 1, 1, 0));
	CHECK_RESULT(CUDA_ERROR_INVALID_VALUE, LAUNCH(1, 1, 1, 64, 64, 1, 0));
	CHECK_RESULT(CUDA_ERROR_INVALID_VALUE, LAUNCH(1, 1, 1, 1, 1, 65, 0));
	CHECK_RESULT(CUDA_ERROR_INVALID_VALUE, LAUNCH(1, 1, 1, 1, 1, 1, 60000));
	CHECK_OK(CU(cuLaunchKernelEx, &c, f, NULL, NULL));
	CHECK_OK(CU_VARIANT(cuLaunchKernelEx_ptsz, cuLaunchKernelEx, &c, f, NULL, NULL));
	CHECK_RESULT(CUDA_ERROR_INVALID_VALUE, CU(cuLaunchKernelEx, NULL, f, NULL, NULL));
	CHECK_RESULT(CUDA_ERROR_INVALID_HANDLE, CU(cuLaunchKernelEx, &c, NULL, NULL, NULL));
	CHECK_RESULT(CUDA_ERROR_INVALID_HANDLE, launch((CUfunction)&c, NULL));
	double start = now_ms();
	for (int i = 0; i < 1000; i++)
		launch(f, NULL);
	CHECK_OK(CU(cuStreamQuery, NULL)); /* SIMCUDA_TIME=off: work completes at once */
	CHECK_OK(CU(cuStreamSynchronize, NULL));
	CHECK(now_ms() - start < 1000);
}

static void *address(const char *symbol, int version, uint64_t flags, int want)
{
	void *p = (void *)1;
	CUdriverProcAddressQueryResult status = 99;
	CHECK_OK(CU(cuGetProcAddress_v2, symbol, &p, version, flags, &status));
	CHECK_RESULT(want, status);
	CHECK(!p == !!want);
	return p;
}
#define EXPORTED(name) symbol_of("libcuda.so.1", name)

void test_proc_address(void)
{
	CHECK(address("cuInit", 13000, 0, 0) == EXPORTED("cuInit"));
	CHECK(address("cuMemAlloc", 13000, 0, 0) == EXPORTED("cuMemAlloc_v2"));
	CHECK(address("cuMemAlloc", 13000, 2, 0) == EXPORTED("cuMemAlloc_v2"));
	CHECK(address("cuLaunchKernel", 13000, 1, 0) == EXPORTED("cuLaunchKernel"));
	CHECK(address("cuLaunchKernel", 13000, 2, 0) == EXPORTED("cuLaunchKernel_ptsz"));
	CHECK(address("cuMemcpyHtoDAsync", 13000, 2, 0) == EXPORTED("cuMemcpyHtoDAsync_v2_ptsz"));
	CHECK(address("cuMemcpyHtoD", 13000, 2, 0) == EXPORTED("cuMemcpyHtoD_v2_ptds"));
	CHECK(address("cuCtxCreate", 13000, 0, 0) == EXPORTED("cuCtxCreate_v4"));
	CHECK(address("cuCtxCreate", 12000, 0, 0) == EXPORTED("cuCtxCreate_v3"));
	CHECK(address("cuCtxCreate", 11000, 0, 0) == EXPORTED("cuCtxCreate_v2"));
	CHECK(address("cuGetProcAddress", 12000, 0, 0) == EXPORTED("cuGetProcAddress_v2"));
	address("cuLaunchKernelEx", 11000, 0, CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
	address("cuNoSuchFunction", 13000, 0, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
	address("cuMemAlloc_v2", 13000, 0, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
	address("cuLaunchKernel_ptsz", 13000, 2, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
	address("malloc", 13000, 0, CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND);
	CHECK_RESULT(CUDA_ERROR_INVALID_VALUE, CU(cuGetProcAddress_v2, NULL, NULL, 13000, 0, NULL));
}

void test_faults(void)
{
	CUdevice device;
	CUdeviceptr p[4];
	CHECK_OK(CU(cuInit, 0));
	CHECK_RESULT(CUDA_ERROR_INVALID_DEVICE, CU(cuDeviceGet, &device, 0));
	CHECK_OK(CU(cuDeviceGet, &device, 0));
	start_cuda();
	size_t before = free_bytes();
	CHECK_OK(CU(cuMemAlloc_v2, &p[0], 512));
	CHECK_RESULT(CUDA_ERROR_OUT_OF_MEMORY, CU(cuMemAlloc_v2, &p[1], 512));
	CHECK_OK(CU(cuMemAlloc_v2, &p[2], 512));
	CHECK_RESULT(CUDA_ERROR_UNKNOWN, CU(cuMemAlloc_v2, &p[3], 512));
	CHECK(free_bytes() == before - 1024);
	CHECK_RESULT(719, CU(cuStreamSynchronize, NULL));
	CHECK_RESULT(719, CU(cuStreamSynchronize, NULL));
	CHECK_OK(CU_VARIANT(cuStreamSynchronize_ptsz, cuStreamSynchronize, NULL));
}
