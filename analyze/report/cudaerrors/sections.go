package cudaerrors

import (
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/xid"
)

// Sections are the tables and facts of the report, as --explain prints them.
var Sections = []report.Section{
	{Title: "facts", Columns: ErrorFacts},
	{Title: "asynchronous", Columns: FaultColumns},
	{Title: "suspects", Columns: xid.LaunchColumns},
	{Title: "invalid_frees", Columns: InvalidFreeColumns},
	{Title: "errors", Columns: ErrorColumns},
	{Title: "no_errors", Columns: QuietColumns},
	{Title: "totals", Columns: ErrorTotals},
}

// Page is the section of the HTML page.
var Page = report.Page{
	Title: "Failed calls",
	About: "Which calls failed, and what that means.",
	Empty: "No call failed.",
}
