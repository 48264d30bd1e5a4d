package catalog

// Memory metrics of a device, sampled with NVML.
const (
	MetricMemoryUsed  = "memory_used_bytes"
	MetricMemoryTotal = "memory_total_bytes"
)

// NVML metrics that reports know by name. FORMAT.md describes them. The metrics at the end of the
// list belong to one process.
const (
	MetricGPUUtilization            = "gpu_utilization_percent"
	MetricSMActive                  = "gpm_sm_active_percent"
	MetricGraphicsActive            = "gpm_graphics_active_percent"
	MetricClockEventReasons         = "clock_event_reasons"
	MetricPower                     = "power_milliwatts"
	MetricEnergy                    = "energy_millijoules"
	MetricTemperature               = "temperature_celsius"
	MetricPCIeGen                   = "pcie_link_generation"
	MetricPCIeWidth                 = "pcie_link_width_lanes"
	MetricMemoryReserved            = "memory_reserved_bytes"
	MetricProcessMemory             = "process_used_memory_bytes"
	MetricProcessSMUtilization      = "process_sm_utilization_percent"
	MetricProcessMemoryUtilization  = "process_memory_utilization_percent"
	MetricProcessEncoderUtilization = "process_encoder_utilization_percent"
	MetricProcessDecoderUtilization = "process_decoder_utilization_percent"
)

// MetricMemoryFree is the free memory of a device as NVML reports it.
const MetricMemoryFree = "memory_free_bytes"

// MetricSMOccupancy is the GPM metric for the occupancy of the SMs.
const MetricSMOccupancy = "gpm_sm_occupancy_percent"

// MetricTensorActive is the GPM metric for the activity of the tensor cores.
const MetricTensorActive = "gpm_tensor_active_percent"

// MetricDRAMBandwidth is the GPM metric for the use of the memory bandwidth.
const MetricDRAMBandwidth = "gpm_dram_bandwidth_percent"
