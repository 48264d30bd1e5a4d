/* The child process of every, for memory shared between processes. The parent starts it before
 * initialising CUDA. Both processes share one allocation with the other and write the same
 * ledger. */
#include "every.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static int link_fd = -1; /* socket to the other process; in the child it is stdin */
static pid_t child = -1;

void every_start_child(void)
{
	int ends[2];
	if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) || (child = fork()) < 0) {
		perror("every: fork");
		exit(1);
	}
	if (child == 0) {
		dup2(ends[1], STDIN_FILENO);
		execl("/proc/self/exe", "every", "--ipc-child", (char *)NULL);
		_exit(127);
	}
	close(ends[1]);
	link_fd = ends[0];
}

/* The message with which a process shares its memory: IPC handle, pool and pool pointer. */
struct share_message {
	CUipcMemHandle memory;
	CUmemPoolPtrExportData pooled;
	int pool_fd; /* file descriptor, valid in the sending process */
};

static bool send_message(const struct share_message *share_message)
{
	return write(link_fd, share_message, sizeof(*share_message)) == sizeof(*share_message);
}

static bool receive_message(struct share_message *share_message)
{
	return recv(link_fd, share_message, sizeof(*share_message), MSG_WAITALL) == sizeof(*share_message);
}

/* Creates a pool that other processes may import, with one allocation from it. */
static CUdeviceptr share_pool(struct share_message *share_message, CUmemoryPool *pool)
{
	const CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
				      .handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
				      .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
	CUdeviceptr p = 0;
	OK(cuMemPoolCreate, pool, &props);
	OK(cuMemPoolExportToShareableHandle, &share_message->pool_fd, *pool, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
	OK(cuMemAllocFromPoolAsync, &p, 76543, *pool, NULL);
	OK(cuMemPoolExportPointer, &share_message->pooled, p);
	return p;
}

/* Imports the other process's pool and its allocation twice. One free ends both imports. */
static void import_pool(struct share_message *from, CUstream stream)
{
	CUmemoryPool pool = NULL;
	CUdeviceptr p = 0, again = 0;
	char path[64];
	snprintf(path, sizeof(path), "/proc/%d/fd/%d", (int)child, from->pool_fd);
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	OK(cuMemPoolImportFromShareableHandle, &pool, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
	OK(cuMemPoolImportPointer, &p, pool, &from->pooled);
	OK(cuMemPoolImportPointer, &again, pool, &from->pooled);
	every_check(p == again, "a second import of the allocation gives the same address");
	OK(cuMemcpyDtoD_v2, p, every.buffer_a, 333);
	FAILS(CUDA_ERROR_INVALID_VALUE, cuIpcCloseMemHandle, p);
	OK(cuMemFreeAsync, p, stream);
	FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2, p);
	OK(cuMemPoolImportPointer, &p, pool, &from->pooled);
	OK(cuMemFree_v2, p);
	FAILS(CUDA_ERROR_INVALID_VALUE, cuMemAllocFromPoolAsync, &p, 222, pool, stream);
	OK(cuMemPoolDestroy, pool);
	FAILS(CUDA_ERROR_INVALID_VALUE, cuMemPoolImportFromShareableHandle, &pool, (void *)-1,
	      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
	close(fd);
}

int every_run_child(void)
{
	struct share_message mine, theirs;
	CUmemoryPool pool = NULL;
	CUdeviceptr p = 0, opened = 0, pooled = 0;
	CUcontext context = NULL;
	CUdevice device;
	char byte;
	link_fd = STDIN_FILENO;
	if (!receive_message(&theirs))
		return 0; /* the parent failed earlier */
	OK(cuInit, 0);
	OK(cuDeviceGet, &device, 0);
	OK(cuDevicePrimaryCtxRetain, &context, device);
	OK(cuCtxSetCurrent, context);
	OK(cuMemAlloc_v2, &p, 54321);
	OK(cuIpcGetMemHandle, &mine.memory, p);
	pooled = share_pool(&mine, &pool);
	OK(cuIpcOpenMemHandle_v2, &opened, theirs.memory, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
	OK(cuMemsetD8_v2, opened, 1, 100);
	OK(cuIpcCloseMemHandle, opened);
	/* Keep the shared memory until the parent has opened and closed it. */
	if (!send_message(&mine) || read(link_fd, &byte, 1) != 1)
		return 1;
	OK(cuMemFreeAsync, pooled, NULL);
	OK(cuMemPoolDestroy, pool);
	OK(cuMemFree_v2, p);
	OK(cuDevicePrimaryCtxRelease_v2, device);
	return 0;
}

void every_shared(void)
{
	struct share_message mine, theirs;
	CUipcMemHandle nonsense = {{0}};
	CUmemoryPool pool = NULL;
	CUdeviceptr p = 0, pooled = 0, opened = 0, again = 0;
	OK(cuMemAlloc_v2, &p, 12345);
	OK(cuIpcGetMemHandle, &mine.memory, p);
	pooled = share_pool(&mine, &pool);
	FAILS(CUDA_ERROR_INVALID_VALUE, cuMemPoolExportPointer, &theirs.pooled, p);
	FAILS(CUDA_ERROR_INVALID_VALUE, cuMemPoolImportPointer, &opened, pool, &mine.pooled);
	FAILS(CUDA_ERROR_INVALID_VALUE, cuIpcGetMemHandle, &theirs.memory, (CUdeviceptr)(uintptr_t)&mine);
	FAILS(CUDA_ERROR_INVALID_CONTEXT, cuIpcOpenMemHandle_v2, &opened, mine.memory, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
	FAILS(CUDA_ERROR_INVALID_VALUE, cuIpcOpenMemHandle_v2, &opened, nonsense, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
	FAILS(CUDA_ERROR_INVALID_VALUE, cuIpcCloseMemHandle, p);
	if (!send_message(&mine) || !receive_message(&theirs)) {
		fprintf(stderr, "every: the child process ended before it shared its memory\n");
		exit(1);
	}
	OK(cuIpcOpenMemHandle_v2, &opened, theirs.memory, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
	OK(cuIpcOpenMemHandle, &again, theirs.memory, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
	OK(cuMemcpyDtoD_v2, opened, every.buffer_a, 222);
	OK(cuIpcCloseMemHandle, opened);
	OK(cuIpcCloseMemHandle, again);
	import_pool(&theirs, every.streams[0]);
	if (write(link_fd, "", 1) != 1)
		perror("every: write to the child process");
	OK(cuMemFreeAsync, pooled, NULL);
	OK(cuMemPoolDestroy, pool);
	OK(cuMemFree_v2, p);
}

void every_end_child(void)
{
	int status = 0;
	close(link_fd);
	if (waitpid(child, &status, 0) == child && status == 0)
		return;
	fprintf(stderr, "every: the child process failed (status 0x%x)\n", status);
	exit(1);
}
