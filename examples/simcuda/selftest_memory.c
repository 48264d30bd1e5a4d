/* Tests of capacity, address reuse, memory pools, and host memory that holds data. */
#include "selftest.h"

#include <pthread.h>

static size_t free_bytes(void)
{
	size_t bytes, total;
	CHECK_OK(CU(cuMemGetInfo_v2, &bytes, &total));
	return bytes;
}

void test_capacity(void)
{
	CUdeviceptr p, q;
	size_t pitch;
	start_cuda();
	CHECK(free_bytes() == 64 << 20);
	CHECK_OK(CU(cuMemAlloc_v2, &p, 40 << 20));
	CHECK_RESULT(CUDA_ERROR_OUT_OF_MEMORY, CU(cuMemAlloc_v2, &q, 40 << 20));
	CHECK_RESULT(CUDA_ERROR_OUT_OF_MEMORY, CU(cuMemAlloc_v2, &q, (size_t)1 << 50));
	CHECK_RESULT(CUDA_ERROR_OUT_OF_MEMORY, CU(cuMemAlloc_v2, &q, SIZE_MAX));
	CHECK_OK(CU(cuMemAlloc_v2, &q, 24 << 20));
	CHECK(free_bytes() == 0);
	CHECK_RESULT(CUDA_ERROR_OUT_OF_MEMORY, CU(cuMemAlloc_v2, &q, 1));
	CHECK_OK(CU(cuMemFree_v2, p));
	CHECK(free_bytes() == 40 << 20);
	CHECK_OK(CU(cuMemAlloc_v2, &p, 100));
	CHECK(free_bytes() == (40 << 20) - 512);

	CHECK_RESULT(CUDA_ERROR_INVALID_VALUE, CU(cuMemAlloc_v2, &p, 0));
	CHECK_RESULT(CUDA_ERROR_INVALID_VALUE, CU(cuMemAlloc_v2, NULL, 1));
	CHECK_OK(CU(cuMemFree_v2, 0));
	CHECK_RESULT(CUDA_ERROR_INVALID_VALUE, CU(cuMemFree_v2, p + 256));
	CHECK_RESULT(CUDA_ERROR_INVALID_VALUE, CU(cuMemFree_v2, 0xdead000));
	CHECK_OK(CU(cuMemFree_v2, p));
	CHECK_RESULT(CUDA_ERROR_INVALID_VALUE, CU(cuMemFree_v2, p));

	CHECK_OK(CU(cuMemAllocPitch_v2, &p, &pitch, 1000, 3, 4));
	CHECK(pitch == 1024);
	CHECK(free_bytes() == (40 << 20) - 3072);
	CHECK_RESULT(CUDA_ERROR_INVALID_VALUE, CU(cuMemAllocPitch_v2, &p, &pitch, 1000, 0, 4));
	CHECK_RESULT(CUDA_ERROR_INVALID_VALUE, CU(cuMemAllocPitch_v2, &p, &pitch, 1000, 3, 3));
}

enum { BLOCKS = 512, ROUNDS = 20000 };

void test_addresses(void)
{
	static struct { CUdeviceptr at; size_t bytes; } live[BLOCKS];
	uint64_t random = 88172645463325252ull;
	CUdeviceptr p, q;
	start_cuda();
	CHECK_OK(CU(cuMemAlloc_v2, &p, 4096));
	CHECK(p >> 40 == 0x7f || p >> 40 == 0x7e);
	CHECK(p % 512 == 0);
	CHECK_OK(CU(cuMemFree_v2, p));
	CHECK_OK(CU(cuMemAlloc_v2, &q, 4096));
	CHECK(p == q);
	CHECK_OK(CU(cuMemFree_v2, q));

	/* Random allocations and frees: blocks never overlap, and all memory is one free block
	 * at the end. */
	bool apart = true, ok = true;
	for (int i = 0; i < ROUNDS; i++) {
		random ^= random << 13, random ^= random >> 7, random ^= random << 17;
		int n = (int)(random % BLOCKS);
		if (live[n].at) {
			ok &= !CU(cuMemFree_v2, live[n].at);
			live[n].at = 0;
			continue;
		}
		live[n].bytes = 1 + (random >> 20) % (random & 1 << 12 ? 1 << 20 : 4096);
		CUresult result = CU(cuMemAlloc_v2, &live[n].at, live[n].bytes);
		ok &= !result || result == CUDA_ERROR_OUT_OF_MEMORY;
		for (int other = 0; other < BLOCKS && !result; other++)
			apart &= other == n || !live[other].at || live[n].at + live[n].bytes <= live[other].at ||
				 live[other].at + live[other].bytes <= live[n].at;
	}
	CHECK(ok);
	CHECK(apart);
	for (int n = 0; n < BLOCKS; n++)
		if (live[n].at)
			CHECK_OK(CU(cuMemFree_v2, live[n].at));
	CHECK(free_bytes() == 256 << 20);
	CHECK_OK(CU(cuMemAlloc_v2, &p, 256 << 20));
}

void test_pool(void)
{
	CUdeviceptr p, q;
	CUstream s;
	start_cuda();
	CHECK_OK(CU(cuStreamCreate, &s, CU_STREAM_NON_BLOCKING));
	CHECK_OK(CU(cuMemAllocAsync, &p, 40 << 20, s));
	CHECK_OK(CU(cuMemFreeAsync, p, s));
	CHECK(free_bytes() == 24 << 20); /* freed memory is in the pool, not free on the device */
	CHECK_RESULT(CUDA_ERROR_INVALID_VALUE, CU(cuMemFreeAsync, p, s));
	CHECK_OK(CU(cuMemAllocAsync, &q, 30 << 20, s));
	CHECK(free_bytes() == 24 << 20); /* the allocation came out of the pool */
	CHECK_OK(CU(cuStreamSynchronize, s));
	CHECK(free_bytes() == 34 << 20); /* the synchronisation released the pool's idle memory */
	CHECK_OK(CU_VARIANT(cuMemFreeAsync_ptsz, cuMemFreeAsync, q, NULL));
	/* The pool releases idle memory before an allocation fails. */
	CHECK_OK(CU(cuMemAlloc_v2, &p, 64 << 20));
	/* Not pool memory, but its bytes also stay reserved until a synchronisation. */
	CHECK_OK(CU(cuMemFreeAsync, p, s));
	CHECK(free_bytes() == 0);
	CHECK_OK(CU(cuCtxSynchronize));
	CHECK(free_bytes() == 64 << 20);
	CHECK_OK(CU_VARIANT(cuMemAllocAsync_ptsz, cuMemAllocAsync, &p, 1 << 20, NULL));
	CHECK_OK(CU(cuMemFree_v2, p)); /* cuMemFree accepts pool memory too */
	CHECK(free_bytes() == 64 << 20);
	CHECK_RESULT(CUDA_ERROR_INVALID_HANDLE, CU(cuMemAllocAsync, &p, 1, (CUstream)0xbad0));
	CHECK_OK(CU(cuMemAllocAsync, &p, 0, s));
	CHECK(!p);
	CHECK_OK(CU(cuMemFreeAsync, 0, s));
	CHECK_OK(CU(cuMemFreeHost, NULL));
}

void test_real_memory(void)
{
	unsigned int *pinned, *managed;
	CUdeviceptr m, d;
	void *h;
	char plain[4096];
	start_cuda();
	size_t before = free_bytes();
	CHECK_OK(CU(cuMemHostAlloc, &h, 10000, 0));
	pinned = h;
	CHECK_OK(CU(cuMemAllocManaged, &m, 1 << 20, CU_MEM_ATTACH_GLOBAL));
	managed = (unsigned int *)(uintptr_t)m;
	CHECK(free_bytes() == before); /* managed and pinned memory are not device memory */
	CHECK(managed[0] == 0 && pinned[0] == 0);
	CHECK_OK(CU(cuMemsetD32_v2, m, 0x12345678, (1 << 20) / 4));
	CHECK(managed[(1 << 18) - 1] == 0x12345678);
	CHECK_OK(CU(cuMemcpyDtoH_v2, pinned, m, 4096));
	CHECK(pinned[1023] == 0x12345678 && pinned[1024] == 0);
	CHECK_OK(CU(cuMemsetD8Async, m, 0xab, 2, NULL));
	CHECK(managed[0] == 0x1234abab);
	CHECK_RESULT(CUDA_ERROR_INVALID_VALUE, CU(cuMemsetD32_v2, m + 1, 0, 1));
	CHECK_RESULT(CUDA_ERROR_INVALID_VALUE, CU(cuMemsetD8_v2, (CUdeviceptr)(uintptr_t)plain, 0, 1));

	CHECK_OK(CU(cuMemAlloc_v2, &d, sizeof(plain)));
	memset(plain, 1, sizeof(plain));
	CHECK_OK(CU(cuMemcpyHtoD_v2, d, plain, sizeof(plain)));
	CHECK_OK(CU(cuMemcpyDtoD_v2, d, m, sizeof(plain)));
	CHECK_OK(CU(cuMemcpyDtoH_v2, plain, d, 100));
	CHECK(plain[0] == 0 && plain[99] == 0 && plain[100] == 1);
	CHECK_OK(CU(cuMemcpy, m, (CUdeviceptr)(uintptr_t)plain, sizeof(plain)));
	CHECK(((char *)managed)[4095] == 1);
	CHECK_OK(CU(cuMemcpyHtoD_v2, d, plain, 0));
	CHECK_RESULT(CUDA_ERROR_INVALID_VALUE, CU(cuMemcpyHtoD_v2, (CUdeviceptr)(uintptr_t)plain, plain, 1));
	CHECK_RESULT(CUDA_ERROR_INVALID_VALUE, CU(cuMemcpyDtoH_v2, plain, (CUdeviceptr)(uintptr_t)plain, 1));
	CHECK_RESULT(CUDA_ERROR_INVALID_VALUE, CU(cuMemcpyHtoD_v2, d, NULL, 1));

	CHECK_RESULT(CUDA_ERROR_INVALID_VALUE, CU(cuMemFreeHost, plain));
	CHECK_RESULT(CUDA_ERROR_INVALID_VALUE, CU(cuMemFree_v2, (CUdeviceptr)(uintptr_t)pinned));
	CHECK_OK(CU(cuMemFreeHost, pinned));
	CHECK_RESULT(CUDA_ERROR_INVALID_VALUE, CU(cuMemFreeHost, pinned));
	CHECK_OK(CU(cuMemFree_v2, m));
	CHECK_RESULT(CUDA_ERROR_OUT_OF_MEMORY, CU(cuMemAllocManaged, &m, (size_t)1 << 50, CU_MEM_ATTACH_GLOBAL));
	CHECK_RESULT(CUDA_ERROR_INVALID_VALUE, CU(cuMemAllocManaged, &m, 1, 3));
	CHECK_OK(CU(cuMemHostAlloc, &h, 0, 0));
	CHECK(!h);
	CHECK_OK(CU(cuMemAllocHost_v2, &h, 1));
	*(char *)h = 1;
}

static void *churn(void *context)
{
	enum { TIMES = 20000, KEPT = 16 };
	CUdeviceptr kept[KEPT] = {0};
	bool ok = !CU(cuCtxSetCurrent, context);
	__typeof__(cuMemAlloc_v2) *take = symbol_of("libcuda.so.1", "cuMemAlloc_v2");
	__typeof__(cuMemFree_v2) *give = symbol_of("libcuda.so.1", "cuMemFree_v2");
	for (int i = 0; i < TIMES; i++) {
		if (kept[i % KEPT])
			ok &= !give(kept[i % KEPT]);
		ok &= !take(&kept[i % KEPT], (size_t)(i * 7919 % 100000 + 1));
	}
	for (int i = 0; i < KEPT; i++)
		ok &= !give(kept[i]);
	CHECK(ok);
	return NULL;
}

void test_memory_threads(void)
{
	pthread_t threads[4];
	CUcontext context = start_cuda();
	size_t before = free_bytes();
	for (int i = 0; i < 4; i++)
		CHECK(!pthread_create(&threads[i], NULL, churn, context));
	for (int i = 0; i < 4; i++)
		CHECK(!pthread_join(threads[i], NULL));
	CHECK(free_bytes() == before);
}
