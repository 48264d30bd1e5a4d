package frag

import (
	"slices"

	"github.com/gpurec/gpurec/analyze/report"
)

// Sections are the tables and facts of the report, as --explain prints them.
var Sections = []report.Section{
	{Title: "facts", Columns: slices.Concat(LacksFact, FragFacts)},
	{Title: "spaces", Columns: SpaceColumns},
	{Title: "pins", Columns: PinColumns},
	{Title: "trends", Columns: FragTrendColumns},
	{Title: "moments", Columns: FragMomentColumns},
	{Title: "maps", Columns: MapColumns},
	{Title: "totals", Columns: FragTotals},
}

// Page is the section of the HTML page.
var Page = report.Page{
	Title:  "Fragmentation and address map",
	About:  "What is reserved and cannot be used, whose blocks keep it, and what addresses were used for over time.",
	Empty:  "Nothing that can fragment is known: no caching allocator, no mapped addresses, no memory pool that the program asked about.",
	Tables: []string{"spaces", "pins", "trends"},
}
