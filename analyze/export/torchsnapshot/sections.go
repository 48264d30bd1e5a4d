package torchsnapshot

import (
	"github.com/gpurec/gpurec/analyze/report"
)

// Sections describe the keys of a snapshot. --explain prints them.
var Sections = []report.Section{
	{Title: "snapshot", Columns: snapshotKeyColumns},
}
