//go:build linux

package nvml

// GPUUse describes the use of one GPU by a process.
type GPUUse struct {
	Index int    `json:"index"` // NVML index
	UUID  string `json:"uuid,omitempty"`
	// Name is the product name of the GPU. MemoryBytes is nil if unknown.
	Name        string `json:"name,omitempty"`
	MemoryBytes *int64 `json:"memory_bytes,omitempty"`
	// SMPercent is the share of time in which a kernel of the process ran, 0 to 100, in the
	// driver's newest sample. It is nil if there is no sample within the last seconds.
	SMPercent *int `json:"sm_percent,omitempty"`
}

// GPUUser is a process on a GPU. Pid is NVML's pid, which may be of another pid namespace.
type GPUUser struct {
	Pid int
	Use GPUUse
}
