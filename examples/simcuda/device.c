/* Device queries: count, name, UUID, PCI address, memory and attributes. */
#include "memory.h"

#include "identity.h"
#include "space.h"

#include <stdio.h>
#include <string.h>

static struct device devices[MAX_DEVICES];

bool device_init(void)
{
	for (int i = 0; i < config.devices; i++) {
		devices[i].ordinal = i;
		pthread_mutex_init(&devices[i].lock, NULL);
		/* A real GPU has addresses to spare: with four times the capacity as address
		 * space, only bytes run out. */
		devices[i].space = space_new(config.memory * 4, 512);
		if (!devices[i].space || !pools_init(&devices[i]))
			return false;
	}
	return true;
}

struct device *device_of(CUdevice dev)
{
	return dev >= 0 && dev < config.devices ? &devices[dev] : NULL;
}

static CUresult need_device(CUdevice dev, const void *out)
{
	if (!out)
		return CUDA_ERROR_INVALID_VALUE;
	return device_of(dev) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

EXPORT CUresult cuInit(unsigned int Flags)
{
	BEGIN(cuInit, NEEDS_NOTHING, .value = Flags);
	DO(Flags ? CUDA_ERROR_INVALID_VALUE : process_init());
	return END();
}

EXPORT CUresult cuDriverGetVersion(int *driverVersion)
{
	BEGIN(cuDriverGetVersion, NEEDS_NOTHING, .value = CUDA_VERSION);
	DO(driverVersion ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
	if (!call.result)
		*driverVersion = CUDA_VERSION;
	return END();
}

EXPORT CUresult cuDeviceGetCount(int *count)
{
	BEGIN(cuDeviceGetCount, NEEDS_INIT);
	DO(count ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE);
	if (!call.result)
		call.value = *count = config.devices;
	return END();
}

EXPORT CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
	BEGIN(cuDeviceGet, NEEDS_INIT, .value = ordinal);
	DO(need_device(ordinal, device));
	if (!call.result)
		*device = ordinal;
	return END();
}

EXPORT CUresult cuDeviceGetName(char *name, int len, CUdevice dev)
{
	BEGIN(cuDeviceGetName, NEEDS_INIT, .value = dev);
	DO(len > 0 ? need_device(dev, name) : CUDA_ERROR_INVALID_VALUE);
	if (!call.result)
		snprintf(name, (size_t)len, "%s", DEVICE_NAME);
	return END();
}

#define DEVICE_GET_UUID(fn)                                             \
	EXPORT CUresult fn(CUuuid *uuid, CUdevice dev)                  \
	{                                                               \
		BEGIN(fn, NEEDS_INIT, .value = dev);                    \
		DO(need_device(dev, uuid));                             \
		if (!call.result)                                       \
			identity_uuid(dev, (unsigned char *)uuid->bytes); \
		return END();                                           \
	}
DEVICE_GET_UUID(cuDeviceGetUuid)
DEVICE_GET_UUID(cuDeviceGetUuid_v2)

EXPORT CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice dev)
{
	BEGIN(cuDeviceTotalMem_v2, NEEDS_INIT, .value = dev);
	DO(need_device(dev, bytes));
	if (!call.result)
		call.bytes = *bytes = config.memory;
	return END();
}

EXPORT CUresult cuDeviceGetPCIBusId(char *pciBusId, int len, CUdevice dev)
{
	BEGIN(cuDeviceGetPCIBusId, NEEDS_INIT, .value = dev);
	DO(len >= 13 ? need_device(dev, pciBusId) : CUDA_ERROR_INVALID_VALUE);
	if (!call.result)
		snprintf(pciBusId, (size_t)len, "0000:%02X:00.0", identity_pci_bus(dev));
	return END();
}

/* Returns a device attribute. Attributes that simcuda does not simulate give
 * CUDA_ERROR_INVALID_VALUE, as unknown attributes do in the real driver. */
static CUresult attribute(int *out, CUdevice_attribute which, CUdevice dev)
{
	switch (which) {
	case CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK: *out = 1024; return CUDA_SUCCESS;
	case CU_DEVICE_ATTRIBUTE_WARP_SIZE: *out = 32; return CUDA_SUCCESS;
	case CU_DEVICE_ATTRIBUTE_CLOCK_RATE: *out = 1980000; return CUDA_SUCCESS;
	case CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: *out = 132; return CUDA_SUCCESS;
	case CU_DEVICE_ATTRIBUTE_INTEGRATED: *out = 0; return CUDA_SUCCESS;
	case CU_DEVICE_ATTRIBUTE_PCI_BUS_ID: *out = (int)identity_pci_bus(dev); return CUDA_SUCCESS;
	case CU_DEVICE_ATTRIBUTE_PCI_DEVICE_ID: *out = 0; return CUDA_SUCCESS;
	case CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID: *out = 0; return CUDA_SUCCESS;
	case CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING: *out = 1; return CUDA_SUCCESS;
	case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: *out = 9; return CUDA_SUCCESS;
	case CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: *out = 0; return CUDA_SUCCESS;
	case CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY: *out = 1; return CUDA_SUCCESS;
	case CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED: *out = 1; return CUDA_SUCCESS;
	}
	return CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult cuDeviceGetAttribute(int *pi, CUdevice_attribute attrib, CUdevice dev)
{
	BEGIN(cuDeviceGetAttribute, NEEDS_INIT, .value = dev);
	DO(need_device(dev, pi));
	DO(attribute(pi, attrib, dev));
	return END();
}
