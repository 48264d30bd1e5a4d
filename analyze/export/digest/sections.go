package digest

import (
	"slices"

	"github.com/gpurec/gpurec/analyze/report"
)

// Sections describe the values that no other report has. --explain prints them.
var Sections = []report.Section{{Title: "digest", Columns: ownColumns}}

// Keys of lines about the coverage.
const (
	keyShare   = "recorded_share_pct" // share of the calls that were recorded
	keyRules   = "rules_known"        // number of rules of this gpurec
	keyChecked = "rules_checked"      // number of rules that the recording allows to check
)

// ownColumns are the values that come from the recording, not from another report.
var ownColumns = []report.Column{
	{Key: "recorded_processes", Unit: report.UnitCount, About: "number of recorded processes"},
	{Key: "processes", About: "process id and name of the first processes"},
	{Key: "programs", About: "executable files of the processes"},
	{Key: "recorded_ranks", Unit: report.UnitCount, About: "number of recorded ranks of the job"},
	{Key: "ranks_of_job", Unit: report.UnitCount, About: "number of ranks of the job; 0: unknown"},
	{Key: "job", About: "name of the job"},
	{Key: "devices", About: "index and name of each GPU of the machine"},
	{Key: "pytorch", About: "versions of PyTorch in the processes"},
	{
		Key: keyShare, Unit: report.UnitPercent,
		About: "share of calls that were recorded: events / (events + lost_events). With a loss it is at most 99.9",
	},
	{
		Key: "window_from_ns", Unit: report.UnitNs,
		About: "start of the window, from the start of the recording; absent if both are the same",
	},
	{Key: "host_rows", About: "value of record --host, or: not recorded"},
	{
		Key:   keyRules,
		Unit:  report.UnitCount,
		About: "number of rules; rules_checked is the number that this recording allows",
	},
}

// own returns a value that comes from the recording. It panics for a key that is not in ownColumns.
func own(key string, value any) Value {
	i := slices.IndexFunc(ownColumns, func(c report.Column) bool { return c.Key == key })
	return Value{Key: key, Unit: ownColumns[i].Unit, Value: value}
}
