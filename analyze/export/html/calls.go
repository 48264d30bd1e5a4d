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
func (c *callsOverTime) addRowGroup(_ timeline.Span, g *format.Group) {
	c.countRowGroup(g)
	_ = c.first.AddGroup(g) // the survey reports errors of g
}

// countRowGroup counts the calls of a row group.
func (c *callsOverTime) countRowGroup(g *format.Group) {
	c.Kind, c.Kernel = g.StringsInto("kind", c.Kind), format.Strings{}
	if c.Filter.Kernel != nil {
		c.Kernel = g.StringsInto("kernel", c.Kernel)
	}
	c.Start, c.Dur, c.parent = g.Int64(
		"start_ns",
		c.Start,
	), g.Int64(
		"dur_ns",
		c.Dur,
	), c.T.DriverParents(g.Int64(
		"parent_start_ns",
		c.parent,
	))
	c.Flags, c.stack = g.Int32("flags", c.Flags), g.Int32("stack_id", c.stack)
	if g.Err() != nil {
		return
	}
	pass := c.NewRowFilter(g, c.Kind, c.Kernel)
	activity, seen := make([]int, len(c.Kind.Dict)), make([]int64, len(c.Kind.Dict))
	for i, k := range c.Kind.Dict {
		activity[i] = activityLineOf(k)
	}
	var sum *stackCallTime
	last := int32(-1)
	for i, start := range c.Start {
		b := c.parts.bucketAt(start)
		if b < 0 || b == numWindowBuckets || !pass(i) || c.parent[i] != 0 {
			continue
		}
		kind := c.Kind.Index[i]
		c.counts[activity[kind]][b]++
		seen[kind]++
		if sum == nil || c.stack[i] != last {
			last = c.stack[i]
			if sum = c.byStack[last]; sum == nil {
				sum = new(stackCallTime)
				c.byStack[last] = sum
			}
		}
		sum.calls++
		if c.Flags[i]&(format.FlagAbandoned|format.FlagNoReturn) == 0 {
			sum.hostNs += max(0, c.Dur[i])
		}
	}
	for i, n := range seen {
		c.kinds[c.Kind.Dict[i]] += n
	}
}
