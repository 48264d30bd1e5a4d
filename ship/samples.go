package ship

import "github.com/prometheus/client_golang/prometheus"

// sampleOf returns a metric of a GPU.
func sampleOf(sample, name, otel, unit string, kind prometheus.ValueType, factor float64, help string) Metric {
	return Metric{
		Name: name, OTel: otel, Kind: kind, Unit: unit, Labels: gpuLabels, Help: help, Sample: sample, Factor: factor,
	}
}

// labeled returns a metric of a GPU with a label of a fixed value.
func labeled(m Metric, label, value string) Metric {
	m.Labels, m.Fixed = with(gpuLabels, label), []string{value}
	return m
}

// samples are the metrics that are samples of NVML. format/FORMAT.md describes the samples.
var samples = joined(utilizationSamples, powerSamples, linkSamples, healthSamples)

func joined(lists ...[]Metric) (all []Metric) {
	for _, list := range lists {
		all = append(all, list...)
	}
	return all
}

const helpUtilization = "Share of the latest sampling period in which the engine was active"

var utilizationSamples = []Metric{
	labeled(sampleOf("gpu_utilization_percent", "hw_gpu_utilization_ratio", "hw.gpu.utilization", "1", gauge, 0.01,
		helpUtilization), "task", "general"),
	labeled(sampleOf("encoder_utilization_percent", "hw_gpu_utilization_ratio", "hw.gpu.utilization", "1", gauge, 0.01,
		helpUtilization), "task", "encoder"),
	labeled(sampleOf("decoder_utilization_percent", "hw_gpu_utilization_ratio", "hw.gpu.utilization", "1", gauge, 0.01,
		helpUtilization), "task", "decoder"),
	sampleOf("memory_utilization_percent", "gpurec_gpu_memory_utilization_ratio", "gpurec.gpu.memory.utilization", "1",
		gauge, 0.01, "Share of the latest sampling period in which device memory was read or written"),
	sampleOf("memory_used_bytes", "hw_gpu_memory_usage_bytes", "hw.gpu.memory.usage", "By", gauge, 1,
		"Used device memory"),
	sampleOf("memory_total_bytes", "hw_gpu_memory_limit_bytes", "hw.gpu.memory.limit", "By", gauge, 1,
		"Size of the device memory"),
	sampleOf("memory_free_bytes", "gpurec_gpu_memory_free_bytes", "gpurec.gpu.memory.free", "By", gauge, 1,
		"Free device memory"),
	sampleOf("memory_reserved_bytes", "gpurec_gpu_memory_reserved_bytes", "gpurec.gpu.memory.reserved", "By", gauge, 1,
		"Device memory of the driver and the firmware"),
	sampleOf("bar1_used_bytes", "gpurec_gpu_bar1_used_bytes", "gpurec.gpu.bar1.usage", "By", gauge, 1,
		"Device memory that is mapped for the CPU and other devices"),
	sampleOf("gpm_sm_active_percent", "gpurec_gpm_sm_active_ratio", "gpurec.gpm.sm_active", "1", gauge, 0.01,
		"Share of busy SMs"),
	sampleOf("gpm_sm_occupancy_percent", "gpurec_gpm_sm_occupancy_ratio", "gpurec.gpm.sm_occupancy", "1", gauge, 0.01,
		"Resident warps, as a share of the maximum"),
	sampleOf("gpm_tensor_active_percent", "gpurec_gpm_tensor_active_ratio", "gpurec.gpm.tensor_active", "1", gauge,
		0.01, "Share of active tensor cores"),
	sampleOf("gpm_dram_bandwidth_percent", "gpurec_gpm_dram_bandwidth_ratio", "gpurec.gpm.dram_bandwidth", "1", gauge,
		0.01, "Used share of the theoretical bandwidth of device memory"),
}

const helpClock = "Current clock by domain"

var powerSamples = []Metric{
	sampleOf("power_milliwatts", "hw_power_watts", "hw.power", "W", gauge, 1e-3, "Power of the GPU"),
	sampleOf("power_limit_milliwatts", "gpurec_gpu_power_limit_watts", "hw.power.limit", "W", gauge, 1e-3,
		"Limit of the power"),
	sampleOf("energy_millijoules", "hw_energy_joules_total", "hw.energy", "J", counter, 1e-3,
		"Energy since the driver was loaded"),
	labeled(sampleOf("temperature_celsius", "hw_temperature_celsius", "hw.temperature", "Cel", gauge, 1,
		"Temperature by sensor"), "sensor", "gpu"),
	labeled(sampleOf("memory_temperature_celsius", "hw_temperature_celsius", "hw.temperature", "Cel", gauge, 1,
		"Temperature by sensor"), "sensor", "memory"),
	sampleOf("fan_speed_percent", "gpurec_gpu_fan_speed_ratio", "hw.fan.speed_ratio", "1", gauge, 0.01,
		"Speed of the fan, as a share of its maximum"),
	labeled(sampleOf("sm_clock_mhz", "gpurec_gpu_clock_hertz", "gpurec.gpu.clock", "Hz", gauge, 1e6, helpClock),
		"domain", "sm"),
	labeled(sampleOf("memory_clock_mhz", "gpurec_gpu_clock_hertz", "gpurec.gpu.clock", "Hz", gauge, 1e6, helpClock),
		"domain", "memory"),
	labeled(sampleOf("graphics_clock_mhz", "gpurec_gpu_clock_hertz", "gpurec.gpu.clock", "Hz", gauge, 1e6, helpClock),
		"domain", "graphics"),
	labeled(sampleOf("video_clock_mhz", "gpurec_gpu_clock_hertz", "gpurec.gpu.clock", "Hz", gauge, 1e6, helpClock),
		"domain", "video"),
	throttledSample("throttled_power_nanoseconds", "software_power_cap"),
	throttledSample("throttled_sync_boost_nanoseconds", "sync_boost"),
	throttledSample("throttled_thermal_nanoseconds", "software_thermal"),
	throttledSample("throttled_hardware_thermal_nanoseconds", "hardware_thermal"),
	throttledSample("throttled_power_brake_nanoseconds", "power_brake"),
}

// throttledSample returns the metric of time with reduced clocks.
func throttledSample(sample, reason string) Metric {
	return labeled(sampleOf(sample, "gpurec_throttled_seconds_total", "gpurec.throttled", "s", counter, 1e-9,
		"Time with reduced clocks by reason, since the driver was loaded"), "reason", reason)
}

const (
	helpNVLink     = "Data over all NVLinks by direction, without protocol"
	helpPCIe       = "Latest measured rate over PCIe by direction"
	helpLinkErrors = "Errors of all NVLinks by type"
	helpECC        = "ECC errors since the driver was loaded, by type"
)

var linkSamples = []Metric{
	labeled(sampleOf("nvlink_tx_kibibytes", "hw_gpu_io_bytes_total", "hw.gpu.io", "By", counter, 1024, helpNVLink),
		"direction", "transmit"),
	labeled(sampleOf("nvlink_rx_kibibytes", "hw_gpu_io_bytes_total", "hw.gpu.io", "By", counter, 1024, helpNVLink),
		"direction", "receive"),
	sampleOf("nvlink_active_links", "gpurec_nvlink_active_links", "gpurec.nvlink.active_links", "1", gauge, 1,
		"NVLinks that are active"),
	labeled(sampleOf("pcie_tx_kilobytes_per_second", "gpurec_pcie_bytes_per_second", "gpurec.pcie.rate", "By/s", gauge,
		1e3, helpPCIe), "direction", "transmit"),
	labeled(sampleOf("pcie_rx_kilobytes_per_second", "gpurec_pcie_bytes_per_second", "gpurec.pcie.rate", "By/s", gauge,
		1e3, helpPCIe), "direction", "receive"),
	sampleOf("pcie_link_generation", "gpurec_pcie_link_generation", "gpurec.pcie.link.generation", "1", gauge, 1,
		"Current generation of the PCIe link"),
	sampleOf("pcie_link_width_lanes", "gpurec_pcie_link_width_lanes", "gpurec.pcie.link.width", "1", gauge, 1,
		"Current width of the PCIe link"),
	sampleOf("pcie_replays", "gpurec_pcie_replays_total", "gpurec.pcie.replays", "1", counter, 1,
		"Retransmitted packets of PCIe"),
	linkErrors(
		"replay",
	),
	linkErrors("recovery"),
	linkErrors("crc_flit"),
	linkErrors("crc_data"),
	linkErrors("ecc_data"),
}

// linkErrors returns the metric of a type of NVLink errors.
func linkErrors(kind string) Metric {
	return labeled(sampleOf("nvlink_"+kind+"_errors", "gpurec_nvlink_errors_total", "gpurec.nvlink.errors", "1",
		counter, 1, helpLinkErrors), "error", kind)
}

var healthSamples = []Metric{
	labeled(sampleOf("ecc_corrected_volatile_errors", "hw_errors_total", "hw.errors", "1", counter, 1, helpECC),
		"error", "corrected"),
	labeled(sampleOf("ecc_uncorrected_volatile_errors", "hw_errors_total", "hw.errors", "1", counter, 1, helpECC),
		"error", "uncorrected"),
	sampleOf("performance_state", "gpurec_gpu_performance_state", "gpurec.gpu.performance_state", "1", gauge, 1,
		"Performance state, 0 is the fastest"),
}
