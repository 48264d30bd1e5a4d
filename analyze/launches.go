package analyze

import (
	"fmt"

	"github.com/gpurec/gpurec/analyze/model/fault"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/symbolize"
)

var launchColumns = []Column{
	{"before", "BEFORE", UnitText, "what the launch came before"},
	{"before_ns", "TIME BEFORE", UnitNs, "from the launch's entry to that"},
	{"kernel_short", "KERNEL", UnitText, "kernel launched, template arguments folded; of a graph, the call"},
	{"stream", "STREAM", UnitText, "stream it was launched on"},
	{"tid", "TID", UnitID, "thread that launched it"},
	{"kernel", "", UnitText, "demangled name; absent if not known"},
	{"call", "", UnitText, "function of the CUDA driver"},
	{"site", "SITE", UnitText, "the frame of the program's own code that made the launch"},
}

// launchRows has a row per launch before something that happened at atNs; the stack of the last one is for text.
func launchRows(t *timeline.Timeline, before string, atNs int64, launches []fault.Launch) []Row {
	var rows []Row
	from := t.Recording().FromNs
	if len(launches) > 0 {
		from = launches[0].StartNs
	}
	if blind := t.GapNs(from, atNs); blind > 0 {
		text := fmt.Sprintf("(launches were not recorded for %s of the time before)", units.Duration(blind))
		rows = append(rows, Row{Brief: true, Cells: []any{before, nil, text, nil, nil, nil, nil, nil}})
	}
	for i := range launches {
		l := &launches[i]
		short := symbolize.ShortKernel(l.Kernel)
		if l.Kernel == "" {
			short = l.Name
		}
		rows = append(rows, Row{
			Cells: []any{before, atNs - l.StartNs, short, query.StreamName(l.Stream), int64(l.Tid), units.Known(l.Kernel), l.Name, t.SiteOfCall(l.Stack, l.Site)},
			Brief: i > 0, stack: l.Stack,
		})
	}
	return rows
}
