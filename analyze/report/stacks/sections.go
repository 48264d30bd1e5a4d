package stacks

import (
	"github.com/gpurec/gpurec/analyze/report"
)

// Sections are the tables and facts of the report, as --explain prints them.
var Sections = []report.Section{
	{Title: "facts", Columns: StackFacts},
	{Title: "states", Columns: StateColumns},
	{Title: "inference", Columns: InferenceColumns},
	{Title: "truncated_in", Columns: EndColumns},
	{Title: "stacks", Columns: StackColumns},
	{Title: "totals", Columns: StackTotals},
}
