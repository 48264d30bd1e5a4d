//go:build linux

package xid

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/record/host"
)

// Report is a report of an Xid by one source.
type Report struct {
	Source  string
	AtNs    int64 // Unix ns
	PCI     string
	sxid    bool // of an NVSwitch
	Code    int32
	pid     int32 // 0: not told
	process string
	text    string
	before  bool // it was in the log when the recording began
}

// Sources of Xids, in the order of how exact their times are.
const (
	sourceTracepoint = "tracepoint" // in the call of the driver that reports it; tells no process
	sourceKmsg       = "kmsg"       // the kernel's log: process and text, and what was before
	SourceNVML       = "nvml"       // the code alone, when its event is waited for
)

// sameXid is how far apart sources may see the same Xid. They differ by the time until
// the recorder reads the log.
const sameXid = time.Second

// Merger merges reports of several sources into one row per Xid. The nth report of a code by one
// source is paired with the nth of another. Safe for concurrent use.
type Merger struct {
	devices map[string]int32 // NVML index by PCI address without function

	mu      sync.Mutex
	pending []*pendingXid // in order of arrival
}

type pendingXid struct {
	Report
	sources   []string
	arrivedNs int64
}

// NewMerger returns a Merger of Xids on these GPUs.
func NewMerger(gpus []host.GPU) *Merger {
	m := &Merger{devices: make(map[string]int32)}
	for _, g := range gpus {
		m.devices[pciSlot(g.PCI)] = int32(g.Index)
	}
	return m
}

// Add takes a report. now is in Unix ns.
func (m *Merger) Add(s Report, now int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range m.pending {
		near := max(p.AtNs-s.AtNs, s.AtNs-p.AtNs) < sameXid.Nanoseconds()
		if near && p.Code == s.Code && p.sxid == s.sxid && p.before == s.before && pciSlot(p.PCI) == pciSlot(s.PCI) &&
			!slices.Contains(p.sources, s.Source) {
			p.join(s)
			return
		}
	}
	m.pending = append(m.pending, &pendingXid{Report: s, sources: []string{s.Source}, arrivedNs: now})
}

// join adds what another source knows better.
func (p *pendingXid) join(s Report) {
	exact := func(source string) int {
		return slices.Index([]string{SourceNVML, sourceKmsg, sourceTracepoint}, source)
	}
	if exact(s.Source) > exact(p.Source) {
		p.Source, p.AtNs = s.Source, s.AtNs
	}
	p.pid, p.process = cmp.Or(p.pid, s.pid), cmp.Or(p.process, s.process)
	if len(s.text) > len(p.text) {
		p.text = s.text
	}
	if len(s.PCI) > len(p.PCI) {
		p.PCI = s.PCI
	}
	p.sources = append(p.sources, s.Source)
}

// take returns the rows of Xids that no other source will join any more: those that came
// before the time until, and what only the log can know.
func (m *Merger) take(until int64) []format.Row {
	m.mu.Lock()
	defer m.mu.Unlock()
	var rows []format.Row
	m.pending = slices.DeleteFunc(m.pending, func(p *pendingXid) bool {
		if p.arrivedNs >= until && !p.before {
			return false
		}
		rows = append(rows, m.row(p))
		return true
	})
	return rows
}

func (m *Merger) row(p *pendingXid) format.Row {
	slices.SortFunc(p.sources, func(a, b string) int { return -cmp.Compare(a, b) }) // tracepoint, nvml, kmsg
	message, err := json.Marshal(
		format.XidFact{PCI: p.PCI, Process: p.process, Text: p.text, Sources: p.sources, Before: p.before},
	)
	if err != nil {
		message = nil // strings always encode
	}
	device, known := m.devices[pciSlot(p.PCI)]
	if !known || p.sxid {
		device = -1
	}
	name := format.NameXid
	if p.sxid {
		name = format.NameSXid
	}
	return format.Row{
		Kind:    format.KindXid,
		StartNs: p.AtNs,
		Device:  device,
		Pid:     p.pid,
		Name:    name,
		Value:   float64(p.Code),
		Message: string(message),
	}
}

// pciSlot is a PCI address without its function, which not every source tells, and
// without leading zeros of the domain, of which sources have different numbers.
func pciSlot(pci string) string {
	slot, _, _ := strings.Cut(strings.ToLower(pci), ".")
	domain, rest, found := strings.Cut(slot, ":")
	if !found || !strings.Contains(rest, ":") {
		return slot // without a domain
	}
	return strings.TrimLeft(domain, "0") + ":" + rest
}
