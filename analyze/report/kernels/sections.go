package kernels

import (
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/gputime"
	"github.com/gpurec/gpurec/format"
)

// Sections are the tables and facts of the report, for --explain.
var Sections = []report.Section{
	{Title: "facts", Columns: factColumns},
	{Title: "facts with GPU times", Columns: gputime.FactColumns},
	{Title: "kernels", Columns: kernelColumns},
	{Title: "parts, with --group-by", Columns: partColumns},
	{Title: "tables with GPU times", Columns: gputime.Columns},
	{Title: "lines", Columns: lineColumns},
	{Title: "shapes", Columns: shapeColumns},
	{Title: "streams", Columns: streamColumns},
	{Title: "graphs", Columns: graphColumns},
	{Title: "totals", Columns: totalColumns},
	{Title: "totals with GPU times", Columns: gputime.TotalColumns},
}

// HTMLSection is the section of this report in the HTML page.
var HTMLSection = report.HTMLSection{
	Title: "Kernels",
	About: "Launched kernels, with the number of launches and their call sites.",
	Empty: "No kernel was launched in the window.",
	Kind:  format.KindLaunch,
}

// NeededCallClasses are the classes of calls that the report needs.
var NeededCallClasses = []string{format.RecordLaunch}
