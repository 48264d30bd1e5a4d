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

// Report is one report of an Xid by one source.
type Report struct {
	Source string
	AtNs   int64 // time of the error, Unix ns
	// PCI is the PCI address in the notation of the source.
	PCI     string
	sxid    bool // whether it is an SXid, of an NVSwitch
	Code    int32
	pid     int32 // 0: unknown
	process string
	text    string
	before  bool // whether the error is from before the recording
}

// Sources of Xid reports, from the most exact time to the least exact.
const (
	sourceTracepoint = "tracepoint" // exact time, code and text, but no process
	sourceKmsg       = "kmsg"       // the kernel's log: process and text, also from before the recording
	SourceNVML       = "nvml"       // only the code, when the recorder reads the event
)

// maxReportDelay is the largest difference in time between two reports of the same Xid. Sources
// differ by the time until the recorder reads the log.
const maxReportDelay = time.Second

// ReportMerger merges the reports of several sources into one row per Xid. It pairs the nth report
// of a code by one source with the nth of another. It is safe for concurrent use.
type ReportMerger struct {
	devices map[string]int32 // NVML index by PCI address without function

	mu      sync.Mutex
	pending []*pendingXid // in the order of arrival
}

// pendingXid is an Xid that other sources may still report.
type pendingXid struct {
	Report
	sources   []string
	arrivedNs int64
}

// NewReportMerger returns a Merger for Xids of these GPUs.
func NewReportMerger(gpus []host.GPU) *ReportMerger {
	m := &ReportMerger{devices: make(map[string]int32)}
	for _, g := range gpus {
		m.devices[normalizePCIAddress(g.PCI)] = int32(g.Index)
	}
	return m
}

// AddReport adds a report of an Xid. now is the current time in Unix ns.
func (m *ReportMerger) AddReport(s Report, now int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, p := range m.pending {
		near := max(p.AtNs-s.AtNs, s.AtNs-p.AtNs) < maxReportDelay.Nanoseconds()
		if near && p.Code == s.Code && p.sxid == s.sxid && p.before == s.before &&
			normalizePCIAddress(p.PCI) == normalizePCIAddress(s.PCI) &&
			!slices.Contains(p.sources, s.Source) {
			p.joinReport(s)
			return
		}
	}
	m.pending = append(m.pending, &pendingXid{Report: s, sources: []string{s.Source}, arrivedNs: now})
}

// joinReport takes over the more exact values of another source's report of the same Xid.
func (p *pendingXid) joinReport(s Report) {
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

// takeRows returns and removes the rows of completed Xids: those that arrived before until (Unix
// ns), and those from before the recording, which only the log has.
func (m *ReportMerger) takeRows(until int64) []format.Row {
	m.mu.Lock()
	defer m.mu.Unlock()
	var rows []format.Row
	m.pending = slices.DeleteFunc(m.pending, func(p *pendingXid) bool {
		if p.arrivedNs >= until && !p.before {
			return false
		}
		rows = append(rows, m.makeXidRow(p))
		return true
	})
	return rows
}

// makeXidRow returns the row of kind xid for a merged Xid.
func (m *ReportMerger) makeXidRow(p *pendingXid) format.Row {
	slices.SortFunc(p.sources, func(a, b string) int { return -cmp.Compare(a, b) }) // tracepoint, nvml, kmsg
	message, err := json.Marshal(
		format.XidFact{PCI: p.PCI, Process: p.process, Text: p.text, Sources: p.sources, Before: p.before},
	)
	if err != nil {
		message = nil // strings always encode
	}
	device, known := m.devices[normalizePCIAddress(p.PCI)]
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

// normalizePCIAddress returns a PCI address in a form that is equal for all sources: without
// function, and without leading zeros of the domain.
func normalizePCIAddress(pci string) string {
	slot, _, _ := strings.Cut(strings.ToLower(pci), ".")
	domain, rest, found := strings.Cut(slot, ":")
	if !found || !strings.Contains(rest, ":") {
		return slot // the address has no domain
	}
	return strings.TrimLeft(domain, "0") + ":" + rest
}
