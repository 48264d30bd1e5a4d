/* NVML: values that do not depend on the simulated work: links, limits, modes and health. The
 * defaults describe a healthy server card without NVLink and fan. SIMCUDA_NVML overrides them. */
#include "nvml_device.h"

#include <stddef.h>

/* Defines a function with a device and one output number. */
#define DEFINE_NUMBER(function, type, default_value) \
	EXPORT nvmlReturn_t function(nvmlDevice_t device, type *out) \
	{ \
		nvmlReturn_t result = begin_query(device, out); \
		if (result) \
			return result; \
		*out = (type)(default_value); \
		return override_value(device, out); \
	}

/* Defines a function with a device, one argument and one output number. A negative default means
 * "not supported", unless SIMCUDA_NVML sets a value. */
#define DEFINE_NUMBER_OF_ARGUMENT(function, argument_type, type, default_value) \
	EXPORT nvmlReturn_t function(nvmlDevice_t device, argument_type argument, type *out) \
	{ \
		nvmlReturn_t result = begin_query(device, out); \
		return result ? result : number_of(device, __func__, (long)argument, default_value, out, sizeof(*out)); \
	}

static nvmlReturn_t number_of(nvmlDevice_t device, const char *function, long argument, double default_value, void *out, size_t size)
{
	double value = default_value;
	nvmlReturn_t result = override_values_of_argument(device->ordinal, function, argument, &value, 1);
	if (result)
		return result;
	if (value < 0)
		return NVML_ERROR_NOT_SUPPORTED;
	if (size == sizeof(unsigned int))
		*(unsigned int *)out = (unsigned int)value;
	else
		*(unsigned long long *)out = (unsigned long long)value;
	return NVML_SUCCESS;
}

DEFINE_NUMBER(nvmlDeviceGetEnforcedPowerLimit, unsigned int, 700000)
DEFINE_NUMBER(nvmlDeviceGetPowerManagementDefaultLimit, unsigned int, 700000)
DEFINE_NUMBER(nvmlDeviceGetCurrPcieLinkGeneration, unsigned int, 5)
DEFINE_NUMBER(nvmlDeviceGetCurrPcieLinkWidth, unsigned int, 16)
DEFINE_NUMBER(nvmlDeviceGetMaxPcieLinkGeneration, unsigned int, 5)
DEFINE_NUMBER(nvmlDeviceGetMaxPcieLinkWidth, unsigned int, 16)
DEFINE_NUMBER(nvmlDeviceGetPcieReplayCounter, unsigned int, 0)
DEFINE_NUMBER(nvmlDeviceGetComputeMode, int, 0)
DEFINE_NUMBER(nvmlDeviceGetPersistenceMode, nvmlEnableState_t, NVML_FEATURE_ENABLED)
DEFINE_NUMBER_OF_ARGUMENT(nvmlDeviceGetTemperatureThreshold, int, unsigned int, argument == 0 ? 95 : argument == 1 ? 87 : -1)
DEFINE_NUMBER_OF_ARGUMENT(nvmlDeviceGetApplicationsClock, nvmlClockType_t, unsigned int, argument == NVML_CLOCK_MEM ? 3201 : 1980)
DEFINE_NUMBER_OF_ARGUMENT(nvmlDeviceGetMaxClockInfo, nvmlClockType_t, unsigned int, argument == NVML_CLOCK_MEM ? 3201 : 1980)
DEFINE_NUMBER_OF_ARGUMENT(nvmlDeviceGetPcieThroughput, int, unsigned int, 0)
DEFINE_NUMBER_OF_ARGUMENT(nvmlDeviceGetNvLinkState, unsigned int, nvmlEnableState_t, -1)

EXPORT nvmlReturn_t nvmlDeviceGetFanSpeed(nvmlDevice_t device, unsigned int *speed)
{
	double value = -1;
	nvmlReturn_t result = begin_query(device, speed);
	if (!result)
		result = override_values(device->ordinal, __func__, &value, 1);
	if (!result)
		*speed = value < 0 ? 0 : (unsigned)value;
	return result ? result : value < 0 ? NVML_ERROR_NOT_SUPPORTED : NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetBAR1MemoryInfo(nvmlDevice_t device, nvmlBAR1Memory_t *bar1)
{
	nvmlReturn_t result = begin_query(device, bar1);
	if (result)
		return result;
	double used = 2 << 20;
	result = override_values(device->ordinal, __func__, &used, 1);
	*bar1 = (nvmlBAR1Memory_t){256 << 20, (256 << 20) - (unsigned long long)used, (unsigned long long)used};
	return result;
}

/* Defines a utilization query for an engine that simulated work does not use. */
#define ENGINE(function) \
	EXPORT nvmlReturn_t function(nvmlDevice_t device, unsigned int *utilization, unsigned int *samplingPeriodUs) \
	{ \
		nvmlReturn_t result = begin_query(device, utilization); \
		if (result || !samplingPeriodUs) \
			return result ? result : NVML_ERROR_INVALID_ARGUMENT; \
		*utilization = 0; \
		*samplingPeriodUs = 167000; \
		return override_value(device, utilization); \
	}

ENGINE(nvmlDeviceGetEncoderUtilization)
ENGINE(nvmlDeviceGetDecoderUtilization)
ENGINE(nvmlDeviceGetJpgUtilization)
ENGINE(nvmlDeviceGetOfaUtilization)

/* Overrides n values, then stores each in its output variable. */
static nvmlReturn_t numbers(nvmlDevice_t device, const char *function, double *values, unsigned int **out, int n)
{
	nvmlReturn_t result = override_values(device->ordinal, function, values, n);
	for (int i = 0; i < n && !result; i++) {
		if (!out[i])
			return NVML_ERROR_INVALID_ARGUMENT;
		*out[i] = (unsigned int)values[i];
	}
	return result;
}

EXPORT nvmlReturn_t nvmlDeviceGetEncoderStats(nvmlDevice_t device, unsigned int *sessionCount, unsigned int *averageFps,
					      unsigned int *averageLatency)
{
	nvmlReturn_t result = begin_query(device, sessionCount);
	return result ? result : numbers(device, __func__, (double[]){0, 0, 0},
					 (unsigned int *[]){sessionCount, averageFps, averageLatency}, 3);
}

EXPORT nvmlReturn_t nvmlDeviceGetPowerManagementLimitConstraints(nvmlDevice_t device, unsigned int *lowest, unsigned int *highest)
{
	nvmlReturn_t result = begin_query(device, lowest);
	return result ? result : numbers(device, __func__, (double[]){200000, 700000}, (unsigned int *[]){lowest, highest}, 2);
}

EXPORT nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t device, unsigned int *correctable, unsigned int *uncorrectable,
					      unsigned int *isPending, unsigned int *failureOccurred)
{
	nvmlReturn_t result = begin_query(device, correctable);
	return result ? result : numbers(device, __func__, (double[]){0, 0, 0, 0},
					 (unsigned int *[]){correctable, uncorrectable, isPending, failureOccurred}, 4);
}

EXPORT nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor)
{
	nvmlReturn_t result = begin_query(device, major);
	if (result || !minor)
		return result ? result : NVML_ERROR_INVALID_ARGUMENT;
	*major = 9;
	*minor = 0;
	return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetEccMode(nvmlDevice_t device, nvmlEnableState_t *current, nvmlEnableState_t *pending)
{
	nvmlReturn_t result = begin_query(device, current);
	if (result || !pending)
		return result ? result : NVML_ERROR_INVALID_ARGUMENT;
	*current = *pending = NVML_FEATURE_ENABLED;
	return override_value(device, current);
}

/* All devices share one PCIe host bridge. */
EXPORT nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t device1, nvmlDevice_t device2, int *level)
{
	nvmlReturn_t result = begin_query(device1, level);
	if (!result)
		result = begin_query(device2, level);
	if (!result)
		*level = 30;
	return result;
}

/* The key encodes both arguments in one number. nvmlDeviceGetTotalEccErrors:11 is uncorrected
 * (1) and aggregate (1). */
EXPORT nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, int errorType, int counterType, unsigned long long *count)
{
	nvmlReturn_t result = begin_query(device, count);
	return result ? result : number_of(device, __func__, errorType * 10 + counterType, 0, count, sizeof(*count));
}

/* The key encodes both arguments as 10 × link + counter. */
EXPORT nvmlReturn_t nvmlDeviceGetNvLinkErrorCounter(nvmlDevice_t device, unsigned int link, int counter, unsigned long long *value)
{
	nvmlReturn_t result = begin_query(device, value);
	return result ? result : number_of(device, __func__, (long)link * 10 + counter, -1, value, sizeof(*value));
}

/* Cards that remap rows retire no pages, so the default is "not supported". A value sets the
 * number of retired pages. */
EXPORT nvmlReturn_t nvmlDeviceGetRetiredPages(nvmlDevice_t device, int cause, unsigned int *count, unsigned long long *addresses)
{
	unsigned int pages;
	nvmlReturn_t result = begin_query(device, count);
	if (!result)
		result = number_of(device, __func__, cause, -1, &pages, sizeof(pages));
	if (result)
		return result;
	unsigned int room = *count;
	*count = pages;
	if (pages > room || !addresses)
		return NVML_ERROR_INSUFFICIENT_SIZE;
	for (unsigned int i = 0; i < pages; i++)
		addresses[i] = 0x1000ull * (i + 1);
	return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetRetiredPagesPendingStatus(nvmlDevice_t device, nvmlEnableState_t *isPending)
{
	nvmlReturn_t result = begin_query(device, isPending);
	return result ? result : number_of(device, __func__, 0, -1, isPending, sizeof(*isPending));
}

EXPORT nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int valuesCount, nvmlFieldValue_t *values)
{
	nvmlReturn_t result = begin_query(device, values);
	for (int i = 0; i < valuesCount && !result; i++) {
		values[i].valueType = NVML_VALUE_TYPE_UNSIGNED_LONG_LONG;
		values[i].nvmlReturn = number_of(device, __func__, values[i].fieldId, -1, &values[i].value.ullVal,
						 sizeof(values[i].value.ullVal));
	}
	return result;
}
