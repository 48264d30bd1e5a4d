package allocator

import (
	"slices"

	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/earlier"
)

// Sections are the tables and facts of the report, for --explain.
var Sections = []report.Section{
	{Title: "facts", Columns: slices.Concat(factColumns, earlier.FactColumns)},
	{Title: "moments", Columns: momentColumns},
	{Title: "allocators", Columns: allocatorColumns},
	{Title: "peaks", Columns: peakColumns},
	{Title: "events", Columns: eventColumns},
	{Title: "pools", Columns: poolColumns},
	{Title: "earlier", Columns: earlier.Columns},
	{Title: "totals", Columns: totalColumns},
}

// HTMLSection is the section of this report in the HTML page.
var HTMLSection = report.HTMLSection{
	Title:  "PyTorch's allocator",
	About:  "Memory statistics of PyTorch's caching allocator, as in torch.cuda.memory_stats().",
	Empty:  "No events of PyTorch's caching allocator were recorded.",
	Tables: []string{"allocators", "peaks", "pools", "events"},
}
