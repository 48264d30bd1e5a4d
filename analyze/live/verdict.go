package live

import "slices"

// Verdict is a finding of the rules while a recording is written.
type Verdict struct {
	Rule       string `json:"rule"`       // ID of the rule, as in analyze rules
	Kind       string `json:"kind"`       // leak, out of memory, hang, error, or other
	Severity   string `json:"severity"`   // problem, notice or info
	Confidence string `json:"confidence"` // high, medium or low
	What       string `json:"what"`       // the problem in one phrase
	Where      string `json:"where,omitempty"`
	Pid        int32  `json:"pid,omitempty"` // 0: several processes, or unknown
	AtNs       int64  `json:"at_ns"`         // when the verdict became certain, Unix ns
	SoFar      bool   `json:"so_far"`        // only the end of the recording can confirm it
}

// SetVerdicts replaces the verdicts of the next Snapshots.
func (m *Monitor) SetVerdicts(list []Verdict) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.verdicts = slices.Clone(list)
}
