package gaps

import (
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/format"
)

// Sections are the tables and facts of the report, as --explain prints them.
var Sections = []report.Section{
	{Title: "facts", Columns: factColumns},
	{Title: "processes", Columns: trackColumns},
	{Title: "distribution", Columns: lengthColumns},
	{Title: "gaps", Columns: gapColumns},
	{Title: "totals", Columns: totalColumns},
}

// Page is the section of the HTML page.
var Page = report.Page{
	Title: "Gaps",
	About: "When a process gave the GPU nothing to do, and what it did then.",
	Empty: "Nothing was launched in the window.",
	Kind:  format.KindLaunch,
}

// Needs are the classes of calls without which the report would be wrong or empty.
var Needs = []string{format.RecordLaunch, format.RecordCopy, format.RecordSync}
