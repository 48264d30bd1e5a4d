//go:build linux && cgo

package nvml

import (
	"math"
	"sync"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/record/clock"
)

// gpmMetrics are metrics of NVML's GPU performance monitoring (GPM), since Hopper. They measure
// activity without a profiler, as an average between two samples. So rare samples miss no activity.
var gpmMetrics = []struct {
	name string
	id   nvml.GpmMetricId
}{
	{"gpm_graphics_active_percent", nvml.GPM_METRIC_GRAPHICS_UTIL},
	{"gpm_sm_active_percent", nvml.GPM_METRIC_SM_UTIL},
	{"gpm_sm_occupancy_percent", nvml.GPM_METRIC_SM_OCCUPANCY},
	{"gpm_integer_active_percent", nvml.GPM_METRIC_INTEGER_UTIL},
	{"gpm_tensor_active_percent", nvml.GPM_METRIC_ANY_TENSOR_UTIL},
	{"gpm_tensor_fp64_active_percent", nvml.GPM_METRIC_DFMA_TENSOR_UTIL},
	{"gpm_tensor_fp16_active_percent", nvml.GPM_METRIC_HMMA_TENSOR_UTIL},
	{"gpm_tensor_integer_active_percent", nvml.GPM_METRIC_IMMA_TENSOR_UTIL},
	{"gpm_dram_bandwidth_percent", nvml.GPM_METRIC_DRAM_BW_UTIL},
	{"gpm_fp64_active_percent", nvml.GPM_METRIC_FP64_UTIL},
	{"gpm_fp32_active_percent", nvml.GPM_METRIC_FP32_UTIL},
	{"gpm_fp16_active_percent", nvml.GPM_METRIC_FP16_UTIL},
	{"gpm_pcie_tx_mebibytes_per_second", nvml.GPM_METRIC_PCIE_TX_PER_SEC},
	{"gpm_pcie_rx_mebibytes_per_second", nvml.GPM_METRIC_PCIE_RX_PER_SEC},
	{"gpm_nvlink_rx_mebibytes_per_second", nvml.GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC},
	{"gpm_nvlink_tx_mebibytes_per_second", nvml.GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC},
}

// gpmMutex guards the GPM functions of NVML. On a host with two H200, driver 580.159.04 read outside
// of its memory in nvmlGpmMetricsGet when two threads used GPM at the same time.
var gpmMutex sync.Mutex

// gpmSampler holds two samples of a device's counters, which are overwritten in turn.
type gpmSampler struct {
	gpu     *gpu
	samples [2]nvml.GpmSample
	latest  int  // index of the latest sample
	begun   bool // whether there is a sample
	request gpmRequest
}

// makeGPMQueries returns the GPM query if the device supports GPM.
func (g *gpu) makeGPMQueries() []*query {
	for _, symbol := range []string{
		"nvmlGpmQueryDeviceSupport",
		"nvmlGpmSampleAlloc",
		"nvmlGpmSampleGet",
		"nvmlGpmMetricsGet",
	} {
		if !hasNVMLFunction(symbol) {
			return nil
		}
	}
	if !supportsGPM(g.handle) {
		return nil
	}
	m := &gpmSampler{gpu: g}
	for i := range m.samples { // NVML frees them at shutdown
		var ret nvml.Return
		if m.samples[i], ret = nvml.GpmSampleAlloc(); ret != nvml.SUCCESS {
			return nil
		}
	}
	return []*query{{name: "gpm", every: periodGPM, run: m.sampleGPM}}
}

// sampleGPM takes a sample of the GPM counters and returns the averages since the previous sample.
// The first call returns no rows.
func (s *gpmSampler) sampleGPM(c clock.Clock) ([]format.Row, nvml.Return) {
	gpmMutex.Lock()
	defer gpmMutex.Unlock()
	before, now := s.samples[s.latest], s.samples[1-s.latest]
	start := c.NowNs()
	if ret := now.Get(s.gpu.handle); ret != nvml.SUCCESS {
		return nil, ret
	}
	first := !s.begun
	s.latest, s.begun = 1-s.latest, true
	if first {
		return nil, nvml.SUCCESS
	}
	if ret := s.request.computeMetrics(before, now); ret != nvml.SUCCESS {
		return nil, ret
	}
	dur := c.NowNs() - start
	rows := make([]format.Row, 0, len(gpmMetrics))
	for i, g := range gpmMetrics {
		value, ret := s.request.metricValue(i)
		if ret != nvml.SUCCESS || math.IsNaN(value) {
			continue // a device has only some of the pipes
		}
		rows = append(rows, s.gpu.makeMetricRow(start, dur, g.name, value))
	}
	return rows, nvml.SUCCESS
}
