/*
 * The other process, for memory that is shared: started before CUDA is, it gets a handle to open and gives one. Both write the same
 * ledger.
 */
#include "every.h"

#include <stdio.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static int link_fd = -1; /* to the other process; in the child it is stdin */
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

static bool send_handle(const CUipcMemHandle *handle)
{
	return write(link_fd, handle, sizeof(*handle)) == sizeof(*handle);
}

static bool receive_handle(CUipcMemHandle *handle)
{
	return recv(link_fd, handle, sizeof(*handle), MSG_WAITALL) == sizeof(*handle);
}

int every_be_child(void)
{
	CUipcMemHandle mine, theirs;
	CUdeviceptr p = 0, opened = 0;
	CUcontext context = NULL;
	CUdevice device;
	char byte;
	link_fd = STDIN_FILENO;
	if (!receive_handle(&theirs))
		return 0; /* the parent did not come so far */
	OK(cuInit, 0);
	OK(cuDeviceGet, &device, 0);
	OK(cuDevicePrimaryCtxRetain, &context, device);
	OK(cuCtxSetCurrent, context);
	OK(cuMemAlloc_v2, &p, 54321);
	OK(cuIpcGetMemHandle, &mine, p);
	OK(cuIpcOpenMemHandle_v2, &opened, theirs, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
	OK(cuMemsetD8_v2, opened, 1, 100);
	OK(cuIpcCloseMemHandle, opened);
	/* Until the parent has opened and closed it, the memory has to be there. */
	if (!send_handle(&mine) || read(link_fd, &byte, 1) != 1)
		return 1;
	OK(cuMemFree_v2, p);
	OK(cuDevicePrimaryCtxRelease_v2, device);
	return 0;
}

void every_shared(void)
{
	CUipcMemHandle mine, theirs, nonsense = {{0}};
	CUdeviceptr p = 0, opened = 0, again = 0;
	OK(cuMemAlloc_v2, &p, 12345);
	OK(cuIpcGetMemHandle, &mine, p);
	FAILS(CUDA_ERROR_INVALID_VALUE, cuIpcGetMemHandle, &theirs, (CUdeviceptr)(uintptr_t)&mine);
	FAILS(CUDA_ERROR_INVALID_CONTEXT, cuIpcOpenMemHandle_v2, &opened, mine, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
	FAILS(CUDA_ERROR_INVALID_VALUE, cuIpcOpenMemHandle_v2, &opened, nonsense, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
	FAILS(CUDA_ERROR_INVALID_VALUE, cuIpcCloseMemHandle, p);
	if (!send_handle(&mine) || !receive_handle(&theirs)) {
		fprintf(stderr, "every: the other process is gone\n");
		exit(1);
	}
	OK(cuIpcOpenMemHandle_v2, &opened, theirs, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
	OK(cuIpcOpenMemHandle_v2, &again, theirs, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS);
	OK(cuMemcpyDtoD_v2, opened, every.here, 222);
	OK(cuIpcCloseMemHandle, opened);
	OK(cuIpcCloseMemHandle, again);
	if (write(link_fd, "", 1) != 1)
		perror("every: the other process");
	OK(cuMemFree_v2, p);
}

void every_end_child(void)
{
	int status = 0;
	close(link_fd);
	if (waitpid(child, &status, 0) == child && status == 0)
		return;
	fprintf(stderr, "every: the other process failed (status 0x%x)\n", status);
	exit(1);
}
