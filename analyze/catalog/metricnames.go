package catalog

// Memory metrics of a device, sampled with NVML.
const (
	MetricMemoryUsed  = "memory_used_bytes"
	MetricMemoryTotal = "memory_total_bytes"
)

// NVML metrics that reports know by name. FORMAT.md describes them. The metrics at the end of the
// list belong to one process.
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

// MetricMemoryFree is the free memory of a device as NVML reports it.
const MetricMemoryFree = "memory_free_bytes"

// MetricOccupancy is the GPM metric for the occupancy of the SMs.
const MetricOccupancy = "gpm_sm_occupancy_percent"

// MetricTensor is the GPM metric for the activity of the tensor cores.
const MetricTensor = "gpm_tensor_active_percent"

// MetricDRAM is the GPM metric for the use of the memory bandwidth.
const MetricDRAM = "gpm_dram_bandwidth_percent"
