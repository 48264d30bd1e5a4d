package stacks

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/model/facts"
	"github.com/gpurec/gpurec/analyze/model/sampling"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/frames"
	"github.com/gpurec/gpurec/analyze/report/processes"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// factColumns are the facts of the report.
var factColumns = []report.Column{
	{
		Key: "inference", Title: "inferred stacks", Unit: report.UnitText,
		About: "error rate of inferred stacks. An inferred stack is taken from an earlier call with the same " +
			"fingerprint. The recorder unwinds a sample of these calls to measure the errors",
	},
}

// totalColumns are the totals of the report.
var totalColumns = []report.Column{
	{Key: "calls", Title: "calls", Unit: report.UnitCount, About: "calls that began in the window"},
	{
		Key: "stacks", Title: "distinct stacks", Unit: report.UnitCount,
		About: "number of distinct stacks of these calls",
	},
	{
		Key: "complete_calls", Title: "complete", Unit: report.UnitCount,
		About: "calls whose stack was unwound to the start of the thread",
	},
	{
		Key: "inferred_calls", Title: "inferred", Unit: report.UnitCount,
		About: "calls whose stack was taken from an earlier call with the same fingerprint",
	},
	{Key: "truncated_calls", Title: "truncated", Unit: report.UnitCount, About: "calls whose stack ends too early"},
	{
		Key: "frame_pointer_calls", Title: "by frame pointers", Unit: report.UnitCount,
		About: "calls whose stack was walked by frame pointers",
	},
	{
		Key: "parent_calls", Title: "nested", Unit: report.UnitCount,
		About: "nested calls, which have the stack of the outer call",
	},
	{Key: "none_calls", Title: "without stack", Unit: report.UnitCount, About: "calls without a stack"},
}

// computeTotals returns the totals of the report.
func (sc *scan) computeTotals() []report.Fact {
	distinct := make(map[int32]bool)
	for state := range sc.counts {
		if state.stack != 0 {
			distinct[state.stack] = true
		}
	}
	facts := report.NewFacts(totalColumns, report.Values{
		"calls":               sc.all,
		"stacks":              int64(len(distinct)),
		"complete_calls":      sc.countCallsWithStatus(format.StackComplete),
		"inferred_calls":      sc.countCallsWithStatus(format.StackInferred),
		"truncated_calls":     sc.countCallsWithStatus(format.StackTruncated),
		"frame_pointer_calls": sc.countCallsWithStatus(format.StackFramePointer),
		"parent_calls":        sc.countCallsWithStatus(format.StackParent),
		"none_calls":          sc.countCallsWithStatus(format.StackNone),
	})
	if n := sc.countCallsWithStatus(format.StackRationed); n > 0 {
		facts = append(facts, report.Fact{Column: rationedColumn, Value: n})
	}
	return facts
}

// rationedColumn exists only for recordings in which unwinding was rationed.
var rationedColumn = report.Column{
	Key: "rationed_calls", Title: "rationed", Unit: report.UnitCount,
	About: "calls without a stack because unwinding would have exceeded --max-overhead",
}

// stackColumns are the columns of scan.stackTable.
var stackColumns = []report.Column{
	{
		Key: "calls", Title: "CALLS", Unit: report.UnitCount,
		About: "number of calls from this stack that began in the window, including nested calls",
	},
	{
		Key: "share_pct", Title: "SHARE%", Unit: report.UnitPercent,
		About: "share of CALLS in all calls of the window, with and without a stack",
	},
	{
		Key: "status", Title: "STATUS", Unit: report.UnitText,
		About: "status of the stack. Complete: unwound to the start of the thread. Truncated: it ends too early, see " +
			"WHY. Status frame_pointer: walked by frame pointers, frames may be missing",
	},
	{
		Key: "reason", Title: "WHY", Unit: report.UnitText,
		About: "reason why the stack is truncated. Depth: more frames than the kernel can walk. Mapping: a library " +
			"that the unwinder had not loaded yet. Code: machine code without unwind information, such as JIT code. " +
			"Python: an unreadable Python frame. Probe: another tool's return probe. Other: any other reason",
	},
	{
		Key: "inferred_calls", Title: "INFERRED", Unit: report.UnitCount,
		About: "part of CALLS that was not unwound: these calls have the same fingerprint as an earlier call from " +
			"this stack",
	},
	{
		Key: "nested_calls", Title: "", Unit: report.UnitCount,
		About: "part of CALLS inside another call: the stack is that of the outer call",
	},
	{
		Key: "depth", Title: "FRAMES", Unit: report.UnitCount,
		About: "number of frames of the stack, including hidden ones; absent if the recording lacks the stack",
	},
	{Key: "pid", Title: "PID", Unit: report.UnitID, About: "process id"},
	{Key: "stack_id", Title: "", Unit: report.UnitID, About: "id of the stack in the recording, column stack_id"},
	{
		Key: "call", Title: "CALL", Unit: report.UnitText,
		About: "innermost frame of the stack: the CUDA driver function",
	},
	{
		Key: "site", Title: "SITE", Unit: report.UnitText,
		About: "call site: the frame of the program's own code that made the call",
	},
}

// stackTable returns a table with one row per stack, with its frames.
func (sc *scan) stackTable(opt *query.Options) (report.Table, error) {
	counts := sc.countStacks()
	table := report.Table{
		Name: "stacks", Title: "stacks by calls", Columns: slices.Clone(stackColumns),
		HideFirst: []string{"pid", "depth", "inferred_calls"},
	}
	var inferred, truncated bool
	for _, id := range slices.Sorted(maps.Keys(counts)) {
		sc.addStackRow(&table, id, counts[id])
		inferred = inferred || counts[id].inferred > 0
		truncated = truncated || sc.T.Stacks.About[id].Reason != ""
	}
	if !inferred {
		report.HideTitle(table.Columns, "inferred_calls")
	}
	if !truncated {
		report.HideTitle(table.Columns, "reason")
	}
	table.Sort("calls")
	processes.AddRankColumn(sc.T, &table)
	if err := table.SortAndCut(opt.Sort, opt.Top); err != nil {
		return table, err
	}
	frames.FillRowStacks(sc.T, &table, opt)
	return table, nil
}

// addStackRow adds the row of stack id.
func (sc *scan) addStackRow(table *report.Table, id int32, c *stackCount) {
	values := report.Values{
		"calls":          c.calls,
		"share_pct":      units.Percent(c.calls, sc.all),
		"status":         nil,
		"reason":         nil,
		"inferred_calls": c.inferred,
		"nested_calls":   c.nested,
		"depth":          nil,
		"pid":            nil,
		"stack_id":       int64(id),
		"call":           nil,
		"site":           timeline.NoStackSite,
	}
	evidence := ""
	if about, found := sc.T.Stacks.About[id]; found {
		values["status"], values["reason"] = about.Status, units.TextOrNil(about.Reason)
		frameIDs := sc.T.Stacks.Stacks[id]
		values["depth"], values["pid"] = int64(len(frameIDs)), int64(about.Pid)
		if len(frameIDs) > 0 {
			values["call"] = query.FrameName(&sc.T.Stacks.Frames[frameIDs[0]])
		}
		values["site"] = sc.T.SiteOfStack(id)
		if about.Reason != "" {
			evidence = "truncated: " + statusMeaning(format.StackTruncated, about.Reason)
		}
	}
	row := table.Add(values)
	row.StackID, row.Evidence = id, evidence
}

// truncationColumns are the columns of scan.truncationTable.
var truncationColumns = []report.Column{
	{
		Key: "calls", Title: "CALLS", Unit: report.UnitCount,
		About: "number of calls in the window whose stack ends in this module",
	},
	{
		Key: "share_pct", Title: "SHARE%", Unit: report.UnitPercent,
		About: "share of CALLS in all calls with a truncated stack",
	},
	{Key: "stacks", Title: "STACKS", Unit: report.UnitCount, About: "number of distinct stacks of these calls"},
	{Key: "reason", Title: "WHY", Unit: report.UnitText, About: "reason why the stacks are truncated"},
	{
		Key: "module", Title: "LAST MODULE", Unit: report.UnitText,
		About: "module, or else Python file, of the outermost frame that has one",
	},
}

// maxTruncationRows is the maximum number of rows of scan.truncationTable.
const maxTruncationRows = 5

// truncationTable returns a table with one row per module and reason of truncated stacks.
func (sc *scan) truncationTable() report.Table {
	groups := sc.countGroups(func(s stackWithStatus) (stackGroup, bool) {
		reason := sc.truncationReason(s)
		return stackGroup{outermostModule(&sc.T.Stacks, s.stack), reason}, reason != ""
	})
	table := report.Table{
		Name: "truncated_in", Title: "where truncated stacks end", Columns: truncationColumns, Secondary: true,
	}
	keys := slices.SortedFunc(maps.Keys(groups), func(a, b stackGroup) int {
		return cmp.Or(
			cmp.Compare(groups[b].calls, groups[a].calls),
			strings.Compare(a.first, b.first),
			strings.Compare(a.second, b.second),
		)
	})
	for i, k := range keys {
		if i == maxTruncationRows {
			table.OmittedRows = len(keys) - maxTruncationRows
			break
		}
		n := groups[k]
		table.Add(report.Values{
			"calls":     n.calls,
			"share_pct": units.Percent(n.calls, sc.countCallsWithStatus(format.StackTruncated)),
			"stacks":    n.stacks,
			"reason":    k.second,
			"module":    k.first,
		})
	}
	return table
}

// inferenceColumns are the columns of inferenceTable.
var inferenceColumns = []report.Column{
	{Key: "class", Title: "CLASS", Unit: report.UnitText, About: "class of calls"},
	{
		Key: "inferred", Title: "INFERRED", Unit: report.UnitCount,
		About: "calls of the whole recording whose stack was taken from an earlier call with the same fingerprint",
	},
	{
		Key: "checked", Title: "CHECKED", Unit: report.UnitCount,
		About: "randomly chosen calls that were unwound to check the stack that would have been inferred",
	},
	{
		Key: "wrong", Title: "WRONG", Unit: report.UnitCount,
		About: "part of CHECKED whose real stack differs from the stack that would have been inferred",
	},
	{
		Key: "wrong_estimated", Title: "EST. WRONG", Unit: report.UnitCount,
		About: "estimated part of INFERRED with a wrong stack. Each wrong check is weighted by its checking rate, " +
			"because new fingerprints are checked more often than old ones",
	},
	{
		Key: "error_pct", Title: "ERROR%", Unit: report.UnitPercent,
		About: "EST. WRONG / INFERRED; absent if no call was checked",
	},
	{
		Key: "busy", Title: "BUSY", Unit: report.UnitCount,
		About: "calls whose stack was walked by frame pointers, because the unwinder of the CPU was in use",
	},
	{
		Key: "key", Title: "KEY", Unit: report.UnitText,
		About: "fingerprint: the values that two calls must share so that one gets the other's stack",
	},
}

// inferenceTable returns a table with one row per class of calls with inferred stacks.
func inferenceTable(f *facts.Facts) report.Table {
	table := report.Table{
		Name:      "inference",
		Title:     "inferred stacks, and checks of them",
		Columns:   slices.Clone(inferenceColumns),
		Secondary: true,
	}
	if sum := f.SumStackInferences(); sum.Busy == 0 {
		report.HideTitle(table.Columns, "busy")
	}
	for _, i := range f.Inferences {
		table.Add(report.Values{
			"class":           i.Class,
			"inferred":        i.Inferred,
			"checked":         i.Checked,
			"wrong":           i.Wrong,
			"wrong_estimated": i.WrongEstimated,
			"error_pct":       sampling.InferenceErrorPct(&i),
			"busy":            i.Busy,
			"key":             i.Key,
		})
	}
	return table
}
