package perfetto

import (
	"github.com/gpurec/gpurec/analyze/report"
)

// Sections describe the tracks of a trace. --explain prints them.
var Sections = []report.Section{
	{Title: "tracks", Columns: traceTrackColumns},
}
