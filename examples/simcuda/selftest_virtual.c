/* Tests of pools, virtual memory, arrays, registered and external memory, and memory shared
 * between processes. */
#include "selftest.h"

#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MB = 1 << 20 };

static size_t free_bytes(void)
{
	size_t bytes, total;
	CHECK_OK(CU(cuMemGetInfo_v2, &bytes, &total));
	return bytes;
}

static uint64_t attribute(CUmemoryPool pool, CUmemPool_attribute which)
{
	uint64_t value = 0;
	CHECK_OK(CU(cuMemPoolGetAttribute, pool, which, &value));
	return value;
}

void test_pools(void)
{
	CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
	CUmemoryPool pool, small, standard, current;
	CUdeviceptr p, q;
	CUstream s;
	uint64_t value = 20 * MB;
	start_cuda();
	CHECK_OK(CU(cuStreamCreate, &s, CU_STREAM_NON_BLOCKING));
	CHECK_RESULT(CUDA_ERROR_INVALID_VALUE, CU(cuMemPoolCreate, &pool, NULL));
	CHECK_OK(CU(cuMemPoolCreate, &pool, &props));
	CHECK_OK(CU(cuMemPoolSetAttribute, pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &value));
	CHECK_OK(CU(cuMemAllocFromPoolAsync, &p, 16 * MB, pool, s));
	CHECK_OK(CU(cuMemAllocFromPoolAsync, &q, 8 * MB, pool, s));
	CHECK(attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == 24 * MB);
	CHECK_OK(CU(cuMemFreeAsync, p, s));
	CHECK(attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == 8 * MB);
	CHECK(attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) == 24 * MB);
	CHECK(free_bytes() == 40 * MB);
	CHECK_OK(CU(cuStreamSynchronize, s));
	CHECK(free_bytes() == 44 * MB); /* idle memory beyond the release threshold was released */
	CHECK_OK(CU(cuMemPoolTrimTo, pool, 0));
	CHECK(free_bytes() == 56 * MB);
	CHECK(attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH) == 24 * MB);
	CHECK(attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH) == 24 * MB);
	value = 0;
	CHECK_OK(CU(cuMemPoolSetAttribute, pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &value));
	CHECK(attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH) == 8 * MB);
	CHECK_RESULT(CUDA_ERROR_INVALID_VALUE, CU(cuMemPoolSetAttribute, pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &value));
	CHECK_RESULT(CUDA_ERROR_INVALID_VALUE, CU(cuMemPoolGetAttribute, pool, (CUmemPool_attribute)99, &value));

	CHECK_OK(CU(cuDeviceGetDefaultMemPool, &standard, 0));
	CHECK_OK(CU(cuDeviceSetMemPool, 0, pool));
	CHECK_OK(CU(cuDeviceGetMemPool, &current, 0));
	CHECK(current == pool && standard != pool);
	CHECK_OK(CU(cuMemAllocAsync, &p, 1 * MB, s));
	CHECK(attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == 9 * MB);
	CHECK_OK(CU(cuMemFree_v2, p));
	CHECK(attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) == 8 * MB);
	/* Destroys the pool after its last allocation is freed; the handle is invalid from now
	 * on. */
	CHECK_OK(CU(cuMemPoolDestroy, pool));
	CHECK_OK(CU(cuDeviceGetMemPool, &current, 0));
	CHECK(current == standard);
	CHECK_RESULT(CUDA_ERROR_INVALID_VALUE, CU(cuMemAllocFromPoolAsync, &p, 1, pool, s));
	CHECK(free_bytes() == 56 * MB);
	CHECK_OK(CU(cuMemFreeAsync, q, s));
	CHECK(free_bytes() == 64 * MB);
	CHECK_RESULT(CUDA_ERROR_INVALID_VALUE, CU(cuMemPoolDestroy, standard));
	props.maxSize = 2 * MB;
	CHECK_OK(CU(cuMemPoolCreate, &small, &props));
	CHECK_RESULT(CUDA_ERROR_OUT_OF_MEMORY, CU(cuMemAllocFromPoolAsync, &p, 3 * MB, small, s));
	CHECK_OK(CU(cuMemAllocFromPoolAsync, &p, 2 * MB, small, s));
	CHECK_RESULT(CUDA_ERROR_OUT_OF_MEMORY, CU(cuMemAlloc_v2, &q, 63 * MB));
}

void test_virtual(void)
{
	const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};
	const CUmemAccessDesc access = {prop.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUmemGenericAllocationHandle h, again;
	CUdeviceptr va, other;
	size_t granularity;
	char host[64];
	start_cuda();
	CHECK_OK(CU(cuMemGetAllocationGranularity, &granularity, &prop, 0));
	CHECK(granularity == 2 * MB);
	/* Four times the capacity: reserving addresses uses no memory. */
	CHECK_OK(CU(cuMemAddressReserve, &va, 256 * MB, 0, 0, 0));
	CHECK(va % granularity == 0 && free_bytes() == 64 * MB);
	CHECK_RESULT(CUDA_ERROR_INVALID_VALUE, CU(cuMemAddressReserve, &other, 1000, 0, 0, 0));
	CHECK_OK(CU(cuMemAddressReserve, &other, 2 * MB, 64 * MB, 0, 0));
	CHECK(other % (64 * MB) == 0);
	CHECK_OK(CU(cuMemCreate, &h, 6 * MB, &prop, 0));
	CHECK(free_bytes() == 58 * MB);
	CHECK_RESULT(CUDA_ERROR_INVALID_VALUE, CU(cuMemCreate, &again, 1000, &prop, 0));
	CHECK_RESULT(CUDA_ERROR_OUT_OF_MEMORY, CU(cuMemCreate, &again, 60 * MB, &prop, 0));
	CHECK_RESULT(CUDA_ERROR_INVALID_VALUE, CU(cuMemcpyHtoD_v2, va, host, sizeof(host)));
	CHECK_OK(CU(cuMemMap, va, 4 * MB, 0, h, 0));
	CHECK_OK(CU(cuMemMap, va + 8 * MB, 2 * MB, 4 * MB, h, 0));
	/* Already mapped. */
	CHECK_RESULT(CUDA_ERROR_INVALID_VALUE, CU(cuMemMap, va + 2 * MB, 2 * MB, 0, h, 0));
	/* The reservation is too small. */
	CHECK_RESULT(CUDA_ERROR_INVALID_VALUE, CU(cuMemMap, other, 4 * MB, 0, h, 0));
	/* Access not set yet. */
	CHECK_RESULT(CUDA_ERROR_INVALID_VALUE, CU(cuMemcpyHtoD_v2, va, host, sizeof(host)));
	/* Part of the range is not mapped. */
	CHECK_RESULT(CUDA_ERROR_INVALID_VALUE, CU(cuMemSetAccess, va, 10 * MB, &access, 1));
	CHECK_OK(CU(cuMemSetAccess, va, 4 * MB, &access, 1));
	CHECK_OK(CU(cuMemcpyHtoD_v2, va + 3 * MB, host, sizeof(host)));
	CHECK_RESULT(CUDA_ERROR_INVALID_VALUE, CU(cuMemFree_v2, va));

	/* Physical memory lives while it is mapped or has a handle. */
	CHECK_OK(CU(cuMemRetainAllocationHandle, &again, (void *)(uintptr_t)(va + 9 * MB)));
	CHECK(again == h);
	CHECK_OK(CU(cuMemRelease, h));
	CHECK_OK(CU(cuMemRelease, h));
	CHECK_RESULT(CUDA_ERROR_INVALID_VALUE, CU(cuMemRelease, h));
	CHECK_RESULT(CUDA_ERROR_INVALID_VALUE, CU(cuMemUnmap, va, 2 * MB)); /* half of a mapping */
	CHECK_OK(CU(cuMemUnmap, va, 4 * MB));
	CHECK(free_bytes() == 58 * MB);
	CHECK_RESULT(CUDA_ERROR_INVALID_VALUE, CU(cuMemAddressFree, va, 256 * MB));
	CHECK_OK(CU(cuMemUnmap, va + 8 * MB, 2 * MB));
	CHECK(free_bytes() == 64 * MB);
	CHECK_RESULT(CUDA_ERROR_INVALID_VALUE, CU(cuMemAddressFree, va, 128 * MB));
	CHECK_OK(CU(cuMemAddressFree, va, 256 * MB));
	CHECK_OK(CU(cuMemAddressFree, other, 2 * MB));
	CHECK_RESULT(CUDA_ERROR_INVALID_VALUE, CU(cuMemMap, va, 2 * MB, 0, h, 0));
}

void test_other_memory(void)
{
	static _Alignas(4096) char plain[8192];
	const CUDA_ARRAY_DESCRIPTOR flat = {1024, 512, CU_AD_FORMAT_FLOAT, 2};
	const CUDA_ARRAY3D_DESCRIPTOR deep = {1024, 512, 2, CU_AD_FORMAT_HALF, 4, 0};
	CUDA_EXTERNAL_MEMORY_HANDLE_DESC desc = {.type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD, .size = 1 * MB};
	const CUDA_EXTERNAL_MEMORY_BUFFER_DESC buffer = {.offset = 4096, .size = 8192};
	CUexternalMemory external;
	CUmipmappedArray mipmapped;
	CUarray array;
	CUdeviceptr p, m;
	CUcontext context, current = start_cuda();
	CHECK_OK(CU(cuArrayCreate_v2, &array, &flat));
	CHECK(free_bytes() == 60 * MB);
	CHECK_OK(CU(cuArrayDestroy, array));
	CHECK_OK(CU(cuMipmappedArrayCreate, &mipmapped, &deep, 2));
	CHECK(free_bytes() < 56 * MB && free_bytes() > 54 * MB);
	CHECK_OK(CU(cuMipmappedArrayDestroy, mipmapped));
	CHECK_RESULT(CUDA_ERROR_INVALID_HANDLE, CU(cuMipmappedArrayDestroy, mipmapped));
	CHECK_OK(CU(cuCtxCreate_v2, &context, 0, 0));
	CHECK_OK(CU(cuArray3DCreate_v2, &array, &deep));
	CHECK_OK(CU(cuCtxDestroy_v2, context)); /* frees the context's arrays too */
	CHECK(free_bytes() == 64 * MB);
	CHECK_OK(CU(cuCtxGetCurrent, &context));
	CHECK(context == current);

	CHECK_OK(CU(cuMemHostRegister_v2, plain, 4096, 0));
	CHECK_OK(CU(cuMemsetD8_v2, (CUdeviceptr)(uintptr_t)plain, 7, 100));
	CHECK(plain[99] == 7 && plain[100] == 0);
	CHECK_RESULT(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, CU(cuMemHostRegister_v2, plain + 4000, 4096, 0));
	CHECK_OK(CU(cuMemHostRegister_v2, plain + 4096, 4096, 0));
	CHECK_RESULT(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, CU(cuMemHostUnregister, plain + 1));
	CHECK_OK(CU(cuMemHostUnregister, plain));
	CHECK_OK(CU(cuMemHostUnregister, plain + 4096));
	CHECK_RESULT(CUDA_ERROR_INVALID_VALUE, CU(cuMemHostRegister_v2, (void *)4096, 4096, 0));
	CHECK_RESULT(CUDA_ERROR_INVALID_VALUE, CU(cuMemsetD8_v2, (CUdeviceptr)(uintptr_t)plain, 7, 100));

	desc.handle.fd = memfd_create("selftest", MFD_CLOEXEC);
	CHECK_OK(CU(cuImportExternalMemory, &external, &desc));
	CHECK_OK(CU(cuExternalMemoryGetMappedBuffer, &p, external, &buffer));
	CHECK_OK(CU(cuMemsetD8_v2, p, 1, 8192));
	CHECK(free_bytes() == 64 * MB); /* external memory is not charged to the device */
	CHECK_OK(CU(cuMemFree_v2, p));
	CHECK_OK(CU(cuDestroyExternalMemory, external));
	/* cuDestroyExternalMemory closed the file descriptor */
	CHECK_RESULT(CUDA_ERROR_INVALID_VALUE, CU(cuImportExternalMemory, &external, &desc));

	CHECK_OK(CU(cuMemAllocManaged, &m, 1 * MB, CU_MEM_ATTACH_GLOBAL));
	CHECK_OK(CU(cuMemAdvise, m, 4096, CU_MEM_ADVISE_SET_READ_MOSTLY, 0));
	CHECK_RESULT(CUDA_ERROR_INVALID_DEVICE, CU(cuMemAdvise, m, 4096, CU_MEM_ADVISE_SET_READ_MOSTLY, 7));
	CHECK_OK(CU(cuMemPrefetchAsync, m, 4096, -1, NULL));
	CHECK_RESULT(CUDA_ERROR_INVALID_VALUE, CU(cuMemPrefetchAsync, (CUdeviceptr)(uintptr_t)plain, 4096, 0, NULL));
}

/* ---- memory shared between two processes ---- */

static void send_fd(int to, int fd)
{
	union { char bytes[CMSG_SPACE(sizeof(int))]; struct cmsghdr align; } control = {{0}};
	struct iovec data = {"", 1};
	struct msghdr m = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};
	struct cmsghdr *c = CMSG_FIRSTHDR(&m);
	c->cmsg_level = SOL_SOCKET;
	c->cmsg_type = SCM_RIGHTS;
	c->cmsg_len = CMSG_LEN(sizeof(int));
	memcpy(CMSG_DATA(c), &fd, sizeof(fd));
	CHECK(sendmsg(to, &m, 0) == 1);
}

static int receive_fd(int from)
{
	union { char bytes[CMSG_SPACE(sizeof(int))]; struct cmsghdr align; } control;
	char byte;
	struct iovec data = {&byte, 1};
	struct msghdr m = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof(control)};
	int fd = -1;
	CHECK(recvmsg(from, &m, 0) == 1 && CMSG_FIRSTHDR(&m));
	memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&m)), sizeof(fd));
	return fd;
}

static const CUmemAllocationProp shared_prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
						.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
						.location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};

static int exporter(int link)
{
	CUmemGenericAllocationHandle h;
	CUipcMemHandle handle;
	CUdeviceptr p;
	char byte;
	int fd;
	start_cuda();
	CHECK_OK(CU(cuMemAlloc_v2, &p, 8 * MB));
	CHECK_OK(CU(cuIpcGetMemHandle, &handle, p));
	CHECK_OK(CU(cuMemCreate, &h, 4 * MB, &shared_prop, 0));
	CHECK_OK(CU(cuMemExportToShareableHandle, &fd, h, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
	CHECK(write(link, &handle, sizeof(handle)) == sizeof(handle));
	send_fd(link, fd);
	CHECK(read(link, &byte, 1) == 1);
	CHECK_OK(CU(cuMemFree_v2, p));
	CHECK(write(link, "", 1) == 1 && read(link, &byte, 1) == 1);
	return 0;
}

void test_shared_memory(void)
{
	int ends[2], status;
	char byte;
	CUipcMemHandle handle;
	CUmemGenericAllocationHandle h;
	CUdeviceptr p, q, va;
	CHECK(!socketpair(AF_UNIX, SOCK_STREAM, 0, ends));
	pid_t pid = fork();
	if (pid == 0)
		_exit(exporter(ends[1]));
	start_cuda();
	CHECK(recv(ends[0], &handle, sizeof(handle), MSG_WAITALL) == sizeof(handle));
	int fd = receive_fd(ends[0]);
	CHECK(free_bytes() == 52 * MB); /* the other process uses 12 MiB */
	CHECK_RESULT(CUDA_ERROR_INVALID_VALUE, CU(cuIpcOpenMemHandle_v2, &p, handle, 0));
	CHECK_OK(CU(cuIpcOpenMemHandle_v2, &p, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	CHECK_OK(CU(cuIpcOpenMemHandle_v2, &q, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	CHECK(p == q && free_bytes() == 52 * MB);
	CHECK_OK(CU(cuMemsetD8_v2, p + 7 * MB, 1, 100));
	CHECK_RESULT(CUDA_ERROR_INVALID_VALUE, CU(cuMemFree_v2, p));
	CHECK_OK(CU(cuIpcCloseMemHandle, p));
	CHECK_OK(CU(cuIpcCloseMemHandle, p));
	CHECK_RESULT(CUDA_ERROR_INVALID_VALUE, CU(cuIpcCloseMemHandle, p));
	CHECK_OK(CU(cuMemImportFromShareableHandle, &h, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	CHECK_OK(CU(cuMemAddressReserve, &va, 4 * MB, 0, 0, 0));
	CHECK_OK(CU(cuMemMap, va, 4 * MB, 0, h, 0));
	CHECK_OK(CU(cuMemUnmap, va, 4 * MB));
	CHECK_OK(CU(cuMemRelease, h));
	CHECK(free_bytes() == 52 * MB);
	CHECK(write(ends[0], "", 1) == 1 && read(ends[0], &byte, 1) == 1);
	CHECK_RESULT(CUDA_ERROR_INVALID_HANDLE, CU(cuIpcOpenMemHandle_v2, &p, handle, CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS));
	CHECK(write(ends[0], "", 1) == 1);
	CHECK(waitpid(pid, &status, 0) == pid && status == 0);
	CHECK_RESULT(CUDA_ERROR_INVALID_VALUE,
		     CU(cuMemImportFromShareableHandle, &h, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
	CHECK(free_bytes() == 64 * MB);
}
