package kernels

import (
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/format"
)

// Sections are the tables and facts of the report, as --explain prints them.
var Sections = []report.Section{
	{Title: "facts", Columns: factColumns},
	{Title: "kernels", Columns: kernelColumns},
	{Title: "shapes", Columns: shapeColumns},
	{Title: "streams", Columns: streamColumns},
	{Title: "graphs", Columns: graphColumns},
	{Title: "totals", Columns: totalColumns},
}

// Page is the section of the HTML page.
var Page = report.Page{
	Title: "Kernels",
	About: "Which kernels were launched, how often and from where.",
	Empty: "No kernel was launched in the window.",
	Kind:  format.KindLaunch,
}

// Needs are the classes of calls without which the report would be wrong or empty.
var Needs = []string{format.RecordLaunch}
