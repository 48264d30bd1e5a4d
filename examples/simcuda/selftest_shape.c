/* Tests of copies and memory sets of every shape in memory that holds data, and of images from
 * files and the linker. */
#include "selftest.h"

#include <unistd.h>

static void fill(unsigned char *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		p[i] = (unsigned char)(i * 7 + 1);
}

static void test_two_dimensions(unsigned char *to, const unsigned char *from)
{
	CUDA_MEMCPY2D c = {.srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = from, .srcPitch = 16, .srcXInBytes = 2, .srcY = 1,
			   .dstMemoryType = CU_MEMORYTYPE_UNIFIED, .dstDevice = (CUdeviceptr)(uintptr_t)to, .dstPitch = 32,
			   .WidthInBytes = 5, .Height = 3};
	memset(to, 0, 256);
	CHECK_OK(CU(cuMemcpy2D_v2, &c));
	for (int y = 0; y < 3; y++)
		CHECK(!memcmp(to + 32 * y, from + 16 * (y + 1) + 2, 5) && to[32 * y + 5] == 0);
	c.dstPitch = 4;
	CHECK_RESULT(CUDA_ERROR_INVALID_VALUE, CU(cuMemcpy2DUnaligned_v2, &c));
	c.Height = 1;
	CHECK_OK(CU(cuMemcpy2DUnaligned_v2, &c)); /* a single row needs no pitch */
	CHECK_RESULT(CUDA_ERROR_INVALID_VALUE, CU(cuMemcpy2D_v2, NULL));
	c.srcMemoryType = (CUmemorytype)9;
	CHECK_RESULT(CUDA_ERROR_INVALID_VALUE, CU(cuMemcpy2DAsync_v2, &c, NULL));
}

static void test_three_dimensions(unsigned char *to, const unsigned char *from, CUcontext context)
{
	CUDA_MEMCPY3D c = {.srcMemoryType = CU_MEMORYTYPE_HOST, .srcHost = from, .srcPitch = 8, .srcHeight = 4, .srcZ = 1,
			   .srcContext = context, .dstContext = context,
			   .dstMemoryType = CU_MEMORYTYPE_HOST, .dstHost = to, .dstPitch = 4, .dstHeight = 2,
			   .WidthInBytes = 3, .Height = 2, .Depth = 2};
	memset(to, 0, 256);
	CHECK_OK(CU(cuMemcpy3DAsync_v2, &c, NULL));
	for (int z = 0; z < 2; z++)
		for (int y = 0; y < 2; y++)
			CHECK(!memcmp(to + 8 * z + 4 * y, from + 32 * (z + 1) + 8 * y, 3) && to[8 * z + 4 * y + 3] == 0);
	CHECK_OK(CU(cuMemcpy3DPeer, &c));
	c.dstContext = NULL;
	CHECK_RESULT(CUDA_ERROR_INVALID_CONTEXT, CU(cuMemcpy3DPeerAsync, &c, NULL));
	c.dstHeight = 1;
	CHECK_RESULT(CUDA_ERROR_INVALID_VALUE, CU(cuMemcpy3D_v2, &c));
}

static void test_arrays_and_batches(unsigned char *to, CUdeviceptr device)
{
	const CUDA_ARRAY_DESCRIPTOR desc = {16, 4, CU_AD_FORMAT_UNSIGNED_INT8, 1};
	CUmemcpyAttributes attributes = {.srcAccessOrder = 1};
	CUdeviceptr dsts[2] = {(CUdeviceptr)(uintptr_t)to, (CUdeviceptr)(uintptr_t)to + 8}, srcs[2] = {device, 0xdead000};
	size_t sizes[2] = {4, 4}, index = 0, fail = 9;
	CUarray array;
	CUstream s;
	CHECK_OK(CU(cuArrayCreate_v2, &array, &desc));
	CHECK_OK(CU(cuMemcpyHtoA_v2, array, 0, to, 64));
	CHECK_RESULT(CUDA_ERROR_INVALID_VALUE, CU(cuMemcpyHtoA_v2, array, 1, to, 64));
	memset(to, 1, 64);
	CHECK_OK(CU(cuMemcpyAtoH_v2, to, array, 60, 4));
	CHECK(to[3] == 0 && to[4] == 1);
	CHECK_OK(CU(cuMemcpyAtoD_v2, device, array, 0, 64));
	CHECK_OK(CU(cuMemcpyDtoA_v2, array, 0, device, 64));
	CHECK_OK(CU(cuMemcpyAtoA_v2, array, 0, array, 32, 32));
	CHECK_RESULT(CUDA_ERROR_INVALID_HANDLE, CU(cuMemcpyAtoA_v2, array, 0, (CUarray)device, 32, 32));
	CHECK_OK(CU(cuStreamCreate, &s, CU_STREAM_NON_BLOCKING));
	memset(to, 1, 64);
	CHECK_RESULT(CUDA_ERROR_INVALID_VALUE, CU(cuMemcpyBatchAsync, dsts, srcs, sizes, 2, &attributes, &index, 1, &fail, NULL));
	CHECK_OK(CU(cuMemcpyBatchAsync_v2, dsts, srcs, sizes, 1, &attributes, &index, 1, s));
	CHECK(to[0] == 0 && to[4] == 1);
}

void test_shapes(void)
{
	static unsigned char from[256];
	CUdeviceptr m, device;
	CUcontext context = start_cuda();
	CHECK_OK(CU(cuMemAllocManaged, &m, 4096, CU_MEM_ATTACH_GLOBAL));
	CHECK_OK(CU(cuMemAlloc_v2, &device, 4096));
	unsigned char *to = (unsigned char *)(uintptr_t)m;
	fill(from, sizeof(from));
	test_two_dimensions(to, from);
	test_three_dimensions(to, from, context);
	test_arrays_and_batches(to, device);
	memset(to, 0, 256);
	CHECK_OK(CU(cuMemsetD16_v2, m, 0x0201, 3));
	CHECK(to[4] == 1 && to[5] == 2 && to[6] == 0);
	CHECK_OK(CU(cuMemsetD2D8Async, m + 64, 16, 9, 3, 4, NULL));
	CHECK(to[64 + 48 + 2] == 9 && to[64 + 48 + 3] == 0 && to[64 + 64] == 0);
	CHECK_OK(CU(cuMemsetD2D32_v2, m + 128, 16, 0x04030201, 2, 2));
	CHECK(to[128 + 16 + 7] == 4 && to[128 + 8] == 0);
	CHECK_RESULT(CUDA_ERROR_INVALID_VALUE, CU(cuMemsetD2D16_v2, m, 4, 1, 3, 2));
	CHECK_RESULT(CUDA_ERROR_INVALID_VALUE, CU(cuMemsetD16_v2, m + 1, 1, 1));
	CHECK_OK(CU(cuMemcpyPeer, device, context, m, context, 100));
	CHECK_RESULT(CUDA_ERROR_INVALID_CONTEXT, CU(cuMemcpyPeerAsync, device, context, m, NULL, 100, NULL));
}

static const char more_ptx[] =
	".version 7.0\n.target sm_52\n.address_size 64\n"
	".visible .global .align 8 .b8 state[24];\n.global .f32 factor = 0f3F800000;\n"
	".visible .entry first(.param .u64 p) {\n\tld.global.f32 %f1, [factor];\n\tret;\n}\n.visible .entry second() { ret; }\n";

void test_linking(void)
{
	char path[] = "/tmp/simcuda-ptx-XXXXXX";
	CUmodule module, again;
	CUlibrary library;
	CUlinkState state;
	CUfunction f, functions[2];
	CUkernel kernels[2];
	CUdeviceptr p;
	const char *name;
	unsigned int n;
	size_t bytes;
	void *image;
	start_cuda();
	int fd = mkstemp(path);
	CHECK(fd >= 0 && write(fd, more_ptx, sizeof(more_ptx) - 1) == sizeof(more_ptx) - 1);
	CHECK_OK(CU(cuModuleLoad, &module, path));
	CHECK_OK(CU(cuLibraryLoadFromFile, &library, path, NULL, NULL, 0, NULL, NULL, 0));
	CHECK(!unlink(path));
	CHECK_RESULT(CUDA_ERROR_FILE_NOT_FOUND, CU(cuModuleLoad, &again, path));
	CHECK_OK(CU(cuModuleGetFunctionCount, &n, module));
	CHECK(n == 2);
	CHECK_OK(CU(cuModuleEnumerateFunctions, functions, 2, module));
	CHECK_OK(CU(cuModuleGetFunction, &f, module, "second"));
	CHECK(f == functions[1]);
	CHECK_OK(CU(cuModuleGetGlobal_v2, &p, &bytes, module, "state"));
	CHECK(p && bytes == 24);
	CHECK_OK(CU(cuMemsetD8_v2, p, 0, bytes));
	CHECK_RESULT(CUDA_ERROR_INVALID_VALUE, CU(cuMemFree_v2, p));
	CHECK_OK(CU(cuModuleGetGlobal_v2, NULL, &bytes, module, "factor"));
	CHECK(bytes == 4);
	CHECK_RESULT(CUDA_ERROR_NOT_FOUND, CU(cuModuleGetGlobal_v2, &p, NULL, module, "stat"));

	CHECK_OK(CU(cuLibraryGetKernelCount, &n, library));
	CHECK_OK(CU(cuLibraryEnumerateKernels, kernels, 2, library));
	CHECK_OK(CU(cuKernelGetName, &name, kernels[0]));
	CHECK(n == 2 && !strcmp(name, "first"));
	CHECK_OK(CU(cuLibraryGetModule, &again, library));
	CHECK_OK(CU(cuModuleGetFunction, &f, again, "first"));
	CHECK_RESULT(CUDA_ERROR_NOT_PERMITTED, CU(cuModuleUnload, again));
	CHECK_OK(CU(cuLibraryUnload, library));
	CHECK_RESULT(CUDA_ERROR_INVALID_HANDLE, CU(cuModuleGetFunction, &f, again, "first"));

	CHECK_OK(CU(cuLinkCreate_v2, 0, NULL, NULL, &state));
	CHECK_OK(CU(cuLinkAddData_v2, state, CU_JIT_INPUT_PTX, (void *)(uintptr_t)more_ptx, sizeof(more_ptx), "a", 0, NULL, NULL));
	CHECK_OK(CU(cuLinkAddData_v2, state, CU_JIT_INPUT_PTX, (void *)(uintptr_t)test_ptx, strlen(test_ptx) + 1, "b", 0, NULL, NULL));
	CHECK_RESULT(CUDA_ERROR_INVALID_IMAGE,
		     CU(cuLinkAddData_v2, state, CU_JIT_INPUT_PTX, (void *)(uintptr_t)"x", 2, "c", 0, NULL, NULL));
	CHECK_OK(CU(cuLinkComplete, state, &image, &bytes));
	CHECK(!memcmp(image, "\177ELF", 4));
	CHECK_OK(CU(cuModuleLoadDataEx, &again, image, 0, NULL, NULL));
	CHECK_OK(CU(cuLinkDestroy, state));
	CHECK_OK(CU(cuModuleGetFunction, &f, again, "second"));
	CHECK_OK(CU(cuModuleGetFunction, &f, again, "scale_kernel"));
	CHECK_RESULT(CUDA_ERROR_NOT_FOUND, CU(cuModuleGetFunction, &f, again, "third"));
	CHECK_OK(CU(cuLaunchCooperativeKernel, f, 132 * 16, 1, 1, 128, 1, 1, 0, NULL, NULL));
	CHECK_RESULT(CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE,
		     CU(cuLaunchCooperativeKernel, f, 132 * 16 + 1, 1, 1, 128, 1, 1, 0, NULL, NULL));
}

void test_more_contexts(void)
{
	CUcontext a, b, c;
	CUdevResource resource;
	CUdevResourceDesc desc;
	CUgreenCtx green;
	CUdevice device;
	CUdeviceptr p;
	a = start_cuda();
	CHECK_OK(CU(cuDevicePrimaryCtxRetain, &b, 1));
	CHECK_OK(CU(cuCtxGetDevice_v2, &device, b));
	CHECK(device == 1);
	CHECK_OK(CU(cuCtxSynchronize_v2, b));
	CHECK_RESULT(CUDA_ERROR_INVALID_CONTEXT, CU(cuCtxSynchronize_v2, (CUcontext)&a));
	CHECK_OK(CU(cuCtxEnablePeerAccess, b, 0));
	CHECK_RESULT(CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED, CU(cuCtxEnablePeerAccess, b, 0));
	CHECK_RESULT(CUDA_ERROR_INVALID_DEVICE, CU(cuCtxEnablePeerAccess, a, 0));
	CHECK_OK(CU(cuCtxDisablePeerAccess, b));
	CHECK_RESULT(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED, CU(cuCtxDisablePeerAccess, b));
	CHECK_OK(CU(cuCtxSetLimit, CU_LIMIT_STACK_SIZE, 4096));
	CHECK_RESULT(CUDA_ERROR_UNSUPPORTED_LIMIT, CU(cuCtxSetLimit, (CUlimit)50, 1));
	CHECK_OK(CU(cuDeviceGetDevResource, 1, &resource, CU_DEV_RESOURCE_TYPE_SM));
	CHECK(resource.sm.smCount == 132);
	CHECK_OK(CU(cuDevResourceGenerateDesc, &desc, &resource, 1));
	CHECK_OK(CU(cuGreenCtxCreate, &green, desc, 1, CU_GREEN_CTX_DEFAULT_STREAM));
	CHECK_OK(CU(cuCtxFromGreenCtx, &c, green));
	CHECK_OK(CU(cuCtxPushCurrent_v2, c));
	CHECK_OK(CU(cuMemAlloc_v2, &p, 4096));
	CHECK_RESULT(CUDA_ERROR_INVALID_CONTEXT, CU(cuCtxDestroy_v2, c));
	CHECK_OK(CU(cuGreenCtxDestroy, green));
	CHECK_RESULT(CUDA_ERROR_CONTEXT_IS_DESTROYED, CU(cuMemAlloc_v2, &p, 4096));
}
