package memory

import (
	"slices"

	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/earlier"
	"github.com/gpurec/gpurec/format"
)

// Sections are the tables and facts of the report, for --explain.
var Sections = []report.Section{
	{Title: "facts", Columns: slices.Concat(factColumns, earlier.FactColumns)},
	{Title: "levels", Columns: levelSectionColumns},
	{Title: "holders", Columns: holderColumns},
	{Title: "pools", Columns: PoolColumns},
	{Title: "reconcile", Columns: reconcileColumns},
	{Title: "devices", Columns: deviceColumns},
	{Title: "earlier", Columns: earlier.Columns},
	{Title: "totals", Columns: slices.Concat(totalColumns, reconcileTotalColumns)},
}

// HTMLSection is the section of this report in the HTML page.
var HTMLSection = report.HTMLSection{
	ID:    "holders",
	Title: "Who has the driver's memory",
	About: "Memory of each process by NVML, and the libraries and call sites that hold it at the end.",
	Empty: "The recording has no calls that allocate driver memory.",
}

// NeededCallClasses are the classes of calls that the report needs.
var NeededCallClasses = []string{format.RecordMemory}
