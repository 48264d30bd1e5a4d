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
	framespkg "github.com/gpurec/gpurec/analyze/report/frames"
	"github.com/gpurec/gpurec/analyze/report/processes"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

var factColumns = []report.Column{
	{
		Key: "inference", Title: "inferred stacks", Unit: report.UnitText,
		About: "how often the recorder was wrong when it took the stack of an equal-looking call, measured by " +
			"unwinding a share of these calls nevertheless",
	},
}

var totalColumns = []report.Column{
	{Key: "calls", Title: "calls", Unit: report.UnitCount, About: "calls that began in the window"},
	{Key: "stacks", Title: "distinct stacks", Unit: report.UnitCount, About: "different stacks of these"},
	{
		Key: "complete_calls", Title: "complete", Unit: report.UnitCount,
		About: "calls whose stack was unwound to the thread's start",
	},
	{
		Key: "inferred_calls", Title: "inferred", Unit: report.UnitCount,
		About: "calls with the stack of an equal-looking call",
	},
	{Key: "truncated_calls", Title: "truncated", Unit: report.UnitCount, About: "calls whose stack ends too early"},
	{
		Key: "frame_pointer_calls", Title: "by frame pointers", Unit: report.UnitCount,
		About: "calls whose stack was walked by frame pointers",
	},
	{
		Key: "parent_calls", Title: "nested", Unit: report.UnitCount,
		About: "calls inside of other calls, which have the stack of those",
	},
	{Key: "none_calls", Title: "without stack", Unit: report.UnitCount, About: "calls without a stack"},
}

func (sc *scan) totals() []report.Fact {
	distinct := make(map[int32]bool)
	for state := range sc.counts {
		if state.stack != 0 {
			distinct[state.stack] = true
		}
	}
	return report.Facts(totalColumns, report.Values{
		"calls":               sc.all,
		"stacks":              int64(len(distinct)),
		"complete_calls":      sc.with(format.StackComplete),
		"inferred_calls":      sc.with(format.StackInferred),
		"truncated_calls":     sc.with(format.StackTruncated),
		"frame_pointer_calls": sc.with(format.StackFramePointer),
		"parent_calls":        sc.with(format.StackParent),
		"none_calls":          sc.with(format.StackNone),
	})
}

var stackColumns = []report.Column{
	{
		Key: "calls", Title: "CALLS", Unit: report.UnitCount,
		About: "calls from this stack that began in the window, nested ones included",
	},
	{
		Key: "share_pct", Title: "SHARE%", Unit: report.UnitPercent,
		About: "share of CALLS in all calls of the window, also of those without stack",
	},
	{
		Key: "status", Title: "STATUS", Unit: report.UnitText,
		About: "complete: unwound to the thread's start; truncated: it ends too early, see WHY; frame_pointer: " +
			"walked by frame pointers, frames may be missing",
	},
	{
		Key: "reason", Title: "WHY", Unit: report.UnitText,
		About: "why a stack is truncated: depth, more frames than the kernel may walk; mapping, a library that the " +
			"unwinder did not know yet; code, machine code without unwind information, such as a JIT's; python, a " +
			"Python frame that could not be read; probe, another tool's return probe; other",
	},
	{
		Key: "inferred_calls", Title: "INFERRED", Unit: report.UnitCount,
		About: "of CALLS, those not unwound themselves: they looked like another call from this stack",
	},
	{
		Key: "nested_calls", Title: "", Unit: report.UnitCount,
		About: "of CALLS, those inside of another call: the stack is that of the outer one",
	},
	{
		Key: "depth", Title: "FRAMES", Unit: report.UnitCount,
		About: "frames of the stack, also those not shown; absent if the stack is not in the recording",
	},
	{Key: "pid", Title: "PID", Unit: report.UnitID, About: "process"},
	{Key: "stack_id", Title: "", Unit: report.UnitID, About: "number of the stack in the recording, column stack_id"},
	{
		Key: "call", Title: "CALL", Unit: report.UnitText,
		About: "the stack's innermost frame: the function of the CUDA driver",
	},
	{
		Key: "site", Title: "SITE", Unit: report.UnitText,
		About: "the frame of the program's own code that made the call",
	},
}

// table has a row per stack, with the frames to show.
func (sc *scan) table(opt *query.Options) (report.Table, error) {
	counts := sc.countStacks()
	table := report.Table{
		Name: "stacks", Title: "stacks by calls", Columns: slices.Clone(stackColumns),
		HideFirst: []string{"pid", "depth", "inferred_calls"},
	}
	var inferred, truncated bool
	for _, id := range slices.Sorted(maps.Keys(counts)) {
		sc.addRow(&table, id, counts[id])
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
	processes.AddRanks(sc.T, &table)
	if err := table.Arrange(opt.Sort, opt.Top); err != nil {
		return table, err
	}
	framespkg.Fill(sc.T, &table, opt)
	return table, nil
}

func (sc *scan) addRow(table *report.Table, id int32, c *stackCount) {
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
		"site":           timeline.NoStack,
	}
	evidence := ""
	if about, found := sc.T.Stacks.About[id]; found {
		values["status"], values["reason"] = about.Status, units.Known(about.Reason)
		frames := sc.T.Stacks.Stacks[id]
		values["depth"], values["pid"] = int64(len(frames)), int64(about.Pid)
		if len(frames) > 0 {
			values["call"] = query.FrameName(&sc.T.Stacks.Frames[frames[0]])
		}
		values["site"] = sc.T.SiteOf(id)
		if about.Reason != "" {
			evidence = "truncated: " + stateMeaning(format.StackTruncated, about.Reason)
		}
	}
	row := table.Add(values)
	row.StackID, row.Evidence = id, evidence
}

var endColumns = []report.Column{
	{Key: "calls", Title: "CALLS", Unit: report.UnitCount, About: "calls in the window whose stack is truncated there"},
	{
		Key: "share_pct", Title: "SHARE%", Unit: report.UnitPercent,
		About: "share of CALLS in all calls with a truncated stack",
	},
	{Key: "stacks", Title: "STACKS", Unit: report.UnitCount, About: "distinct stacks of these calls"},
	{Key: "reason", Title: "WHY", Unit: report.UnitText, About: "why they are truncated"},
	{
		Key: "module", Title: "LAST MODULE", Unit: report.UnitText,
		About: "module, or Python file, of the outermost frame that lies in one",
	},
}

// endRows bounds the rows of the modules that truncated stacks end in.
const endRows = 5

// endTable has a row per module that truncated stacks end in.
func (sc *scan) endTable() report.Table {
	groups := sc.grouped(func(s stackState) (stackGroup, bool) {
		reason := sc.reason(s)
		return stackGroup{endsIn(&sc.T.Stacks, s.stack), reason}, reason != ""
	})
	table := report.Table{Name: "truncated_in", Title: "where truncated stacks end", Columns: endColumns, Secondary: true}
	keys := slices.SortedFunc(maps.Keys(groups), func(a, b stackGroup) int {
		return cmp.Or(
			cmp.Compare(groups[b].calls, groups[a].calls),
			strings.Compare(a.first, b.first),
			strings.Compare(a.second, b.second),
		)
	})
	for i, k := range keys {
		if i == endRows {
			table.OmittedRows = len(keys) - endRows
			break
		}
		n := groups[k]
		table.Add(report.Values{
			"calls":     n.calls,
			"share_pct": units.Percent(n.calls, sc.with(format.StackTruncated)),
			"stacks":    n.stacks,
			"reason":    k.second,
			"module":    k.first,
		})
	}
	return table
}

var inferenceColumns = []report.Column{
	{Key: "class", Title: "CLASS", Unit: report.UnitText, About: "class of calls"},
	{
		Key: "inferred", Title: "INFERRED", Unit: report.UnitCount,
		About: "calls of the whole recording with the stack of an equal-looking call",
	},
	{
		Key: "checked", Title: "CHECKED", Unit: report.UnitCount,
		About: "calls that could have had one, were chosen at random and unwound instead to check it",
	},
	{
		Key: "wrong", Title: "WRONG", Unit: report.UnitCount,
		About: "of CHECKED, calls that came from another stack than the one assumed",
	},
	{
		Key: "wrong_estimated", Title: "EST. WRONG", Unit: report.UnitCount,
		About: "of INFERRED, calls with another call's stack: every one of WRONG counts for as many as one was " +
			"checked of, new fingerprints being checked more often than old ones",
	},
	{
		Key: "error_pct", Title: "ERROR%", Unit: report.UnitPercent,
		About: "EST. WRONG / INFERRED; absent if nothing was checked",
	},
	{
		Key: "busy", Title: "BUSY", Unit: report.UnitCount,
		About: "calls that found the processor's unwinder in use and have a stack by frame pointers",
	},
	{
		Key: "key", Title: "KEY", Unit: report.UnitText,
		About: "what calls must have in common for one's stack to be taken for the other's",
	},
}

// inferenceTable has a row per class of calls whose stacks can be inferred.
func inferenceTable(f *facts.Facts) report.Table {
	table := report.Table{
		Name:      "inference",
		Title:     "inferred stacks, and those that were unwound to check them",
		Columns:   slices.Clone(inferenceColumns),
		Secondary: true,
	}
	if sum := f.Inferred(); sum.Busy == 0 {
		report.HideTitle(table.Columns, "busy")
	}
	for _, i := range f.Inferences {
		table.Add(report.Values{
			"class":           i.Class,
			"inferred":        i.Inferred,
			"checked":         i.Checked,
			"wrong":           i.Wrong,
			"wrong_estimated": i.WrongEstimated,
			"error_pct":       sampling.ErrorPct(&i),
			"busy":            i.Busy,
			"key":             i.Key,
		})
	}
	return table
}
