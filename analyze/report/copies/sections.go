package copies

import (
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/format"
)

// Sections are the tables and facts of the report, as --explain prints them.
var Sections = []report.Section{
	{Title: "facts", Columns: factColumns},
	{Title: "bursts", Columns: burstColumns},
	{Title: "copies", Columns: groupColumns},
	{Title: "sites", Columns: siteColumns},
	{Title: "totals", Columns: totalColumns},
}

// Page is the section of the HTML page.
var Page = report.Page{
	Title: "Copies",
	About: "By direction, size and kind of host memory.",
	Empty: "No copies in the window.",
	Kind:  format.KindMemcpy,
}

// Needs are the classes of calls without which the report would be wrong or empty.
var Needs = []string{format.RecordCopy}
