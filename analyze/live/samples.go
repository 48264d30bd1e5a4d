package live

import (
	"encoding/json"
	"maps"
	"slices"

	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/format"
)

// gpu has the latest sample of each metric of a GPU.
type gpu struct {
	name, uuid string
	totalBytes int64
	latest     map[string]float64 // by name of the metric, see package catalog
	xids       int64
	lastXid    int32
}

// gpuOf returns the GPU with an NVML index, and creates it if it is new.
func (m *Monitor) gpuOf(device int32) *gpu {
	g := m.gpus[device]
	if g == nil {
		g = &gpu{latest: make(map[string]float64)}
		m.gpus[device] = g
	}
	return g
}

// addSample applies a sample of a GPU or of a process, or an Xid.
func (m *Monitor) addSample(row *format.Row) {
	switch {
	case row.Kind == format.KindXid && row.Device >= 0:
		g := m.gpuOf(row.Device)
		g.xids, g.lastXid = g.xids+1, int32(row.Value)
	case row.Kind != format.KindNVML:
	case row.Pid == 0:
		m.gpuOf(row.Device).latest[row.Name] = row.Value
	default:
		if p := m.processes[row.Pid]; p != nil {
			p.addSample(row)
		}
	}
}

// addSample applies a sample of the process.
func (p *process) addSample(row *format.Row) {
	switch row.Name {
	case catalog.MetricProcessMemory:
		if p.usedBytes == nil {
			p.usedBytes = make(map[int32]float64)
		}
		p.usedBytes[row.Device] = row.Value
	case catalog.MetricProcessSMUtilization:
		if p.sm == nil {
			p.sm = make(map[int32]sample)
		}
		p.sm[row.Device] = sample{row.Value, row.StartNs}
	}
}

// maxSampleAgeNs is the largest age of a sample of SM utilization that a Snapshot has. The driver has no samples of
// idle processes.
const maxSampleAgeNs = 5 * secondNs

// smPercent returns the highest SM utilization on a GPU; -1: unknown.
func (p *process) smPercent(nowNs int64) float64 {
	highest := -1.0
	for _, s := range p.sm {
		if s.atNs >= nowNs-maxSampleAgeNs {
			highest = max(highest, s.value)
		}
	}
	return highest
}

// gpusOf returns the NVML indexes of the GPUs that a process uses: those on which NVML lists it, and those of its
// calls. A device ordinal without a known GPU is left out.
func (m *Monitor) gpusOf(p *process) []int32 {
	list := slices.Collect(maps.Keys(p.usedBytes))
	for ordinal, uuid := range p.uuids {
		if ordinal < 0 || ordinal >= 64 || p.ordinals&(1<<ordinal) == 0 {
			continue
		}
		for index, g := range m.gpus {
			if g.uuid == uuid && uuid != "" {
				list = append(list, index)
			}
		}
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// samplers knows when launches were not recorded, because of --max-overhead.
type samplers struct {
	off     bool
	sinceNs int64 // of off, Unix ns
	// offNs is the time without launches of each of the latest seconds, at index second % keptSeconds.
	offNs [keptSeconds]struct{ at, ns int64 }
}

// addNote applies a note about sampling.
func (s *samplers) addNote(row *format.Row) {
	var note format.Sampling
	if row.Name != format.NoteSampling || json.Unmarshal([]byte(row.Message), &note) != nil ||
		note.Class != format.SampledLaunch || note.What != format.SampledCalls {
		return
	}
	if s.off {
		s.addTime(s.sinceNs, row.StartNs)
	}
	s.off, s.sinceNs = !note.Recorded, row.StartNs
}

// addTime adds a time without launches, Unix ns.
func (s *samplers) addTime(fromNs, toNs int64) {
	fromNs = max(fromNs, toNs-keptSeconds*secondNs)
	for fromNs < toNs {
		at := fromNs / secondNs
		end := min(toNs, (at+1)*secondNs)
		o := &s.offNs[at%keptSeconds]
		if o.at != at {
			o.at, o.ns = at, 0
		}
		o.ns += end - fromNs
		fromNs = end
	}
}

// recordedShare returns the share of a time, Unix s, in which launches were recorded.
func (s *samplers) recordedShare(from, to int64) float64 {
	if s.off && s.sinceNs < to*secondNs {
		s.addTime(s.sinceNs, to*secondNs)
		s.sinceNs = to * secondNs
	}
	var off int64
	for at := from; at < to; at++ {
		if o := &s.offNs[at%keptSeconds]; o.at == at {
			off += o.ns
		}
	}
	return 1 - float64(off)/float64((to-from)*secondNs)
}
