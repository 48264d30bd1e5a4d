package allocator

import (
	"github.com/gpurec/gpurec/analyze/report"
)

// Sections are the tables and facts of the report, as --explain prints them.
var Sections = []report.Section{
	{Title: "facts", Columns: factColumns},
	{Title: "moments", Columns: momentColumns},
	{Title: "allocators", Columns: allocatorColumns},
	{Title: "peaks", Columns: peakColumns},
	{Title: "events", Columns: eventColumns},
	{Title: "pools", Columns: poolColumns},
	{Title: "totals", Columns: totalColumns},
}

// Page is the section of the HTML page.
var Page = report.Page{
	Title:  "PyTorch's allocator",
	About:  "Its books, exactly.",
	Empty:  "No events of PyTorch's caching allocator were recorded.",
	Tables: []string{"allocators", "peaks", "pools", "events"},
}
