package stacks

import (
	"slices"

	"github.com/gpurec/gpurec/analyze/model/sampling"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/report"
)

var inferenceColumns = []report.Column{
	{Key: "class", Title: "CLASS", Unit: report.UnitText, About: "class of calls"},
	{Key: "inferred", Title: "INFERRED", Unit: report.UnitCount, About: "calls of the whole recording with the stack of an equal-looking call"},
	{Key: "checked", Title: "CHECKED", Unit: report.UnitCount, About: "calls that could have had one, were chosen at random and unwound instead to check it"},
	{Key: "wrong", Title: "WRONG", Unit: report.UnitCount, About: "of CHECKED, calls that came from another stack than the one assumed"},
	{Key: "wrong_estimated", Title: "EST. WRONG", Unit: report.UnitCount, About: "of INFERRED, calls with another call's stack: every one of WRONG counts for as many as one was checked of, new fingerprints being checked more often than old ones"},
	{Key: "error_pct", Title: "ERROR%", Unit: report.UnitPercent, About: "EST. WRONG / INFERRED; absent if nothing was checked"},
	{Key: "busy", Title: "BUSY", Unit: report.UnitCount, About: "calls that found the processor's unwinder in use and have a stack by frame pointers"},
	{Key: "key", Title: "KEY", Unit: report.UnitText, About: "what calls must have in common for one's stack to be taken for the other's"},
}

func inferenceTable(f *timeline.Facts) report.Table {
	table := report.Table{Name: "inference", Title: "inferred stacks, and those that were unwound to check them", Columns: slices.Clone(inferenceColumns), Aside: true}
	if sum := f.Inferred(); sum.Busy == 0 {
		report.Hide(table.Columns, "busy")
	}
	for _, i := range f.Inferences {
		table.Rows = append(table.Rows, report.Row{Cells: []any{i.Class, i.Inferred, i.Checked, i.Wrong, i.WrongEstimated, sampling.ErrorPct(&i), i.Busy, i.Key}})
	}
	return table
}
