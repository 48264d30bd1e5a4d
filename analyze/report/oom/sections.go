package oom

import (
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/format"
)

// Sections are the tables and facts of the report, for --explain.
var Sections = []report.Section{
	{Title: "facts", Columns: factColumns},
	{Title: "failures", Columns: failureColumns},
	{Title: "cached", Columns: cachedColumns},
	{Title: "holders", Columns: holderColumns},
	{Title: "totals", Columns: totalColumns},
}

// Page is the section of this report in the HTML page.
var Page = report.Page{
	Title: "Out of memory",
	About: "Each failed allocation, its reason, and the call sites that held the memory.",
	Empty: "No allocation failed.",
}

// Needs are the classes of calls that the report needs.
var Needs = []string{format.RecordMemory}
