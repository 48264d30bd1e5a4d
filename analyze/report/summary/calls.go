package summary

import (
	"cmp"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/model/calls"
	"github.com/gpurec/gpurec/analyze/model/sampling"
	"github.com/gpurec/gpurec/analyze/report"
)

var CallColumns = []report.Column{
	{Key: "name", Title: "CALL", Unit: report.UnitText, About: "function of the CUDA driver"},
	{Key: "kind", Title: "KIND", Unit: report.UnitText, About: "alloc, free, launch, memcpy, memset, sync or api"},
	{Key: "calls", Title: "CALLS", Unit: report.UnitCount, About: "calls that began in the window"},
	{Key: "errors", Title: "ERRORS", Unit: report.UnitCount, About: "calls that returned an error (not ready and shutting down are none)"},
	{Key: "unfinished", Title: "OPEN", Unit: report.UnitCount, About: "calls that were not seen to return"},
	{Key: "timed", Title: "TIMED", Unit: report.UnitCount, About: "calls whose duration is known: at high rates the returns of kernel launches are probed for a share of the time only; the times are of these calls"},
	{Key: "host_sum_ns", Title: "HOST SUM", Unit: report.UnitNs, About: "sum of the time threads spent in these calls; it is CPU time waiting or working, not GPU time, and threads add up"},
	{Key: "host_max_ns", Title: "HOST MAX", Unit: report.UnitNs, About: "longest of these calls"},
}

func ofCallUseCallTable(u *calls.Counter) report.Table {
	table := report.Table{Name: "calls", Title: "calls by time spent in them on the CPU", Columns: slices.Clone(CallColumns), Spare: []string{"host_max_ns", "timed"}}
	spared := false
	for n, s := range u.Calls {
		table.Rows = append(table.Rows, report.Row{Cells: []any{n.Name, n.Kind, s.Calls, s.Errors, s.Open, s.Timed, s.HostNs, s.MaxNs}})
		if u.Weights != nil {
			row := &table.Rows[len(table.Rows)-1]
			row.Cells = append(row.Cells, sampling.Whole(s.Scaled))
		}
		spared = spared || s.Timed+s.Open < s.Calls
	}
	if !spared {
		report.Hide(table.Columns, "timed")
	}
	slices.SortFunc(table.Rows, func(a, b report.Row) int {
		return cmp.Or(report.CompareCells(a.Cells[6], b.Cells[6]), report.CompareCells(a.Cells[2], b.Cells[2]),
			strings.Compare(a.Cells[0].(string), b.Cells[0].(string)), strings.Compare(a.Cells[1].(string), b.Cells[1].(string)))
	})
	if u.Weights != nil {
		table.MoveLast(report.EstimatedCalls, 3)
	}
	return table
}
