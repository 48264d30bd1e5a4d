package live

import (
	"sync"

	"github.com/gpurec/gpurec/format"
)

// Monitor counts the calls and the memory of recorded processes. Its methods are safe for concurrent use.
type Monitor struct {
	mu        sync.Mutex
	memory    memory
	processes map[int32]*process // by pid
	gpus      map[int32]*gpu     // by NVML index
	samplers  samplers
	lost      int64 // calls without a row
	late      int64 // calls whose second was taken before they came
	firstNs   int64 // earliest start of a call, Unix ns; 0: none
	lastNs    int64 // latest start of a call, Unix ns
	takenNs   int64 // end of the seconds that were taken, Unix ns
	verdicts  []Verdict
	noGPU     string // why NVML has no GPU; "": not known
}

// NewMonitor returns a Monitor that has seen no rows.
func NewMonitor() *Monitor {
	m := &Monitor{memory: newMemory(), processes: make(map[int32]*process), gpus: make(map[int32]*gpu)}
	m.memory.changed = m.countMemory
	return m
}

// countMemory counts driver memory on GPUs that became live (bytes > 0) or ended, in the second of the change.
func (m *Monitor) countMemory(pid int32, atNs, bytes int64) {
	c := m.processOf(pid).secondAt(atNs)
	switch {
	case c == nil:
	case bytes > 0:
		c.allocatedBytes += bytes
	default:
		c.freedBytes -= bytes
	}
}

// Add adds rows of one class. The rows of a class come in the order in which calls return, at most
// MaxDelayNs later. Add does not keep rows.
func (m *Monitor) Add(class format.Class, rows []format.Row) {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch class {
	case format.ClassFact:
		for i := range rows {
			m.addFact(&rows[i])
		}
	case format.ClassSample:
		for i := range rows {
			m.addSample(&rows[i])
		}
	case format.ClassMemory:
		for i := range rows {
			m.addCall(&rows[i])
			m.memory.addCall(&rows[i])
		}
	case format.ClassCall:
		for i := range rows {
			m.addCall(&rows[i])
			m.memory.noteContext(&rows[i])
		}
	case format.ClassAllocator:
		for i := range rows {
			if p := m.processes[rows[i].Pid]; p != nil {
				p.lastNs = max(p.lastNs, rows[i].StartNs)
			}
			m.memory.addEvent(&rows[i])
		}
	case format.ClassBlock:
		for i := range rows {
			m.memory.addTotals(&rows[i])
		}
	}
	if len(m.memory.calls)+len(m.memory.events)+len(m.memory.totals) > maxPending {
		m.memory.apply(m.memory.latestNs - MaxDelayNs)
	}
}

// maxPending is the number of calls and events about memory at which the older ones are applied.
const maxPending = 64 << 10

// processOf returns the process with a pid, and creates it if it is new.
func (m *Monitor) processOf(pid int32) *process {
	p := m.processes[pid]
	if p == nil {
		p = &process{bySite: make(map[string]*line)}
		m.processes[pid] = p
	}
	return p
}

// usesGPU reports whether a call launches, copies, waits or allocates on the device of its context.
func usesGPU(row *format.Row) bool {
	return row.Kind != format.KindAPI && row.Result == 0 && row.Context != 0 && row.Device >= 0 && row.Device < 64
}

// addCall counts a call of the driver.
func (m *Monitor) addCall(row *format.Row) {
	p := m.processOf(row.Pid)
	m.lastNs = max(m.lastNs, row.StartNs)
	if m.firstNs == 0 || row.StartNs < m.firstNs {
		m.firstNs = row.StartNs
	}
	if row.StartNs < m.takenNs {
		m.late++
	}
	p.lastNs = max(p.lastNs, row.StartNs+row.DurNs)
	if usesGPU(row) {
		p.ordinals |= 1 << row.Device
	}
	c := p.secondAt(row.StartNs)
	if c == nil {
		return
	}
	c.calls++
	failed := row.Result != 0 && row.Flags&(format.FlagOpen|format.FlagAbandoned|format.FlagNoReturn) == 0
	if failed {
		c.failed++
		p.failed++
		p.lastResult, p.lastFailed = row.Result, row.Name
	}
	l := p.lineOf(row)
	l.calls++
	switch row.Kind {
	case format.KindLaunch:
		c.launches++
		l.launches++
	case format.KindMemcpy:
		if !failed {
			c.copiedBytes += row.Bytes
		}
	case format.KindSync:
		p.addWait(row)
		l.waitNs += max(0, row.DurNs)
	}
}
