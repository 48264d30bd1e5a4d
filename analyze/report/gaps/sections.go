package gaps

import (
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/format"
)

// Sections are the tables and facts of the report, for --explain.
var Sections = []report.Section{
	{Title: "facts", Columns: factColumns},
	{Title: "processes", Columns: trackColumns},
	{Title: "distribution", Columns: lengthColumns},
	{Title: "gaps", Columns: gapColumns},
	{Title: "totals", Columns: totalColumns},
	{Title: "with rows of class host: host", Columns: hostColumns},
	{Title: "with rows of class host: column of the longest gaps", Columns: []report.Column{gapHostColumn}},
	{Title: "with rows of class host: totals", Columns: hostTotalColumns},
	{Title: "with GPU times: devices", Columns: deviceColumns},
	{Title: "with GPU times: causes", Columns: causeColumns},
	{Title: "with GPU times: idle", Columns: idleColumns},
	{Title: "with GPU times: slices", Columns: sliceColumns},
	{Title: "with GPU times: phases", Columns: phaseColumns},
	{Title: "with GPU times: totals", Columns: gpuTotalColumns},
}

// HTMLSection is the section of this report in the HTML page.
var HTMLSection = report.HTMLSection{
	Title: "Gaps",
	About: "Idle time of the GPU and its causes. Without GPU times: times in which a process launched no work.",
	Empty: "The recording has no launches in the window.",
	Kind:  format.KindLaunch,
}

// NeededCallClasses are the classes of calls that the report needs.
var NeededCallClasses = []string{format.RecordLaunch, format.RecordCopy, format.RecordSync}
