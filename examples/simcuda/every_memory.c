/* Every way to allocate and free memory. Each allocation function is also called with a size
 * that is too large. */
#include "every.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

void every_memory(void)
{
	CUdeviceptr p = 0, q = 0;
	void *host = NULL;
	size_t pitch, free_bytes, total, bytes = unique_bytes();
	static _Alignas(4096) char plain[2][1 << 16];
	const CUmemLocation device = {CU_MEM_LOCATION_TYPE_DEVICE, every.device};
	OK(cuMemAlloc_v2, &p, unique_bytes());
	OK(cuMemAllocPitch_v2, &q, &pitch, unique_bytes(), 7, 4);
	OK(cuMemGetInfo_v2, &free_bytes, &total);
	OK(cuMemFree_v2, q);
	OK(cuMemFree_v2, p);
	FAILS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAlloc_v2, &p, HUGE_BYTES + unique_bytes());
	FAILS(CUDA_ERROR_INVALID_VALUE, cuMemAlloc_v2, &p, 0);
	FAILS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocPitch_v2, &p, &pitch, HUGE_BYTES, 3, 4);
	FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFree_v2, 0xdead000);

	OK(cuMemAllocManaged, &p, bytes, CU_MEM_ATTACH_GLOBAL);
	OK(cuMemAdvise, p, bytes - 8, CU_MEM_ADVISE_SET_READ_MOSTLY, every.device);
	OK(cuMemAdvise_v2, p, bytes - 12, CU_MEM_ADVISE_UNSET_ACCESSED_BY, device);
	OK(cuMemPrefetchAsync, p, bytes - 16, every.device, every.streams[0]);
	OK_AS(cuMemPrefetchAsync_ptsz, cuMemPrefetchAsync, p, bytes - 20, -1, every.streams[1]);
	OK(cuMemPrefetchAsync_v2, p, bytes - 24, device, 0, every.streams[2]);
	OK_AS(cuMemPrefetchAsync_v2_ptsz, cuMemPrefetchAsync_v2, p, bytes - 28, device, 0, every.streams[3]);
	FAILS(CUDA_ERROR_INVALID_VALUE, cuMemAdvise, every.buffer_a, 64, CU_MEM_ADVISE_SET_READ_MOSTLY, every.device);
	FAILS(CUDA_ERROR_INVALID_VALUE, cuMemPrefetchAsync_v2, every.buffer_a, 68, device, 0, every.streams[0]);
	OK(cuMemFree_v2, p);
	FAILS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocManaged, &p, HUGE_BYTES + unique_bytes(), CU_MEM_ATTACH_HOST);

	OK(cuMemHostAlloc, &host, unique_bytes(), 1);
	OK(cuMemFreeHost, host);
	OK(cuMemAllocHost_v2, &host, unique_bytes());
	OK(cuMemFreeHost, host);
	OK(cuMemAllocHost, &host, (unsigned int)unique_bytes());
	OK(cuMemFreeHost, host);
	FAILS(CUDA_ERROR_OUT_OF_MEMORY, cuMemHostAlloc, &host, HUGE_BYTES + unique_bytes(), 0);
	FAILS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocHost_v2, &host, HUGE_BYTES + unique_bytes());
	FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFreeHost, plain);
	OK(cuMemHostRegister_v2, plain[0], unique_bytes(), 1);
	OK(cuMemHostRegister_v2, plain[1], unique_bytes(), 2);
	FAILS(CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, cuMemHostRegister_v2, plain[0] + 64, unique_bytes(), 0);
	OK(cuMemHostUnregister, plain[1]);
	OK(cuMemHostUnregister, plain[0]);
	OK(cuMemHostRegister, plain[1], unique_bytes(), 0);
	OK(cuMemHostUnregister, plain[1]);
	FAILS(CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED, cuMemHostUnregister, plain[0]);
}

void every_pool(void)
{
	const CUmemPoolProps props = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
				      .location = {CU_MEM_LOCATION_TYPE_DEVICE, every.device}};
	CUmemoryPool pool = NULL, standard = NULL, current = NULL;
	CUdeviceptr p[4] = {0};
	uint64_t bytes = 1 << 20, got;
	OK(cuMemAllocAsync, &p[0], unique_bytes(), every.streams[0]);
	OK_AS(cuMemAllocAsync_ptsz, cuMemAllocAsync, &p[1], unique_bytes(), NULL);
	OK(cuMemFreeAsync, p[0], every.streams[0]);
	OK_AS(cuMemFreeAsync_ptsz, cuMemFreeAsync, p[1], NULL);
	FAILS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocAsync, &p[0], HUGE_BYTES + unique_bytes(), every.streams[1]);
	FAILS_AS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocAsync_ptsz, cuMemAllocAsync, &p[0], HUGE_BYTES + unique_bytes(), NULL);
	FAILS(CUDA_ERROR_INVALID_VALUE, cuMemFreeAsync, 0xdead000, every.streams[1]);

	OK(cuMemPoolCreate, &pool, &props);
	OK(cuDeviceGetDefaultMemPool, &standard, every.device);
	OK(cuDeviceSetMemPool, every.device, pool);
	OK(cuDeviceGetMemPool, &current, every.device);
	OK(cuDeviceSetMemPool, every.device, standard);
	OK(cuMemPoolSetAttribute, pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &bytes);
	OK(cuMemAllocFromPoolAsync, &p[2], unique_bytes(), pool, every.streams[2]);
	OK_AS(cuMemAllocFromPoolAsync_ptsz, cuMemAllocFromPoolAsync, &p[3], unique_bytes(), pool, every.streams[3]);
	for (int attribute = CU_MEMPOOL_ATTR_RELEASE_THRESHOLD; attribute <= CU_MEMPOOL_ATTR_USED_MEM_HIGH; attribute++)
		OK(cuMemPoolGetAttribute, pool, (CUmemPool_attribute)attribute, &got);
	OK(cuMemFreeAsync, p[2], every.streams[2]);
	OK(cuMemFreeAsync, p[3], every.streams[3]);
	OK(cuMemPoolTrimTo, pool, 512);
	CUmemLocation here = {CU_MEM_LOCATION_TYPE_DEVICE, every.other_device}, on_host = {CU_MEM_LOCATION_TYPE_HOST, 0};
	const CUmemAccessDesc access = {props.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	OK(cuMemGetDefaultMemPool, &standard, &here, CU_MEM_ALLOCATION_TYPE_PINNED);
	OK(cuMemGetMemPool, &current, &here, CU_MEM_ALLOCATION_TYPE_PINNED);
	OK(cuMemSetMemPool, &here, CU_MEM_ALLOCATION_TYPE_PINNED, current);
	FAILS(CUDA_ERROR_INVALID_VALUE, cuMemGetMemPool, &current, &on_host, CU_MEM_ALLOCATION_TYPE_PINNED);
	OK(cuMemPoolSetAccess, pool, &access, 1);
	OK(cuDeviceGraphMemTrim, every.other_device);
	FAILS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAllocFromPoolAsync, &p[2], HUGE_BYTES + unique_bytes(), pool, every.streams[0]);
	FAILS(CUDA_ERROR_INVALID_VALUE, cuMemPoolSetAttribute, pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &bytes);
	FAILS(CUDA_ERROR_INVALID_VALUE, cuMemPoolDestroy, standard);
	OK(cuMemPoolDestroy, pool);
	FAILS(CUDA_ERROR_INVALID_VALUE, cuMemAllocFromPoolAsync, &p[2], unique_bytes(), pool, every.streams[0]);
	FAILS(CUDA_ERROR_INVALID_VALUE, cuMemPoolTrimTo, pool, 1024);
}

static void multicast(CUdeviceptr mapped, CUmemGenericAllocationHandle memory)
{
	const CUmulticastObjectProp prop = {.numDevices = 1, .size = 16 << 20};
	const CUmulticastObjectProp none = {.numDevices = 0, .size = 18 << 20};
	CUmemGenericAllocationHandle mc = 0;
	size_t granularity = 0;
	OK(cuMulticastGetGranularity, &granularity, &prop, 0);
	OK(cuMulticastCreate, &mc, &prop);
	FAILS(CUDA_ERROR_ILLEGAL_STATE, cuMulticastBindMem, mc, 0, memory, 0, 2 << 20, 0);
	OK(cuMulticastAddDevice, mc, every.device);
	OK(cuMulticastBindMem, mc, 4 << 20, memory, 0, 2 << 20, 0);
	OK(cuMulticastBindAddr, mc, 8 << 20, mapped, 2 << 20, 0);
	OK(cuMulticastUnbind, mc, every.device, 4 << 20, 2 << 20);
	OK(cuMemRelease, mc);
	FAILS(CUDA_ERROR_INVALID_VALUE, cuMulticastCreate, &mc, &none);
}

void every_virtual_memory(void)
{
	const CUmemAllocationProp prop = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
					  .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
					  .location = {CU_MEM_LOCATION_TYPE_DEVICE, every.device}};
	const CUmemAllocationProp elsewhere = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
					       .location = {CU_MEM_LOCATION_TYPE_DEVICE, every.other_device}};
	const CUmemAccessDesc access = {prop.location, CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
	CUmemGenericAllocationHandle a = 0, b = 0, again = 0, imported = 0;
	CUdeviceptr at = 0, none = 0;
	size_t granularity = 0, first = unique_big_bytes(), second = unique_big_bytes(), all = 64 << 20;
	int fd = -1;
	OK(cuMemGetAllocationGranularity, &granularity, &prop, 0);
	OK(cuMemAddressReserve, &at, all, 0, 0, 0);
	OK(cuMemCreate, &a, first, &prop, 0);
	OK(cuMemCreate, &b, second, &elsewhere, 0);
	OK(cuMemMap, at, first, 0, a, 0);
	OK(cuMemMap, at + first, second / 2, second / 2, b, 0);
	OK(cuMemSetAccess, at, first + second / 2, &access, 1);
	OK(cuMemRetainAllocationHandle, &again, (void *)(uintptr_t)(at + first + 512));
	OK(cuMemExportToShareableHandle, &fd, a, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
	OK(cuMemImportFromShareableHandle, &imported, (void *)(intptr_t)fd, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
	close(fd);
	CUarrayMapInfo sparse = {.resource.array = every.array, .memHandle = a};
	OK(cuMemMapArrayAsync, &sparse, 1, every.streams[0]);
	OK_AS(cuMemMapArrayAsync_ptsz, cuMemMapArrayAsync, &sparse, 1, every.streams[1]);
	sparse.memHandle = 0xbad0;
	FAILS(CUDA_ERROR_INVALID_VALUE, cuMemMapArrayAsync, &sparse, 1, every.streams[0]);
	multicast(at, a);
	FAILS(CUDA_ERROR_INVALID_VALUE, cuMemMap, at, first, 0, a, 0);
	FAILS(CUDA_ERROR_INVALID_VALUE, cuMemAddressFree, at, all);
	FAILS(CUDA_ERROR_INVALID_VALUE, cuMemSetAccess, at + 32 * granularity, granularity, &access, 1);
	OK(cuMemRelease, a);
	OK(cuMemRelease, b);
	OK(cuMemRelease, again);
	OK(cuMemRelease, imported);
	FAILS(CUDA_ERROR_INVALID_VALUE, cuMemUnmap, at, first / 2);
	OK(cuMemUnmap, at, first + second / 2);
	OK(cuMemAddressFree, at, all);
	FAILS(CUDA_ERROR_INVALID_VALUE, cuMemRelease, a);
	FAILS(CUDA_ERROR_INVALID_VALUE, cuMemUnmap, at, first);
	FAILS(CUDA_ERROR_OUT_OF_MEMORY, cuMemCreate, &a, HUGE_BYTES, &prop, 0);
	FAILS(CUDA_ERROR_INVALID_VALUE, cuMemCreate, &a, 12345, &prop, 0);
	FAILS(CUDA_ERROR_OUT_OF_MEMORY, cuMemAddressReserve, &none, HUGE_BYTES << 4, 0, 0, 0);
	FAILS(CUDA_ERROR_INVALID_VALUE, cuMemRetainAllocationHandle, &again, (void *)0xdead000);
	FAILS(CUDA_ERROR_INVALID_VALUE, cuMemExportToShareableHandle, &fd, a, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0);
	FAILS(CUDA_ERROR_INVALID_VALUE, cuMemImportFromShareableHandle, &imported, (void *)-1,
	      CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
}

/* Imports external memory. simcuda accepts any file as the other API's memory. */
static void external(void)
{
	CUDA_EXTERNAL_MEMORY_HANDLE_DESC desc = {.type = CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD, .size = 123 << 10};
	const CUDA_EXTERNAL_MEMORY_BUFFER_DESC buffer = {.offset = 4096, .size = 77 << 10};
	const CUDA_EXTERNAL_MEMORY_BUFFER_DESC too_much = {.offset = 4096, .size = 123 << 10};
	CUexternalMemory memory = NULL;
	CUdeviceptr p = 0;
	desc.handle.fd = memfd_create("every", MFD_CLOEXEC);
	OK(cuImportExternalMemory, &memory, &desc);
	OK(cuExternalMemoryGetMappedBuffer, &p, memory, &buffer);
	const CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC image = {.offset = 8192, .numLevels = 2};
	CUmipmappedArray mapped = NULL;
	OK(cuExternalMemoryGetMappedMipmappedArray, &mapped, memory, &image);
	OK(cuMipmappedArrayDestroy, mapped);
	FAILS(CUDA_ERROR_INVALID_HANDLE, cuExternalMemoryGetMappedMipmappedArray, &mapped, NULL, &image);
	FAILS(CUDA_ERROR_INVALID_VALUE, cuExternalMemoryGetMappedBuffer, &p, memory, &too_much);
	OK(cuMemFree_v2, p);
	OK(cuDestroyExternalMemory, memory);
	FAILS(CUDA_ERROR_INVALID_HANDLE, cuDestroyExternalMemory, memory);
	desc.handle.fd = -1;
	desc.size = 99 << 10;
	FAILS(CUDA_ERROR_INVALID_VALUE, cuImportExternalMemory, &memory, &desc);
}

static void arrays(void)
{
	const CUDA_ARRAY_DESCRIPTOR flat = {111, 13, CU_AD_FORMAT_FLOAT, 4}, line = {222, 0, CU_AD_FORMAT_UNSIGNED_INT8, 1};
	const CUDA_ARRAY_DESCRIPTOR odd = {111, 13, CU_AD_FORMAT_FLOAT, 3};
	const CUDA_ARRAY3D_DESCRIPTOR deep = {31, 17, 5, CU_AD_FORMAT_HALF, 2, 0};
	const CUDA_ARRAY3D_DESCRIPTOR large = {1 << 17, 1 << 17, 1 << 17, CU_AD_FORMAT_FLOAT, 4, 0};
	CUarray a = NULL;
	CUmipmappedArray m = NULL;
	OK(cuArrayCreate_v2, &a, &flat);
	OK(cuArrayDestroy, a);
	OK(cuArrayCreate_v2, &a, &line);
	OK(cuArrayDestroy, a);
	OK(cuArray3DCreate_v2, &a, &deep);
	OK(cuArrayDestroy, a);
	OK(cuMipmappedArrayCreate, &m, &deep, 3);
	OK(cuMipmappedArrayDestroy, m);
	FAILS(CUDA_ERROR_INVALID_VALUE, cuArrayCreate_v2, &a, &odd);
	FAILS(CUDA_ERROR_OUT_OF_MEMORY, cuArray3DCreate_v2, &a, &large);
	FAILS(CUDA_ERROR_OUT_OF_MEMORY, cuMipmappedArrayCreate, &m, &large, 2);
	FAILS(CUDA_ERROR_INVALID_HANDLE, cuArrayDestroy, a);
	FAILS(CUDA_ERROR_INVALID_HANDLE, cuMipmappedArrayDestroy, m);
}

static void textures(void)
{
	const CUDA_ARRAY_DESCRIPTOR flat = {112, 14, CU_AD_FORMAT_FLOAT, 4};
	const CUDA_ARRAY3D_DESCRIPTOR deep = {32, 18, 6, CU_AD_FORMAT_HALF, 2, 0};
	const CUDA_TEXTURE_DESC how = {0};
	CUDA_RESOURCE_DESC array = {.resType = CU_RESOURCE_TYPE_ARRAY}, mipmap = {.resType = CU_RESOURCE_TYPE_MIPMAPPED_ARRAY},
			   linear = {.resType = CU_RESOURCE_TYPE_LINEAR, .res.linear = {every.buffer_a, CU_AD_FORMAT_FLOAT, 1, 4096}};
	CUtexObject texture = 0;
	CUsurfObject surface = 0;
	OK(cuArrayCreate_v2, &array.res.array.hArray, &flat);
	OK(cuMipmappedArrayCreate, &mipmap.res.mipmap.hMipmappedArray, &deep, 2);
	OK(cuTexObjectCreate, &texture, &linear, &how, NULL);
	OK(cuTexObjectDestroy, texture);
	OK(cuTexObjectCreate, &texture, &mipmap, &how, NULL);
	OK(cuTexObjectDestroy, texture);
	OK(cuTexObjectCreate, &texture, &array, &how, NULL);
	OK(cuSurfObjectCreate, &surface, &array);
	FAILS(CUDA_ERROR_INVALID_VALUE, cuSurfObjectCreate, &surface, &linear);
	OK(cuSurfObjectDestroy, surface);
	OK(cuTexObjectDestroy, texture);
	FAILS(CUDA_ERROR_INVALID_VALUE, cuTexObjectDestroy, texture);
	OK(cuMipmappedArrayDestroy, mipmap.res.mipmap.hMipmappedArray);
	OK(cuArrayDestroy, array.res.array.hArray);
}

static void graphics(void)
{
	CUgraphicsResource r[2] = {NULL};
	CUdeviceptr p = 0;
	CUarray array = NULL;
	CUmipmappedArray levels = NULL;
	size_t bytes = 0;
	int fd = -1;
	OK(cuGraphicsGLRegisterBuffer, &r[0], 7, 0);
	OK(cuGraphicsGLRegisterImage, &r[1], 8, 0x0de1, 0);
	FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphicsGLRegisterBuffer, &r[0], 0, 0);
	FAILS(CUDA_ERROR_INVALID_VALUE, cuGraphicsResourceGetMappedPointer_v2, &p, &bytes, r[0]);
	OK(cuGraphicsMapResources, 2, r, every.streams[0]);
	OK(cuGraphicsResourceGetMappedPointer_v2, &p, &bytes, r[0]);
	OK(cuGraphicsSubResourceGetMappedArray, &array, r[1], 0, 0);
	OK(cuGraphicsResourceGetMappedMipmappedArray, &levels, r[1]);
	OK(cuMemcpyDtoD_v2, p, every.buffer_a, 321);
	OK(cuGraphicsUnmapResources, 2, r, every.streams[1]);
	OK_AS(cuGraphicsMapResources_ptsz, cuGraphicsMapResources, 1, r, every.streams[2]);
	OK_AS(cuGraphicsUnmapResources_ptsz, cuGraphicsUnmapResources, 1, r, every.streams[3]);
	OK(cuGraphicsUnregisterResource, r[0]);
	OK(cuGraphicsUnregisterResource, r[1]);
	FAILS(CUDA_ERROR_INVALID_HANDLE, cuGraphicsUnregisterResource, r[1]);
	OK(cuMemGetHandleForAddressRange, &fd, every.buffer_a, 65536, 1, 0);
	close(fd);
	FAILS(CUDA_ERROR_INVALID_VALUE, cuMemGetHandleForAddressRange, &fd, 0xdead000, 4096, 1, 0);
}

void every_foreign_memory(void)
{
	external();
	arrays();
	textures();
	graphics();
}
