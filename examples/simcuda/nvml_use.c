/* NVML: values that follow the simulated work: memory, utilization, power, temperature, clocks
 * and processes. */
#include "nvml_device.h"

#include <string.h>
#include <time.h>

enum {
	IDLE_MW = 70000, BUSY_MW = 700000,
	IDLE_CELSIUS = 30, BUSY_CELSIUS = 75,
	IDLE_SM_MHZ = 345, BUSY_SM_MHZ = 1980, MEMORY_MHZ = 3201,
};

static unsigned int between(unsigned int idle, unsigned int busy, double share)
{
	return idle + (unsigned)((busy - idle) * share + 0.5);
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
	if (is_mig(device) && memory) { /* simcuda does not assign work to MIG devices */
		*memory = (nvmlMemory_t){mig_memory(device), mig_memory(device), 0};
		return NVML_SUCCESS;
	}
	struct device_use use;
	nvmlReturn_t result = read_use(device, memory, &use);
	if (result)
		return result;
	*memory = (nvmlMemory_t){use.memory, use.used < use.memory ? use.memory - use.used : 0, use.used};
	double values[] = {(double)memory->used, (double)memory->free};
	result = override_values(device->ordinal, __func__, values, 2);
	memory->used = (unsigned long long)values[0], memory->free = (unsigned long long)values[1];
	return result;
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory)
{
	const unsigned int version = (unsigned)sizeof(*memory) | 2u << 24;
	struct device_use use;
	nvmlReturn_t result = read_use(device, memory, &use);
	if (result)
		return result;
	if (memory->version != version)
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	double values[] = {(double)use.used, (double)(use.used < use.memory ? use.memory - use.used : 0), 0};
	result = override_values(device->ordinal, __func__, values, 3);
	*memory = (nvmlMemory_v2_t){version, use.memory, (unsigned long long)values[2], (unsigned long long)values[1],
				    (unsigned long long)values[0]};
	return result;
}

EXPORT nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *utilization)
{
	struct device_use use;
	nvmlReturn_t result = read_use(device, utilization, &use);
	if (result)
		return result;
	/* The simulation has no memory traffic: memory utilization is half of the GPU
	 * utilization. */
	double values[] = {between(0, 100, use.busy), between(0, 50, use.busy)};
	result = override_values(device->ordinal, __func__, values, 2);
	*utilization = (nvmlUtilization_t){(unsigned)values[0], (unsigned)values[1]};
	return result;
}

EXPORT nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned int *power)
{
	struct device_use use;
	nvmlReturn_t result = read_use(device, power, &use);
	if (result)
		return result;
	*power = between(IDLE_MW, BUSY_MW, use.busy);
	return override_value(device, power);
}

/* Returns millijoules since boot: idle power all the time, plus active power while work ran. */
EXPORT nvmlReturn_t nvmlDeviceGetTotalEnergyConsumption(nvmlDevice_t device, unsigned long long *energy)
{
	struct device_use use;
	struct timespec up;
	nvmlReturn_t result = read_use(device, energy, &use);
	if (result)
		return result;
	clock_gettime(CLOCK_MONOTONIC, &up);
	double seconds = (double)up.tv_sec + (double)up.tv_nsec / 1e9;
	*energy = (unsigned long long)(seconds * IDLE_MW + (double)use.busy_ns / 1e9 * (BUSY_MW - IDLE_MW));
	return override_value(device, energy);
}

EXPORT nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, nvmlTemperatureSensors_t sensorType, unsigned int *temp)
{
	struct device_use use;
	nvmlReturn_t result = read_use(device, temp, &use);
	if (!result && sensorType != NVML_TEMPERATURE_GPU)
		result = NVML_ERROR_INVALID_ARGUMENT;
	if (result)
		return result;
	*temp = between(IDLE_CELSIUS, BUSY_CELSIUS, use.busy);
	return override_value(device, temp);
}

EXPORT nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, nvmlClockType_t type, unsigned int *clock)
{
	struct device_use use;
	nvmlReturn_t result = read_use(device, clock, &use);
	if (result)
		return result;
	switch (type) {
	case NVML_CLOCK_GRAPHICS: case NVML_CLOCK_SM: *clock = use.busy > 0 ? BUSY_SM_MHZ : IDLE_SM_MHZ; break;
	case NVML_CLOCK_MEM: *clock = MEMORY_MHZ; break;
	case NVML_CLOCK_VIDEO: *clock = use.busy > 0 ? BUSY_SM_MHZ * 4 / 5 : IDLE_SM_MHZ * 4 / 5; break;
	default: return NVML_ERROR_INVALID_ARGUMENT;
	}
	return override_value_of_argument(device, type, clock);
}

EXPORT nvmlReturn_t nvmlDeviceGetPerformanceState(nvmlDevice_t device, nvmlPstates_t *pState)
{
	struct device_use use;
	nvmlReturn_t result = read_use(device, pState, &use);
	if (result)
		return result;
	*pState = use.busy > 0 ? NVML_PSTATE_0 : NVML_PSTATE_8;
	return override_value(device, pState);
}

enum { MAX_PROCESSES = 128 };

static nvmlReturn_t processes(const char *function, nvmlDevice_t device, unsigned int *count, nvmlProcessInfo_t *infos)
{
	enum { MAX = MAX_PROCESSES };
	struct device_use use;
	struct process_use list[MAX];
	nvmlReturn_t result = read_use_of(function, device, count, &use, list, MAX);
	if (result)
		return result;
	unsigned int n = (unsigned)(use.processes < MAX ? use.processes : MAX), room = *count;
	*count = n;
	if (n > room || (n > 0 && !infos))
		return NVML_ERROR_INSUFFICIENT_SIZE;
	for (unsigned int i = 0; i < n; i++) /* 0xffffffff: no MIG instance */
		infos[i] = (nvmlProcessInfo_t){list[i].pid, list[i].bytes, 0xffffffffu, 0xffffffffu};
	return NVML_SUCCESS;
}

/* Returns one sample per process, taken now. The real driver returns a buffer of samples. */
EXPORT nvmlReturn_t nvmlDeviceGetProcessUtilization(nvmlDevice_t device, nvmlProcessUtilizationSample_t *utilization,
						    unsigned int *count, unsigned long long lastSeenTimeStamp)
{
	struct device_use use;
	struct process_use list[MAX_PROCESSES];
	struct timespec now;
	nvmlReturn_t result = read_use_of(__func__, device, count, &use, list, MAX_PROCESSES);
	if (result)
		return result;
	(void)lastSeenTimeStamp; /* the sample is always newer */
	unsigned int n = (unsigned)(use.processes < MAX_PROCESSES ? use.processes : MAX_PROCESSES), room = *count;
	*count = n;
	if (n == 0)
		return NVML_ERROR_NOT_FOUND;
	if (!utilization || n > room)
		return NVML_ERROR_INSUFFICIENT_SIZE;
	clock_gettime(CLOCK_REALTIME, &now);
	for (unsigned int i = 0; i < n; i++) {
		double values[] = {between(0, 100, list[i].busy), between(0, 50, list[i].busy), 0, 0};
		result = override_values(device->ordinal, __func__, values, 4);
		utilization[i] = (nvmlProcessUtilizationSample_t){
			list[i].pid, (unsigned long long)now.tv_sec * 1000000 + (unsigned long long)now.tv_nsec / 1000,
			(unsigned)values[0], (unsigned)values[1], (unsigned)values[2], (unsigned)values[3]};
	}
	return result;
}

EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v2(nvmlDevice_t device, unsigned int *infoCount, nvmlProcessInfo_t *infos)
{
	return processes(__func__, device, infoCount, infos);
}

EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned int *infoCount, nvmlProcessInfo_t *infos)
{
	return processes(__func__, device, infoCount, infos);
}

static nvmlReturn_t reasons(const char *function, nvmlDevice_t device, unsigned long long *out)
{
	struct device_use use;
	nvmlReturn_t result = read_use_of(function, device, out, &use, NULL, 0);
	if (result)
		return result;
	double value = use.busy > 0 ? nvmlClocksEventReasonNone : nvmlClocksEventReasonGpuIdle;
	result = override_values(device->ordinal, function, &value, 1);
	*out = (unsigned long long)value;
	return result;
}

EXPORT nvmlReturn_t nvmlDeviceGetCurrentClocksEventReasons(nvmlDevice_t device, unsigned long long *clocksEventReasons)
{
	return reasons(__func__, device, clocksEventReasons);
}

EXPORT nvmlReturn_t nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t device, unsigned long long *clocksThrottleReasons)
{
	return reasons(__func__, device, clocksThrottleReasons);
}
