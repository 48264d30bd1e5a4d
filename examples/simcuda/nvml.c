/* libnvidia-ml.so.1: the simulated NVML, whose values follow the simulated work. */
#include "nvml_device.h"

#include "identity.h"
#include "state.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

static struct nvmlDevice_st devices[MAX_DEVICES];

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int users; /* calls of nvmlInit not yet matched by nvmlShutdown */

static nvmlReturn_t init(void)
{
	pthread_mutex_lock(&lock);
	for (int i = 0; i < MAX_DEVICES; i++)
		devices[i] = (struct nvmlDevice_st){i, -1};
	mig_init();
	watch_open();
	users++;
	pthread_mutex_unlock(&lock);
	return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlInit_v2(void)
{
	return init();
}

EXPORT nvmlReturn_t nvmlInitWithFlags(unsigned int flags)
{
	(void)flags;
	return init();
}

EXPORT nvmlReturn_t nvmlShutdown(void)
{
	nvmlReturn_t result = NVML_SUCCESS;
	pthread_mutex_lock(&lock);
	if (users == 0)
		result = NVML_ERROR_UNINITIALIZED;
	else if (--users == 0)
		watch_close();
	pthread_mutex_unlock(&lock);
	return result;
}

EXPORT const char *nvmlErrorString(nvmlReturn_t result)
{
	switch (result) {
	case NVML_SUCCESS: return "Success";
	case NVML_ERROR_UNINITIALIZED: return "Uninitialized";
	case NVML_ERROR_INVALID_ARGUMENT: return "Invalid Argument";
	case NVML_ERROR_NOT_SUPPORTED: return "Not Supported";
	case NVML_ERROR_NO_PERMISSION: return "Insufficient Permissions";
	case NVML_ERROR_NOT_FOUND: return "Not Found";
	case NVML_ERROR_INSUFFICIENT_SIZE: return "Insufficient Size";
	case NVML_ERROR_TIMEOUT: return "Timeout";
	case NVML_ERROR_GPU_IS_LOST: return "GPU is lost";
	case NVML_ERROR_ARGUMENT_VERSION_MISMATCH: return "Argument Version Mismatch";
	default: return "Unknown Error";
	}
}

nvmlReturn_t copy_text(char *out, unsigned int length, const char *text)
{
	if (!out)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (length <= strlen(text))
		return NVML_ERROR_INSUFFICIENT_SIZE;
	strcpy(out, text);
	return NVML_SUCCESS;
}

nvmlReturn_t check_ready(const void *out)
{
	pthread_mutex_lock(&lock);
	int n = users;
	pthread_mutex_unlock(&lock);
	return n == 0 ? NVML_ERROR_UNINITIALIZED : out ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}

EXPORT nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int length)
{
	nvmlReturn_t result = check_ready(version);
	return result ? result : copy_text(version, length, DRIVER_VERSION);
}

EXPORT nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned int length)
{
	nvmlReturn_t result = check_ready(version);
	return result ? result : copy_text(version, length, "13." DRIVER_VERSION);
}

/* Works without nvmlInit, as in the real library. */
EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *cudaDriverVersion)
{
	if (!cudaDriverVersion)
		return NVML_ERROR_INVALID_ARGUMENT;
	*cudaDriverVersion = CUDA_VERSION;
	return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *cudaDriverVersion)
{
	if (!cudaDriverVersion)
		return NVML_ERROR_INVALID_ARGUMENT;
	*cudaDriverVersion = CUDA_VERSION;
	return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *deviceCount)
{
	nvmlReturn_t result = check_ready(deviceCount);
	if (result)
		return result;
	pthread_mutex_lock(&lock);
	*deviceCount = (unsigned)watch_devices();
	pthread_mutex_unlock(&lock);
	return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device)
{
	nvmlReturn_t result = check_ready(device);
	if (result)
		return result;
	pthread_mutex_lock(&lock);
	int n = watch_devices();
	pthread_mutex_unlock(&lock);
	if (index >= (unsigned)n)
		return NVML_ERROR_INVALID_ARGUMENT;
	*device = &devices[index];
	return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device)
{
	nvmlReturn_t result = check_ready(device);
	if (result || !uuid)
		return result ? result : NVML_ERROR_INVALID_ARGUMENT;
	pthread_mutex_lock(&lock);
	int n = watch_devices();
	pthread_mutex_unlock(&lock);
	for (int i = 0; i < n; i++) {
		char text[UUID_TEXT];
		identity_uuid_text(i, text);
		if (!strcmp(text, uuid)) {
			*device = &devices[i];
			return NVML_SUCCESS;
		}
	}
	return NVML_ERROR_NOT_FOUND;
}

/* Checks the library, the device handle and the output pointer. Returns an error that
 * SIMCUDA_NVML sets for the function. */
nvmlReturn_t begin_query_of(const char *function, nvmlDevice_t device, const void *out)
{
	nvmlReturn_t result = check_ready(out);
	if (!result && (device < devices || device >= devices + MAX_DEVICES))
		result = NVML_ERROR_INVALID_ARGUMENT;
	return result ? result : override_values(device->ordinal, function, NULL, 0);
}

nvmlReturn_t read_use_of(const char *function, nvmlDevice_t device, const void *out, struct device_use *use, struct process_use *list,
		      int max)
{
	nvmlReturn_t result = begin_query_of(function, device, out);
	if (result)
		return result;
	pthread_mutex_lock(&lock);
	watch_open(); /* the first CUDA process may have started since the last query */
	watch_device(device->ordinal, use, list, max);
	pthread_mutex_unlock(&lock);
	return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int length)
{
	if (is_mig(device)) {
		char text[64];
		mig_name(device, text, sizeof(text));
		return copy_text(name, length, text);
	}
	nvmlReturn_t result = begin_query(device, name);
	return result ? result : copy_text(name, length, DEVICE_NAME);
}

EXPORT nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length)
{
	char text[UUID_TEXT];
	if (is_mig(device)) {
		mig_uuid(device, text, sizeof(text));
		return copy_text(uuid, length, text);
	}
	nvmlReturn_t result = begin_query(device, uuid);
	if (result)
		return result;
	identity_uuid_text(device->ordinal, text);
	return copy_text(uuid, length, text);
}

EXPORT nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *index)
{
	nvmlReturn_t result = begin_query(device, index);
	if (!result)
		*index = (unsigned)device->ordinal;
	return result;
}

EXPORT nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned int *minorNumber)
{
	nvmlReturn_t result = begin_query(device, minorNumber);
	if (!result)
		*minorNumber = (unsigned)device->ordinal;
	return result;
}

EXPORT nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
	nvmlReturn_t result = begin_query(device, pci);
	if (result)
		return result;
	memset(pci, 0, sizeof(*pci));
	pci->bus = identity_pci_bus(device->ordinal);
	/* PCI ID of an H200. Tools read the vendor from the low half. */
	pci->pciDeviceId = 0x233510de;
	snprintf(pci->busIdLegacy, sizeof(pci->busIdLegacy), "0000:%02X:00.0", pci->bus & 0xff);
	snprintf(pci->busId, sizeof(pci->busId), "00000000:%02X:00.0", pci->bus & 0xff);
	return NVML_SUCCESS;
}
