/* Leaks and caches in pool, virtual, managed, pinned and array memory. */
#include "verdicts.h"

enum { RING = 24 };

SITE static CUdeviceptr async(size_t bytes)
{
	CUdeviceptr p;
	CUDA(cuMemAllocAsync, &p, bytes, NULL);
	return p;
}

SITE static CUdeviceptr async_leak(void)
{
	CUdeviceptr p;
	CUDA(cuMemAllocAsync, &p, 64 * KiB, NULL);
	return p;
}

static void pool(void)
{
	CUdeviceptr slots[RING] = {0};
	use_device();
	for (long step = 0; next(&step, STEPS);) {
		if (slots[step % RING])
			CUDA(cuMemFreeAsync, slots[step % RING], NULL);
		slots[step % RING] = async((size_t)(64 + step % 64) * KiB);
		if (step % 32 == 0)
			CUDA(cuCtxSynchronize);
	}
}

static void pool_leak(void)
{
	use_device();
	for (long step = 0; next(&step, STEPS);) {
		CUdeviceptr p = async(128 * KiB);
		async_leak();
		CUDA(cuMemFreeAsync, p, NULL);
	}
}

static const CUmemAllocationProp on_device = {.type = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {CU_MEM_LOCATION_TYPE_DEVICE, 0}};

SITE static CUmemGenericAllocationHandle physical(void)
{
	CUmemGenericAllocationHandle handle;
	CUDA(cuMemCreate, &handle, 2 * MiB, &on_device, 0);
	return handle;
}

static CUdeviceptr mapped(void)
{
	CUdeviceptr address;
	CUmemGenericAllocationHandle handle = physical();
	CUDA(cuMemAddressReserve, &address, 2 * MiB, 0, 0, 0);
	CUDA(cuMemMap, address, 2 * MiB, 0, handle, 0);
	CUDA(cuMemRelease, handle); /* the mapping keeps the physical memory */
	return address;
}

static void unmap(CUdeviceptr address)
{
	CUDA(cuMemUnmap, address, 2 * MiB);
	CUDA(cuMemAddressFree, address, 2 * MiB);
}

static void virtual_ring(void)
{
	CUdeviceptr slots[RING] = {0};
	use_device();
	for (long step = 0; next(&step, STEPS);) {
		if (slots[step % RING])
			unmap(slots[step % RING]);
		slots[step % RING] = mapped();
	}
}

/* The program leaks address ranges, and the physical memory mapped there. */
static void virtual_leak(void)
{
	use_device();
	for (long step = 0; next(&step, STEPS);)
		if (step % 2)
			mapped();
}

static void handle_leak(void)
{
	use_device();
	for (long step = 0; next(&step, STEPS);) {
		unmap(mapped());
		if (step % 4 == 0)
			physical();
	}
}

SITE static void managed(void)
{
	CUdeviceptr p;
	CUDA(cuMemAllocManaged, &p, 256 * KiB, CU_MEM_ATTACH_GLOBAL);
}

static void managed_leak(void)
{
	use_device();
	for (long step = 0; next(&step, STEPS);) {
		temporaries(step);
		managed();
	}
}

SITE static void *pinned(size_t bytes)
{
	void *p;
	CUDA(cuMemHostAlloc, &p, bytes, 0);
	return p;
}

static void pinned_leak(void)
{
	use_device();
	for (long step = 0; next(&step, STEPS);) {
		temporaries(step);
		pinned(32 * KiB);
	}
}

static void pinned_staging(void)
{
	void *slots[RING] = {0};
	use_device();
	for (long step = 0; next(&step, STEPS);) {
		if (slots[step % RING])
			CUDA(cuMemFreeHost, slots[step % RING]);
		slots[step % RING] = pinned((size_t)(16 + step % 48) * KiB);
	}
}

SITE static CUarray array(void)
{
	CUarray a;
	CUDA_ARRAY_DESCRIPTOR shape = {.Width = 256, .Height = 64, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
	CUDA(cuArrayCreate_v2, &a, &shape);
	return a;
}

static void array_leak(void)
{
	use_device();
	for (long step = 0; next(&step, STEPS);) {
		CUarray a = array();
		if (step % 2)
			CUDA(cuArrayDestroy, a);
	}
}

const struct scenario kinds[] = {
	{"pool", pool}, {"pool-leak", pool_leak}, {"virtual-ring", virtual_ring}, {"virtual-leak", virtual_leak},
	{"handle-leak", handle_leak}, {"managed-leak", managed_leak}, {"pinned-leak", pinned_leak},
	{"pinned-staging", pinned_staging}, {"array-leak", array_leak}, {NULL, NULL},
};
