package objects

import (
	"slices"

	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/group"
)

// Sections are the tables and facts of the report, for --explain.
var Sections = []report.Section{
	{Title: "facts", Columns: factColumns},
	{Title: "sites", Columns: slices.Concat(siteColumns, []report.Column{floorColumn})},
	{Title: "kinds", Columns: kindColumns},
	{Title: "totals", Columns: totalColumns},
	{Title: "suppressions_used", Columns: group.SuppressionColumns},
}

// HTMLSection is the section of this report in the HTML page.
var HTMLSection = report.HTMLSection{
	Title: "Driver objects",
	About: "Events, streams, graphs, modules and other objects that each call site created and did not destroy.",
	Empty: "The recording has no calls that create objects of the driver.",
}
