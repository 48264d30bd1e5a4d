package waits

import (
	"slices"

	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/format"
)

// Sections are the tables and facts of the report, for --explain.
var Sections = []report.Section{
	{Title: "facts", Columns: factColumns},
	{Title: "sync", Columns: waitColumns},
	{Title: "threads", Columns: threadColumns},
	{Title: "longest", Columns: longestWaitColumns},
	{Title: "tables with GPU times", Columns: gpuColumns},
	{Title: "totals", Columns: totalColumns},
	{Title: "totals with GPU times", Columns: slices.Concat(gpuFactColumns, gpuTotalColumns)},
}

// HTMLSection is the section of this report in the HTML page.
var HTMLSection = report.HTMLSection{
	Title: "Waiting",
	About: "CUDA calls in which threads waited for the GPU.",
	Empty: "No thread waited for the GPU in the window.",
	Kind:  format.KindSync,
}

// NeededCallClasses are the classes of calls that the report needs.
var NeededCallClasses = []string{format.RecordSync}
