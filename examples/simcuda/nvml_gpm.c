/* NVML: GPU performance monitoring (GPM), which compares two samples, and events. */
#include "nvml_device.h"

#include "config.h"

#include <stdlib.h>
#include <time.h>

struct nvmlGpmSample_st {
	nvmlDevice_t device;
	unsigned long long at_ns, busy_ns;
};

static unsigned long long now_ns(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (unsigned long long)t.tv_sec * 1000000000ull + (unsigned long long)t.tv_nsec;
}

EXPORT nvmlReturn_t nvmlGpmQueryDeviceSupport(nvmlDevice_t device, nvmlGpmSupport_t *support)
{
	nvmlReturn_t result = begin_query(device, support);
	if (result || support->version != 1)
		return result ? result : NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	support->isSupportedDevice = 1;
	return override_value(device, &support->isSupportedDevice);
}

EXPORT nvmlReturn_t nvmlGpmSampleAlloc(nvmlGpmSample_t *sample)
{
	nvmlReturn_t result = check_ready(sample);
	if (!result && !(*sample = calloc(1, sizeof(**sample))))
		result = NVML_ERROR_UNKNOWN;
	return result;
}

EXPORT nvmlReturn_t nvmlGpmSampleFree(nvmlGpmSample_t sample)
{
	free(sample);
	return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlGpmSampleGet(nvmlDevice_t device, nvmlGpmSample_t sample)
{
	struct device_use use;
	nvmlReturn_t result = read_use(device, sample, &use);
	if (!result)
		*sample = (struct nvmlGpmSample_st){device, now_ns(), use.busy_ns};
	return result;
}

/* Returns the default value of a metric, or -1 if it is not supported. While a kernel runs, half
 * of the SMs run FP32 and a quarter of the memory bandwidth is used. Links are idle. */
static double default_metric(unsigned int metric, double busy)
{
	switch (metric) {
	case 1: return 100 * busy;
	case 2: case 12: return 50 * busy;
	case 3: case 10: return 25 * busy;
	case 4: case 5: case 6: case 7: case 9: case 11: case 13: case 20: case 21: return 0;
	}
	return -1;
}

EXPORT nvmlReturn_t nvmlGpmMetricsGet(nvmlGpmMetricsGet_t *get)
{
	nvmlReturn_t result = check_ready(get);
	if (result || get->version != 1 || !get->sample1 || !get->sample2 || get->numMetrics > NVML_GPM_METRIC_MAX)
		return result ? result : NVML_ERROR_INVALID_ARGUMENT;
	nvmlDevice_t device = get->sample2->device;
	double span = (double)(get->sample2->at_ns - get->sample1->at_ns);
	double busy = span > 0 ? (double)(get->sample2->busy_ns - get->sample1->busy_ns) / span : 0;
	for (unsigned int i = 0; i < get->numMetrics; i++) {
		nvmlGpmMetric_t *m = &get->metrics[i];
		m->value = default_metric(m->metricId, busy < 1 ? busy : 1);
		m->nvmlReturn = override_values_of_argument(device->ordinal, __func__, (long)m->metricId, &m->value, 1);
		if (!m->nvmlReturn && m->value < 0)
			m->nvmlReturn = NVML_ERROR_NOT_SUPPORTED;
	}
	return NVML_SUCCESS;
}

struct nvmlEventSet_st { nvmlDevice_t devices[MAX_DEVICES]; double last[MAX_DEVICES]; int n; };

EXPORT nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *set)
{
	nvmlReturn_t result = check_ready(set);
	if (!result && !(*set = calloc(1, sizeof(**set))))
		result = NVML_ERROR_UNKNOWN;
	return result;
}

EXPORT nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set)
{
	free(set);
	return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long eventTypes, nvmlEventSet_t set)
{
	nvmlReturn_t result = begin_query(device, set);
	if (!result && (set->n == MAX_DEVICES || eventTypes != nvmlEventTypeXidCriticalError))
		result = NVML_ERROR_NOT_SUPPORTED;
	if (!result)
		set->devices[set->n++] = device;
	return result;
}

/* Waits for an Xid event. An event occurs when the value "xid" in the SIMCUDA_NVML file changes. */
EXPORT nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *data, unsigned int timeoutms)
{
	nvmlReturn_t result = check_ready(data);
	if (result)
		return result;
	for (unsigned long long end = now_ns() + timeoutms * 1000000ull;;) {
		for (int i = 0; i < set->n; i++) {
			double xid = 0;
			result = override_values(set->devices[i]->ordinal, "xid", &xid, 1);
			if (!result && xid > 0 && xid != set->last[i]) {
				set->last[i] = xid;
				*data = (nvmlEventData_t){set->devices[i], nvmlEventTypeXidCriticalError,
							  (unsigned long long)xid, ~0u, ~0u};
				return NVML_SUCCESS;
			}
		}
		if (now_ns() >= end)
			return NVML_ERROR_TIMEOUT;
		nanosleep(&(struct timespec){0, 5 * 1000 * 1000}, NULL);
	}
}
