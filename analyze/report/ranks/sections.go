package ranks

import (
	"github.com/gpurec/gpurec/analyze/report"
)

// Sections are the tables and facts of the report, for --explain.
var Sections = []report.Section{
	{Title: "facts", Columns: factColumns},
	{Title: "ranks", Columns: rankColumns},
	{Title: "operations", Columns: operationColumns},
	{Title: "totals", Columns: totalColumns},
}
