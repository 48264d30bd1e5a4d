/* NVML: MIG devices from SIMCUDA_MIG. The simulated driver ignores MIG. */
#include "nvml_device.h"

#include "config.h"
#include "identity.h"

#include <stdio.h>

static struct nvmlDevice_st parts[MAX_DEVICES][MAX_MIG];
static struct config config;

/* First GPU instance ID of small profiles. IDs do not start at 0 in the real driver either. */
enum { FIRST_INSTANCE = 7 };

void mig_init(void)
{
	for (int d = 0; d < MAX_DEVICES; d++)
		for (int p = 0; p < MAX_MIG; p++)
			parts[d][p] = (struct nvmlDevice_st){d, p};
	config = (struct config){0}; /* the next nvmlInit may read a different environment */
	config_read(&config);
}

bool is_mig(nvmlDevice_t device)
{
	return device >= &parts[0][0] && device <= &parts[MAX_DEVICES - 1][MAX_MIG - 1];
}

void mig_uuid(nvmlDevice_t device, char *text, unsigned int length)
{
	char uuid[UUID_TEXT];
	identity_mig_uuid_text(device->ordinal, device->part, uuid);
	snprintf(text, length, "%s", uuid);
}

void mig_name(nvmlDevice_t device, char *text, unsigned int length)
{
	snprintf(text, length, "%s MIG %s", DEVICE_NAME, config.parts[device->ordinal][device->part].profile);
}

uint64_t mig_memory(nvmlDevice_t device)
{
	return config.parts[device->ordinal][device->part].memory;
}

EXPORT nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *current, unsigned int *pending)
{
	nvmlReturn_t result = begin_query(device, current);
	if (result || !pending)
		return result ? result : NVML_ERROR_INVALID_ARGUMENT;
	*current = *pending = config.mig[device->ordinal];
	return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned int *count)
{
	nvmlReturn_t result = begin_query(device, count);
	if (!result)
		*count = config.mig[device->ordinal] ? MAX_MIG : 0;
	return result;
}

EXPORT nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned int index, nvmlDevice_t *mig)
{
	nvmlReturn_t result = begin_query(device, mig);
	if (result)
		return result;
	if (!config.mig[device->ordinal])
		return NVML_ERROR_NOT_SUPPORTED;
	if (index >= (unsigned)config.migs[device->ordinal])
		return NVML_ERROR_NOT_FOUND;
	*mig = &parts[device->ordinal][index];
	return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t mig, nvmlDevice_t *device)
{
	nvmlReturn_t result = check_ready(device);
	if (result || !is_mig(mig))
		return result ? result : NVML_ERROR_INVALID_ARGUMENT;
	return nvmlDeviceGetHandleByIndex_v2((unsigned)mig->ordinal, device);
}

EXPORT nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t device, unsigned int *id)
{
	nvmlReturn_t result = check_ready(id);
	if (result || !is_mig(device))
		return result ? result : NVML_ERROR_INVALID_ARGUMENT;
	*id = (unsigned)(FIRST_INSTANCE + device->part);
	return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetComputeInstanceId(nvmlDevice_t device, unsigned int *id)
{
	nvmlReturn_t result = check_ready(id);
	if (result || !is_mig(device))
		return result ? result : NVML_ERROR_INVALID_ARGUMENT;
	*id = 0; /* each GPU instance has one compute instance */
	return NVML_SUCCESS;
}
