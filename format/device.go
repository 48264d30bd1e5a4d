package format

// DeviceFact is the message of a row of kind device, as JSON: what does not change while a GPU is
// recorded, as far as its driver tells it. Times, clocks and limits have their unit in their name.
type DeviceFact struct {
	UUID string `json:"uuid"`
	// PCI is domain:bus:device.function.
	PCI               string `json:"pci,omitempty"`
	Serial            string `json:"serial,omitempty"`
	VBIOS             string `json:"vbios,omitempty"`
	ComputeCapability string `json:"compute_capability,omitempty"` // 9.0
	Cores             int64  `json:"cores,omitempty"`              // CUDA cores
	MemoryBusBits     int64  `json:"memory_bus_bits,omitempty"`
	BAR1Bytes         int64  `json:"bar1_bytes,omitempty"`
	// ComputeMode is default, exclusive_process or prohibited.
	ComputeMode     string `json:"compute_mode,omitempty"`
	PersistenceMode *bool  `json:"persistence_mode,omitempty"`
	ECC             *bool  `json:"ecc,omitempty"`
	// MIG says whether the device is divided, MIGDevices into what.
	MIG        *bool       `json:"mig,omitempty"`
	MIGDevices []MIGDevice `json:"mig_devices,omitempty"`

	PowerLimitDefaultMilliwatts int64 `json:"power_limit_default_milliwatts,omitempty"`
	PowerLimitMinMilliwatts     int64 `json:"power_limit_min_milliwatts,omitempty"`
	PowerLimitMaxMilliwatts     int64 `json:"power_limit_max_milliwatts,omitempty"`
	SlowdownCelsius             int64 `json:"slowdown_celsius,omitempty"` // clocks are held down from here on
	ShutdownCelsius             int64 `json:"shutdown_celsius,omitempty"`

	MaxGraphicsClockMHz int64 `json:"max_graphics_clock_mhz,omitempty"`
	MaxSMClockMHz       int64 `json:"max_sm_clock_mhz,omitempty"`
	MaxMemoryClockMHz   int64 `json:"max_memory_clock_mhz,omitempty"`
	MaxVideoClockMHz    int64 `json:"max_video_clock_mhz,omitempty"`

	PCIeGenerationMax int64 `json:"pcie_generation_max,omitempty"`
	PCIeWidthMax      int64 `json:"pcie_width_max_lanes,omitempty"`

	// NVLinks are the device's links, Topology its nearness to the other GPUs.
	NVLinks  []NVLink   `json:"nvlinks,omitempty"`
	Topology []PCIePath `json:"topology,omitempty"`
}

// MIGDevice is one part of a divided GPU.
type MIGDevice struct {
	UUID            string `json:"uuid"`
	GPUInstance     int64  `json:"gpu_instance"`
	ComputeInstance int64  `json:"compute_instance"`
	MemoryBytes     int64  `json:"memory_bytes,omitempty"`
	Name            string `json:"name,omitempty"`
}

// NVLink is one link of a GPU; Remote is the PCI address of what it leads to, a GPU or a switch.
type NVLink struct {
	Link   int    `json:"link"`
	Active bool   `json:"active"`
	Remote string `json:"remote,omitempty"`
}

// PCIePath is the way over PCIe between two GPUs, by what lies in between: board, switch, switches,
// host_bridge, numa_node or system.
type PCIePath struct {
	Device  int    `json:"device"` // NVML index of the other
	Between string `json:"between"`
}

// SamplingCost is what it took to sample one GPU.
type SamplingCost struct {
	Device  int   `json:"device"`  // NVML index
	Samples int64 `json:"samples"` // times that metrics were asked for
	// CPUNs is the CPU time of the thread that samples, WallNs what NVML's calls took; they mostly
	// wait.
	CPUNs  int64 `json:"cpu_ns"`
	WallNs int64 `json:"wall_ns"`
	// Questions is the same by what was asked.
	Queries []QueryCost `json:"questions,omitempty"`
}

// QueryCost is what asking for one group of metrics took.
type QueryCost struct {
	Name   string `json:"name"` // of the first metric
	Calls  int64  `json:"calls"`
	CPUNs  int64  `json:"cpu_ns"`
	WallNs int64  `json:"wall_ns"`
}
