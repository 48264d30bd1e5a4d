package cpu

import (
	"github.com/gpurec/gpurec/analyze/report"
)

// Sections are the tables and facts of the report, for --explain.
var Sections = []report.Section{
	{Title: "facts", Columns: factColumns},
	{Title: "threads", Columns: threadColumns},
	{Title: "reasons", Columns: reasonColumns},
	{Title: "waits", Columns: waitColumns},
	{Title: "lines", Columns: lineColumns},
	{Title: "collections", Columns: collectionColumns},
	{Title: "interpreters", Columns: interpreterColumns},
	{Title: "limits", Columns: limitColumns},
	{Title: "input", Columns: inputColumns},
	{Title: "pressure", Columns: pressureColumns},
	{Title: "totals", Columns: totalColumns},
}

// HTMLSection is the section of this report in the HTML page.
var HTMLSection = report.HTMLSection{
	Title: "CPU of launching threads",
	About: "Time of threads that launch work or wait for it: on a processor, in the run queue, and in waits with " +
		"reason and line. The flame graph of this page shows the same times by stack: choose the metrics about " +
		"time of threads.",
	Empty: "The window has no times of threads. gpurec record --host auto records them.",
}
