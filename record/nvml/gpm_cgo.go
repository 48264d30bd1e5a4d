//go:build linux && cgo

package nvml

/*
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>

// nvmlGpmMetricsGet_t, version 1, in nvml.h.
struct gpm_metric {
	unsigned int id, result;
	double value;
	const char *short_name, *long_name, *unit;
};
struct gpm_metrics {
	unsigned int version, count;
	void *sample1, *sample2;
	struct gpm_metric metrics[210];
};

// nvmlGpmSupport_t, version 1.
struct gpm_support { unsigned int version, supported; };

static int get_gpm_support(void *device, struct gpm_support *s)
{
	int (*query)(void *, struct gpm_support *) =
		(int (*)(void *, struct gpm_support *))dlsym(RTLD_DEFAULT, "nvmlGpmQueryDeviceSupport");
	return query ? query(device, s) : 13; // NVML_ERROR_FUNCTION_NOT_FOUND
}

static int get_gpm_metrics(struct gpm_metrics *m)
{
	int (*get)(struct gpm_metrics *) = (int (*)(struct gpm_metrics *))dlsym(RTLD_DEFAULT, "nvmlGpmMetricsGet");
	return get ? get(m) : 13;
}
*/
import "C"

import (
	"reflect"
	"unsafe"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

// gpurec calls two functions of NVML without go-nvml v0.13.0-1. For nvmlGpmMetricsGet, the layout
// of go-nvml's struct depends on the Go version, and only the first metric is right. For
// nvmlGpmQueryDeviceSupport, go-nvml requests a version that drivers do not support.

// supportsGPM reports whether a device supports GPU performance monitoring.
func supportsGPM(d nvml.Device) bool {
	s := C.struct_gpm_support{version: 1}
	return nvml.Return(C.get_gpm_support(unwrapNVMLHandle(d), &s)) == nvml.SUCCESS && s.supported != 0
}

// gpmRequest is the argument of nvmlGpmMetricsGet.
type gpmRequest struct{ c C.struct_gpm_metrics }

// computeMetrics computes the GPM metrics between two samples of a device's counters.
func (r *gpmRequest) computeMetrics(before, now nvml.GpmSample) nvml.Return {
	r.c.version, r.c.count = 1, C.uint(len(gpmMetrics))
	r.c.sample1, r.c.sample2 = unwrapNVMLHandle(before), unwrapNVMLHandle(now)
	for i, m := range gpmMetrics {
		r.c.metrics[i].id = C.uint(m.id)
	}
	return nvml.Return(C.get_gpm_metrics(&r.c))
}

// metricValue returns the value of gpmMetrics[i].
func (r *gpmRequest) metricValue(i int) (float64, nvml.Return) {
	return float64(r.c.metrics[i].value), nvml.Return(r.c.metrics[i].result)
}

// unwrapNVMLHandle returns NVML's pointer for a device or a sample, which is the only field of its
// go-nvml type.
func unwrapNVMLHandle(wrapped any) unsafe.Pointer {
	return reflect.ValueOf(wrapped).Field(0).UnsafePointer()
}
