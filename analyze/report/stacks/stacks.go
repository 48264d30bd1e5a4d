package stacks

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	callspkg "github.com/gpurec/gpurec/analyze/model/calls"
	"github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/model/sampling"
	stackpkg "github.com/gpurec/gpurec/analyze/model/stack"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	framespkg "github.com/gpurec/gpurec/analyze/report/frames"
	"github.com/gpurec/gpurec/analyze/report/processes"
	"github.com/gpurec/gpurec/analyze/report/quality"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// scan counts calls by the stack they came from and by what is known of it. It
// holds a number per distinct stack and status, however many calls there are.
type scan struct {
	*callspkg.Counter
	counts   map[stackState]int64
	all      int64 // calls counted
	statuses origin.Names

	stack  []int32
	status format.Strings
}

// stackState is a stack and what a call says of it; status indexes scan.statuses.
type stackState struct{ stack, status int32 }

// Run reports which stacks calls came from, how often, and how well they are known.
// It returns a *SortError for a column that there is not.
func Run(t *timeline.Timeline, opt query.Options) (*report.Report, error) {
	t = t.View()
	counts, err := callspkg.CountsWhile(t, func() error { return nil }) // for the quality block
	if err != nil {
		return nil, err
	}
	sc := &scan{Counter: callspkg.NewCounter(t, &opt.Filter), counts: make(map[stackState]int64)}
	if err := sc.read(); err != nil {
		return nil, err
	}
	r := &report.Report{Command: "stacks", Window: sc.Window, Quality: quality.OfRecording(t, counts), Notes: t.Facts.Notes}
	if sc.all == 0 && t.Scan.Events > 0 {
		r.NoMatch = sc.Seen.Explain(&opt.Filter)
	}
	table, err := sc.table(&opt)
	if err != nil {
		return nil, err
	}
	r.Totals = sc.totals()
	sum := t.Facts.Inferred()
	r.Facts = report.Fill(factColumns, sampling.InferenceText(&sum, sc.with(format.StackInferred) > 0))
	r.Tables = []report.Table{sc.stateTable(), inferenceTable(&t.Facts), sc.endTable(), table}
	return r, nil
}

// scan reads all calls, of memory and others.
func (sc *scan) read() error {
	for _, spans := range [][]timeline.Span{sc.T.Memory, sc.T.Calls} {
		for _, s := range spans {
			sc.addGroup(s.Group)
			if err := s.Group.Err(); err != nil {
				return sc.T.Wrap(err)
			}
		}
	}
	return nil
}

func (sc *scan) addGroup(g *format.Group) {
	sc.Kind, sc.Kernel = g.StringsInto("kind", sc.Kind), g.StringsInto("kernel", sc.Kernel)
	sc.Start, sc.stack = g.Int64("start_ns", sc.Start), g.Int32("stack_id", sc.stack)
	sc.status = g.StringsInto("stack_status", sc.status)
	statuses := make([]int32, len(sc.status.Dict))
	for i, s := range sc.status.Dict {
		statuses[i] = sc.statuses.ID(cmp.Or(s, format.StackNone))
	}
	pass := sc.Passes(g, sc.Kind, sc.Kernel)
	var last stackState
	var run int64 // calls of the same state in a row
	for i, start := range sc.Start {
		if start < sc.Window.FromNs || start > sc.Window.ToNs || !pass(i) {
			continue
		}
		state := stackState{sc.stack[i], statuses[sc.status.Index[i]]}
		if state != last && run > 0 {
			sc.counts[last] += run
			run = 0
		}
		last = state
		run++
		sc.all++
	}
	if run > 0 {
		sc.counts[last] += run
	}
}

// with returns how many calls have a stack of the status.
func (sc *scan) with(status string) (n int64) {
	for state, calls := range sc.counts {
		if sc.statuses.List[state.status] == status {
			n += calls
		}
	}
	return n
}

var factColumns = []report.Column{
	{Key: "inference", Title: "inferred stacks", Unit: report.UnitText, About: "how often the recorder was wrong when it took the stack of an equal-looking call, measured by unwinding a share of these calls nevertheless"},
}

var totalColumns = []report.Column{
	{Key: "calls", Title: "calls", Unit: report.UnitCount, About: "calls that began in the window"},
	{Key: "stacks", Title: "distinct stacks", Unit: report.UnitCount, About: "different stacks of these"},
	{Key: "complete_calls", Title: "complete", Unit: report.UnitCount, About: "calls whose stack was unwound to the thread's start"},
	{Key: "inferred_calls", Title: "inferred", Unit: report.UnitCount, About: "calls with the stack of an equal-looking call"},
	{Key: "truncated_calls", Title: "truncated", Unit: report.UnitCount, About: "calls whose stack ends too early"},
	{Key: "frame_pointer_calls", Title: "by frame pointers", Unit: report.UnitCount, About: "calls whose stack was walked by frame pointers"},
	{Key: "parent_calls", Title: "nested", Unit: report.UnitCount, About: "calls inside of other calls, which have the stack of those"},
	{Key: "none_calls", Title: "without stack", Unit: report.UnitCount, About: "calls without a stack"},
}

func (sc *scan) totals() []report.Fact {
	distinct := make(map[int32]bool)
	for state := range sc.counts {
		if state.stack != 0 {
			distinct[state.stack] = true
		}
	}
	return report.Fill(totalColumns, sc.all, int64(len(distinct)), sc.with(format.StackComplete), sc.with(format.StackInferred), sc.with(format.StackTruncated),
		sc.with(format.StackFramePointer), sc.with(format.StackParent), sc.with(format.StackNone))
}

var stackColumns = []report.Column{
	{Key: "calls", Title: "CALLS", Unit: report.UnitCount, About: "calls from this stack that began in the window, nested ones included"},
	{Key: "share_pct", Title: "SHARE%", Unit: report.UnitPercent, About: "share of CALLS in all calls of the window, also of those without stack"},
	{Key: "status", Title: "STATUS", Unit: report.UnitText, About: "complete: unwound to the thread's start; truncated: it ends too early, see WHY; frame_pointer: walked by frame pointers, frames may be missing"},
	{Key: "reason", Title: "WHY", Unit: report.UnitText, About: "why a stack is truncated: depth, more frames than the kernel may walk; mapping, a library that the unwinder did not know yet; code, machine code without unwind information, such as a JIT's; python, a Python frame that could not be read; probe, another tool's return probe; other"},
	{Key: "inferred_calls", Title: "INFERRED", Unit: report.UnitCount, About: "of CALLS, those not unwound themselves: they looked like another call from this stack"},
	{Key: "nested_calls", Title: "", Unit: report.UnitCount, About: "of CALLS, those inside of another call: the stack is that of the outer one"},
	{Key: "depth", Title: "FRAMES", Unit: report.UnitCount, About: "frames of the stack, also those not shown; absent if the stack is not in the recording"},
	{Key: "pid", Title: "PID", Unit: report.UnitID, About: "process"},
	{Key: "stack_id", Title: "", Unit: report.UnitID, About: "number of the stack in the recording, column stack_id"},
	{Key: "call", Title: "CALL", Unit: report.UnitText, About: "the stack's innermost frame: the function of the CUDA driver"},
	{Key: "site", Title: "SITE", Unit: report.UnitText, About: "the frame of the program's own code that made the call"},
}

// stackCount is what was counted of one stack.
type stackCount struct{ calls, inferred, nested int64 }

// table has a row per stack, with those frames that are to be shown.
func (sc *scan) table(opt *query.Options) (report.Table, error) {
	counts := make(map[int32]*stackCount)
	for state, calls := range sc.counts {
		if state.stack == 0 {
			continue
		}
		c := counts[state.stack]
		if c == nil {
			c = new(stackCount)
			counts[state.stack] = c
		}
		c.calls += calls
		switch sc.statuses.List[state.status] {
		case format.StackInferred:
			c.inferred += calls
		case format.StackParent:
			c.nested += calls
		}
	}
	table := report.Table{Name: "stacks", Title: "stacks by calls", Columns: slices.Clone(stackColumns), Spare: []string{"pid", "depth", "inferred_calls"}}
	var inferred, truncated bool
	for _, id := range slices.Sorted(maps.Keys(counts)) {
		row := sc.row(id, counts[id])
		table.Rows = append(table.Rows, row)
		inferred = inferred || counts[id].inferred > 0
		truncated = truncated || sc.T.Stacks.About[id].Reason != ""
	}
	if !inferred {
		report.Hide(table.Columns, "inferred_calls")
	}
	if !truncated {
		report.Hide(table.Columns, "reason")
	}
	slices.SortStableFunc(table.Rows, func(a, b report.Row) int { return report.CompareCells(a.Cells[0], b.Cells[0]) })
	processes.AddRanks(sc.T, &table)
	if err := table.Arrange(opt.Sort, opt.Top); err != nil {
		return table, err
	}
	framespkg.Fill(sc.T, &table, opt)
	return table, nil
}

func (sc *scan) row(id int32, c *stackCount) report.Row {
	about, found := sc.T.Stacks.About[id]
	row := report.Row{StackID: id}
	if !found {
		row.Cells = []any{c.calls, units.Percent(c.calls, sc.all), nil, nil, c.inferred, c.nested, nil, nil, int64(id), nil, timeline.NoStack}
		return row
	}
	if about.Reason != "" {
		row.Evidence = "truncated: " + stateMeaning(format.StackTruncated, about.Reason)
	}
	var call any
	frames := sc.T.Stacks.Stacks[id]
	if len(frames) > 0 {
		call = query.FrameName(&sc.T.Stacks.Frames[frames[0]])
	}
	row.Cells = []any{c.calls, units.Percent(c.calls, sc.all), about.Status, units.Known(about.Reason), c.inferred, c.nested, int64(len(frames)), int64(about.Pid), int64(id), call, sc.T.SiteOf(id)}
	return row
}

var stateColumns = []report.Column{
	{Key: "status", Title: "STATUS", Unit: report.UnitText, About: "what calls say of their stack"},
	{Key: "reason", Title: "WHY", Unit: report.UnitText, About: "why it is truncated, in a word; MEANING says it in a sentence"},
	{Key: "calls", Title: "CALLS", Unit: report.UnitCount, About: "calls in the window with such a stack"},
	{Key: "share_pct", Title: "SHARE%", Unit: report.UnitPercent, About: "share of CALLS in all calls of the window"},
	{Key: "stacks", Title: "STACKS", Unit: report.UnitCount, About: "distinct stacks of these calls"},
	{Key: "meaning", Title: "MEANING", Unit: report.UnitText, About: "what that means"},
}

// States are the states of stacks in the order in which they are told.
var States = []string{format.StackComplete, format.StackInferred, format.StackTruncated, format.StackFramePointer, format.StackParent, format.StackNone}

// stateMeaning says what a state of a stack means.
func stateMeaning(status, reason string) string {
	switch status {
	case format.StackComplete:
		return "unwound to the thread's start"
	case format.StackInferred:
		return "of an equal-looking call, not unwound again"
	case format.StackFramePointer:
		return "walked by frame pointers: frames may be missing"
	case format.StackParent:
		return "nested calls: the stack of the outer call"
	case format.StackNone:
		return "no stack was recorded"
	case format.StackTruncated:
	default:
		return ""
	}
	switch reason {
	case format.WhyDepth:
		return "more frames than the kernel may walk"
	case format.WhyMapping:
		return "a library that the unwinder did not know yet"
	case format.WhyCode:
		return "machine code without unwind information, such as a JIT's"
	case format.WhyPython:
		return "a Python frame could not be read"
	case format.WhyProbe:
		return "the return probe of another tool is in the way"
	}
	return "for another reason"
}

// stackGroup are stacks that are counted together, by two words.
type stackGroup struct{ first, second string }

// groupCount counts calls and stacks of a group.
type groupCount struct{ calls, stacks int64 }

// grouped counts calls and stacks by what of says of them; false leaves them out.
func (sc *scan) grouped(of func(stackState) (stackGroup, bool)) map[stackGroup]*groupCount {
	groups := make(map[stackGroup]*groupCount)
	for state, calls := range sc.counts {
		key, ok := of(state)
		if !ok {
			continue
		}
		if groups[key] == nil {
			groups[key] = new(groupCount)
		}
		groups[key].calls += calls
		if state.stack != 0 {
			groups[key].stacks++
		}
	}
	return groups
}

// reason returns why a call's stack is truncated, "" if it is not.
func (sc *scan) reason(s stackState) string {
	if sc.statuses.List[s.status] != format.StackTruncated {
		return ""
	}
	return cmp.Or(sc.T.Stacks.About[s.stack].Reason, format.WhyOther)
}

// stateTable has a row per state of calls' stacks.
func (sc *scan) stateTable() report.Table {
	groups := sc.grouped(func(s stackState) (stackGroup, bool) {
		return stackGroup{sc.statuses.List[s.status], sc.reason(s)}, true
	})
	table := report.Table{Name: "states", Title: "calls by what is known of their stack", Columns: slices.Clone(stateColumns), Aside: true}
	if sc.with(format.StackTruncated) == 0 {
		report.Hide(table.Columns, "reason")
	}
	rank := func(status string) int { // states of a later version come last
		if i := slices.Index(States, status); i >= 0 {
			return i
		}
		return len(States)
	}
	keys := slices.SortedFunc(maps.Keys(groups), func(a, b stackGroup) int {
		return cmp.Or(cmp.Compare(rank(a.first), rank(b.first)), cmp.Compare(groups[b].calls, groups[a].calls),
			strings.Compare(a.first, b.first), strings.Compare(a.second, b.second))
	})
	for _, k := range keys {
		n := groups[k]
		table.Rows = append(table.Rows, report.Row{Cells: []any{k.first, units.Known(k.second), n.calls, units.Percent(n.calls, sc.all), n.stacks, stateMeaning(k.first, k.second)}})
	}
	return table
}

var endColumns = []report.Column{
	{Key: "calls", Title: "CALLS", Unit: report.UnitCount, About: "calls in the window whose stack is truncated there"},
	{Key: "share_pct", Title: "SHARE%", Unit: report.UnitPercent, About: "share of CALLS in all calls with a truncated stack"},
	{Key: "stacks", Title: "STACKS", Unit: report.UnitCount, About: "distinct stacks of these calls"},
	{Key: "reason", Title: "WHY", Unit: report.UnitText, About: "why they are truncated"},
	{Key: "module", Title: "LAST MODULE", Unit: report.UnitText, About: "module, or Python file, of the outermost frame that lies in one"},
}

// endRows is how many places where truncated stacks end are told.
const endRows = 5

// endTable has a row per module that truncated stacks end in.
func (sc *scan) endTable() report.Table {
	groups := sc.grouped(func(s stackState) (stackGroup, bool) {
		reason := sc.reason(s)
		return stackGroup{endsIn(&sc.T.Stacks, s.stack), reason}, reason != ""
	})
	table := report.Table{Name: "truncated_in", Title: "where truncated stacks end", Columns: endColumns, Aside: true}
	keys := slices.SortedFunc(maps.Keys(groups), func(a, b stackGroup) int {
		return cmp.Or(cmp.Compare(groups[b].calls, groups[a].calls), strings.Compare(a.first, b.first), strings.Compare(a.second, b.second))
	})
	for i, k := range keys {
		if i == endRows {
			table.More = len(keys) - endRows
			break
		}
		n := groups[k]
		table.Rows = append(table.Rows, report.Row{Cells: []any{n.calls, units.Percent(n.calls, sc.with(format.StackTruncated)), n.stacks, k.second, k.first}})
	}
	return table
}

// endsIn returns where the outermost frame of a stack lies that lies anywhere.
func endsIn(s *stackpkg.Table, stack int32) string {
	for _, id := range slices.Backward(s.Stacks[stack]) {
		if f := &s.Frames[id]; f.Module != "" || f.File != "" {
			return cmp.Or(f.Module, f.File)
		}
	}
	return timeline.NoStack
}
