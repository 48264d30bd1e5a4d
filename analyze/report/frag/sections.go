package frag

import (
	"slices"

	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/cachegrowth"
	"github.com/gpurec/gpurec/analyze/report/earlier"
)

// Sections are the tables and facts of the report, for --explain.
var Sections = []report.Section{
	{
		Title:   "facts",
		Columns: slices.Concat(missingDataColumns, factColumns, cachegrowth.FactColumns, earlier.FactColumns),
	},
	{Title: "spaces", Columns: spaceColumns},
	{Title: "pins", Columns: pinningSiteColumns},
	{Title: "trends", Columns: trendColumns},
	{Title: "moments", Columns: momentColumns},
	{Title: "maps", Columns: mapColumns},
	{Title: "earlier", Columns: earlier.Columns},
	{Title: "totals", Columns: totalColumns},
}

// HTMLSection is the section of this report in the HTML page.
var HTMLSection = report.HTMLSection{
	Title: "Fragmentation and address map",
	About: "Reserved memory that cannot be used, the call sites that strand it, and the use of addresses over time.",
	Empty: "The recording has no caching allocator, no mapped addresses and no queried memory pool: nothing can be " +
		"fragmented.",
	Tables: []string{"spaces", "pins", "trends"},
}
