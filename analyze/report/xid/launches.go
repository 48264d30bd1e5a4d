package xid

import (
	"fmt"

	"github.com/gpurec/gpurec/analyze/model/fault"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/symbolize"
)

// LaunchColumns are the columns of a table of launches before an error, see AddLaunches.
var LaunchColumns = []report.Column{
	{Key: "before", Title: "BEFORE", Unit: report.UnitText, About: "what the launch came before"},
	{Key: "before_ns", Title: "TIME BEFORE", Unit: report.UnitNs, About: "from the launch's entry to that"},
	{
		Key: "kernel_short", Title: "KERNEL", Unit: report.UnitText,
		About: "kernel launched, template arguments folded; of a graph, the call",
	},
	{Key: "stream", Title: "STREAM", Unit: report.UnitText, About: "stream it was launched on"},
	{Key: "tid", Title: "TID", Unit: report.UnitID, About: "thread that launched it"},
	{Key: "kernel", Title: "", Unit: report.UnitText, About: "demangled name; absent if not known"},
	{Key: "call", Title: "", Unit: report.UnitText, About: "function of the CUDA driver"},
	{
		Key: "site", Title: "SITE", Unit: report.UnitText,
		About: "the frame of the program's own code that made the launch",
	},
}

// AddLaunches adds a row per launch before an error at atNs, Unix ns, to a table with the columns
// LaunchColumns; before names that error. Text shows the stack of the first launch only.
func AddLaunches(t *timeline.Timeline, table *report.Table, before string, atNs int64, launches []fault.Launch) {
	from := t.Recording().FromNs
	if len(launches) > 0 {
		from = launches[0].StartNs
	}
	if gap := t.GapNs(from, atNs); gap > 0 {
		text := fmt.Sprintf("(launches were not recorded for %s of the time before)", units.Duration(gap))
		table.Add(report.Values{
			"before":       before,
			"before_ns":    nil,
			"kernel_short": text,
			"stream":       nil,
			"tid":          nil,
			"kernel":       nil,
			"call":         nil,
			"site":         nil,
		}).Brief = true
	}
	for i := range launches {
		l := &launches[i]
		short := symbolize.ShortKernel(l.Kernel)
		if l.Kernel == "" {
			short = l.Name
		}
		row := table.Add(report.Values{
			"before":       before,
			"before_ns":    atNs - l.StartNs,
			"kernel_short": short,
			"stream":       query.StreamName(l.Stream),
			"tid":          int64(l.Tid),
			"kernel":       units.Known(l.Kernel),
			"call":         l.Name,
			"site":         t.SiteOfCall(l.Stack, l.Site),
		})
		row.Brief, row.StackID = i > 0, l.Stack
	}
}
