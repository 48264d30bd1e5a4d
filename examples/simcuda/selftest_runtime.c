/* Tests of the runtime: each runtime call makes the same driver call as the real runtime. */
#include "selftest.h"

#include "cudart_sim.h"

#include <dlfcn.h>

#define RT(fn, ...) (((__typeof__(fn) *)symbol_of("libcudart.so.13", #fn))(__VA_ARGS__))

/* The host stub that nvcc generates for a kernel. */
static void stub(void) {}
static void stub_of_nothing(void) {}

static void check_memory(void)
{
	void *p, *h, *m;
	char plain[256];
	CHECK_OK(RT(cudaMalloc, &p, 1000));
	CHECK(field_is(ledger_last("cuMemAlloc_v2"), BYTES, "1000"));
	CHECK_RESULT(cudaErrorMemoryAllocation, RT(cudaMalloc, &h, (size_t)1 << 50));
	CHECK_RESULT(cudaErrorMemoryAllocation, RT(cudaGetLastError));
	CHECK_OK(RT(cudaGetLastError));
	CHECK(!strcmp(RT(cudaGetErrorString, cudaErrorMemoryAllocation), "out of memory"));
	CHECK_OK(RT(cudaMemcpy, p, plain, sizeof(plain), cudaMemcpyHostToDevice));
	CHECK(field_is(ledger_last("cuMemcpyHtoD_v2"), BYTES, "256"));
	CHECK_OK(RT(cudaMemcpyAsync, plain, p, sizeof(plain), cudaMemcpyDeviceToHost, NULL));
	CHECK(field_is(ledger_last("cuMemcpyDtoHAsync_v2"), BYTES, "256"));
	CHECK_OK(RT(cudaMemcpy, p, plain, 5, cudaMemcpyDefault));
	CHECK(field_is(ledger_last("cuMemcpy"), BYTES, "5"));
	CHECK_RESULT(cudaErrorInvalidMemcpyDirection, RT(cudaMemcpy, p, plain, 5, (enum cudaMemcpyKind)9));
	CHECK_OK(RT(cudaMemset, p, 1, 10));
	CHECK_OK(RT(cudaMemsetAsync, p, 1, 10, NULL));
	CHECK_OK(RT(cudaFree, p));
	CHECK_OK(RT(cudaFree, NULL));
	CHECK_OK(RT(cudaMallocAsync, &p, 10, NULL));
	CHECK_OK(RT(cudaFreeAsync, p, NULL));
	CHECK_OK(RT(cudaHostAlloc, &h, 10, 0));
	CHECK_OK(RT(cudaFreeHost, h));
	CHECK_OK(RT(cudaMallocHost, &h, 10));
	CHECK_OK(RT(cudaFreeHost, h));
	CHECK_OK(RT(cudaMallocManaged, &m, 10, CU_MEM_ATTACH_GLOBAL));
	*(char *)m = 1;
	CHECK_OK(RT(cudaFree, m));
}

static void check_launches(void)
{
	static const struct { unsigned int magic, version; const void *data, *unused; } fatbin = {0x466243b1, 1, NULL, NULL};
	const dim3 grid = {3, 2, 1}, block = {64, 2, 1};
	cudaKernel_t kernel;
	void **binary = RT(__cudaRegisterFatBinary, (void *)(uintptr_t)&fatbin);
	RT(__cudaRegisterFunction, binary, (const char *)stub, NULL, "_Z4stubv", -1, NULL, NULL, NULL, NULL, NULL);
	RT(__cudaRegisterFatBinaryEnd, binary);
	CHECK_RESULT(cudaErrorInvalidDeviceFunction,
		     RT(cudaLaunchKernel, (const void *)stub_of_nothing, grid, block, NULL, 0, NULL));
	CHECK_OK(RT(cudaLaunchKernel, (const void *)stub, grid, block, NULL, 17, NULL));
	const struct line *l = ledger_last("cuLaunchKernel");
	CHECK(field_is(l, KERNEL, "_Z4stubv") && field_is(l, GRID_X, "3") && field_is(l, BLOCK_Y, "2"));
	CHECK(field_is(l, SHARED_BYTES, "17"));
	CHECK_OK(RT(__cudaGetKernel, &kernel, (const void *)stub));
	CHECK(field_is(ledger_last("cuLibraryGetKernel"), FUNCTION, "0x%lx", (unsigned long)(uintptr_t)kernel));
	CHECK_OK(RT(__cudaLaunchKernel, kernel, grid, block, NULL, 18, NULL));
	CHECK(field_is(ledger_last("cuLaunchKernel"), SHARED_BYTES, "18"));
	CHECK_OK(RT(__cudaLaunchKernel_ptsz, kernel, grid, block, NULL, 19, NULL));
	CHECK(field_is(ledger_last("cuLaunchKernel_ptsz"), SHARED_BYTES, "19"));
	const cudaLaunchConfig_t config = {{7, 1, 1}, {32, 1, 1}, 20, NULL, NULL, 0};
	CHECK_OK(RT(cudaLaunchKernelExC, &config, (const void *)stub, NULL));
	CHECK(field_is(ledger_last("cuLaunchKernelEx"), SHARED_BYTES, "20") && field_is(ledger_last("cuLaunchKernelEx"), GRID_X, "7"));
	CHECK_OK(RT(cudaLaunchCooperativeKernel, (const void *)stub, grid, block, NULL, 21, NULL));
	CHECK(field_is(ledger_last("cuLaunchCooperativeKernel"), SHARED_BYTES, "21"));
	RT(__cudaUnregisterFatBinary, binary);
	CHECK_RESULT(cudaErrorInvalidDeviceFunction, RT(cudaLaunchKernel, (const void *)stub, grid, block, NULL, 0, NULL));
	CHECK(field_is(ledger_last("cuLibraryUnload"), RESULT, "0"));
}

static void check_graphs(cudaStream_t stream)
{
	cudaGraph_t graph;
	cudaGraphExec_t exec;
	char rows[64] = {0}, plain[4096];
	void *p;
	CHECK_OK(RT(cudaMalloc, &p, 4096));
	CHECK_OK(RT(cudaStreamBeginCapture, stream, cudaStreamCaptureModeGlobal));
	CHECK_OK(RT(cudaMemsetAsync, p, 1, 100, stream));
	CHECK_RESULT(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, RT(cudaMalloc, &p, 1));
	CHECK_RESULT(CUDA_ERROR_STREAM_CAPTURE_INVALIDATED, RT(cudaStreamEndCapture, stream, &graph));
	CHECK_OK(RT(cudaStreamBeginCapture, stream, cudaStreamCaptureModeRelaxed));
	CHECK_OK(RT(cudaMemsetAsync, p, 1, 100, stream));
	CHECK_OK(RT(cudaStreamEndCapture, stream, &graph));
	CHECK_OK(RT(cudaGraphInstantiate, &exec, graph, 0));
	CHECK(field_is(ledger_last("cuGraphInstantiateWithFlags"), PTR, "0x%lx", (unsigned long)(uintptr_t)exec));
	CHECK_OK(RT(cudaGraphLaunch, exec, stream));
	CHECK_OK(RT(cudaGraphLaunch_ptsz, exec, NULL));
	CHECK(field_is(ledger_last("cuGraphLaunch_ptsz"), PTR, "0x%lx", (unsigned long)(uintptr_t)exec));
	CHECK_OK(RT(cudaGraphExecDestroy, exec));
	CHECK_OK(RT(cudaGraphDestroy, graph));
	CHECK_OK(RT(cudaHostRegister, plain, sizeof(plain), 0));
	CHECK_OK(RT(cudaHostUnregister, plain));
	CHECK_OK(RT(cudaMemcpy2D, p, 16, rows, 8, 8, 4, cudaMemcpyHostToDevice));
	CHECK(field_is(ledger_last("cuMemcpy2DUnaligned_v2"), BYTES, "32"));
	CHECK_OK(RT(cudaMemcpy2DAsync, rows, 8, p, 16, 8, 3, cudaMemcpyDefault, stream));
	CHECK(field_is(ledger_last("cuMemcpy2DAsync_v2"), BYTES, "24"));
}

void test_runtime(void)
{
	int n;
	cudaStream_t stream;
	cudaEvent_t event;
	CHECK_OK(RT(cudaGetDeviceCount, &n));
	CHECK(n == 2);
	check_memory();
	check_launches();
	CHECK_OK(RT(cudaStreamCreate, &stream));
	check_graphs(stream);
	CHECK_OK(RT(cudaEventCreate, &event));
	CHECK_OK(RT(cudaEventRecord, event, stream));
	CHECK_OK(RT(cudaEventSynchronize, event));
	CHECK_OK(RT(cudaStreamSynchronize, stream));
	CHECK_OK(RT(cudaEventDestroy, event));
	CHECK_OK(RT(cudaStreamDestroy, stream));
	CHECK_OK(RT(cudaDeviceSynchronize));
	CHECK(field_is(ledger_last("cuCtxSynchronize"), DEVICE, "0"));
	CHECK_OK(RT(cudaSetDevice, 1));
	CHECK_OK(RT(cudaGetDevice, &n));
	CHECK(n == 1);
	CHECK_OK(RT(cudaDeviceSynchronize));
	CHECK(field_is(ledger_last("cuCtxSynchronize"), DEVICE, "1"));
	CHECK_RESULT(cudaErrorInvalidDevice, RT(cudaSetDevice, 2));
}
