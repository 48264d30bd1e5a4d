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
}

// Process has the numbers of a process. Rates are those of the time of the Snapshot; memory is that at its
// end. Calls that have not returned yet are missing.
type Process struct {
	Pid            int32   `json:"pid"`
	Name           string  `json:"name"`
	Rank           *int    `json:"rank,omitempty"`
	Exited         bool    `json:"exited,omitempty"`
	Calls          int64   `json:"calls"`
	CallsPerSec    float64 `json:"calls_per_second"`
	Launches       int64   `json:"launches"`            // recorded
	LaunchesPerSec float64 `json:"launches_per_second"` // with those that were not recorded
	// WaitPercent is the time in calls that wait for the GPU, summed over threads, in percent of the time.
	WaitPercent       float64 `json:"wait_percent"`
	CopiedBytesPerSec float64 `json:"copied_bytes_per_second"`
	// LiveBytes is the recorded live memory on GPUs: what was allocated before the recording is missing.
	LiveBytes int64    `json:"live_bytes"`
	Memory    []Memory `json:"memory"`
	// Allocator has the totals of PyTorch's caching allocator; nil: it is not recorded.
	Allocator *Allocator `json:"allocator,omitempty"`
	// UsedBytes is the memory of the process on all GPUs, as NVML reports it; -1: unknown.
	UsedBytes int64  `json:"used_bytes"`
	Failed    int64  `json:"failed_calls"` // since the start
	LastError string `json:"last_error,omitempty"`
	// LastResult is the CUDA result of the latest failed call, 0 if there is none.
	LastResult int32 `json:"last_result,omitempty"`
	// SilentNs is the time since the latest call ended, ns.
	SilentNs int64 `json:"silent_ns"`
	// LaunchHistory are the recorded launches of the latest seconds, the oldest first.
	LaunchHistory []int64 `json:"-"`
	// Lines are the call sites with the most calls since the start, the first one has most.
	Lines []Line `json:"lines,omitempty"`
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

// Line has the numbers of a call site since the start.
type Line struct {
	Site     string `json:"site"`
	Calls    int64  `json:"calls"`
	Launches int64  `json:"launches"`
	WaitNs   int64  `json:"wait_ns"`
}

// GPU has the latest samples of a GPU; -1: unknown.
type GPU struct {
	Index              int32   `json:"index"` // of NVML
	Name               string  `json:"name"`
	UtilizationPercent float64 `json:"utilization_percent"`
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
	shownLines     = 100
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
		LaunchShare: m.samplers.recordedShare(from, to), Verdicts: slices.Clone(m.verdicts),
	}
	for _, pid := range slices.Sorted(maps.Keys(m.processes)) {
		s.Processes = append(s.Processes, m.processes[pid].take(pid, s, from, to))
	}
	for i := range s.Processes {
		m.memory.addTo(&s.Processes[i])
	}
	for _, index := range slices.Sorted(maps.Keys(m.gpus)) {
		s.GPUs = append(s.GPUs, m.gpus[index].take(index))
	}
	return s
}

// take returns the numbers of the seconds from ≤ s < to.
func (p *process) take(pid int32, s *Snapshot, from, to int64) Process {
	out := Process{
		Pid: pid, Name: p.name, Rank: p.identity.Rank, Exited: p.exitNs != 0 && p.exitNs <= s.ToNs, Failed: p.failed,
		UsedBytes: -1, SilentNs: max(0, s.ToNs-p.lastNs),
	}
	if p.failed > 0 {
		out.LastResult = p.lastResult
		out.LastError = fmt.Sprintf("%s: %s", p.lastFailed, catalog.ResultName(p.lastResult))
	}
	var waitNs, copied int64
	for at := from; at < to; at++ {
		if c := &p.seconds[at%keptSeconds]; c.at == at {
			out.Calls, out.Launches = out.Calls+c.calls, out.Launches+c.launches
			waitNs, copied = waitNs+c.waitNs, copied+c.copiedBytes
		}
	}
	for at := to - historySeconds; at < to; at++ {
		n := int64(0)
		if c := &p.seconds[(at+keptSeconds)%keptSeconds]; c.at == at {
			n = c.launches
		}
		out.LaunchHistory = append(out.LaunchHistory, n)
	}
	seconds := float64(to - from)
	out.CallsPerSec, out.CopiedBytesPerSec = float64(out.Calls)/seconds, float64(copied)/seconds
	out.WaitPercent = 100 * float64(waitNs) / (seconds * float64(secondNs))
	if s.LaunchShare > 0 {
		out.LaunchesPerSec = float64(out.Launches) / seconds / s.LaunchShare
	}
	if len(p.usedBytes) > 0 {
		out.UsedBytes = 0
		for _, bytes := range p.usedBytes {
			out.UsedBytes += int64(bytes)
		}
	}
	out.Lines = p.largestLines()
	return out
}

// largestLines returns the call sites with the most calls.
func (p *process) largestLines() []Line {
	list := make([]Line, 0, len(p.bySite))
	for site, l := range p.bySite {
		list = append(list, Line{site, l.calls, l.launches, l.waitNs})
	}
	slices.SortFunc(list, func(a, b Line) int {
		return cmp.Or(cmp.Compare(b.Calls, a.Calls), cmp.Compare(a.Site, b.Site))
	})
	return list[:min(len(list), shownLines)]
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
		UsedBytes: int64(latest(catalog.MetricMemoryUsed)), TotalBytes: cmp.Or(g.totalBytes, -1),
		Milliwatts: latest(catalog.MetricPower), Celsius: latest(catalog.MetricTemperature),
		Xids: g.xids, LastXid: g.lastXid,
	}
}
