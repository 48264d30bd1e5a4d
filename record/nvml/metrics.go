//go:build linux && cgo

package nvml

import (
	"bytes"
	"slices"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/record/clock"
)

// Periods of metrics. Metrics that change slowly or are expensive are read rarely, so that sampling
// at 10 Hz takes less than 1 % of a core. The driver busy-waits for the GPU. On an H200, the energy
// counter takes 4.1 ms of CPU time, process utilization 1.7 ms, GPM 1.6 ms, application clocks 0.7
// ms and BAR1 0.4 ms. Most others take 3 to 20 µs.
const (
	always    time.Duration = 0
	perGPM                  = 500 * time.Millisecond
	perSecond               = time.Second
	slow                    = 2 * time.Second
	slowest                 = 10 * time.Second
)

// metric is one NVML function with one or more values. read returns the values in the order of
// names. Units are in the names, and FORMAT.md describes each metric.
type metric struct {
	symbol string
	every  time.Duration
	names  []string
	read   func(nvml.Device) ([]float64, nvml.Return)
}

// scalarMetric returns a metric of an NVML function with one number.
func scalarMetric[T int | uint32 | uint64](
	symbol string,
	every time.Duration,
	name string,
	read func(nvml.Device) (T, nvml.Return),
) metric {
	return metric{symbol, every, []string{name}, func(d nvml.Device) ([]float64, nvml.Return) {
		v, ret := read(d)
		return []float64{float64(v)}, ret
	}}
}

// metrics are the metrics with their own NVML function. Of several metrics with the same name, the
// first one that a device supports is used.
var metrics = slices.Concat(useMetrics, powerMetrics, clockMetrics, linkMetrics, healthMetrics)

var useMetrics = []metric{
	{
		"nvmlDeviceGetUtilizationRates",
		perSecond,
		[]string{"gpu_utilization_percent", "memory_utilization_percent"},
		func(d nvml.Device) ([]float64, nvml.Return) {
			u, ret := d.GetUtilizationRates()
			return []float64{float64(u.Gpu), float64(u.Memory)}, ret
		},
	},
	{
		"nvmlDeviceGetMemoryInfo_v2",
		always,
		[]string{"memory_used_bytes", "memory_free_bytes", "memory_reserved_bytes"},
		func(d nvml.Device) ([]float64, nvml.Return) {
			m, ret := d.GetMemoryInfo_v2()
			return []float64{float64(m.Used), float64(m.Free), float64(m.Reserved)}, ret
		},
	},
	{
		"nvmlDeviceGetMemoryInfo",
		always,
		[]string{"memory_used_bytes", "memory_free_bytes"},
		func(d nvml.Device) ([]float64, nvml.Return) {
			m, ret := d.GetMemoryInfo()
			return []float64{float64(m.Used), float64(m.Free)}, ret
		},
	},
	{"nvmlDeviceGetMemoryInfo", slowest, []string{"memory_total_bytes"}, func(d nvml.Device) ([]float64, nvml.Return) {
		m, ret := d.GetMemoryInfo()
		return []float64{float64(m.Total)}, ret
	}},
	{"nvmlDeviceGetBAR1MemoryInfo", slowest, []string{"bar1_used_bytes"}, func(d nvml.Device) ([]float64, nvml.Return) {
		m, ret := d.GetBAR1MemoryInfo()
		return []float64{float64(m.Bar1Used)}, ret
	}},
	engineMetric("nvmlDeviceGetEncoderUtilization", "encoder_utilization_percent", nvml.Device.GetEncoderUtilization),
	engineMetric("nvmlDeviceGetDecoderUtilization", "decoder_utilization_percent", nvml.Device.GetDecoderUtilization),
	engineMetric("nvmlDeviceGetJpgUtilization", "jpeg_utilization_percent", nvml.Device.GetJpgUtilization),
	engineMetric("nvmlDeviceGetOfaUtilization", "ofa_utilization_percent", nvml.Device.GetOfaUtilization),
	{
		"nvmlDeviceGetEncoderStats",
		slowest,
		[]string{"encoder_sessions", "encoder_frames_per_second", "encoder_latency_microseconds"},
		func(d nvml.Device) ([]float64, nvml.Return) {
			sessions, fps, latency, ret := d.GetEncoderStats()
			return []float64{float64(sessions), float64(fps), float64(latency)}, ret
		},
	},
}

// engineMetric returns a metric of an engine's utilization. It ignores the sampling period in the NVML
// result.
func engineMetric(symbol, name string, read func(nvml.Device) (uint32, uint32, nvml.Return)) metric {
	return scalarMetric(symbol, perSecond, name, func(d nvml.Device) (uint32, nvml.Return) {
		percent, _, ret := read(d)
		return percent, ret
	})
}

var powerMetrics = []metric{
	scalarMetric("nvmlDeviceGetPowerUsage", always, "power_milliwatts", nvml.Device.GetPowerUsage),
	scalarMetric(
		"nvmlDeviceGetEnforcedPowerLimit",
		slowest,
		"power_limit_milliwatts",
		nvml.Device.GetEnforcedPowerLimit,
	),
	scalarMetric(
		"nvmlDeviceGetTotalEnergyConsumption",
		slowest,
		"energy_millijoules",
		nvml.Device.GetTotalEnergyConsumption,
	),
	scalarMetric(
		"nvmlDeviceGetTemperature",
		perSecond,
		"temperature_celsius",
		func(d nvml.Device) (uint32, nvml.Return) {
			return d.GetTemperature(nvml.TEMPERATURE_GPU)
		},
	),
	scalarMetric("nvmlDeviceGetFanSpeed", perSecond, "fan_speed_percent", nvml.Device.GetFanSpeed),
}

var clockMetrics = []metric{
	clockOf("sm_clock_mhz", nvml.CLOCK_SM),
	clockOf("memory_clock_mhz", nvml.CLOCK_MEM),
	clockOf("graphics_clock_mhz", nvml.CLOCK_GRAPHICS),
	clockOf("video_clock_mhz", nvml.CLOCK_VIDEO),
	scalarMetric(
		"nvmlDeviceGetApplicationsClock",
		slowest,
		"application_graphics_clock_mhz",
		func(d nvml.Device) (uint32, nvml.Return) {
			return d.GetApplicationsClock(nvml.CLOCK_GRAPHICS)
		},
	),
	scalarMetric(
		"nvmlDeviceGetApplicationsClock",
		slowest,
		"application_memory_clock_mhz",
		func(d nvml.Device) (uint32, nvml.Return) {
			return d.GetApplicationsClock(nvml.CLOCK_MEM)
		},
	),
	scalarMetric(
		"nvmlDeviceGetCurrentClocksEventReasons",
		always,
		"clock_event_reasons",
		nvml.Device.GetCurrentClocksEventReasons,
	),
	// before driver 535
	scalarMetric(
		"nvmlDeviceGetCurrentClocksThrottleReasons",
		always,
		"clock_event_reasons",
		nvml.Device.GetCurrentClocksThrottleReasons,
	),
	{
		"nvmlDeviceGetPerformanceState",
		always,
		[]string{"performance_state"},
		func(d nvml.Device) ([]float64, nvml.Return) {
			p, ret := d.GetPerformanceState()
			if p == nvml.PSTATE_UNKNOWN {
				ret = nvml.ERROR_NOT_SUPPORTED
			}
			return []float64{float64(p)}, ret
		},
	},
}

func clockOf(name string, kind nvml.ClockType) metric {
	return scalarMetric(
		"nvmlDeviceGetClockInfo",
		always,
		name,
		func(d nvml.Device) (uint32, nvml.Return) { return d.GetClockInfo(kind) },
	)
}

var linkMetrics = []metric{
	scalarMetric(
		"nvmlDeviceGetCurrPcieLinkGeneration",
		perSecond,
		"pcie_link_generation",
		nvml.Device.GetCurrPcieLinkGeneration,
	),
	scalarMetric(
		"nvmlDeviceGetCurrPcieLinkWidth",
		perSecond,
		"pcie_link_width_lanes",
		nvml.Device.GetCurrPcieLinkWidth,
	),
	scalarMetric(
		"nvmlDeviceGetPcieThroughput",
		slowest,
		"pcie_tx_kilobytes_per_second",
		func(d nvml.Device) (uint32, nvml.Return) {
			return d.GetPcieThroughput(nvml.PCIE_UTIL_TX_BYTES)
		},
	),
	scalarMetric(
		"nvmlDeviceGetPcieThroughput",
		slowest,
		"pcie_rx_kilobytes_per_second",
		func(d nvml.Device) (uint32, nvml.Return) {
			return d.GetPcieThroughput(nvml.PCIE_UTIL_RX_BYTES)
		},
	),
	scalarMetric("nvmlDeviceGetPcieReplayCounter", slowest, "pcie_replays", nvml.Device.GetPcieReplayCounter),
	scalarMetric("nvmlDeviceGetNvLinkState", slowest, "nvlink_active_links", activeLinks),
	linkErrors("nvlink_replay_errors", nvml.NVLINK_ERROR_DL_REPLAY),
	linkErrors("nvlink_recovery_errors", nvml.NVLINK_ERROR_DL_RECOVERY),
	linkErrors("nvlink_crc_flit_errors", nvml.NVLINK_ERROR_DL_CRC_FLIT),
	linkErrors("nvlink_crc_data_errors", nvml.NVLINK_ERROR_DL_CRC_DATA),
	linkErrors("nvlink_ecc_data_errors", nvml.NVLINK_ERROR_DL_ECC_DATA),
}

// activeLinks returns the number of active NVLinks. A device without NVLinks does not support the
// metric.
func activeLinks(d nvml.Device) (int, nvml.Return) {
	known, active := 0, 0
	for link := range nvml.NVLINK_MAX_LINKS {
		state, ret := d.GetNvLinkState(link)
		if ret == nvml.ERROR_GPU_IS_LOST {
			return 0, ret
		}
		if ret != nvml.SUCCESS {
			break // links have no gaps in their numbers
		}
		known++
		if state == nvml.FEATURE_ENABLED {
			active++
		}
	}
	if known == 0 {
		return 0, nvml.ERROR_NOT_SUPPORTED
	}
	return active, nvml.SUCCESS
}

// linkErrors returns a metric that sums an error counter over all NVLinks.
func linkErrors(name string, counter nvml.NvLinkErrorCounter) metric {
	return scalarMetric("nvmlDeviceGetNvLinkErrorCounter", slowest, name, func(d nvml.Device) (uint64, nvml.Return) {
		var sum uint64
		result := nvml.ERROR_NOT_SUPPORTED
		for link := range nvml.NVLINK_MAX_LINKS {
			n, ret := d.GetNvLinkErrorCounter(link, counter)
			if ret == nvml.ERROR_INVALID_ARGUMENT || ret == nvml.ERROR_GPU_IS_LOST {
				break // no more links
			}
			if ret == nvml.SUCCESS {
				sum, result = sum+n, nvml.SUCCESS
			}
		}
		return sum, result
	})
}

var healthMetrics = []metric{
	eccErrors("ecc_corrected_volatile_errors", nvml.MEMORY_ERROR_TYPE_CORRECTED, nvml.VOLATILE_ECC),
	eccErrors("ecc_uncorrected_volatile_errors", nvml.MEMORY_ERROR_TYPE_UNCORRECTED, nvml.VOLATILE_ECC),
	eccErrors("ecc_corrected_aggregate_errors", nvml.MEMORY_ERROR_TYPE_CORRECTED, nvml.AGGREGATE_ECC),
	eccErrors("ecc_uncorrected_aggregate_errors", nvml.MEMORY_ERROR_TYPE_UNCORRECTED, nvml.AGGREGATE_ECC),
	retiredPages("retired_pages_single_bit", nvml.PAGE_RETIREMENT_CAUSE_MULTIPLE_SINGLE_BIT_ECC_ERRORS),
	retiredPages("retired_pages_double_bit", nvml.PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR),
	{
		"nvmlDeviceGetRetiredPagesPendingStatus",
		slowest,
		[]string{"retired_pages_pending"},
		func(d nvml.Device) ([]float64, nvml.Return) {
			pending, ret := d.GetRetiredPagesPendingStatus()
			return []float64{float64(pending)}, ret
		},
	},
	{
		"nvmlDeviceGetRemappedRows",
		slowest,
		[]string{
			"remapped_rows_correctable",
			"remapped_rows_uncorrectable",
			"remapped_rows_pending",
			"remapped_rows_failure",
		},
		func(d nvml.Device) ([]float64, nvml.Return) {
			correctable, uncorrectable, pending, failure, ret := d.GetRemappedRows()
			return []float64{float64(correctable), float64(uncorrectable), number(pending), number(failure)}, ret
		},
	},
}

func eccErrors(name string, kind nvml.MemoryErrorType, since nvml.EccCounterType) metric {
	return scalarMetric("nvmlDeviceGetTotalEccErrors", slowest, name, func(d nvml.Device) (uint64, nvml.Return) {
		return d.GetTotalEccErrors(kind, since)
	})
}

func retiredPages(name string, cause nvml.PageRetirementCause) metric {
	return scalarMetric("nvmlDeviceGetRetiredPages", slowest, name, func(d nvml.Device) (int, nvml.Return) {
		pages, ret := d.GetRetiredPages(cause)
		return len(pages), ret
	})
}

func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// metricQueries returns a query for each metric that the device supports. It calls each function
// once.
func (g *gpu) metricQueries() []*query {
	var queries []*query
	taken := make(map[string]bool)
	for _, m := range metrics {
		if taken[m.names[0]] || !hasFunction(m.symbol) {
			continue
		}
		if _, ret := m.read(g.handle); ret != nvml.SUCCESS {
			continue
		}
		taken[m.names[0]] = true
		queries = append(
			queries,
			&query{name: m.names[0], every: m.every, run: func(c clock.Clock) ([]format.Row, nvml.Return) {
				start := c.NowNs()
				values, ret := m.read(g.handle)
				dur := c.NowNs() - start
				rows := make([]format.Row, 0, len(values))
				for i, v := range values {
					rows = append(rows, g.row(start, dur, m.names[i], v))
				}
				return rows, ret
			}},
		)
	}
	return queries
}

func (g *gpu) row(start, dur int64, name string, value float64) format.Row {
	return format.Row{
		Kind:    format.KindNVML,
		StartNs: start,
		DurNs:   dur,
		Device:  int32(g.index),
		Name:    name,
		Value:   value,
	}
}

// cString returns the C string in a fixed buffer.
func cString[T int8 | uint8](buffer []T) string {
	b := make([]byte, 0, len(buffer))
	for _, c := range buffer {
		b = append(b, byte(c))
	}
	b, _, _ = bytes.Cut(b, []byte{0})
	return string(b)
}
