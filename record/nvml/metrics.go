//go:build linux && cgo

package nvml

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/record/clock"
)

// Periods at which NVML metrics are read. Metrics that change slowly or are expensive are read
// rarely, so that sampling at 10 Hz takes less than 1 % of a core. The driver busy-waits for the
// GPU. On an H200, the energy counter takes 4.1 ms of CPU time, process utilization 1.7 ms, GPM 1.6
// ms, application clocks 0.7 ms and BAR1 0.4 ms. Most others take 3 to 20 µs.
const (
	periodEverySample time.Duration = 0
	periodGPM                       = 500 * time.Millisecond
	periodSecond                    = time.Second
	periodSlow                      = 2 * time.Second
	periodSlowest                   = 10 * time.Second
)

// metric is one NVML function with one or more values. read returns the values in the order of
// names. Units are in the names, and FORMAT.md describes each metric.
type metric struct {
	symbol string
	every  time.Duration
	names  []string
	read   func(nvml.Device) ([]float64, nvml.Return)
}

// nameOf returns the name of value i. Values after those with a name are of one NVLink each, such as
// nvlink7_replay_errors. It returns false if the value has no row: an NVLink without errors.
func (m *metric) nameOf(i int, value float64) (string, bool) {
	if i < len(m.names) {
		return m.names[i], true
	}
	link := strconv.Itoa(i - len(m.names))
	return strings.Replace(m.names[0], "nvlink_", "nvlink"+link+"_", 1), value != 0
}

// newScalarMetric returns a metric of an NVML function with one number.
func newScalarMetric[T int | uint32 | uint64](
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

// functionMetrics are the metrics with their own NVML function. Of several metrics with the same
// name, the first one that a device supports is used.
var functionMetrics = slices.Concat(utilizationMetrics, powerMetrics, clockMetrics, linkMetrics, healthMetrics)

var utilizationMetrics = []metric{
	{
		"nvmlDeviceGetUtilizationRates",
		periodSecond,
		[]string{"gpu_utilization_percent", "memory_utilization_percent"},
		func(d nvml.Device) ([]float64, nvml.Return) {
			u, ret := d.GetUtilizationRates()
			return []float64{float64(u.Gpu), float64(u.Memory)}, ret
		},
	},
	{
		"nvmlDeviceGetMemoryInfo_v2",
		periodEverySample,
		[]string{"memory_used_bytes", "memory_free_bytes", "memory_reserved_bytes"},
		func(d nvml.Device) ([]float64, nvml.Return) {
			m, ret := d.GetMemoryInfo_v2()
			return []float64{float64(m.Used), float64(m.Free), float64(m.Reserved)}, ret
		},
	},
	{
		"nvmlDeviceGetMemoryInfo",
		periodEverySample,
		[]string{"memory_used_bytes", "memory_free_bytes"},
		func(d nvml.Device) ([]float64, nvml.Return) {
			m, ret := d.GetMemoryInfo()
			return []float64{float64(m.Used), float64(m.Free)}, ret
		},
	},
	{
		"nvmlDeviceGetMemoryInfo",
		periodSlowest,
		[]string{"memory_total_bytes"},
		func(d nvml.Device) ([]float64, nvml.Return) {
			m, ret := d.GetMemoryInfo()
			return []float64{float64(m.Total)}, ret
		},
	},
	{
		"nvmlDeviceGetBAR1MemoryInfo",
		periodSlowest,
		[]string{"bar1_used_bytes"},
		func(d nvml.Device) ([]float64, nvml.Return) {
			m, ret := d.GetBAR1MemoryInfo()
			return []float64{float64(m.Bar1Used)}, ret
		},
	},
	newEngineMetric(
		"nvmlDeviceGetEncoderUtilization",
		"encoder_utilization_percent",
		nvml.Device.GetEncoderUtilization,
	),
	newEngineMetric(
		"nvmlDeviceGetDecoderUtilization",
		"decoder_utilization_percent",
		nvml.Device.GetDecoderUtilization,
	),
	newEngineMetric("nvmlDeviceGetJpgUtilization", "jpeg_utilization_percent", nvml.Device.GetJpgUtilization),
	newEngineMetric("nvmlDeviceGetOfaUtilization", "ofa_utilization_percent", nvml.Device.GetOfaUtilization),
	{
		"nvmlDeviceGetEncoderStats",
		periodSlowest,
		[]string{"encoder_sessions", "encoder_frames_per_second", "encoder_latency_microseconds"},
		func(d nvml.Device) ([]float64, nvml.Return) {
			sessions, fps, latency, ret := d.GetEncoderStats()
			return []float64{float64(sessions), float64(fps), float64(latency)}, ret
		},
	},
}

// newEngineMetric returns a metric of an engine's utilization. It ignores the sampling period in
// the NVML result.
func newEngineMetric(symbol, name string, read func(nvml.Device) (uint32, uint32, nvml.Return)) metric {
	return newScalarMetric(symbol, periodSecond, name, func(d nvml.Device) (uint32, nvml.Return) {
		percent, _, ret := read(d)
		return percent, ret
	})
}

var powerMetrics = []metric{
	newScalarMetric("nvmlDeviceGetPowerUsage", periodEverySample, "power_milliwatts", nvml.Device.GetPowerUsage),
	newScalarMetric(
		"nvmlDeviceGetEnforcedPowerLimit",
		periodSlowest,
		"power_limit_milliwatts",
		nvml.Device.GetEnforcedPowerLimit,
	),
	newScalarMetric(
		"nvmlDeviceGetTotalEnergyConsumption",
		periodSlowest,
		"energy_millijoules",
		nvml.Device.GetTotalEnergyConsumption,
	),
	newScalarMetric(
		"nvmlDeviceGetTemperature",
		periodSecond,
		"temperature_celsius",
		func(d nvml.Device) (uint32, nvml.Return) {
			return d.GetTemperature(nvml.TEMPERATURE_GPU)
		},
	),
	newScalarMetric("nvmlDeviceGetFanSpeed", periodSecond, "fan_speed_percent", nvml.Device.GetFanSpeed),
}

var clockMetrics = []metric{
	newClockMetric("sm_clock_mhz", nvml.CLOCK_SM),
	newClockMetric("memory_clock_mhz", nvml.CLOCK_MEM),
	newClockMetric("graphics_clock_mhz", nvml.CLOCK_GRAPHICS),
	newClockMetric("video_clock_mhz", nvml.CLOCK_VIDEO),
	newScalarMetric(
		"nvmlDeviceGetApplicationsClock",
		periodSlowest,
		"application_graphics_clock_mhz",
		func(d nvml.Device) (uint32, nvml.Return) {
			return d.GetApplicationsClock(nvml.CLOCK_GRAPHICS)
		},
	),
	newScalarMetric(
		"nvmlDeviceGetApplicationsClock",
		periodSlowest,
		"application_memory_clock_mhz",
		func(d nvml.Device) (uint32, nvml.Return) {
			return d.GetApplicationsClock(nvml.CLOCK_MEM)
		},
	),
	newScalarMetric(
		"nvmlDeviceGetCurrentClocksEventReasons",
		periodEverySample,
		"clock_event_reasons",
		nvml.Device.GetCurrentClocksEventReasons,
	),
	// before driver 535
	newScalarMetric(
		"nvmlDeviceGetCurrentClocksThrottleReasons",
		periodEverySample,
		"clock_event_reasons",
		nvml.Device.GetCurrentClocksThrottleReasons,
	),
	{
		"nvmlDeviceGetPerformanceState",
		periodEverySample,
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

func newClockMetric(name string, kind nvml.ClockType) metric {
	return newScalarMetric(
		"nvmlDeviceGetClockInfo",
		periodEverySample,
		name,
		func(d nvml.Device) (uint32, nvml.Return) { return d.GetClockInfo(kind) },
	)
}

var linkMetrics = []metric{
	newScalarMetric(
		"nvmlDeviceGetCurrPcieLinkGeneration",
		periodSecond,
		"pcie_link_generation",
		nvml.Device.GetCurrPcieLinkGeneration,
	),
	newScalarMetric(
		"nvmlDeviceGetCurrPcieLinkWidth",
		periodSecond,
		"pcie_link_width_lanes",
		nvml.Device.GetCurrPcieLinkWidth,
	),
	newScalarMetric(
		"nvmlDeviceGetPcieThroughput",
		periodSlowest,
		"pcie_tx_kilobytes_per_second",
		func(d nvml.Device) (uint32, nvml.Return) {
			return d.GetPcieThroughput(nvml.PCIE_UTIL_TX_BYTES)
		},
	),
	newScalarMetric(
		"nvmlDeviceGetPcieThroughput",
		periodSlowest,
		"pcie_rx_kilobytes_per_second",
		func(d nvml.Device) (uint32, nvml.Return) {
			return d.GetPcieThroughput(nvml.PCIE_UTIL_RX_BYTES)
		},
	),
	newScalarMetric("nvmlDeviceGetPcieReplayCounter", periodSlowest, "pcie_replays", nvml.Device.GetPcieReplayCounter),
	newScalarMetric("nvmlDeviceGetNvLinkState", periodSlowest, "nvlink_active_links", countActiveNVLinks),
	newNVLinkErrorMetric("nvlink_replay_errors", nvml.NVLINK_ERROR_DL_REPLAY),
	newNVLinkErrorMetric("nvlink_recovery_errors", nvml.NVLINK_ERROR_DL_RECOVERY),
	newNVLinkErrorMetric("nvlink_crc_flit_errors", nvml.NVLINK_ERROR_DL_CRC_FLIT),
	newNVLinkErrorMetric("nvlink_crc_data_errors", nvml.NVLINK_ERROR_DL_CRC_DATA),
	newNVLinkErrorMetric("nvlink_ecc_data_errors", nvml.NVLINK_ERROR_DL_ECC_DATA),
}

// countActiveNVLinks returns the number of active NVLinks. A device without NVLinks does not
// support the metric.
func countActiveNVLinks(d nvml.Device) (int, nvml.Return) {
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

// newNVLinkErrorMetric returns a metric of an error counter: the sum over all NVLinks, and each NVLink.
func newNVLinkErrorMetric(name string, counter nvml.NvLinkErrorCounter) metric {
	read := func(d nvml.Device) ([]float64, nvml.Return) {
		values := []float64{0}
		result := nvml.ERROR_NOT_SUPPORTED
		for link := range nvml.NVLINK_MAX_LINKS {
			n, ret := d.GetNvLinkErrorCounter(link, counter)
			if ret == nvml.ERROR_INVALID_ARGUMENT || ret == nvml.ERROR_GPU_IS_LOST {
				break // no more links
			}
			if ret == nvml.SUCCESS {
				result = nvml.SUCCESS
			} else {
				n = 0
			}
			values[0] += float64(n)
			values = append(values, float64(n))
		}
		return values, result
	}
	return metric{"nvmlDeviceGetNvLinkErrorCounter", periodSlowest, []string{name}, read}
}

var healthMetrics = []metric{
	newECCMetric("ecc_corrected_volatile_errors", nvml.MEMORY_ERROR_TYPE_CORRECTED, nvml.VOLATILE_ECC),
	newECCMetric("ecc_uncorrected_volatile_errors", nvml.MEMORY_ERROR_TYPE_UNCORRECTED, nvml.VOLATILE_ECC),
	newECCMetric("ecc_corrected_aggregate_errors", nvml.MEMORY_ERROR_TYPE_CORRECTED, nvml.AGGREGATE_ECC),
	newECCMetric("ecc_uncorrected_aggregate_errors", nvml.MEMORY_ERROR_TYPE_UNCORRECTED, nvml.AGGREGATE_ECC),
	newRetiredPagesMetric("retired_pages_single_bit", nvml.PAGE_RETIREMENT_CAUSE_MULTIPLE_SINGLE_BIT_ECC_ERRORS),
	newRetiredPagesMetric("retired_pages_double_bit", nvml.PAGE_RETIREMENT_CAUSE_DOUBLE_BIT_ECC_ERROR),
	{
		"nvmlDeviceGetRetiredPagesPendingStatus",
		periodSlowest,
		[]string{"retired_pages_pending"},
		func(d nvml.Device) ([]float64, nvml.Return) {
			pending, ret := d.GetRetiredPagesPendingStatus()
			return []float64{float64(pending)}, ret
		},
	},
	{
		"nvmlDeviceGetRemappedRows",
		periodSlowest,
		[]string{
			"remapped_rows_correctable",
			"remapped_rows_uncorrectable",
			"remapped_rows_pending",
			"remapped_rows_failure",
		},
		func(d nvml.Device) ([]float64, nvml.Return) {
			correctable, uncorrectable, pending, failure, ret := d.GetRemappedRows()
			return []float64{
				float64(correctable),
				float64(uncorrectable),
				boolToNumber(pending),
				boolToNumber(failure),
			}, ret
		},
	},
}

func newECCMetric(name string, kind nvml.MemoryErrorType, since nvml.EccCounterType) metric {
	return newScalarMetric(
		"nvmlDeviceGetTotalEccErrors",
		periodSlowest,
		name,
		func(d nvml.Device) (uint64, nvml.Return) {
			return d.GetTotalEccErrors(kind, since)
		},
	)
}

func newRetiredPagesMetric(name string, cause nvml.PageRetirementCause) metric {
	return newScalarMetric("nvmlDeviceGetRetiredPages", periodSlowest, name, func(d nvml.Device) (int, nvml.Return) {
		pages, ret := d.GetRetiredPages(cause)
		return len(pages), ret
	})
}

func boolToNumber(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// makeMetricQueries returns a query for each metric that the device supports. It calls each
// function once.
func (g *gpu) makeMetricQueries() []*query {
	var queries []*query
	taken := make(map[string]bool)
	for _, m := range functionMetrics {
		if taken[m.names[0]] || !hasNVMLFunction(m.symbol) {
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
					if name, ok := m.nameOf(i, v); ok {
						rows = append(rows, g.makeMetricRow(start, dur, name, v))
					}
				}
				return rows, ret
			}},
		)
	}
	return queries
}

func (g *gpu) makeMetricRow(start, dur int64, name string, value float64) format.Row {
	return format.Row{
		Kind:    format.KindNVML,
		StartNs: start,
		DurNs:   dur,
		Device:  int32(g.index),
		Name:    name,
		Value:   value,
	}
}

// decodeCString returns the C string in a fixed buffer.
func decodeCString[T int8 | uint8](buffer []T) string {
	b := make([]byte, 0, len(buffer))
	for _, c := range buffer {
		b = append(b, byte(c))
	}
	b, _, _ = bytes.Cut(b, []byte{0})
	return string(b)
}
