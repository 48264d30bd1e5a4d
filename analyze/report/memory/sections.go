package memory

import (
	"slices"

	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/format"
)

// Sections are the tables and facts of the report, as --explain prints them.
var Sections = []report.Section{
	{Title: "facts", Columns: factColumns},
	{Title: "levels", Columns: levelSectionColumns},
	{Title: "holders", Columns: holderColumns},
	{Title: "pools", Columns: PoolColumns},
	{Title: "reconcile", Columns: reconcileColumns},
	{Title: "devices", Columns: deviceColumns},
	{Title: "totals", Columns: slices.Concat(totalColumns, reconcileTotalColumns)},
}

// Page is the section of the HTML page.
var Page = report.Page{
	ID:    "holders",
	Title: "Who has the driver's memory",
	About: "What calls explain of what the driver counts, by library and place, at the end.",
	Empty: "The recording has no calls about the driver's memory.",
}

// Needs are the classes of calls without which the report would be wrong or empty.
var Needs = []string{format.RecordMemory}
