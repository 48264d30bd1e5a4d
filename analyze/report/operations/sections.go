package operations

import (
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/format"
)

// Sections are the tables and facts of the report, for --explain.
var Sections = []report.Section{
	{Title: "facts", Columns: factColumns},
	{Title: "channels", Columns: channelColumns},
	{Title: "streams", Columns: streamColumns},
	{Title: "durations", Columns: durationColumns},
	{Title: "totals", Columns: totalColumns},
}

// NeededCallClasses are the classes of calls that the report needs.
var NeededCallClasses = []string{format.RecordLaunch, format.RecordCopy, format.RecordSync, format.RecordStream}
