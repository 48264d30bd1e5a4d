package api

import (
	"slices"

	"github.com/gpurec/gpurec/analyze/report"
)

// Sections are the tables and facts of the report, as --explain prints them.
var Sections = []report.Section{
	{Title: "facts", Columns: factColumns},
	{Title: "api", Columns: slices.Concat(callColumns, groupColumns)},
	{Title: "totals", Columns: totalColumns},
}

// Page is the section of the HTML page.
var Page = report.Page{
	Title: "CUDA calls",
	About: "How often each function of the driver was called, and how long that took the CPU.",
	Empty: "No calls in the window.",
}
