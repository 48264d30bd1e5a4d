package analyze

import (
	"slices"

	"github.com/gpurec/gpurec/analyze/model/sampling"
	"github.com/gpurec/gpurec/analyze/model/timeline"
)

var inferenceColumns = []Column{
	{"class", "CLASS", UnitText, "class of calls"},
	{"inferred", "INFERRED", UnitCount, "calls of the whole recording with the stack of an equal-looking call"},
	{"checked", "CHECKED", UnitCount, "calls that could have had one, were chosen at random and unwound instead to check it"},
	{"wrong", "WRONG", UnitCount, "of CHECKED, calls that came from another stack than the one assumed"},
	{"wrong_estimated", "EST. WRONG", UnitCount, "of INFERRED, calls with another call's stack: every one of WRONG counts for as many as one was checked of, new fingerprints being checked more often than old ones"},
	{"error_pct", "ERROR%", UnitPercent, "EST. WRONG / INFERRED; absent if nothing was checked"},
	{"busy", "BUSY", UnitCount, "calls that found the processor's unwinder in use and have a stack by frame pointers"},
	{"key", "KEY", UnitText, "what calls must have in common for one's stack to be taken for the other's"},
}

func inferenceTable(f *timeline.Facts) Table {
	table := Table{Name: "inference", Title: "inferred stacks, and those that were unwound to check them", Columns: slices.Clone(inferenceColumns), Aside: true}
	if sum := f.Inferred(); sum.Busy == 0 {
		hide(table.Columns, "busy")
	}
	for _, i := range f.Inferences {
		table.Rows = append(table.Rows, Row{Cells: []any{i.Class, i.Inferred, i.Checked, i.Wrong, i.WrongEstimated, sampling.ErrorPct(&i), i.Busy, i.Key}})
	}
	return table
}
