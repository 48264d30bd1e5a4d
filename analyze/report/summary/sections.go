package summary

import (
	"slices"

	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/allocator"
	"github.com/gpurec/gpurec/analyze/report/earlier"
	"github.com/gpurec/gpurec/analyze/report/group"
	"github.com/gpurec/gpurec/analyze/report/leaks"
	"github.com/gpurec/gpurec/analyze/report/memory"
	"github.com/gpurec/gpurec/analyze/report/processes"
	"github.com/gpurec/gpurec/analyze/report/rules"
)

// Sections describe the facts and tables of the report. --explain prints them.
var Sections = []report.Section{
	{Title: "facts", Columns: slices.Concat(recordingFactColumns, allocator.TotalsFactColumns, earlier.FactColumns)},
	{Title: "facts with GPU times", Columns: gpuFactColumns},
	{Title: "hits", Columns: rules.ShortHitColumns},
	{Title: "memory", Columns: memory.LevelColumns},
	{Title: "allocators", Columns: allocator.TotalsTableColumns},
	{Title: "pools", Columns: memory.PoolColumns},
	{Title: "leaks", Columns: leaks.LeakColumns},
	{Title: "calls", Columns: callColumns},
	{Title: "kernels", Columns: kernelColumns},
	{Title: "processes", Columns: processes.ProcessColumns},
	{Title: "suppressions_used", Columns: group.SuppressionColumns},
	{Title: "totals", Columns: leaks.LeakTotalColumns},
}
