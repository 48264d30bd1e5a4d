package api

import (
	"slices"

	"github.com/gpurec/gpurec/analyze/report"
)

// Sections are the tables and facts of the report, for --explain.
var Sections = []report.Section{
	{Title: "facts", Columns: factColumns},
	{Title: "api", Columns: slices.Concat(callColumns, groupColumns)},
	{Title: "totals", Columns: totalColumns},
}

// HTMLSection is the section of this report in the HTML page.
var HTMLSection = report.HTMLSection{
	Title: "CUDA calls",
	About: "Number and host time of the calls of each CUDA driver function.",
	Empty: "The recording has no calls in the window.",
}
