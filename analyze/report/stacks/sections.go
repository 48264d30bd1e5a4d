package stacks

import (
	"github.com/gpurec/gpurec/analyze/report"
)

// Sections are the tables and facts of the report, for --explain.
var Sections = []report.Section{
	{Title: "facts", Columns: factColumns},
	{Title: "states", Columns: statusColumns},
	{Title: "inference", Columns: inferenceColumns},
	{Title: "truncated_in", Columns: truncationColumns},
	{Title: "stacks", Columns: stackColumns},
	{Title: "totals", Columns: totalColumns},
}
