package analyze

import (
	"cmp"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/model/calls"
	"github.com/gpurec/gpurec/analyze/model/sampling"
)

var kernelColumns = []Column{
	{"launches", "LAUNCHES", UnitCount, "launches of the kernel in the window that ran; how long it ran on the GPU is not known, and what graphs launch is not in it"},
	{"captured", "CAPTURED", UnitCount, "launches that stream capture put into a graph instead"},
	{"errors", "ERRORS", UnitCount, "launches that returned an error"},
	{"host_sum_ns", "HOST SUM", UnitNs, "sum of the time threads spent launching it, not GPU time; of the launches whose duration is known, see calls"},
	{"kernel_short", "KERNEL", UnitText, "name with template arguments folded, #n where that is the same for several kernels"},
	{"kernel", "", UnitText, "demangled name"},
}

func newKernelTable(u *calls.Counter) Table {
	table := Table{Name: "kernels", Title: "kernels by launches", Columns: slices.Clone(kernelColumns)}
	short := calls.ShortKernels(u.Kernels)
	captured := false
	for name, s := range u.Kernels {
		table.Rows = append(table.Rows, Row{Cells: []any{s.Calls - s.Captured, s.Captured, s.Errors, s.HostNs, short[name], name}})
		if u.Weights != nil {
			row := &table.Rows[len(table.Rows)-1]
			row.Cells = append(row.Cells, sampling.Whole(s.Scaled)-s.Captured)
		}
		captured = captured || s.Captured > 0
	}
	if !captured {
		hide(table.Columns, "captured")
	}
	slices.SortFunc(table.Rows, func(a, b Row) int {
		return cmp.Or(compareCells(a.Cells[0], b.Cells[0]), compareCells(a.Cells[1], b.Cells[1]), strings.Compare(a.Cells[5].(string), b.Cells[5].(string)))
	})
	if u.Weights != nil {
		table.moveLast(estimatedLaunches, 1)
	}
	return table
}
