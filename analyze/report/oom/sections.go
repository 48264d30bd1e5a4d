package oom

import (
	"slices"

	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/earlier"
	"github.com/gpurec/gpurec/format"
)

// Sections are the tables and facts of the report, for --explain.
var Sections = []report.Section{
	{Title: "facts", Columns: slices.Concat(factColumns, earlier.FactColumns)},
	{Title: "failures", Columns: failureColumns},
	{Title: "cached", Columns: cachedMemoryColumns},
	{Title: "holders", Columns: holderColumns},
	{Title: "earlier", Columns: earlier.Columns},
	{Title: "totals", Columns: totalColumns},
}

// HTMLSection is the section of this report in the HTML page.
var HTMLSection = report.HTMLSection{
	Title: "Out of memory",
	About: "Each failed allocation, its reason, and the call sites that held the memory.",
	Empty: "No allocation failed.",
}

// NeededCallClasses are the classes of calls that the report needs.
var NeededCallClasses = []string{format.RecordMemory}
