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
	Basis      Basis
	Steps      []Step
}

// Basis says which times of a rank are known.
type Basis uint8

// Bases. Ranks are compared by what all of them have.
const (
	BasisHost Basis = iota // times of the host: the fields of Step about the GPU are not valid
	// BasisArrivals adds the starts of kernels of NCCL. Step.CollectiveNs is the time from the start of a rank's kernel
	// until the kernel of the last rank started. Step.KernelNs has the launches that were recorded in Step.CoveredNs.
	BasisArrivals
	BasisGPU // adds the times of all kernels of NCCL, and of other operations with known times
)

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
	// CoveredNs is the part of the step in which launches were recorded.
	CoveredNs int64
	// CopyBytes counts the bytes that calls of the step copy between host and device.
	CopyBytes int64
	Kernels   int32 // recorded launches, without those of NCCL
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
		if s.Basis != BasisHost {
			return float64(p.DurNs - p.CollectiveNs)
		}
		return float64(p.DurNs - p.BlockedNs)
	case MeasureHost:
		return float64(p.DurNs - p.BlockedNs - p.HostCopyNs)
	case MeasureKernelNs:
		return float64(p.KernelNs)
	case MeasureCopyNs:
		if s.Basis != BasisHost {
			return float64(p.CopyNs)
		}
		return float64(p.HostCopyNs)
	}
	return float64(p.Kernels)
}
