package format

// DeviceFact describes a GPU by values that do not change while it is recorded. It is the message,
// as JSON, of a row of kind device. Values that the driver does not report are absent. Field names
// of times, clocks and limits end in their unit.
// UUID is the GPU's UUID as NVML reports it: GPU-, then 36 characters.
type DeviceFact struct {
	UUID string `json:"uuid"`
	// PCI is the GPU's PCI address: domain:bus:device.function.
	PCI               string `json:"pci,omitempty"`
	Serial            string `json:"serial,omitempty"`
	VBIOS             string `json:"vbios,omitempty"`
	ComputeCapability string `json:"compute_capability,omitempty"` // as major.minor: 9.0
	Cores             int64  `json:"cores,omitempty"`              // number of CUDA cores
	MemoryBusBits     int64  `json:"memory_bus_bits,omitempty"`
	BAR1Bytes         int64  `json:"bar1_bytes,omitempty"`
	// ComputeMode is default, exclusive_process or prohibited.
	ComputeMode     string `json:"compute_mode,omitempty"`
	PersistenceMode *bool  `json:"persistence_mode,omitempty"`
	ECC             *bool  `json:"ecc,omitempty"`
	// MIG reports whether Multi-Instance GPU mode is on. MIGDevices are the parts of the GPU then.
	MIG        *bool       `json:"mig,omitempty"`
	MIGDevices []MIGDevice `json:"mig_devices,omitempty"`

	PowerLimitDefaultMilliwatts int64 `json:"power_limit_default_milliwatts,omitempty"`
	PowerLimitMinMilliwatts     int64 `json:"power_limit_min_milliwatts,omitempty"`
	PowerLimitMaxMilliwatts     int64 `json:"power_limit_max_milliwatts,omitempty"`
	SlowdownCelsius             int64 `json:"slowdown_celsius,omitempty"` // the GPU lowers its clocks at this temperature
	ShutdownCelsius             int64 `json:"shutdown_celsius,omitempty"`

	MaxGraphicsClockMHz int64 `json:"max_graphics_clock_mhz,omitempty"`
	MaxSMClockMHz       int64 `json:"max_sm_clock_mhz,omitempty"`
	MaxMemoryClockMHz   int64 `json:"max_memory_clock_mhz,omitempty"`
	MaxVideoClockMHz    int64 `json:"max_video_clock_mhz,omitempty"`

	PCIeGenerationMax int64 `json:"pcie_generation_max,omitempty"`
	PCIeWidthMax      int64 `json:"pcie_width_max_lanes,omitempty"`

	// NVLinks are the GPU's NVLinks. Topology has the PCIe path to every other GPU of the host.
	NVLinks  []NVLink   `json:"nvlinks,omitempty"`
	Topology []PCIePath `json:"topology,omitempty"`
}

// MIGDevice is one partition of a GPU in Multi-Instance GPU mode.
type MIGDevice struct {
	UUID            string `json:"uuid"`
	GPUInstance     int64  `json:"gpu_instance"`
	ComputeInstance int64  `json:"compute_instance"`
	MemoryBytes     int64  `json:"memory_bytes,omitempty"`
	Name            string `json:"name,omitempty"`
}

// NVLink is one NVLink of a GPU. Remote is the PCI address of the GPU or NVSwitch at its other end.
type NVLink struct {
	Link   int    `json:"link"`
	Active bool   `json:"active"`
	Remote string `json:"remote,omitempty"`
}

// PCIePath describes the path over PCIe between two GPUs. Between is the most distant component on
// the path: board, switch (one PCIe switch), switches, host_bridge, numa_node or system.
type PCIePath struct {
	Device  int    `json:"device"` // NVML index of the other GPU
	Between string `json:"between"`
}

// SamplingCost is the time that the recorder spent on querying NVML about one GPU.
type SamplingCost struct {
	Device  int   `json:"device"`  // NVML index of the GPU
	Samples int64 `json:"samples"` // number of queries, of one group of metrics each
	// CPUNs is the CPU time of the sampling thread in ns. WallNs is the duration of the NVML calls
	// in ns. WallNs is larger, because NVML calls mostly wait.
	CPUNs  int64 `json:"cpu_ns"`
	WallNs int64 `json:"wall_ns"`
	// Queries has the same times by group of metrics.
	Queries []QueryCost `json:"questions,omitempty"`
}

// QueryCost is the time spent on querying NVML for one group of metrics.
type QueryCost struct {
	Name   string `json:"name"` // name of the first metric in the group
	Calls  int64  `json:"calls"`
	CPUNs  int64  `json:"cpu_ns"`
	WallNs int64  `json:"wall_ns"`
}
