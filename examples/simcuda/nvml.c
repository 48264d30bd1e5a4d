/* libnvidia-ml.so.1: answers that follow the simulated work. */
#include "nvml_sim.h"

#include "identity.h"
#include "state.h"
#include "watch.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#define EXPORT __attribute__((visibility("default")))

enum {
	IDLE_MW = 70000, BUSY_MW = 700000,
	IDLE_CELSIUS = 30, BUSY_CELSIUS = 75,
	IDLE_SM_MHZ = 345, BUSY_SM_MHZ = 1980, MEMORY_MHZ = 3201,
};

struct nvmlDevice_st { int ordinal; };
static struct nvmlDevice_st devices[MAX_DEVICES];

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int users; /* calls of nvmlInit without nvmlShutdown yet */

static nvmlReturn_t init(void)
{
	pthread_mutex_lock(&lock);
	for (int i = 0; i < MAX_DEVICES; i++)
		devices[i].ordinal = i;
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
	case NVML_ERROR_ARGUMENT_VERSION_MISMATCH: return "Argument Version Mismatch";
	default: return "Unknown Error";
	}
}

static nvmlReturn_t copy_text(char *out, unsigned int length, const char *text)
{
	if (!out)
		return NVML_ERROR_INVALID_ARGUMENT;
	if (length <= strlen(text))
		return NVML_ERROR_INSUFFICIENT_SIZE;
	strcpy(out, text);
	return NVML_SUCCESS;
}

static nvmlReturn_t ready(const void *out)
{
	pthread_mutex_lock(&lock);
	int n = users;
	pthread_mutex_unlock(&lock);
	return n == 0 ? NVML_ERROR_UNINITIALIZED : out ? NVML_SUCCESS : NVML_ERROR_INVALID_ARGUMENT;
}

EXPORT nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int length)
{
	nvmlReturn_t result = ready(version);
	return result ? result : copy_text(version, length, DRIVER_VERSION);
}

EXPORT nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned int length)
{
	nvmlReturn_t result = ready(version);
	return result ? result : copy_text(version, length, "13." DRIVER_VERSION);
}

/* Works without nvmlInit in the real library too. */
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
	nvmlReturn_t result = ready(deviceCount);
	if (result)
		return result;
	pthread_mutex_lock(&lock);
	*deviceCount = (unsigned)watch_devices();
	pthread_mutex_unlock(&lock);
	return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device)
{
	nvmlReturn_t result = ready(device);
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
	nvmlReturn_t result = ready(device);
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

/* What every question about a device begins with. */
static nvmlReturn_t asked(nvmlDevice_t device, const void *out)
{
	nvmlReturn_t result = ready(out);
	if (!result && (device < devices || device >= devices + MAX_DEVICES))
		result = NVML_ERROR_INVALID_ARGUMENT;
	return result;
}

EXPORT nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int length)
{
	nvmlReturn_t result = asked(device, name);
	return result ? result : copy_text(name, length, DEVICE_NAME);
}

EXPORT nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length)
{
	nvmlReturn_t result = asked(device, uuid);
	if (result)
		return result;
	char text[UUID_TEXT];
	identity_uuid_text(device->ordinal, text);
	return copy_text(uuid, length, text);
}

EXPORT nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *index)
{
	nvmlReturn_t result = asked(device, index);
	if (!result)
		*index = (unsigned)device->ordinal;
	return result;
}

EXPORT nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned int *minorNumber)
{
	nvmlReturn_t result = asked(device, minorNumber);
	if (!result)
		*minorNumber = (unsigned)device->ordinal;
	return result;
}

EXPORT nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
	nvmlReturn_t result = asked(device, pci);
	if (result)
		return result;
	memset(pci, 0, sizeof(*pci));
	pci->bus = identity_pci_bus(device->ordinal);
	pci->pciDeviceId = 0x233510de; /* an H200's; tools look the vendor up in the low half */
	snprintf(pci->busIdLegacy, sizeof(pci->busIdLegacy), "0000:%02X:00.0", pci->bus & 0xff);
	snprintf(pci->busId, sizeof(pci->busId), "00000000:%02X:00.0", pci->bus & 0xff);
	return NVML_SUCCESS;
}

static nvmlReturn_t look(nvmlDevice_t device, const void *out, struct device_use *use)
{
	nvmlReturn_t result = asked(device, out);
	if (result)
		return result;
	pthread_mutex_lock(&lock);
	watch_open(); /* the first CUDA process may have started only now */
	watch_device(device->ordinal, use, NULL, 0);
	pthread_mutex_unlock(&lock);
	return NVML_SUCCESS;
}

static unsigned int between(unsigned int idle, unsigned int busy, double share)
{
	return idle + (unsigned)((busy - idle) * share + 0.5);
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
	struct device_use use;
	nvmlReturn_t result = look(device, memory, &use);
	if (result)
		return result;
	*memory = (nvmlMemory_t){use.memory, use.used < use.memory ? use.memory - use.used : 0, use.used};
	return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory)
{
	const unsigned int version = (unsigned)sizeof(*memory) | 2u << 24;
	struct device_use use;
	nvmlReturn_t result = look(device, memory, &use);
	if (result)
		return result;
	if (memory->version != version)
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	*memory = (nvmlMemory_v2_t){version, use.memory, 0, use.used < use.memory ? use.memory - use.used : 0, use.used};
	return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *utilization)
{
	struct device_use use;
	nvmlReturn_t result = look(device, utilization, &use);
	if (!result) /* what share of its busy time a kernel uses memory is not simulated: half */
		*utilization = (nvmlUtilization_t){between(0, 100, use.busy), between(0, 50, use.busy)};
	return result;
}

EXPORT nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned int *power)
{
	struct device_use use;
	nvmlReturn_t result = look(device, power, &use);
	if (!result)
		*power = between(IDLE_MW, BUSY_MW, use.busy);
	return result;
}

/* Millijoules since boot: idle power all the time, the rest while work ran. */
EXPORT nvmlReturn_t nvmlDeviceGetTotalEnergyConsumption(nvmlDevice_t device, unsigned long long *energy)
{
	struct device_use use;
	struct timespec up;
	nvmlReturn_t result = look(device, energy, &use);
	if (result)
		return result;
	clock_gettime(CLOCK_MONOTONIC, &up);
	double seconds = (double)up.tv_sec + (double)up.tv_nsec / 1e9;
	*energy = (unsigned long long)(seconds * IDLE_MW + (double)use.busy_ns / 1e9 * (BUSY_MW - IDLE_MW));
	return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, nvmlTemperatureSensors_t sensorType, unsigned int *temp)
{
	struct device_use use;
	nvmlReturn_t result = look(device, temp, &use);
	if (!result && sensorType != NVML_TEMPERATURE_GPU)
		result = NVML_ERROR_INVALID_ARGUMENT;
	if (!result)
		*temp = between(IDLE_CELSIUS, BUSY_CELSIUS, use.busy);
	return result;
}

EXPORT nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, nvmlClockType_t type, unsigned int *clock)
{
	struct device_use use;
	nvmlReturn_t result = look(device, clock, &use);
	if (result)
		return result;
	switch (type) {
	case NVML_CLOCK_GRAPHICS: case NVML_CLOCK_SM: *clock = use.busy > 0 ? BUSY_SM_MHZ : IDLE_SM_MHZ; return NVML_SUCCESS;
	case NVML_CLOCK_MEM: *clock = MEMORY_MHZ; return NVML_SUCCESS;
	case NVML_CLOCK_VIDEO: return NVML_ERROR_NOT_SUPPORTED;
	}
	return NVML_ERROR_INVALID_ARGUMENT;
}

EXPORT nvmlReturn_t nvmlDeviceGetPerformanceState(nvmlDevice_t device, nvmlPstates_t *pState)
{
	struct device_use use;
	nvmlReturn_t result = look(device, pState, &use);
	if (!result)
		*pState = use.busy > 0 ? NVML_PSTATE_0 : NVML_PSTATE_8;
	return result;
}

/* Server cards have no fan; a recorder must live with fields that a device does not have. */
EXPORT nvmlReturn_t nvmlDeviceGetFanSpeed(nvmlDevice_t device, unsigned int *speed)
{
	nvmlReturn_t result = asked(device, speed);
	return result ? result : NVML_ERROR_NOT_SUPPORTED;
}

static nvmlReturn_t processes(nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_t *infos)
{
	enum { MAX = STATE_SLOTS };
	struct device_use use;
	struct process_use list[MAX];
	nvmlReturn_t result = asked(device, count);
	if (result)
		return result;
	pthread_mutex_lock(&lock);
	watch_open();
	watch_device(device->ordinal, &use, list, MAX);
	pthread_mutex_unlock(&lock);
	unsigned int n = (unsigned)(use.processes < MAX ? use.processes : MAX), room = *count;
	*count = n;
	if (n > room || (n > 0 && !infos))
		return NVML_ERROR_INSUFFICIENT_SIZE;
	for (unsigned int i = 0; i < n; i++) /* 0xffffffff: not a MIG device */
		infos[i] = (nvmlProcessInfo_t){list[i].pid, list[i].bytes, 0xffffffffu, 0xffffffffu};
	return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t device, unsigned int *infoCount, nvmlProcessInfo_t *infos)
{
	return processes(device, infoCount, infos);
}

EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int *infoCount, nvmlProcessInfo_t *infos)
{
	return processes(device, infoCount, infos);
}

static nvmlReturn_t reasons(nvmlDevice_t device, unsigned long long *out)
{
	struct device_use use;
	nvmlReturn_t result = look(device, out, &use);
	if (!result)
		*out = use.busy > 0 ? nvmlClocksEventReasonNone : nvmlClocksEventReasonGpuIdle;
	return result;
}

EXPORT nvmlReturn_t nvmlDeviceGetCurrentClocksEventReasons(nvmlDevice_t device, unsigned long long *clocksEventReasons)
{
	return reasons(device, clocksEventReasons);
}

EXPORT nvmlReturn_t nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t device, unsigned long long *clocksThrottleReasons)
{
	return reasons(device, clocksThrottleReasons);
}
