package pprof

import (
	"github.com/gpurec/gpurec/analyze/report"
)

// Sections describe the sample types of all profiles. --explain prints them.
var Sections = []report.Section{
	{Title: "samples", Columns: listSampleTypeColumns()},
}
