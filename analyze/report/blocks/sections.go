package blocks

import "github.com/gpurec/gpurec/analyze/report"

// Sections are the tables and facts of the report, for --explain.
var Sections = []report.Section{
	{Title: "facts", Columns: factColumns},
	{Title: "allocators", Columns: allocatorColumns},
	{Title: "sizes", Columns: sizeColumns},
	{Title: "moments", Columns: momentColumns},
	{Title: "totals", Columns: totalColumns},
}

// HTMLSection is the section of this report in the HTML page.
var HTMLSection = report.HTMLSection{
	Title:  "PyTorch's blocks by size",
	About:  "Blocks of PyTorch's caching allocator, read from the memory of the processes at regular times.",
	Empty:  "No reading of blocks is in the window.",
	Tables: []string{"allocators", "sizes"},
}
