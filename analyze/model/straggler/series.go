package straggler

// Series has the steps of one rank. Steps[i] has the number First+i.
type Series struct {
	Rank int
	// Signature identifies what the rank does in a step. Ranks with different signatures are not compared.
	Signature uint64
	// First is the number of the first step. IsNumbered reports that steps of the same number are the same step
	// on all ranks.
	First      int64
	IsNumbered bool
	HasGPU     bool // the GPU's times are known: the fields of Step about the GPU are valid
	Steps      []Step
}

// Step has the times of one step in ns, and counts. AtNs is Unix ns on the clock of the rank's host.
type Step struct {
	AtNs, DurNs int64
	// BlockedNs is the time in calls of the driver that wait for the GPU, and HostCollectiveNs.
	BlockedNs int64
	// HostCollectiveNs is the time in which the host waits for other ranks outside of the driver, as with gloo.
	HostCollectiveNs int64
	// HostCopyNs is the time in other calls that copy.
	HostCopyNs int64
	// CollectiveNs is the time of the GPU in which only kernels of NCCL ran. KernelNs and CopyNs are its times in
	// other kernels and in copies.
	CollectiveNs, KernelNs, CopyNs int64
	Kernels                        int32 // launched, without those of NCCL
}

// Measure is a quantity of a step that ranks are compared by.
type Measure uint8

// Measures. All but MeasureKernels are in ns.
const (
	MeasureOwn      Measure = iota // time that the rank needs for itself
	MeasureHost                    // time in which the host was not blocked
	MeasureKernelNs                // time of the GPU in kernels other than NCCL's
	MeasureCopyNs                  // time of the GPU, or without GPU times of the host, in copies
	MeasureKernels                 // number of launches
	measures
)

// value returns a measure of step i.
func (s *Series) value(i int, m Measure) float64 {
	p := &s.Steps[i]
	switch m {
	case MeasureOwn:
		if s.HasGPU {
			return float64(p.DurNs - p.CollectiveNs)
		}
		return float64(p.DurNs - p.BlockedNs)
	case MeasureHost:
		return float64(p.DurNs - p.BlockedNs - p.HostCopyNs)
	case MeasureKernelNs:
		return float64(p.KernelNs)
	case MeasureCopyNs:
		if s.HasGPU {
			return float64(p.CopyNs)
		}
		return float64(p.HostCopyNs)
	}
	return float64(p.Kernels)
}
