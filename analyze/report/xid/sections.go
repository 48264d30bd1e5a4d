package xid

import (
	"github.com/gpurec/gpurec/analyze/report"
)

// Sections are the tables and facts of the report, for --explain.
var Sections = []report.Section{
	{Title: "facts", Columns: factColumns},
	{Title: "xids", Columns: xidColumns},
	{Title: "launches_before", Columns: LaunchBeforeColumns},
	{Title: "totals", Columns: totalColumns},
}

// HTMLSection is the section of this report in the HTML page.
var HTMLSection = report.HTMLSection{
	Title: "Xids",
	About: "Errors that the NVIDIA driver reported (Xids), with the kernel launches before them.",
	Empty: "The NVIDIA driver reported no error in the window. The notes below list times without monitoring.",
}
