package stacks

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// statusColumns are the columns of scan.statusTable.
var statusColumns = []report.Column{
	{
		Key: "status", Title: "STATUS", Unit: report.UnitText,
		About: "status of the stack: complete, inferred, truncated, frame_pointer, parent or none",
	},
	{
		Key: "reason", Title: "WHY", Unit: report.UnitText,
		About: "reason why the stack is truncated, as one word; MEANING has a sentence",
	},
	{Key: "calls", Title: "CALLS", Unit: report.UnitCount, About: "number of calls in the window with this status"},
	{Key: "share_pct", Title: "SHARE%", Unit: report.UnitPercent, About: "share of CALLS in all calls of the window"},
	{Key: "stacks", Title: "STACKS", Unit: report.UnitCount, About: "number of distinct stacks of these calls"},
	{Key: "meaning", Title: "MEANING", Unit: report.UnitText, About: "meaning of the status"},
}

// statusTable returns a table with one row per status and reason.
func (sc *scan) statusTable() report.Table {
	groups := sc.countGroups(func(s stackWithStatus) (stackGroup, bool) {
		return stackGroup{sc.statuses.List[s.status], sc.truncationReason(s)}, true
	})
	table := report.Table{
		Name:      "states",
		Title:     "calls by status of their stack",
		Columns:   slices.Clone(statusColumns),
		Secondary: true,
	}
	if sc.countCallsWithStatus(format.StackTruncated) == 0 {
		report.HideTitle(table.Columns, "reason")
	}
	rank := func(status string) int { // statuses of later versions come last
		if i := slices.Index(StackStatuses, status); i >= 0 {
			return i
		}
		return len(StackStatuses)
	}
	keys := slices.SortedFunc(maps.Keys(groups), func(a, b stackGroup) int {
		return cmp.Or(cmp.Compare(rank(a.first), rank(b.first)), cmp.Compare(groups[b].calls, groups[a].calls),
			strings.Compare(a.first, b.first), strings.Compare(a.second, b.second))
	})
	for _, k := range keys {
		n := groups[k]
		table.Add(report.Values{
			"status":    k.first,
			"reason":    units.TextOrNil(k.second),
			"calls":     n.calls,
			"share_pct": units.Percent(n.calls, sc.all),
			"stacks":    n.stacks,
			"meaning":   statusMeaning(k.first, k.second),
		})
	}
	return table
}

// StackStatuses are the statuses of stacks, in the order of the table.
var StackStatuses = []string{
	format.StackComplete, format.StackInferred, format.StackTruncated,
	format.StackFramePointer, format.StackParent, format.StackRationed, format.StackNone,
}

// statusMeaning explains a status of stacks, and the reason of a truncated one.
func statusMeaning(status, reason string) string {
	switch status {
	case format.StackComplete:
		return "stack unwound to the start of the thread"
	case format.StackInferred:
		return "stack taken from an earlier call with the same fingerprint, not unwound again"
	case format.StackFramePointer:
		return "stack walked by frame pointers: frames may be missing"
	case format.StackParent:
		return "nested call, which has the stack of the outer call"
	case format.StackRationed:
		return "stack not unwound, to keep the overhead below --max-overhead"
	case format.StackNone:
		return "no stack was recorded"
	case format.StackTruncated:
	default:
		return ""
	}
	switch reason {
	case format.TruncationDepth:
		return "stack with more frames than the Linux kernel may walk"
	case format.TruncationMapping:
		return "stack with a frame in a library that the unwinder did not know yet"
	case format.TruncationCode:
		return "stack with a frame in machine code without unwind information, such as a JIT's"
	case format.TruncationPython:
		return "stack with a Python frame that could not be read"
	case format.TruncationProbe:
		return "stack with a return probe of another tool, which stops the unwinder"
	}
	return "stack truncated for another reason"
}
