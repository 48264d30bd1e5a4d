package html

import (
	"github.com/gpurec/gpurec/analyze/model/calls"
	"github.com/gpurec/gpurec/analyze/model/change"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/format"
)

// callsOverTime counts the calls of a recording by time, by stack and by kind. It does not count a
// call that another recorded call made.
type callsOverTime struct {
	*calls.CallCounter
	parts   windowBuckets
	counts  [len(activityLineNames)][numWindowBuckets]int64 // calls by index of activityLineNames and bucket
	byStack map[int32]*stackCallTime                        // by stack id
	kinds   map[string]int64                                // calls by kind
	first   *change.Calls                                   // for pageBuilder.addChanges

	stack  []int32 // column stack_id of the current row group
	parent []int64 // column parent_start_ns of the current row group
}

// stackCallTime is the number of calls from one stack, and the sum of their known durations.
type stackCallTime struct{ calls, hostNs int64 }

// activityLineNames are the kinds of calls in the chart of calls over time.
var activityLineNames = [...]string{
	"kernel and graph launches",
	"copies and fills",
	"memory calls",
	"waits",
	"other calls",
}

// activityLineOf returns the index into activityLineNames of a kind of call.
func activityLineOf(kind string) int {
	switch kind {
	case format.KindLaunch:
		return 0
	case format.KindMemcpy, format.KindMemset:
		return 1
	case format.KindSync:
		return 3
	}
	if format.ClassOf(kind) == format.ClassMemory {
		return 2
	}
	return 4
}

func newCallsOverTime(t *timeline.Timeline, f *query.Filter) *callsOverTime {
	u := &callsOverTime{
		CallCounter: calls.NewCallCounter(t, f),
		byStack:     make(map[int32]*stackCallTime),
		kinds:       make(map[string]int64),
		first:       change.NewCalls(t, f),
	}
	u.parts = windowBuckets{u.Window}
	return u
}

// addRowGroup adds the calls of a row group.
func (u *callsOverTime) addRowGroup(_ timeline.Span, g *format.Group) {
	u.countRowGroup(g)
	_ = u.first.AddGroup(g) // the survey reports errors of g
}

// countRowGroup counts the calls of a row group.
func (u *callsOverTime) countRowGroup(g *format.Group) {
	u.Kind, u.Kernel = g.StringsInto("kind", u.Kind), format.Strings{}
	if u.Filter.Kernel != nil {
		u.Kernel = g.StringsInto("kernel", u.Kernel)
	}
	u.Start, u.Dur, u.parent = g.Int64(
		"start_ns",
		u.Start,
	), g.Int64(
		"dur_ns",
		u.Dur,
	), u.T.DriverParents(g.Int64(
		"parent_start_ns",
		u.parent,
	))
	u.Flags, u.stack = g.Int32("flags", u.Flags), g.Int32("stack_id", u.stack)
	if g.Err() != nil {
		return
	}
	pass := u.NewRowFilter(g, u.Kind, u.Kernel)
	activity, seen := make([]int, len(u.Kind.Dict)), make([]int64, len(u.Kind.Dict))
	for i, k := range u.Kind.Dict {
		activity[i] = activityLineOf(k)
	}
	var sum *stackCallTime
	last := int32(-1)
	for i, start := range u.Start {
		b := u.parts.bucketAt(start)
		if b < 0 || b == numWindowBuckets || !pass(i) || u.parent[i] != 0 {
			continue
		}
		kind := u.Kind.Index[i]
		u.counts[activity[kind]][b]++
		seen[kind]++
		if sum == nil || u.stack[i] != last {
			last = u.stack[i]
			if sum = u.byStack[last]; sum == nil {
				sum = new(stackCallTime)
				u.byStack[last] = sum
			}
		}
		sum.calls++
		if u.Flags[i]&(format.FlagAbandoned|format.FlagNoReturn) == 0 {
			sum.hostNs += max(0, u.Dur[i])
		}
	}
	for i, n := range seen {
		u.kinds[u.Kind.Dict[i]] += n
	}
}
