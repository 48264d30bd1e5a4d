package analyze

import (
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/format"
)

// callsOverTime counts calls by time and by stack in one pass over all of them.
type callsOverTime struct {
	*callUse
	parts   buckets
	counts  [len(activityNames)][htmlBuckets]int64
	byStack map[int32]*stackTime
	kinds   map[string]int64

	stack  []int32
	parent []int64
}

// stackTime is what calls from one stack come to. Calls inside of others are not in it.
type stackTime struct{ calls, hostNs int64 }

// activityNames are the kinds of calls that a page tells apart over time.
var activityNames = [...]string{"kernel and graph launches", "copies and fills", "memory calls", "waits", "other calls"}

func activityOf(kind string) int {
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

func (t *Timeline) newCallsOverTime(f *query.Filter) *callsOverTime {
	u := &callsOverTime{callUse: t.newCallUse(f), byStack: make(map[int32]*stackTime), kinds: make(map[string]int64)}
	u.parts = buckets{u.window}
	return u
}

func (u *callsOverTime) scan() error {
	for _, spans := range [][]span{u.t.memory, u.t.calls} {
		for _, s := range spans {
			u.group(s.group)
			if err := s.group.Err(); err != nil {
				return u.t.wrap(err)
			}
		}
	}
	return nil
}

func (u *callsOverTime) group(g *format.Group) {
	u.kind, u.kernel = g.StringsInto("kind", u.kind), format.Strings{}
	if u.filter.Kernel != nil {
		u.kernel = g.StringsInto("kernel", u.kernel)
	}
	u.start, u.dur, u.parent = g.Int64("start_ns", u.start), g.Int64("dur_ns", u.dur), g.Int64("parent_start_ns", u.parent)
	u.flags, u.stack = g.Int32("flags", u.flags), g.Int32("stack_id", u.stack)
	if g.Err() != nil {
		return
	}
	pass := u.passes(g, u.kind, u.kernel)
	activity, seen := make([]int, len(u.kind.Dict)), make([]int64, len(u.kind.Dict))
	for i, k := range u.kind.Dict {
		activity[i] = activityOf(k)
	}
	var of *stackTime
	last := int32(-1)
	for i, start := range u.start {
		b := u.parts.of(start)
		if b < 0 || b == htmlBuckets || !pass(i) || u.parent[i] != 0 {
			continue
		}
		kind := u.kind.Index[i]
		u.counts[activity[kind]][b]++
		seen[kind]++
		if of == nil || u.stack[i] != last {
			last = u.stack[i]
			if of = u.byStack[last]; of == nil {
				of = new(stackTime)
				u.byStack[last] = of
			}
		}
		of.calls++
		if u.flags[i]&(format.FlagAbandoned|format.FlagNoReturn) == 0 {
			of.hostNs += max(0, u.dur[i])
		}
	}
	for i, n := range seen {
		u.kinds[u.kind.Dict[i]] += n
	}
}
