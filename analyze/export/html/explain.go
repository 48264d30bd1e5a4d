package html

import (
	"github.com/gpurec/gpurec/analyze/report"
)

// Sections are the values that it writes, as --explain prints them.
var Sections = []report.Section{
	{Title: "peak", Columns: peakColumns},
}
