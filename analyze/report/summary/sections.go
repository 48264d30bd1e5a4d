package summary

import (
	"slices"

	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/allocator"
	"github.com/gpurec/gpurec/analyze/report/group"
	"github.com/gpurec/gpurec/analyze/report/leaks"
	"github.com/gpurec/gpurec/analyze/report/memory"
	"github.com/gpurec/gpurec/analyze/report/processes"
	"github.com/gpurec/gpurec/analyze/report/rules"
)

// Sections are the tables and facts of the report, as --explain prints them.
var Sections = []report.Section{
	{Title: "facts", Columns: slices.Concat(SummaryFacts, allocator.AllocatorFacts)},
	{Title: "hits", Columns: rules.SummaryHitColumns},
	{Title: "memory", Columns: memory.UseColumns},
	{Title: "allocators", Columns: allocator.AllocatorTableColumns},
	{Title: "pools", Columns: memory.PoolColumns},
	{Title: "leaks", Columns: leaks.LeakColumns},
	{Title: "calls", Columns: CallColumns},
	{Title: "kernels", Columns: KernelColumns},
	{Title: "processes", Columns: processes.ProcessColumns},
	{Title: "suppressions_used", Columns: group.SuppressedColumns},
	{Title: "totals", Columns: leaks.LeakTotals},
}
