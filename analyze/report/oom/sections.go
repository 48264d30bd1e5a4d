package oom

import "github.com/gpurec/gpurec/analyze/report"

// Sections are the tables and facts of the report, as --explain prints them.
var Sections = []report.Section{
	{Title: "facts", Columns: OomFacts},
	{Title: "failures", Columns: OomColumns},
	{Title: "cached", Columns: CachedColumns},
	{Title: "holders", Columns: OomHolderColumns},
	{Title: "totals", Columns: OomTotals},
}

// Page is the section of the HTML page.
var Page = report.Page{
	Title: "Out of memory",
	About: "Every allocation that failed, why, and who held the memory.",
	Empty: "No allocation failed.",
}
