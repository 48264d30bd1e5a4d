package xid

import (
	"github.com/gpurec/gpurec/analyze/report"
)

// Sections are the tables and facts of the report, as --explain prints them.
var Sections = []report.Section{
	{Title: "facts", Columns: factColumns},
	{Title: "xids", Columns: columns},
	{Title: "launches_before", Columns: LaunchColumns},
	{Title: "totals", Columns: totalColumns},
}

// Page is the section of the HTML page.
var Page = report.Page{
	Title: "Xids",
	About: "Errors that the GPU's driver wrote down.",
	Empty: "The driver reported no error in the window, as far as it was watched: see the notes below.",
}
