package cudaerrors

import (
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/xid"
)

// Sections are the tables and facts of the report, for --explain.
var Sections = []report.Section{
	{Title: "facts", Columns: factColumns},
	{Title: "asynchronous", Columns: faultColumns},
	{Title: "suspects", Columns: xid.LaunchBeforeColumns},
	{Title: "invalid_frees", Columns: InvalidFreeColumns},
	{Title: "errors", Columns: errorColumns},
	{Title: "no_errors", Columns: nonErrorColumns},
	{Title: "totals", Columns: totalColumns},
}

// HTMLSection is the section of this report in the HTML page.
var HTMLSection = report.HTMLSection{
	Title: "Failed calls",
	About: "CUDA calls that returned an error, and the meaning of the errors.",
	Empty: "No call returned an error.",
}
