package live

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/model/caching"
	"github.com/gpurec/gpurec/analyze/model/livemem"
)

// Snapshot has the numbers of all processes for some whole seconds. Times are Unix ns.
type Snapshot struct {
	FromNs int64 `json:"from_ns"`
	ToNs   int64 `json:"to_ns"`
	// LaunchShare is the share of this time in which launches were recorded (--max-overhead). If it is
	// below 1, numbers of launches are estimates.
	LaunchShare float64 `json:"launch_share"`
	Lost        int64   `json:"lost_calls"` // calls without a row since the start
	// Late are the calls since the start that are in no Snapshot of their seconds, because they returned, or their rows
	// came, after it. Memory and call sites have them.
	Late      int64     `json:"late_calls"`
	Processes []Process `json:"processes"`
	GPUs      []GPU     `json:"gpus"`
	Verdicts  []Verdict `json:"verdicts,omitempty"` // of the latest Monitor.SetVerdicts
	// NoGPU is the reason why GPUs is empty or incomplete, "" if it is not known.
	NoGPU string `json:"no_gpu,omitempty"`
	// NotRecorded is the reason why the processes are not recorded. Then the numbers of calls, waits and recorded
	// memory are unknown. "": they are recorded.
	NotRecorded string `json:"not_recorded,omitempty"`
}

// Process has the numbers of a process. Rates are those of the time of the Snapshot; memory is that at its
// end. Calls that have not returned yet are missing.
type Process struct {
	Pid            int32   `json:"pid"`
	Name           string  `json:"name"`
	Rank           *int    `json:"rank,omitempty"`
	Job            string  `json:"job,omitempty"`
	GPUs           []int32 `json:"gpus,omitempty"` // NVML indexes of its GPUs; without those that are not known
	Exited         bool    `json:"exited,omitempty"`
	ExitNs         int64   `json:"exit_ns,omitempty"` // when the recorder noticed the exit, Unix ns
	Calls          int64   `json:"calls"`
	CallsPerSec    float64 `json:"calls_per_second"`
	Launches       int64   `json:"launches"`            // recorded
	LaunchesPerSec float64 `json:"launches_per_second"` // with those that were not recorded
	// WaitPercent is the time in calls that wait for the GPU, summed over threads, in percent of the time.
	WaitPercent       float64 `json:"wait_percent"`
	CopiedBytes       int64   `json:"copied_bytes"`
	CopiedBytesPerSec float64 `json:"copied_bytes_per_second"`
	// AllocatedBytes and FreedBytes are driver memory on GPUs that became live, or ended, in the time.
	AllocatedBytes int64 `json:"allocated_bytes"`
	FreedBytes     int64 `json:"freed_bytes"`
	// LiveBytes is the recorded live memory on GPUs: what was allocated before the recording is missing.
	LiveBytes int64    `json:"live_bytes"`
	Memory    []Memory `json:"memory"`
	// Allocator has the totals of PyTorch's caching allocator; nil: it is not recorded.
	Allocator *Allocator `json:"allocator,omitempty"`
	// UsedBytes is the memory of the process on all GPUs, as NVML reports it; -1: unknown.
	UsedBytes int64 `json:"used_bytes"`
	// SMPercent is the share of time in which a kernel of the process ran, on the GPU where it is highest, as NVML
	// reports it; -1: unknown.
	SMPercent float64 `json:"sm_percent"`
	// CPUPercent is the CPU time of the process in percent of one processor; -1: unknown. A Monitor does not know it.
	CPUPercent float64 `json:"cpu_percent"`
	Failed     int64   `json:"failed_calls"` // since the start
	LastError  string  `json:"last_error,omitempty"`
	// LastResult is the CUDA result of the latest failed call, 0 if there is none.
	LastResult int32 `json:"last_result,omitempty"`
	// SilentNs is the time since the latest call ended, PyTorch used memory, or the recording began, ns.
	SilentNs int64 `json:"silent_ns"`
	// LaunchHistory are the recorded launches of the latest seconds, the oldest first.
	LaunchHistory []int64 `json:"-"`
	// Lines are the call sites with the most calls, launches, waiting time, live bytes or tensor bytes. The first one
	// has the most calls.
	Lines []Line `json:"lines,omitempty"`
	// TensorsByLine reports whether Lines have the tensors of PyTorch. It is false if the process has none, or if
	// their events are recorded for part of the time only.
	TensorsByLine bool `json:"tensors_by_line,omitempty"`
}

// Memory is the live memory of a kind in bytes, see format.Row.MemoryKind.
type Memory struct {
	Kind  string `json:"kind"`
	Bytes int64  `json:"live_bytes"`
}

// Allocator has the totals of the caching allocators of a process, in bytes.
type Allocator struct {
	AllocatedBytes int64 `json:"allocated_bytes"`
	ReservedBytes  int64 `json:"reserved_bytes"`
}

// Line has the numbers of a call site since the start. Live memory is that at the end of the Snapshot.
type Line struct {
	Site     string `json:"site"`
	Calls    int64  `json:"calls"`
	Launches int64  `json:"launches"`
	WaitNs   int64  `json:"wait_ns"`
	// LiveBytes and LiveBlocks are live driver memory on GPUs. TensorBytes are the live tensors of PyTorch, in sizes
	// of its allocator's blocks.
	LiveBytes   int64 `json:"live_bytes,omitempty"`
	LiveBlocks  int64 `json:"live_blocks,omitempty"`
	TensorBytes int64 `json:"tensor_bytes,omitempty"`
}

// GPU has the latest samples of a GPU; -1: unknown.
type GPU struct {
	Index              int32   `json:"index"` // of NVML
	Name               string  `json:"name"`
	UtilizationPercent float64 `json:"utilization_percent"`
	SMActivePercent    float64 `json:"sm_active_percent"` // GPM: mean activity of the SMs
	UsedBytes          int64   `json:"used_bytes"`
	TotalBytes         int64   `json:"total_bytes"`
	Milliwatts         float64 `json:"power_milliwatts"`
	Celsius            float64 `json:"temperature_celsius"`
	Xids               int64   `json:"xids"` // since the start
	LastXid            int32   `json:"last_xid,omitempty"`
}

// MaxSeconds is the longest time of a Snapshot, in seconds.
const MaxSeconds = 60

const (
	historySeconds = 30
	shownLines     = 100 // by each key
)

// Take returns the numbers of the latest whole seconds. Their rows have come, if the machine is not too busy: these
// seconds end MaxDelayNs or more before nowNs (Unix ns). seconds is from 1 to MaxSeconds.
func (m *Monitor) Take(nowNs int64, seconds int) *Snapshot {
	m.mu.Lock()
	defer m.mu.Unlock()
	to := (nowNs - MaxDelayNs) / secondNs
	return m.take(to-int64(seconds), to)
}

// TakeNext returns the numbers of the whole seconds since the last Take or TakeNext, at first since the first call and
// of at least some seconds, and at most of MaxSeconds. It returns nil if no second has ended since.
func (m *Monitor) TakeNext(nowNs int64, seconds int) *Snapshot {
	m.mu.Lock()
	defer m.mu.Unlock()
	to := (nowNs - MaxDelayNs) / secondNs
	from := max(m.nextSecond(to-int64(seconds)), to-MaxSeconds)
	if from >= to {
		return nil
	}
	return m.take(from, to)
}

// nextSecond returns the first Unix second that was not taken. Before the first Take, it is that of the first call, but
// at most latest.
func (m *Monitor) nextSecond(latest int64) int64 {
	switch {
	case m.takenNs > 0:
		return m.takenNs / secondNs
	case m.firstNs > 0:
		return min(m.firstNs/secondNs, latest)
	}
	return latest
}

// TakeRest returns the numbers of the seconds after those of the last Take, at most MaxSeconds, after the last row.
func (m *Monitor) TakeRest() *Snapshot {
	m.mu.Lock()
	defer m.mu.Unlock()
	to := max(m.lastNs, m.takenNs)/secondNs + 1
	return m.take(max(m.nextSecond(to-1), to-MaxSeconds), to)
}

// take returns the numbers of the Unix seconds from ≤ s < to.
func (m *Monitor) take(from, to int64) *Snapshot {
	m.takenNs = max(m.takenNs, to*secondNs)
	m.memory.apply(to * secondNs)
	s := &Snapshot{
		FromNs: from * secondNs, ToNs: to * secondNs, Lost: m.lost, Late: m.late,
		LaunchShare: m.samplers.recordedShare(from, to), Verdicts: slices.Clone(m.verdicts), NoGPU: m.noGPU,
	}
	for _, pid := range slices.Sorted(maps.Keys(m.processes)) {
		p := m.processes[pid].take(pid, s, from, to)
		p.GPUs = m.gpusOf(m.processes[pid])
		m.memory.addTo(&p)
		p.Lines = largestLines(m.linesOf(&p))
		s.Processes = append(s.Processes, p)
	}
	m.forgetEnded(to * secondNs)
	for _, index := range slices.Sorted(maps.Keys(m.gpus)) {
		s.GPUs = append(s.GPUs, m.gpus[index].take(index))
	}
	return s
}

// endedKeptNs is how long a Snapshot has a process after its end.
const endedKeptNs = 60 * secondNs

// forgetEnded forgets the processes that ended long before a time, Unix ns.
func (m *Monitor) forgetEnded(atNs int64) {
	for pid, p := range m.processes {
		if p.exitNs == 0 || p.exitNs > atNs-endedKeptNs {
			continue
		}
		delete(m.processes, pid)
		m.memory.forget(pid)
	}
}

// take returns the numbers of the seconds from ≤ s < to.
func (p *process) take(pid int32, s *Snapshot, from, to int64) Process {
	out := Process{
		Pid: pid, Name: p.name, Rank: p.identity.Rank, Job: p.identity.Job, Failed: p.failed,
		UsedBytes: -1, SMPercent: p.smPercent(s.ToNs), CPUPercent: -1, SilentNs: max(0, s.ToNs-p.lastNs),
	}
	if p.exitNs != 0 && p.exitNs <= s.ToNs {
		out.Exited, out.ExitNs = true, p.exitNs
	}
	if p.failed > 0 {
		out.LastResult = p.lastResult
		out.LastError = fmt.Sprintf("%s: %s", p.lastFailed, catalog.ResultName(p.lastResult))
	}
	var waitNs int64
	for at := from; at < to; at++ {
		if c := &p.seconds[at%keptSeconds]; c.at == at {
			out.Calls, out.Launches = out.Calls+c.calls, out.Launches+c.launches
			waitNs, out.CopiedBytes = waitNs+c.waitNs, out.CopiedBytes+c.copiedBytes
			out.AllocatedBytes += c.allocatedBytes
			out.FreedBytes += c.freedBytes
		}
	}
	out.LaunchHistory = p.launchHistory(to)
	seconds := float64(to - from)
	out.CallsPerSec, out.CopiedBytesPerSec = float64(out.Calls)/seconds, float64(out.CopiedBytes)/seconds
	out.WaitPercent = 100 * float64(waitNs) / (seconds * float64(secondNs))
	if s.LaunchShare > 0 {
		out.LaunchesPerSec = float64(out.Launches) / seconds / s.LaunchShare
	}
	if len(p.usedBytes) > 0 && !out.Exited {
		out.UsedBytes = 0
		for _, bytes := range p.usedBytes {
			out.UsedBytes += int64(bytes)
		}
	}
	return out
}

// launchHistory returns the launches of each of the last historySeconds before a Unix second.
func (p *process) launchHistory(to int64) (list []int64) {
	for at := to - historySeconds; at < to; at++ {
		n := int64(0)
		if c := &p.seconds[(at+keptSeconds)%keptSeconds]; c.at == at {
			n = c.launches
		}
		list = append(list, n)
	}
	return list
}

// addTo adds the memory of a process.
func (m *memory) addTo(p *Process) {
	for key, bytes := range m.live {
		if key.pid != p.Pid || bytes == 0 {
			continue
		}
		p.Memory = append(p.Memory, Memory{key.kind, bytes})
		if !livemem.IsHostKind(key.kind) {
			p.LiveBytes += bytes
		}
	}
	slices.SortFunc(p.Memory, func(a, b Memory) int { return cmp.Compare(a.Kind, b.Kind) })
	m.allocators.EachAllocator(func(a *caching.Allocator) {
		if a.Pid != p.Pid {
			return
		}
		if p.Allocator == nil {
			p.Allocator = new(Allocator)
		}
		totals := a.Totals()
		p.Allocator.AllocatedBytes += totals.Allocated
		p.Allocator.ReservedBytes += totals.Reserved
	})
}

// take returns the latest samples of a GPU.
func (g *gpu) take(index int32) GPU {
	latest := func(metric string) float64 {
		if v, ok := g.latest[metric]; ok {
			return v
		}
		return -1
	}
	return GPU{
		Index: index, Name: g.name, UtilizationPercent: latest(catalog.MetricGPUUtilization),
		SMActivePercent: latest(catalog.MetricSMActive),
		UsedBytes:       int64(latest(catalog.MetricMemoryUsed)), TotalBytes: cmp.Or(g.totalBytes, -1),
		Milliwatts: latest(catalog.MetricPower), Celsius: latest(catalog.MetricTemperature),
		Xids: g.xids, LastXid: g.lastXid,
	}
}
