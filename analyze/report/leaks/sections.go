package leaks

import (
	"slices"

	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/allocator"
	"github.com/gpurec/gpurec/analyze/report/group"
	"github.com/gpurec/gpurec/analyze/report/quality"
)

// Sections are the tables and facts of the report, for --explain.
var Sections = []report.Section{
	{Title: "facts", Columns: allocator.TotalsFactColumns},
	{Title: "rows", Columns: slices.Concat(Columns, []report.Column{floorColumn})},
	{Title: "totals", Columns: TotalColumns},
	{Title: "suppressions_used", Columns: group.SuppressedColumns},
}

// Page is the section of this report in the HTML page.
var Page = report.Page{
	Title: "Leaks",
	About: "Memory that each call site allocated and did not free, with a verdict.",
	Empty: "No memory was allocated in the window.",
}

// Needs are the classes of calls that the report needs.
var Needs = []string{quality.MemoryOrAllocator}
