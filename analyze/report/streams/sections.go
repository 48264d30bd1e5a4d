package streams

import (
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/format"
)

// Sections are the tables and facts of the report, as --explain prints them.
var Sections = []report.Section{
	{Title: "facts", Columns: factColumns},
	{Title: "streams", Columns: columns},
	{Title: "totals", Columns: totalColumns},
}

// Page is the section of the HTML page.
var Page = report.Page{
	Title: "Streams",
	About: "What each stream was given to do, and what keeps work from overlapping.",
	Empty: "No stream was given work in the window.",
}

// Needs are the classes of calls without which the report would be wrong or empty.
var Needs = []string{format.RecordLaunch, format.RecordCopy, format.RecordSync}
