package change

import (
	"github.com/gpurec/gpurec/analyze/changepoint"
)

// Subject is the process or the GPU of a series. Both are absent for values of the whole machine.
type Subject struct {
	Device int32 // NVML index of the GPU, or -1
	Pid    int32 // process, or 0
}

// machine is the subject of values of the whole machine.
var machine = Subject{Device: -1}

// Series are the values of one metric of a subject.
type Series struct {
	Subject
	// Metric names the values, and ends in their unit. Title is a short name for people.
	Metric, Title string
	changepoint.Series
	changepoint.Limits
	// IsErrorCounter reports that the values count rare errors.
	IsErrorCounter bool
	// IsEstimated reports that values are too low or estimated in some parts, because launches were lost or
	// not recorded.
	IsEstimated bool
	// isSum reports that the values are sums or peaks of equal parts of the time. These have no outliers.
	isSum bool
	order int // place in a list: causes before effects
}

// Finding is the result of Find for a series.
type Finding struct {
	*Series
	changepoint.Result
	Outliers changepoint.Outliers
}

// Metrics of this package. Others are those of NVML samples and of rows of class host.
const (
	MetricStepTime        = "step_time_nanoseconds"
	MetricLaunchRate      = "launches_per_second"
	MetricDriverMemory    = "driver_memory_bytes"
	MetricAllocatedMemory = "allocator_allocated_bytes"
	MetricReservedMemory  = "allocator_reserved_bytes"
)

// description describes the values of a metric.
type description struct {
	metric, title string
	limits        changepoint.Limits
	// isRate reports that the samples count up, and that their increase per second is the value.
	isRate bool
	// insteadOf is a less exact metric of the same subject, which is left out.
	insteadOf string
}

const mib = 1 << 20

// deviceMetrics are the metrics of NVML samples that are searched, causes before effects. Smaller changes than
// the limits are usual in a steady job.
var deviceMetrics = []description{
	{metric: "pcie_link_generation", title: "PCIe generation", limits: changepoint.Limits{MinChange: 1}},
	{metric: "pcie_link_width_lanes", title: "PCIe width", limits: changepoint.Limits{MinChange: 1}},
	{metric: "sm_clock_mhz", title: "SM clock", limits: changepoint.Limits{MinChange: 45, MinShare: 0.03}},
	{metric: "memory_clock_mhz", title: "memory clock", limits: changepoint.Limits{MinChange: 45, MinShare: 0.03}},
	{metric: "temperature_celsius", title: "temperature", limits: changepoint.Limits{MinChange: 5}},
	{metric: "memory_temperature_celsius", title: "memory temperature", limits: changepoint.Limits{MinChange: 5}},
	{metric: "power_milliwatts", title: "power", limits: changepoint.Limits{MinChange: 20_000, MinShare: 0.1}},
	{
		metric: "memory_used_bytes",
		title:  "memory used",
		limits: changepoint.Limits{MinChange: 64 * mib, MinShare: 0.02},
	},
	{
		metric: "gpm_pcie_rx_mebibytes_per_second", title: "PCIe received",
		limits: changepoint.Limits{MinChange: 10, MinShare: 0.25}, insteadOf: "pcie_rx_kilobytes_per_second",
	},
	{
		metric: "gpm_pcie_tx_mebibytes_per_second", title: "PCIe sent",
		limits: changepoint.Limits{MinChange: 10, MinShare: 0.25}, insteadOf: "pcie_tx_kilobytes_per_second",
	},
	{
		metric: "pcie_rx_kilobytes_per_second", title: "PCIe received",
		limits: changepoint.Limits{MinChange: 10_000, MinShare: 0.25},
	},
	{
		metric: "pcie_tx_kilobytes_per_second", title: "PCIe sent",
		limits: changepoint.Limits{MinChange: 10_000, MinShare: 0.25},
	},
	{
		metric: "nvlink_rx_kibibytes", title: "NVLink received",
		limits: changepoint.Limits{MinChange: 10_000, MinShare: 0.25}, isRate: true,
	},
	{
		metric: "nvlink_tx_kibibytes", title: "NVLink sent",
		limits: changepoint.Limits{MinChange: 10_000, MinShare: 0.25}, isRate: true,
	},
	{
		metric: "gpm_sm_active_percent", title: "SM active",
		limits: changepoint.Limits{MinChange: 5, MinShare: 0.1}, insteadOf: "gpu_utilization_percent",
	},
	{
		metric: "gpu_utilization_percent", title: "GPU utilization",
		limits: changepoint.Limits{MinChange: 10, MinShare: 0.1},
	},
	{
		metric: "gpm_dram_bandwidth_percent", title: "DRAM bandwidth",
		limits: changepoint.Limits{MinChange: 5, MinShare: 0.15},
	},
}

// errorMetrics count rare errors of a device.
var errorMetrics = []description{
	{metric: "nvlink_replay_errors", title: "NVLink replays"},
	{metric: "nvlink_recovery_errors", title: "NVLink recoveries"},
	{metric: "nvlink_crc_flit_errors", title: "NVLink CRC errors (flit)"},
	{metric: "nvlink_crc_data_errors", title: "NVLink CRC errors (data)"},
	{metric: "nvlink_ecc_data_errors", title: "NVLink ECC errors"},
	{metric: "pcie_replays", title: "PCIe replays"},
	{metric: "ecc_corrected_volatile_errors", title: "corrected ECC errors"},
	{metric: "ecc_uncorrected_volatile_errors", title: "uncorrected ECC errors"},
}

// programMetrics are the metrics of processes. They follow the metrics of devices.
var programMetrics = []description{
	{metric: MetricStepTime, title: "step time", limits: changepoint.Limits{MinChange: 20_000, MinShare: 0.05}},
	{metric: MetricLaunchRate, title: "launch rate", limits: changepoint.Limits{MinChange: 1, MinShare: 0.1}},
	{
		metric: MetricDriverMemory, title: "driver memory",
		limits: changepoint.Limits{MinChange: 64 * mib, MinShare: 0.03},
	},
	{
		metric: MetricAllocatedMemory, title: "allocated memory",
		limits: changepoint.Limits{MinChange: 64 * mib, MinShare: 0.05},
	},
	{
		metric: MetricReservedMemory, title: "reserved memory",
		limits: changepoint.Limits{MinChange: 64 * mib, MinShare: 0.03},
	},
}

// describe returns the description of a metric of programs.
func describe(metric string) (d description, order int) {
	for i, d := range programMetrics {
		if d.metric == metric {
			return d, programOrder + i
		}
	}
	return description{metric: metric, title: metric}, hostOrder
}

// Orders of groups of metrics.
const (
	errorOrder   = 0
	deviceOrder  = 100
	programOrder = 200
	hostOrder    = 300
)
