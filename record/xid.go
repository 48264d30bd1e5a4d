//go:build linux

package record

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gpurec/gpurec/format"
)

// sighting is what one source says of an Xid.
type sighting struct {
	source  string
	atNs    int64 // Unix ns
	pci     string
	sxid    bool // of an NVSwitch
	code    int32
	pid     int32 // 0: not told
	process string
	text    string
	before  bool // it was in the log when the recording began
}

// Sources of Xids, in the order of how exact their times are.
const (
	sourceTracepoint = "tracepoint" // in the call of the driver that reports it; tells no process
	sourceKmsg       = "kmsg"       // the kernel's log: process and text, and what was before
	sourceNVML       = "nvml"       // the code alone, when its event is waited for
)

// sameXid is how far apart sources may see the same Xid. They differ by the time until
// the recorder reads the log.
const sameXid = time.Second

// xidMerger makes one row of what several sources say about an Xid. A source that
// reports a code twice means two Xids, so the nth report of one source is paired with
// the nth of another. Safe for concurrent use.
type xidMerger struct {
	devices map[string]int32 // NVML index by PCI address without function

	mu      sync.Mutex
	pending []*pendingXid // in order of arrival
}

type pendingXid struct {
	sighting
	sources   []string
	arrivedNs int64
}

func newXidMerger(gpus []gpuName) *xidMerger {
	m := &xidMerger{devices: make(map[string]int32)}
	for _, g := range gpus {
		m.devices[pciSlot(g.pci)] = int32(g.index)
	}
	return m
}

// add takes what a source said, at the time now.
func (m *xidMerger) add(s sighting, now int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range m.pending {
		near := max(p.atNs-s.atNs, s.atNs-p.atNs) < sameXid.Nanoseconds()
		if near && p.code == s.code && p.sxid == s.sxid && p.before == s.before && pciSlot(p.pci) == pciSlot(s.pci) &&
			!slices.Contains(p.sources, s.source) {
			p.join(s)
			return
		}
	}
	m.pending = append(m.pending, &pendingXid{sighting: s, sources: []string{s.source}, arrivedNs: now})
}

// join adds what another source knows better.
func (p *pendingXid) join(s sighting) {
	exact := func(source string) int {
		return slices.Index([]string{sourceNVML, sourceKmsg, sourceTracepoint}, source)
	}
	if exact(s.source) > exact(p.source) {
		p.source, p.atNs = s.source, s.atNs
	}
	p.pid, p.process = cmp.Or(p.pid, s.pid), cmp.Or(p.process, s.process)
	if len(s.text) > len(p.text) {
		p.text = s.text
	}
	if len(s.pci) > len(p.pci) {
		p.pci = s.pci
	}
	p.sources = append(p.sources, s.source)
}

// take returns the rows of Xids that no other source will join any more: those that came
// before the time until, and what only the log can know.
func (m *xidMerger) take(until int64) []format.Row {
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

func (m *xidMerger) row(p *pendingXid) format.Row {
	slices.SortFunc(p.sources, func(a, b string) int { return -cmp.Compare(a, b) }) // tracepoint, nvml, kmsg
	message, err := json.Marshal(format.XidFact{PCI: p.pci, Process: p.process, Text: p.text, Sources: p.sources, Before: p.before})
	if err != nil {
		message = nil // strings always encode
	}
	device, known := m.devices[pciSlot(p.pci)]
	if !known || p.sxid {
		device = -1
	}
	name := format.NameXid
	if p.sxid {
		name = format.NameSXid
	}
	return format.Row{
		Kind: format.KindXid, StartNs: p.atNs, Device: device, Pid: p.pid, Name: name, Value: float64(p.code), Message: string(message),
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
