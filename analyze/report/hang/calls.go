package hang

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// launchColumns are the columns of Scan.launchTable.
var launchColumns = []report.Column{
	{Key: "pid", Title: "PID", Unit: report.UnitID, About: "process id"},
	{Key: "stream", Title: "STREAM", Unit: report.UnitText, About: "CUDA stream of the launch"},
	{Key: "before_ns", Title: "BEFORE", Unit: report.UnitNs, About: "time from the launch to the reported time"},
	{
		Key: "kernel_short", Title: "KERNEL", Unit: report.UnitText,
		About: "kernel name with folded template arguments; for a CUDA graph, the driver function",
	},
	{Key: "grid", Title: "GRID", Unit: report.UnitText, About: "grid size x block size of the launch"},
	{
		Key: "returned", Title: "RETURNED", Unit: report.UnitText,
		About: "whether the launch call returned: yes, no, or ? if it was not recorded",
	},
	{Key: "kernel", Title: "", Unit: report.UnitText, About: "demangled name of the kernel; absent if unknown"},
	{
		Key: "site", Title: "SITE", Unit: report.UnitText,
		About: "call site: the frame of the program's own code that made the launch",
	},
}

// launchTable returns a table with the last launches by stream, of processes that hang or differ
// from their group. The latest launch of each process comes first.
func (s *Scan) launchTable(verdicts []ProcessVerdict) report.Table {
	table := report.Table{
		Name: "launches", Title: "last launches by stream, the last first", Columns: launchColumns,
		Secondary: true, Keys: []string{},
	}
	for i := range verdicts {
		p := &verdicts[i]
		if p.State >= StateAlive && len(p.Differences) == 0 {
			continue
		}
		var launches []callRef
		for _, list := range p.History.streams {
			launches = append(launches, list...)
		}
		slices.SortFunc(launches, func(a, b callRef) int {
			return cmp.Or(cmp.Compare(b.startNs, a.startNs), cmp.Compare(a.tid, b.tid), cmp.Compare(a.row, b.row))
		})
		for k := range launches {
			s.addLaunchRow(&table, &launches[k])
		}
	}
	return table
}

// addLaunchRow adds the row of one launch.
func (s *Scan) addLaunchRow(table *report.Table, c *callRef) {
	d := s.Details(c)
	returned := "yes"
	switch {
	case c.isOpen():
		returned = "no"
	case c.flags&(format.FlagNoReturn|format.FlagAbandoned) != 0:
		returned = "?"
	}
	row := table.Add(report.Values{
		"pid":          int64(c.pid),
		"stream":       query.StreamName(d.stream),
		"before_ns":    s.EndNs - c.startNs,
		"kernel_short": s.kernelOfLaunch(c),
		"grid":         gridSizeText(d),
		"returned":     returned,
		"kernel":       units.TextOrNil(d.kernel),
		"site":         s.T.SiteOfCall(d.Stack, d.Site),
	})
	row.StackID, row.Brief = d.Stack, true
}

// gridSizeText returns the grid and block sizes of a launch, or nil for a graph launch.
func gridSizeText(d *callDetails) any {
	if d.grid == [3]int32{} {
		return nil
	}
	return fmt.Sprintf("%d,%d,%d x %d,%d,%d", d.grid[0], d.grid[1], d.grid[2], d.block[0], d.block[1], d.block[2])
}

// longCallColumns are the columns of Scan.longCallTable.
var longCallColumns = []report.Column{
	{Key: "dur_ns", Title: "TOOK", Unit: report.UnitNs, About: "duration of the call"},
	{Key: "at_ns", Title: "AT", Unit: report.UnitNs, About: "start of the call, from the start of the recording"},
	{
		Key: "call", Title: "CALL", Unit: report.UnitText,
		About: "CUDA driver function; excludes calls nested in another long call",
	},
	{
		Key: "waits_for", Title: "WAITED FOR", Unit: report.UnitText,
		About: "object that the call waited for; absent if unknown",
	},
	{Key: "pid", Title: "PID", Unit: report.UnitID, About: "process id"},
	{Key: "thread", Title: "THREAD", Unit: report.UnitText, About: "id and name of the thread"},
	{
		Key: "site", Title: "SITE", Unit: report.UnitText,
		About: "call site: the frame of the program's own code that made the call",
	},
}

// longCallTable returns a table with the long calls that returned, without nested ones.
func (s *Scan) longCallTable() report.Table {
	table := report.Table{
		Name: "long_calls", Title: "calls that took long", Columns: longCallColumns,
		Secondary: true, Keys: []string{}, HideFirst: []string{"pid"},
	}
	type entry struct {
		origin.Thread
		ns int64
	}
	entries := make(map[entry]bool)
	for i := range s.Long {
		entries[entry{origin.Thread{Pid: s.Long[i].pid, Tid: s.Long[i].tid}, s.Long[i].startNs}] = true
	}
	slices.SortFunc(s.Long, func(a, b callRef) int {
		return cmp.Or(cmp.Compare(b.endNs-b.startNs, a.endNs-a.startNs),
			cmp.Compare(a.startNs, b.startNs), cmp.Compare(a.tid, b.tid))
	})
	for i := range s.Long {
		c := &s.Long[i]
		d := s.Details(c)
		thread := origin.Thread{Pid: c.pid, Tid: c.tid}
		if d.parentNs != 0 && entries[entry{thread, d.parentNs}] {
			continue
		}
		row := table.Add(report.Values{
			"dur_ns":    c.endNs - c.startNs,
			"at_ns":     c.startNs - s.T.RecordingWindow().FromNs,
			"call":      d.name,
			"waits_for": units.TextOrNil(s.awaitedObject(c)),
			"pid":       int64(c.pid),
			"thread":    s.threadLabel(thread),
			"site":      s.T.SiteOfCall(d.Stack, d.Site),
		})
		row.StackID, row.Brief = d.Stack, true
	}
	return table
}
