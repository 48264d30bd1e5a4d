package allocator

import "github.com/gpurec/gpurec/analyze/report"

// Sections are the tables and facts of the report, as --explain prints them.
var Sections = []report.Section{
	{Title: "facts", Columns: BooksFacts},
	{Title: "moments", Columns: MomentColumns},
	{Title: "allocators", Columns: BooksColumns},
	{Title: "peaks", Columns: PeakColumns},
	{Title: "events", Columns: EventColumns},
	{Title: "pools", Columns: PoolUseColumns},
	{Title: "totals", Columns: BooksTotals},
}

// Page is the section of the HTML page.
var Page = report.Page{
	Title:  "PyTorch's allocator",
	About:  "Its books, exactly.",
	Empty:  "No events of PyTorch's caching allocator were recorded.",
	Tables: []string{"allocators", "peaks", "pools", "events"},
}
