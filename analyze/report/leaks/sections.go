package leaks

import (
	"slices"

	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/allocator"
	"github.com/gpurec/gpurec/analyze/report/group"
	"github.com/gpurec/gpurec/analyze/report/quality"
)

// Sections are the tables and facts of the report, as --explain prints them.
var Sections = []report.Section{
	{Title: "facts", Columns: allocator.TotalsFactColumns},
	{Title: "rows", Columns: slices.Concat(Columns, []report.Column{courseColumn})},
	{Title: "totals", Columns: TotalColumns},
	{Title: "suppressions_used", Columns: group.SuppressedColumns},
}

// Page is the section of the HTML page.
var Page = report.Page{
	Title: "Leaks",
	About: "What became of the memory that each place allocated.",
	Empty: "Nothing was allocated in the window.",
}

// Needs are the classes of calls without which the report would be wrong or empty.
var Needs = []string{quality.MemoryOrAllocator}
