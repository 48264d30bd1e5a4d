package pointers

import (
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/cudaerrors"
	"github.com/gpurec/gpurec/format"
)

// Sections are the tables and facts of the report, for --explain.
var Sections = []report.Section{
	{Title: "facts", Columns: factColumns},
	{Title: "faults", Columns: faultColumns},
	{Title: "arguments", Columns: argumentColumns},
	{Title: "launches", Columns: launchColumns},
	{Title: "invalid_frees", Columns: cudaerrors.InvalidFreeColumns},
	{Title: "totals", Columns: totalColumns},
}

// NeededCallClasses are the classes of calls without which the report has no meaning.
var NeededCallClasses = []string{format.RecordMemory}

// HTMLSection is the section of this report in the HTML page.
var HTMLSection = report.HTMLSection{
	Title: "Wrong pointers",
	About: "Frees of wrong pointers, and arguments of kernels that point into freed memory before the GPU failed.",
	Empty: "No free failed because of its pointer, and no work of the GPU failed.",
}
