package changes

import "github.com/gpurec/gpurec/analyze/report"

// Sections are the tables and facts of the report, for --explain.
var Sections = []report.Section{
	{Title: "facts", Columns: factColumns},
	{Title: "changes", Columns: changeColumns},
	{Title: "around", Columns: aroundColumns},
	{Title: "drifts", Columns: driftColumns},
	{Title: "outliers", Columns: outlierColumns},
	{Title: "series", Columns: seriesColumns},
	{Title: "totals", Columns: totalColumns},
}

// HTMLSection is the section of this report in the HTML page.
var HTMLSection = report.HTMLSection{
	Title: "Changes",
	About: "Times at which step time, launch rate, memory or samples of GPUs and host moved to another level, and " +
		"what else happened then. All charts mark these times.",
	Empty: "The recording has no series of values in the window.",
}
