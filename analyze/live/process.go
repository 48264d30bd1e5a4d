package live

import (
	"encoding/json"

	"github.com/gpurec/gpurec/format"
)

const (
	secondNs = int64(1e9)
	// keptSeconds is how many seconds a process keeps.
	keptSeconds = 128
	// maxLines bounds the call sites of a process. Calls from further ones count as those of "(other)".
	maxLines = 4096
)

// process has the numbers of a process since the start.
type process struct {
	name       string
	identity   format.Identity
	exitNs     int64 // when it ended, Unix ns; 0: it runs
	lastNs     int64 // when its latest call ended, Unix ns
	failed     int64 // failed calls
	lastResult int32 // CUDA result of the latest failed call
	lastFailed string
	usedBytes  map[int32]float64 // memory by GPU, as NVML reports it, bytes
	sm         map[int32]sample  // SM utilization by GPU, percent
	uuids      map[int]string    // UUIDs of GPUs by device ordinal of the process
	ordinals   uint64            // device ordinals that its calls use, bit N for ordinal N
	// seconds are the latest keptSeconds seconds. The one at Unix second s has index s % keptSeconds.
	seconds [keptSeconds]second
	bySite  map[string]*line
}

// second has the counters of one second, by the start of the calls.
type second struct {
	at                      int64 // Unix second
	calls, launches, failed int64
	waitNs                  int64 // time in calls that wait for the GPU, summed over threads
	copiedBytes             int64
	allocatedBytes          int64 // driver memory on GPUs that became live
	freedBytes              int64 // driver memory on GPUs that ended
}

// sample is a value of NVML with its time.
type sample struct {
	value float64
	atNs  int64 // Unix ns
}

// line has the counters of one call site since the start.
type line struct {
	calls, launches, waitNs int64
}

// secondAt returns the second of a time, Unix ns; nil: it is too old to be kept.
func (p *process) secondAt(ns int64) *second {
	at := ns / secondNs
	s := &p.seconds[at%keptSeconds]
	if s.at < at {
		*s = second{at: at}
	}
	if s.at > at {
		return nil
	}
	return s
}

// addWait distributes the time of a wait over the seconds that it covers.
func (p *process) addWait(row *format.Row) {
	from, to := row.StartNs, row.StartNs+max(0, row.DurNs)
	from = max(from, to-keptSeconds*secondNs)
	for from < to {
		end := min(to, (from/secondNs+1)*secondNs)
		if s := p.secondAt(from); s != nil {
			s.waitNs += end - from
		}
		from = end
	}
}

// lineOf returns the counters of a row's call site.
func (p *process) lineOf(row *format.Row) *line {
	l := p.bySite[row.Site]
	if l != nil {
		return l
	}
	site := row.Site
	if len(p.bySite) >= maxLines {
		site = otherSites
	}
	if l = p.bySite[site]; l == nil {
		l = new(line)
		p.bySite[site] = l
	}
	return l
}

// otherSites is the name for all call sites above maxLines.
const otherSites = "(other)"

// noteNVML is the name of a note about NVML. Without a device, it says why there are no samples.
const noteNVML = "nvml"

// addFact applies a fact: a process, its end, its identity, or a loss.
func (m *Monitor) addFact(row *format.Row) {
	switch row.Kind {
	case format.KindProcess:
		p := m.processOf(row.Pid)
		if row.Name != "" {
			p.name = row.Name
		}
		p.lastNs = max(p.lastNs, row.StartNs)
		var fact struct {
			ExitNs   int64           `json:"exit_ns"`
			Identity format.Identity `json:"identity"`
			Devices  []struct {
				Ordinal int    `json:"ordinal"`
				UUID    string `json:"uuid"`
			} `json:"devices"`
		}
		if json.Unmarshal([]byte(row.Message), &fact) == nil {
			for _, d := range fact.Devices {
				if p.uuids == nil {
					p.uuids = make(map[int]string)
				}
				p.uuids[d.Ordinal] = d.UUID
			}
			if fact.Identity.Known() {
				p.identity = fact.Identity
			}
			if p.exitNs = fact.ExitNs; p.exitNs != 0 {
				m.memory.endProcess(row.Pid, p.exitNs)
			}
		}
	case format.KindLost:
		m.lost += int64(row.Value)
	case format.KindDevice:
		g := m.gpuOf(row.Device)
		g.name, g.totalBytes = row.Name, row.Bytes
		var fact format.DeviceFact
		if json.Unmarshal([]byte(row.Message), &fact) == nil {
			g.uuid = fact.UUID
		}
	case format.KindNote:
		if row.Name == noteNVML && row.Device < 0 {
			m.noGPU = row.Message
		}
		m.samplers.addNote(row)
		m.memory.addNote(row)
	}
}
