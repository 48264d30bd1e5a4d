package stats

// Checkpoints divide a window, after a warm-up, into CheckpointCount equal intervals. Reports about leaks compare the
// floors of these intervals: see Floor. What exists since the warm-up is no leak.
type Checkpoints struct {
	WarmNs int64 // end of the warm-up and time of checkpoint 0, Unix ns
	EndNs  int64 // end of the window, Unix ns
}

const (
	// CheckpointCount is the number of intervals after the warm-up.
	CheckpointCount = 20
	// WarmupShare is the share of the window that counts as warm-up.
	WarmupShare = 0.1
)

// NewCheckpoints returns the checkpoints of a window, Unix ns.
func NewCheckpoints(fromNs, toNs int64) Checkpoints {
	return Checkpoints{fromNs + int64(WarmupShare*float64(max(0, toNs-fromNs))), toNs}
}

// CountBefore returns the number of checkpoints before a time, Unix ns.
func (c Checkpoints) CountBefore(ns int64) int {
	length := c.EndNs - c.WarmNs
	if ns <= c.WarmNs || length <= 0 {
		return 0
	}
	return 1 + int(float64(min(ns, c.EndNs)-c.WarmNs-1)/float64(length)*CheckpointCount)
}

// StepNs returns the time between two checkpoints, ns.
func (c Checkpoints) StepNs() float64 { return float64(c.EndNs-c.WarmNs) / CheckpointCount }
