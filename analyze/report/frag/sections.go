package frag

import (
	"slices"

	"github.com/gpurec/gpurec/analyze/report"
)

// Sections are the tables and facts of the report, as --explain prints them.
var Sections = []report.Section{
	{Title: "facts", Columns: slices.Concat(lacksColumns, factColumns)},
	{Title: "spaces", Columns: spaceColumns},
	{Title: "pins", Columns: pinColumns},
	{Title: "trends", Columns: trendColumns},
	{Title: "moments", Columns: momentColumns},
	{Title: "maps", Columns: mapColumns},
	{Title: "totals", Columns: totalColumns},
}

// Page is the section of the HTML page.
var Page = report.Page{
	Title: "Fragmentation and address map",
	About: "What is reserved and cannot be used, whose blocks keep it, and what addresses were used for over time.",
	Empty: "Nothing that can fragment is known: no caching allocator, no mapped addresses, no memory pool that the " +
		"program asked about.",
	Tables: []string{"spaces", "pins", "trends"},
}
