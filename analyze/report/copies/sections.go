package copies

import (
	"slices"

	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/gputime"
	"github.com/gpurec/gpurec/format"
)

// Sections are the tables and facts of the report, for --explain.
var Sections = []report.Section{
	{Title: "facts", Columns: factColumns},
	{Title: "bursts", Columns: burstColumns},
	{Title: "copies", Columns: groupColumns},
	{Title: "sites", Columns: siteColumns},
	{Title: "tables with GPU times", Columns: slices.Concat(gputime.Columns, bandwidthColumns)},
	{Title: "totals", Columns: totalColumns},
	{Title: "totals with GPU times", Columns: slices.Concat(gputime.FactColumns, gputime.TotalColumns)},
}

// HTMLSection is the section of this report in the HTML page.
var HTMLSection = report.HTMLSection{
	Title: "Copies",
	About: "Memory copies by direction, size and kind of host memory.",
	Empty: "The recording has no copies in the window.",
	Kind:  format.KindMemcpy,
}

// NeededCallClasses are the classes of calls that the report needs.
var NeededCallClasses = []string{format.RecordCopy}
