package oom

import (
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/format"
)

// Sections are the tables and facts of the report, as --explain prints them.
var Sections = []report.Section{
	{Title: "facts", Columns: factColumns},
	{Title: "failures", Columns: failureColumns},
	{Title: "cached", Columns: cachedColumns},
	{Title: "holders", Columns: holderColumns},
	{Title: "totals", Columns: totalColumns},
}

// Page is the section of the HTML page.
var Page = report.Page{
	Title: "Out of memory",
	About: "Every allocation that failed, why, and who held the memory.",
	Empty: "No allocation failed.",
}

// Needs are the classes of calls without which the report would be wrong or empty.
var Needs = []string{format.RecordMemory}
