package hang

import (
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/processes"
)

// Sections are the tables and facts of the report, as --explain prints them.
var Sections = []report.Section{
	{Title: "facts", Columns: HangFacts},
	{Title: "processes", Columns: HangProcessColumns},
	{Title: "threads", Columns: HangThreadColumns},
	{Title: "launches", Columns: LastLaunchColumns},
	{Title: "long_calls", Columns: LongCallColumns},
	{Title: "polling", Columns: PollColumns},
	{Title: "identities", Columns: processes.Columns},
	{Title: "totals", Columns: HangTotals},
}

// Page is the section of the HTML page.
var Page = report.Page{
	Title: "Hangs",
	About: "What processes and threads did at the end.",
	Empty: "No calls in the window.",
}
