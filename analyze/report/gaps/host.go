package gaps

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/calls"
	"github.com/gpurec/gpurec/analyze/model/hosttime"
	"github.com/gpurec/gpurec/analyze/model/idle"
	"github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/model/timeline"
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
func newHostTable(t *timeline.Timeline) report.Table {
	table := report.Table{
		Name: "host", Title: "why the host was late", Columns: hostColumns,
		HideFirst: []string{"certain_ns", "pid", "device", "longest_ns"},
	}
	hostcause.AddChainColumns(t, &table)
	return table
}

// hasHost reports whether the recording has rows of class host for the devices.
func (dg *deviceGaps) hasHost() bool { return hosttime.HasRows(dg.t) }

// hostTable returns a table with one row per device, cause and line.
func (dg *deviceGaps) hostTable() report.Table {
	table := newHostTable(dg.t)
	for _, d := range dg.idle.Devices {
		for _, e := range d.Host {
			row := table.Add(report.JoinValues(
				hostcause.Values(dg.t, e, d.Time.Idle.ProbableNs), hostcause.ChainValues(dg.t, e), dg.ownerValues(d)))
			row.StackID = e.Stack
		}
	}
	table.Sort("host_ns")
	return table
}

// hostTotals returns the share of the time in which the host was late that is explained.
func (dg *deviceGaps) hostTotals() []report.Fact {
	known, all := 0.0, 0.0
	for _, d := range dg.idle.Devices {
		known, all = known+d.HostExplainedPct()*d.HostNs, all+d.HostNs
	}
	return report.NewFacts(hostTotalColumns, report.Values{"host_explained_pct": known / max(1, all)})
}

// mainHostText says what the host did for most of the time in which it was late; "" if nothing is known.
func (dg *deviceGaps) mainHostText(d *idle.Device) string {
	if len(d.Host) == 0 || !d.Host[0].Cause.IsKnown() {
		return ""
	}
	most := d.Host[0]
	return fmt.Sprintf(
		"; the host %s (%.0f%% of that)",
		hostcause.Text(dg.t, &most.Place),
		100*most.Ns/max(1, d.HostNs),
	)
}

// HostTime has what the threads of a process that ended gaps did in them.
type HostTime struct {
	// Track is that of all devices of the process, or that of its only device.
	Track   DeviceTrack
	Entries []*hosttime.Entry // the longest first
	TotalNs float64           // length of the gaps
}

// hostTimes sums up what threads did in gaps, by process.
type hostTimes struct {
	history    *hosttime.History
	breakdowns map[int32]*hosttime.Breakdown // by process
	err        error
}

// hostKey identifies a group of gaps: those that launches at one line ended.
type hostKey struct{ site int32 }

// addHostTime adds a gap that a launch ended. Without rows of class host it does nothing.
func (sc *Scan) addHostTime(fromNs int64, c *calls.Call) {
	if !hosttime.HasRows(sc.T) || sc.host.err != nil {
		return
	}
	if sc.host.history == nil {
		sc.host.breakdowns = make(map[int32]*hosttime.Breakdown)
		if sc.host.history, sc.host.err = hosttime.Of(sc.T); sc.host.err != nil {
			return
		}
	}
	b := sc.host.breakdowns[c.Pid]
	if b == nil {
		b = hosttime.NewBreakdown(sc.host.history, sc.T.SiteOfStack)
		sc.host.breakdowns[c.Pid] = b
	}
	b.Add(hostKey{c.Site}, origin.Thread{Pid: c.Pid, Tid: c.Tid}, fromNs, c.StartNs, 1)
}

// FindHostTime finds what the host did in the gaps, by process. Call it once, after SelectLongestGaps. Without
// rows of class host it returns none.
func (sc *Scan) FindHostTime() (list []HostTime, err error) {
	for _, track := range sc.SortedTracks() {
		b := sc.host.breakdowns[track.Pid]
		if b == nil ||
			track.Device != AllDevicesOfProcess && sc.Tracks[DeviceTrack{track.Pid, AllDevicesOfProcess}] != nil {
			continue
		}
		list = append(list, HostTime{track, b.Finish(), b.TotalNs})
	}
	if sc.host.history != nil {
		err = sc.host.history.Err()
	}
	return list, cmp.Or(sc.host.err, err)
}

// RecordedNs returns the time between the first and the last launch of a track in which launches were recorded.
func (sc *Scan) RecordedNs(track DeviceTrack) int64 { return sc.Tracks[track].recordedNs() }

// ExplainedNs returns the time whose cause is known.
func (h *HostTime) ExplainedNs() (ns float64) {
	for _, e := range h.Entries {
		if e.Cause.IsKnown() {
			ns += e.Ns
		}
	}
	return ns
}

// hostTable returns a table of what the host did in the gaps.
func (sc *Scan) hostTable(list []HostTime) report.Table {
	table := newHostTable(sc.T)
	for i := range list {
		h := &list[i]
		for _, e := range h.Entries {
			row := table.Add(report.JoinValues(
				hostcause.Values(sc.T, e, h.TotalNs), hostcause.ChainValues(sc.T, e), report.Values{
					"pid": int64(h.Track.Pid), "device": sc.trackDeviceLabel(h.Track),
				}))
			row.StackID = e.Stack
		}
	}
	table.Sort("host_ns")
	return table
}

// addHostTable adds what the host did in the gaps to a report, if the recording has it.
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
func (dg *deviceGaps) hostValues(g *idle.Gap) report.Values {
	switch {
	case !dg.hasHost():
		return nil
	case g.Host.Ns == 0:
		return report.Values{"host": nil}
	}
	share := 100 * float64(g.Host.Ns) / float64(g.LengthNs())
	return report.Values{"host": fmt.Sprintf("%s (%.0f%%)", hostcause.Text(dg.t, &g.Host.Place), share)}
}
