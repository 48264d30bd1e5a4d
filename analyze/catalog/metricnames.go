package catalog

// Names of the NVML samples that reports use.
const (
	MetricMemoryUsed  = "memory_used_bytes"
	MetricMemoryTotal = "memory_total_bytes"
)

// Metrics of NVML that reports know by name; FORMAT.md says what they are.
const (
	MetricGPUBusy   = "gpu_utilization_percent"
	MetricSMActive  = "gpm_sm_active_percent"
	MetricReasons   = "clock_event_reasons"
	MetricPower     = "power_milliwatts"
	MetricEnergy    = "energy_millijoules"
	MetricHeat      = "temperature_celsius"
	MetricPCIeGen   = "pcie_link_generation"
	MetricPCIeWidth = "pcie_link_width_lanes"
	MetricReserved  = "memory_reserved_bytes"
	MetricOfProcess = "process_used_memory_bytes"
	MetricSMOfPid   = "process_sm_utilization_percent"
	MetricMemoryOf  = "process_memory_utilization_percent"
	MetricEncoderOf = "process_encoder_utilization_percent"
	MetricDecoderOf = "process_decoder_utilization_percent"
)

// MetricMemoryFree is what NVML says is free of a device.
const MetricMemoryFree = "memory_free_bytes"

// Metrics of GPM that rules look at.
const MetricOccupancy = "gpm_sm_occupancy_percent"

const MetricTensor = "gpm_tensor_active_percent"

const MetricDRAM = "gpm_dram_bandwidth_percent"
