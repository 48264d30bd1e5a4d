package leaks

import (
	"slices"

	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/allocator"
	"github.com/gpurec/gpurec/analyze/report/cachegrowth"
	"github.com/gpurec/gpurec/analyze/report/earlier"
	"github.com/gpurec/gpurec/analyze/report/group"
	"github.com/gpurec/gpurec/analyze/report/quality"
)

// Sections are the tables and facts of the report, for --explain.
var Sections = []report.Section{
	{Title: "facts", Columns: slices.Concat(allocator.TotalsFactColumns, cachegrowth.FactColumns, earlier.FactColumns)},
	{
		Title:   "rows",
		Columns: slices.Concat(LeakColumns, []report.Column{growthMarginColumn, floorSeriesColumn, group.ViaColumn}),
	},
	{Title: "earlier", Columns: earlier.Columns},
	{Title: "totals", Columns: LeakTotalColumns},
	{Title: "suppressions_used", Columns: group.SuppressionColumns},
}

// HTMLSection is the section of this report in the HTML page.
var HTMLSection = report.HTMLSection{
	Title: "Leaks",
	About: "Memory that each call site allocated and did not free, with a verdict.",
	Empty: "No memory was allocated in the window.",
}

// NeededCallClasses are the classes of calls that the report needs.
var NeededCallClasses = []string{quality.ClassMemoryOrAllocator}
