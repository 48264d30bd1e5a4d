package live

// ProcessLine has the numbers of one process in a Snapshot, without its call sites.
type ProcessLine struct {
	FromNs      int64   `json:"from_ns"`
	ToNs        int64   `json:"to_ns"`
	LaunchShare float64 `json:"launch_share"`
	Process
	// Verdicts are those of the process, and those of several processes.
	Verdicts []Verdict `json:"verdicts,omitempty"`
}

// ProcessLines returns a line for each process. A process that has ended has lines until it leaves the Snapshot.
func (s *Snapshot) ProcessLines() []ProcessLine {
	lines := make([]ProcessLine, 0, len(s.Processes))
	for i := range s.Processes {
		l := ProcessLine{FromNs: s.FromNs, ToNs: s.ToNs, LaunchShare: s.LaunchShare, Process: s.Processes[i]}
		l.Lines = nil
		for _, v := range s.Verdicts {
			if v.Pid == l.Pid || v.Pid == 0 {
				l.Verdicts = append(l.Verdicts, v)
			}
		}
		lines = append(lines, l)
	}
	return lines
}
