package summary

import (
	"slices"

	"github.com/gpurec/gpurec/analyze/model/calls"
	"github.com/gpurec/gpurec/analyze/model/sampling"
	"github.com/gpurec/gpurec/analyze/report"
)

// kernelColumns are those of the table of kernels; launches that were sampled add EstimatedLaunches.
var kernelColumns = []report.Column{
	{Key: "launches", Title: "LAUNCHES", Unit: report.UnitCount, About: "launches of the kernel in the window that ran; how long it ran on the GPU is not known, and what graphs launch is not in it"},
	{Key: "captured", Title: "CAPTURED", Unit: report.UnitCount, About: "launches that stream capture put into a graph instead"},
	{Key: "errors", Title: "ERRORS", Unit: report.UnitCount, About: "launches that returned an error"},
	{Key: "host_sum_ns", Title: "HOST SUM", Unit: report.UnitNs, About: "sum of the time threads spent launching it, not GPU time; of the launches whose duration is known, see calls"},
	{Key: "kernel_short", Title: "KERNEL", Unit: report.UnitText, About: "name with template arguments folded, #n where that is the same for several kernels"},
	{Key: "kernel", Title: "", Unit: report.UnitText, About: "demangled name"},
}

// kernelTable returns a table with a row per kernel.
func kernelTable(u *calls.Counter) report.Table {
	table := report.Table{Name: "kernels", Title: "kernels by launches", Columns: slices.Clone(kernelColumns)}
	if u.Weights != nil {
		table.Columns = report.InsertAfter(table.Columns, "launches", report.EstimatedLaunches)
	}
	short := calls.ShortKernels(u.Kernels)
	captured := false
	for name, s := range u.Kernels {
		values := report.Values{
			"launches":     s.Calls - s.Captured,
			"captured":     s.Captured,
			"errors":       s.Errors,
			"host_sum_ns":  s.HostNs,
			"kernel_short": short[name],
			"kernel":       name,
		}
		if u.Weights != nil {
			values[report.EstimatedLaunches.Key] = sampling.Whole(s.Scaled) - s.Captured
		}
		table.Add(values)
		captured = captured || s.Captured > 0
	}
	if !captured {
		report.Hide(table.Columns, "captured")
	}
	table.Sort("launches", "captured", "kernel")
	return table
}
