/* Batched prefetches and discards, decompression, external semaphores and checkpoints. */
#include "every.h"

#include <sys/mman.h>
#include <unistd.h>

static void ranges(void)
{
	CUdeviceptr p = 0, list[3];
	size_t sizes[3], index = 0;
	CUmemLocation to = {CU_MEM_LOCATION_TYPE_DEVICE, every.device};
	CUstream *s = every.streams;
	OK(cuMemAllocManaged, &p, 1 << 20, CU_MEM_ATTACH_GLOBAL);
	for (unsigned int i = 0; i < 3; i++) {
		list[i] = p + 65536 * (i + 1);
		sizes[i] = unique_bytes();
	}
	OK(cuMemPrefetchBatchAsync, list, sizes, 3, &to, &index, 1, 0, s[0]);
	OK_AS(cuMemPrefetchBatchAsync_ptsz, cuMemPrefetchBatchAsync, list + 1, sizes + 1, 2, &to, &index, 1, 0, s[1]);
	OK(cuMemDiscardBatchAsync, list + 1, sizes + 1, 2, 0, s[2]);
	OK_AS(cuMemDiscardBatchAsync_ptsz, cuMemDiscardBatchAsync, list, sizes, 2, 0, s[3]);
	OK(cuMemDiscardAndPrefetchBatchAsync, list + 2, sizes + 2, 1, &to, &index, 1, 0, s[0]);
	OK_AS(cuMemDiscardAndPrefetchBatchAsync_ptsz, cuMemDiscardAndPrefetchBatchAsync, list, sizes, 1, &to, &index, 1, 0, s[1]);
	OK(cuStreamAttachMemAsync, s[2], p, 1 << 20, CU_MEM_ATTACH_SINGLE);
	OK_AS(cuStreamAttachMemAsync_ptsz, cuStreamAttachMemAsync, s[3], p, 1 << 20, CU_MEM_ATTACH_GLOBAL);
	list[1] = every.buffer_a;
	FAILS(CUDA_ERROR_INVALID_VALUE, cuMemDiscardBatchAsync, list, sizes, 3, 0, s[0]);
	FAILS(CUDA_ERROR_INVALID_VALUE, cuMemPrefetchBatchAsync, list, sizes, 3, &to, &index, 0, 0, s[1]);
	OK(cuMemFree_v2, p);
}

static void decompression(void)
{
	CUmemDecompressParams list[2] = {
		{.srcNumBytes = 100, .dstNumBytes = 400, .src = (void *)(uintptr_t)every.buffer_a, .dst = (void *)(uintptr_t)every.buffer_b},
		{.srcNumBytes = 200, .dstNumBytes = 800, .src = (void *)(uintptr_t)(every.buffer_a + 4096),
		 .dst = (void *)(uintptr_t)(every.buffer_b + 4096)},
	};
	size_t wrong = 0;
	OK(cuMemBatchDecompressAsync, list, 2, 0, &wrong, every.streams[0]);
	OK_AS(cuMemBatchDecompressAsync_ptsz, cuMemBatchDecompressAsync, list + 1, 1, 0, &wrong, every.streams[1]);
	list[0].src = NULL;
	FAILS(CUDA_ERROR_INVALID_VALUE, cuMemBatchDecompressAsync, list, 2, 0, &wrong, every.streams[2]);
}

static void semaphores(void)
{
	CUDA_EXTERNAL_SEMAPHORE_HANDLE_DESC desc = {.type = CU_EXTERNAL_SEMAPHORE_HANDLE_TYPE_OPAQUE_FD};
	const CUDA_EXTERNAL_SEMAPHORE_PARAMS params[2] = {{{0}}};
	CUexternalSemaphore list[2] = {NULL};
	CUstream *s = every.streams;
	for (int i = 0; i < 2; i++) {
		desc.handle.fd = memfd_create("every", MFD_CLOEXEC);
		OK(cuImportExternalSemaphore, &list[i], &desc);
	}
	OK(cuSignalExternalSemaphoresAsync, list, params, 2, s[0]);
	OK_AS(cuSignalExternalSemaphoresAsync_ptsz, cuSignalExternalSemaphoresAsync, list + 1, params, 1, s[1]);
	OK(cuWaitExternalSemaphoresAsync, list + 1, params, 1, s[2]);
	OK_AS(cuWaitExternalSemaphoresAsync_ptsz, cuWaitExternalSemaphoresAsync, list, params, 2, s[3]);
	OK(cuDestroyExternalSemaphore, list[0]);
	FAILS(CUDA_ERROR_INVALID_HANDLE, cuWaitExternalSemaphoresAsync, list, params, 1, s[0]);
	OK(cuDestroyExternalSemaphore, list[1]);
	desc.handle.fd = -1;
	FAILS(CUDA_ERROR_INVALID_VALUE, cuImportExternalSemaphore, &list[0], &desc);
	FAILS(CUDA_ERROR_INVALID_HANDLE, cuDestroyExternalSemaphore, BAD_HANDLE(CUexternalSemaphore));
	OK(cuFlushGPUDirectRDMAWrites, 0, 200);
	FAILS(CUDA_ERROR_INVALID_VALUE, cuFlushGPUDirectRDMAWrites, 0, 1);
}

static void checkpoints(void)
{
	int pid = (int)getppid();
	OK(cuCheckpointProcessLock, pid, NULL);
	OK(cuCheckpointProcessCheckpoint, pid, NULL);
	OK(cuCheckpointProcessRestore, pid, NULL);
	OK(cuCheckpointProcessUnlock, pid, NULL);
	FAILS(CUDA_ERROR_INVALID_VALUE, cuCheckpointProcessLock, 0, NULL);
}

void every_hints(void)
{
	ranges();
	decompression();
	semaphores();
	checkpoints();
}
