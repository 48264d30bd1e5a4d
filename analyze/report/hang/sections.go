package hang

import (
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/processes"
	"github.com/gpurec/gpurec/format"
)

// Sections are the tables and facts of the report, as --explain prints them.
var Sections = []report.Section{
	{Title: "facts", Columns: factColumns},
	{Title: "processes", Columns: processColumns},
	{Title: "threads", Columns: threadColumns},
	{Title: "launches", Columns: launchColumns},
	{Title: "long_calls", Columns: longCallColumns},
	{Title: "polling", Columns: pollColumns},
	{Title: "identities", Columns: processes.Columns},
	{Title: "totals", Columns: totalColumns},
}

// Page is the section of the HTML page.
var Page = report.Page{
	Title: "Hangs",
	About: "What processes and threads did at the end.",
	Empty: "No calls in the window.",
}

// Needs are the classes of calls without which the report would be wrong or empty.
var Needs = []string{format.RecordLaunch, format.RecordSync}
