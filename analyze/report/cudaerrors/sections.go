package cudaerrors

import (
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/xid"
)

// Sections are the tables and facts of the report, as --explain prints them.
var Sections = []report.Section{
	{Title: "facts", Columns: factColumns},
	{Title: "asynchronous", Columns: faultColumns},
	{Title: "suspects", Columns: xid.LaunchColumns},
	{Title: "invalid_frees", Columns: invalidFreeColumns},
	{Title: "errors", Columns: errorColumns},
	{Title: "no_errors", Columns: quietColumns},
	{Title: "totals", Columns: totalColumns},
}

// Page is the section of the HTML page.
var Page = report.Page{
	Title: "Failed calls",
	About: "Which calls failed, and what that means.",
	Empty: "No call failed.",
}
