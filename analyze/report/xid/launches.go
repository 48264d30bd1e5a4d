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

var LaunchColumns = []report.Column{
	{Key: "before", Title: "BEFORE", Unit: report.UnitText, About: "what the launch came before"},
	{Key: "before_ns", Title: "TIME BEFORE", Unit: report.UnitNs, About: "from the launch's entry to that"},
	{Key: "kernel_short", Title: "KERNEL", Unit: report.UnitText, About: "kernel launched, template arguments folded; of a graph, the call"},
	{Key: "stream", Title: "STREAM", Unit: report.UnitText, About: "stream it was launched on"},
	{Key: "tid", Title: "TID", Unit: report.UnitID, About: "thread that launched it"},
	{Key: "kernel", Title: "", Unit: report.UnitText, About: "demangled name; absent if not known"},
	{Key: "call", Title: "", Unit: report.UnitText, About: "function of the CUDA driver"},
	{Key: "site", Title: "SITE", Unit: report.UnitText, About: "the frame of the program's own code that made the launch"},
}

// LaunchRows has a row per launch before something that happened at atNs; the stack of the last one is for text.
func LaunchRows(t *timeline.Timeline, before string, atNs int64, launches []fault.Launch) []report.Row {
	var rows []report.Row
	from := t.Recording().FromNs
	if len(launches) > 0 {
		from = launches[0].StartNs
	}
	if blind := t.GapNs(from, atNs); blind > 0 {
		text := fmt.Sprintf("(launches were not recorded for %s of the time before)", units.Duration(blind))
		rows = append(rows, report.Row{Brief: true, Cells: []any{before, nil, text, nil, nil, nil, nil, nil}})
	}
	for i := range launches {
		l := &launches[i]
		short := symbolize.ShortKernel(l.Kernel)
		if l.Kernel == "" {
			short = l.Name
		}
		rows = append(rows, report.Row{
			Cells: []any{before, atNs - l.StartNs, short, query.StreamName(l.Stream), int64(l.Tid), units.Known(l.Kernel), l.Name, t.SiteOfCall(l.Stack, l.Site)},
			Brief: i > 0, StackID: l.Stack,
		})
	}
	return rows
}
