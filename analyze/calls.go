package analyze

import (
	"cmp"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/model/calls"
	"github.com/gpurec/gpurec/analyze/model/sampling"
)

var callColumns = []Column{
	{"name", "CALL", UnitText, "function of the CUDA driver"},
	{"kind", "KIND", UnitText, "alloc, free, launch, memcpy, memset, sync or api"},
	{"calls", "CALLS", UnitCount, "calls that began in the window"},
	{"errors", "ERRORS", UnitCount, "calls that returned an error (not ready and shutting down are none)"},
	{"unfinished", "OPEN", UnitCount, "calls that were not seen to return"},
	{"timed", "TIMED", UnitCount, "calls whose duration is known: at high rates the returns of kernel launches are probed for a share of the time only; the times are of these calls"},
	{"host_sum_ns", "HOST SUM", UnitNs, "sum of the time threads spent in these calls; it is CPU time waiting or working, not GPU time, and threads add up"},
	{"host_max_ns", "HOST MAX", UnitNs, "longest of these calls"},
}

func newCallTable(u *calls.Counter) Table {
	table := Table{Name: "calls", Title: "calls by time spent in them on the CPU", Columns: slices.Clone(callColumns), Spare: []string{"host_max_ns", "timed"}}
	spared := false
	for n, s := range u.Calls {
		table.Rows = append(table.Rows, Row{Cells: []any{n.Name, n.Kind, s.Calls, s.Errors, s.Open, s.Timed, s.HostNs, s.MaxNs}})
		if u.Weights != nil {
			row := &table.Rows[len(table.Rows)-1]
			row.Cells = append(row.Cells, sampling.Whole(s.Scaled))
		}
		spared = spared || s.Timed+s.Open < s.Calls
	}
	if !spared {
		hide(table.Columns, "timed")
	}
	slices.SortFunc(table.Rows, func(a, b Row) int {
		return cmp.Or(compareCells(a.Cells[6], b.Cells[6]), compareCells(a.Cells[2], b.Cells[2]),
			strings.Compare(a.Cells[0].(string), b.Cells[0].(string)), strings.Compare(a.Cells[1].(string), b.Cells[1].(string)))
	})
	if u.Weights != nil {
		table.moveLast(estimatedCalls, 3)
	}
	return table
}
