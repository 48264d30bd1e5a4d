package live

import "encoding/json"

// publicProcess has the numbers of a process that are known without a recorder.
type publicProcess struct {
	Pid        int32   `json:"pid"`
	Name       string  `json:"name"`
	Rank       *int    `json:"rank,omitempty"`
	Job        string  `json:"job,omitempty"`
	GPUs       []int32 `json:"gpus,omitempty"`
	Exited     bool    `json:"exited,omitempty"`
	ExitNs     int64   `json:"exit_ns,omitempty"`
	UsedBytes  int64   `json:"used_bytes"`
	SMPercent  float64 `json:"sm_percent"`
	CPUPercent float64 `json:"cpu_percent"`
}

func (p *Process) public() publicProcess {
	return publicProcess{
		p.Pid, p.Name, p.Rank, p.Job, p.GPUs, p.Exited, p.ExitNs, p.UsedBytes, p.SMPercent, p.CPUPercent,
	}
}

// MarshalJSON leaves out the numbers that are unknown if the processes are not recorded.
func (s *Snapshot) MarshalJSON() ([]byte, error) {
	type plain Snapshot // without this method
	if s.NotRecorded == "" {
		return json.Marshal((*plain)(s))
	}
	processes := make([]publicProcess, 0, len(s.Processes))
	for i := range s.Processes {
		processes = append(processes, s.Processes[i].public())
	}
	return json.Marshal(struct {
		FromNs      int64           `json:"from_ns"`
		ToNs        int64           `json:"to_ns"`
		NotRecorded string          `json:"not_recorded"`
		Processes   []publicProcess `json:"processes"`
		GPUs        []GPU           `json:"gpus"`
		NoGPU       string          `json:"no_gpu,omitempty"`
	}{s.FromNs, s.ToNs, s.NotRecorded, processes, s.GPUs, s.NoGPU})
}

// ProcessLine has the numbers of one process in a Snapshot, without its call sites.
type ProcessLine struct {
	FromNs      int64   `json:"from_ns"`
	ToNs        int64   `json:"to_ns"`
	LaunchShare float64 `json:"launch_share"`
	Process
	// Verdicts are those of the process, and those of several processes or an unknown one.
	Verdicts []Verdict `json:"verdicts,omitempty"`
	// NotRecorded is that of the Snapshot.
	NotRecorded string `json:"not_recorded,omitempty"`
}

// MarshalJSON leaves out the numbers that are unknown if the process is not recorded.
func (l ProcessLine) MarshalJSON() ([]byte, error) {
	type plain ProcessLine // without this method
	if l.NotRecorded == "" {
		return json.Marshal(plain(l))
	}
	return json.Marshal(struct {
		FromNs int64 `json:"from_ns"`
		ToNs   int64 `json:"to_ns"`
		publicProcess
		NotRecorded string `json:"not_recorded"`
	}{l.FromNs, l.ToNs, l.public(), l.NotRecorded})
}

// ProcessLines returns a line for each process. A process that has ended has lines until it leaves the Snapshot.
func (s *Snapshot) ProcessLines() []ProcessLine {
	lines := make([]ProcessLine, 0, len(s.Processes))
	for i := range s.Processes {
		l := ProcessLine{
			FromNs: s.FromNs, ToNs: s.ToNs, LaunchShare: s.LaunchShare, Process: s.Processes[i],
			NotRecorded: s.NotRecorded,
		}
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
