package summary

import (
	"cmp"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/model/calls"
	"github.com/gpurec/gpurec/analyze/model/sampling"
	"github.com/gpurec/gpurec/analyze/report"
)

var KernelColumns = []report.Column{
	{Key: "launches", Title: "LAUNCHES", Unit: report.UnitCount, About: "launches of the kernel in the window that ran; how long it ran on the GPU is not known, and what graphs launch is not in it"},
	{Key: "captured", Title: "CAPTURED", Unit: report.UnitCount, About: "launches that stream capture put into a graph instead"},
	{Key: "errors", Title: "ERRORS", Unit: report.UnitCount, About: "launches that returned an error"},
	{Key: "host_sum_ns", Title: "HOST SUM", Unit: report.UnitNs, About: "sum of the time threads spent launching it, not GPU time; of the launches whose duration is known, see calls"},
	{Key: "kernel_short", Title: "KERNEL", Unit: report.UnitText, About: "name with template arguments folded, #n where that is the same for several kernels"},
	{Key: "kernel", Title: "", Unit: report.UnitText, About: "demangled name"},
}

func ofCallUseKernelTable(u *calls.Counter) report.Table {
	table := report.Table{Name: "kernels", Title: "kernels by launches", Columns: slices.Clone(KernelColumns)}
	short := calls.ShortKernels(u.Kernels)
	captured := false
	for name, s := range u.Kernels {
		table.Rows = append(table.Rows, report.Row{Cells: []any{s.Calls - s.Captured, s.Captured, s.Errors, s.HostNs, short[name], name}})
		if u.Weights != nil {
			row := &table.Rows[len(table.Rows)-1]
			row.Cells = append(row.Cells, sampling.Whole(s.Scaled)-s.Captured)
		}
		captured = captured || s.Captured > 0
	}
	if !captured {
		report.Hide(table.Columns, "captured")
	}
	slices.SortFunc(table.Rows, func(a, b report.Row) int {
		return cmp.Or(report.CompareCells(a.Cells[0], b.Cells[0]), report.CompareCells(a.Cells[1], b.Cells[1]), strings.Compare(a.Cells[5].(string), b.Cells[5].(string)))
	})
	if u.Weights != nil {
		table.MoveLast(report.EstimatedLaunches, 1)
	}
	return table
}
