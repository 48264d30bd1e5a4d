//go:build linux

package nvml

// GPUUse is the use that a process makes of one GPU.
type GPUUse struct {
	Index       int    `json:"index"` // as NVML counts
	UUID        string `json:"uuid,omitempty"`
	Name        string `json:"name,omitempty"`
	MemoryBytes *int64 `json:"memory_bytes,omitempty"`
	// SMPercent is the share of time in which a kernel of the process ran, 0 to 100, by the
	// driver's newest sample; nil without one of the last seconds.
	SMPercent *int `json:"sm_percent,omitempty"`
}

// User is a process on a GPU, by the number that NVML has for it.
type User struct {
	Pid int
	Use GPUUse
}
