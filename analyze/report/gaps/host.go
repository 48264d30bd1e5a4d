package gaps

import (
	"fmt"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/hosttime"
	"github.com/gpurec/gpurec/analyze/model/idle"
	"github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/hostcause"
	"github.com/gpurec/gpurec/analyze/report/processes"
)

// hostColumns are the columns of the table host.
var hostColumns = slices.Concat(hostcause.Columns[:5], ownerColumns, hostcause.Columns[5:])

// hostTotalColumns are the totals with rows of class host.
var hostTotalColumns = []report.Column{{
	Key: "host_explained_pct", Title: "% of the late host explained", Unit: report.UnitPercent,
	About: "share of the time in which the host was late, and it is known what the launching thread did; without GPU " +
		"times, of the gaps",
}}

// gapHostColumn is a column of the longest gaps with rows of class host.
var gapHostColumn = report.Column{
	Key: "host", Title: "THE HOST", Unit: report.UnitText,
	About: "what the launching thread did for most of the gap, and where; see the table host",
}

// newHostTable returns an empty table host.
func newHostTable() report.Table {
	return report.Table{
		Name: "host", Title: "why the host was late", Columns: hostColumns,
		HideFirst: []string{"certain_ns", "pid", "device", "longest_ns"},
	}
}

// hasHost reports whether the recording has rows of class host for the devices.
func (s *deviceGaps) hasHost() bool { return hosttime.HasRows(s.t) }

// hostTable returns a table with one row per device, cause and line.
func (s *deviceGaps) hostTable() report.Table {
	table := newHostTable()
	for _, d := range s.idle.Devices {
		for _, e := range d.Host {
			row := table.Add(report.JoinValues(
				hostcause.Values(s.t, e, d.Time.Idle.ProbableNs), s.ownerValues(d)))
			row.StackID = e.Stack
		}
	}
	table.Sort("host_ns")
	return table
}

// hostTotals returns the share of the time in which the host was late that is explained.
func (s *deviceGaps) hostTotals() []report.Fact {
	known, all := 0.0, 0.0
	for _, d := range s.idle.Devices {
		known, all = known+d.HostExplainedPct()*d.HostNs, all+d.HostNs
	}
	return report.NewFacts(hostTotalColumns, report.Values{"host_explained_pct": known / max(1, all)})
}

// HostTime tells what the threads that ended gaps did in them.
type HostTime struct {
	Track   DeviceTrack
	Entries []*hosttime.Entry // the longest first
	TotalNs float64           // length of the gaps
}

// hostKey identifies a group of gaps: those that launches at one line ended.
type hostKey struct{ site int32 }

// FindHostTime tells what the host did in List, by process. It counts a gap of all devices of a process, not
// those of single devices. Without rows of class host it returns none.
func (sc *Scan) FindHostTime() ([]HostTime, error) {
	if !hosttime.HasRows(sc.T) {
		return nil, nil
	}
	h, err := hosttime.Of(sc.T)
	if err != nil {
		return nil, err
	}
	gaps := slices.Clone(sc.List)
	slices.SortFunc(gaps, func(a, b Gap) int { return int(min(1, max(-1, a.FromNs-b.FromNs))) })
	breakdowns := make(map[DeviceTrack]*hosttime.Breakdown)
	for i := range gaps {
		g := &gaps[i]
		whole := DeviceTrack{g.Track.Pid, AllDevicesOfProcess}
		if g.Track != whole && sc.Tracks[whole] != nil {
			continue
		}
		b := breakdowns[g.Track]
		if b == nil {
			b = hosttime.NewBreakdown(h, sc.T.SiteOfStack)
			breakdowns[g.Track] = b
		}
		thread := origin.Thread{Pid: g.EndedBy.Pid, Tid: g.EndedBy.Tid}
		b.Add(hostKey{g.EndedBy.Site}, thread, g.FromNs, g.ToNs, 1)
	}
	var list []HostTime
	for _, track := range sc.SortedTracks() {
		if b := breakdowns[track]; b != nil {
			list = append(list, HostTime{track, b.Finish(), b.TotalNs})
		}
	}
	return list, h.Err()
}

// ExplainedNs returns the time whose cause is known.
func (h *HostTime) ExplainedNs() (ns float64) {
	for _, e := range h.Entries {
		if e.Cause.IsKnown() {
			ns += e.Ns
		}
	}
	return ns
}

// hostTable returns a table of what the host did in the listed gaps.
func (sc *Scan) hostTable(list []HostTime) report.Table {
	table := newHostTable()
	for i := range list {
		h := &list[i]
		for _, e := range h.Entries {
			row := table.Add(report.JoinValues(hostcause.Values(sc.T, e, h.TotalNs), report.Values{
				"pid": int64(h.Track.Pid), "device": sc.trackDeviceLabel(h.Track),
			}))
			row.StackID = e.Stack
		}
	}
	table.Sort("host_ns")
	return table
}

// addHostTable adds what the host did in the listed gaps to a report, if the recording has it.
func (sc *Scan) addHostTable(r *report.Report, top int) error {
	list, err := sc.FindHostTime()
	if err != nil || len(list) == 0 {
		return err
	}
	known, all := 0.0, 0.0
	for i := range list {
		known, all = known+list[i].ExplainedNs(), all+list[i].TotalNs
	}
	table := sc.hostTable(list)
	if err := table.SortAndCut("", top); err != nil {
		return err
	}
	processes.AddRankColumn(sc.T, &table)
	r.Totals = append(r.Totals,
		report.NewFacts(hostTotalColumns, report.Values{"host_explained_pct": 100 * known / max(1, all)})...)
	r.Tables = slices.Insert(r.Tables, len(r.Tables)-1, table)
	return nil
}

// hostValues returns the cell of gapHostColumn, if the table has it.
func (s *deviceGaps) hostValues(g *idle.Gap) report.Values {
	switch {
	case !s.hasHost():
		return nil
	case g.Host.Ns == 0:
		return report.Values{"host": nil}
	}
	share := 100 * float64(g.Host.Ns) / float64(g.LengthNs())
	return report.Values{"host": fmt.Sprintf("%s (%.0f%%)", hostcause.Text(s.t, &g.Host.Place), share)}
}
