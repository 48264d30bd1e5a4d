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

// LaunchBeforeColumns are the columns of a table of launches before an error; see
// AddLaunchesBefore.
var LaunchBeforeColumns = []report.Column{
	{Key: "before", Title: "BEFORE", Unit: report.UnitText, About: "the error that followed the launch"},
	{Key: "before_ns", Title: "TIME BEFORE", Unit: report.UnitNs, About: "time from the launch call to the error"},
	{
		Key: "kernel_short", Title: "KERNEL", Unit: report.UnitText,
		About: "name of the launched kernel with folded template arguments; for a CUDA graph, the driver function",
	},
	{Key: "stream", Title: "STREAM", Unit: report.UnitText, About: "CUDA stream of the launch"},
	{Key: "tid", Title: "TID", Unit: report.UnitID, About: "id of the thread that made the launch"},
	{Key: "kernel", Title: "", Unit: report.UnitText, About: "demangled name of the kernel; absent if unknown"},
	{Key: "call", Title: "", Unit: report.UnitText, About: "CUDA driver function of the launch"},
	{
		Key: "site", Title: "SITE", Unit: report.UnitText,
		About: "call site: the frame of the program's own code that made the launch",
	},
}

// AddLaunchesBefore adds one row per launch before an error at atNs (Unix ns) to a table with the
// columns LaunchBeforeColumns. before names the error. Text output prints only the stack of the
// first launch.
func AddLaunchesBefore(t *timeline.Timeline, table *report.Table, before string, atNs int64, launches []fault.Launch) {
	from := t.RecordingWindow().FromNs
	if len(launches) > 0 {
		from = launches[0].StartNs
	}
	if gap := t.UnrecordedLaunchNs(from, atNs); gap > 0 {
		text := fmt.Sprintf("(launches were not recorded for %s before the error)", units.FormatDuration(gap))
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
			"kernel":       units.TextOrNil(l.Kernel),
			"call":         l.Name,
			"site":         t.SiteOfCall(l.Stack, l.Site),
		})
		row.Brief, row.StackID = i > 0, l.Stack
	}
}
