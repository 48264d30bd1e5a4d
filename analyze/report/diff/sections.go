package diff

import (
	"github.com/gpurec/gpurec/analyze/report"
)

// Sections are the tables and facts of the report, as --explain prints them.
var Sections = []report.Section{
	{Title: "facts", Columns: DiffFacts},
	{Title: "setup", Columns: SetupColumns},
	{Title: "names", Columns: DiffNames},
	{Title: "totals", Columns: DiffTotals},
}
