package diff

import (
	"github.com/gpurec/gpurec/analyze/report"
)

// Sections are the tables and facts of the report, for --explain.
var Sections = []report.Section{
	{Title: "facts", Columns: factColumns},
	{Title: "setup", Columns: setupColumns},
	{Title: "names", Columns: derivedKeyColumns},
	{Title: "totals", Columns: totalColumns},
}
