package kernels

import (
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/format"
)

// Sections are the tables and facts of the report, as --explain prints them.
var Sections = []report.Section{
	{Title: "facts", Columns: KernelsFacts},
	{Title: "kernels", Columns: KernelsColumns},
	{Title: "shapes", Columns: ShapeColumns},
	{Title: "streams", Columns: KernelStreamColumns},
	{Title: "graphs", Columns: GraphColumns},
	{Title: "totals", Columns: KernelsTotals},
}

// Page is the section of the HTML page.
var Page = report.Page{
	Title: "Kernels",
	About: "Which kernels were launched, how often and from where.",
	Empty: "No kernel was launched in the window.",
	Kind:  format.KindLaunch,
}
