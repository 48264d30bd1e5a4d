package hang

import (
	"slices"

	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/processes"
	"github.com/gpurec/gpurec/format"
)

// Sections are the tables and facts of the report, for --explain.
var Sections = []report.Section{
	{Title: "facts", Columns: slices.Concat(rankFactColumns, []report.Column{censusColumn}, factColumns)},
	{Title: "ranks", Columns: rankColumns},
	{Title: "calls", Columns: sideColumns},
	{Title: "processes", Columns: processColumns},
	{Title: "stacks", Columns: stackColumns},
	{Title: "gpu_operations", Columns: operationColumns},
	{Title: "threads", Columns: threadColumns},
	{Title: "launches", Columns: launchColumns},
	{Title: "long_calls", Columns: longCallColumns},
	{Title: "polling", Columns: pollColumns},
	{Title: "identities", Columns: processes.ProcessColumns},
	{Title: "totals", Columns: slices.Concat(totalColumns, rankTotalColumns)},
}

// HTMLSection is the section of this report in the HTML page.
var HTMLSection = report.HTMLSection{
	Title: "Hangs",
	About: "State of processes and threads at the end of the recording, and the calls in which they hang.",
	Empty: "The recording has no calls in the window.",
}

// NeededCallClasses are the classes of calls that the report needs.
var NeededCallClasses = []string{format.RecordLaunch, format.RecordSync}
