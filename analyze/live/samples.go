package live

import (
	"encoding/json"

	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/format"
)

// gpu has the latest sample of each metric of a GPU.
type gpu struct {
	name       string
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
	case row.Name == catalog.MetricProcessMemory:
		if p := m.processes[row.Pid]; p != nil {
			if p.usedBytes == nil {
				p.usedBytes = make(map[int32]float64)
			}
			p.usedBytes[row.Device] = row.Value
		}
	}
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
