package stacks

import (
	"cmp"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/calls"
	"github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/model/stack"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/format"
)

// scan counts calls by their stack and its status. Its size grows with the number of distinct
// stacks, not with the number of calls. It is not safe for concurrent use.
type scan struct {
	*calls.CallCounter
	counts   map[stackWithStatus]int64
	all      int64 // number of counted calls
	statuses origin.StringNumbers

	stack  []int32
	status format.Strings
}

// stackWithStatus is a stack with its status for some calls. stack is a stack id, status an index
// of scan.statuses.
type stackWithStatus struct{ stack, status int32 }

// readRowGroup counts the calls of a row group.
func (sc *scan) readRowGroup(g *format.Group) {
	sc.Kind, sc.Kernel = g.StringsInto("kind", sc.Kind), g.StringsInto("kernel", sc.Kernel)
	sc.Start, sc.stack = g.Int64("start_ns", sc.Start), g.Int32("stack_id", sc.stack)
	sc.status = g.StringsInto("stack_status", sc.status)
	statuses := make([]int32, len(sc.status.Dict))
	for i, s := range sc.status.Dict {
		statuses[i] = sc.statuses.NumberOf(cmp.Or(s, format.StackNone))
	}
	pass := sc.NewRowFilter(g, sc.Kind, sc.Kernel)
	var last stackWithStatus
	var run int64 // number of consecutive calls with the same state
	for i, start := range sc.Start {
		if start < sc.Window.FromNs || start > sc.Window.ToNs || !pass(i) {
			continue
		}
		state := stackWithStatus{sc.stack[i], statuses[sc.status.Index[i]]}
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

// countCallsWithStatus returns the number of calls whose stack has this status.
func (sc *scan) countCallsWithStatus(status string) (n int64) {
	for state, callCount := range sc.counts {
		if sc.statuses.List[state.status] == status {
			n += callCount
		}
	}
	return n
}

// stackCount has the numbers of calls from one stack.
type stackCount struct{ calls, inferred, nested int64 }

// countStacks returns the numbers of calls by stack id.
func (sc *scan) countStacks() map[int32]*stackCount {
	counts := make(map[int32]*stackCount)
	for state, callCount := range sc.counts {
		if state.stack == 0 {
			continue
		}
		c := counts[state.stack]
		if c == nil {
			c = new(stackCount)
			counts[state.stack] = c
		}
		c.calls += callCount
		switch sc.statuses.List[state.status] {
		case format.StackInferred:
			c.inferred += callCount
		case format.StackParent:
			c.nested += callCount
		}
	}
	return counts
}

// stackGroup is a group of stacks, such as a status with a reason, or a module with a reason.
type stackGroup struct{ first, second string }

// stackGroupCount has the numbers of calls and stacks of a group.
type stackGroupCount struct{ calls, stacks int64 }

// countGroups counts calls and stacks by the group that of returns. It skips states for which of
// returns false.
func (sc *scan) countGroups(of func(stackWithStatus) (stackGroup, bool)) map[stackGroup]*stackGroupCount {
	groups := make(map[stackGroup]*stackGroupCount)
	for state, callCount := range sc.counts {
		key, ok := of(state)
		if !ok {
			continue
		}
		if groups[key] == nil {
			groups[key] = new(stackGroupCount)
		}
		groups[key].calls += callCount
		if state.stack != 0 {
			groups[key].stacks++
		}
	}
	return groups
}

// truncationReason returns the reason why a stack is truncated, or "" if it is not truncated.
func (sc *scan) truncationReason(s stackWithStatus) string {
	if sc.statuses.List[s.status] != format.StackTruncated {
		return ""
	}
	return cmp.Or(sc.T.Stacks.About[s.stack].Reason, format.TruncationOther)
}

// outermostModule returns the module, or else the file, of the outermost frame that has one.
func outermostModule(s *stack.StackTable, stackID int32) string {
	for _, id := range slices.Backward(s.Stacks[stackID]) {
		if f := &s.Frames[id]; f.Module != "" || f.File != "" {
			return cmp.Or(f.Module, f.File)
		}
	}
	return timeline.NoStackSite
}
