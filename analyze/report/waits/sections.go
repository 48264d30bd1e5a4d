package waits

import (
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/format"
)

// Sections are the tables and facts of the report, as --explain prints them.
var Sections = []report.Section{
	{Title: "facts", Columns: WaitFacts},
	{Title: "sync", Columns: WaitColumns},
	{Title: "threads", Columns: WaitThreadColumns},
	{Title: "longest", Columns: LongestColumns},
	{Title: "totals", Columns: WaitTotals},
}

// Page is the section of the HTML page.
var Page = report.Page{
	Title: "Waiting",
	About: "Where threads waited for the GPU.",
	Empty: "No thread waited for the GPU in the window.",
	Kind:  format.KindSync,
}
