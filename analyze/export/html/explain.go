package html

import (
	"github.com/gpurec/gpurec/analyze/report"
)

// Sections describe the table of the page that no other report has. --explain prints them.
var Sections = []report.Section{
	{Title: "peak", Columns: memoryPeakColumns},
}
