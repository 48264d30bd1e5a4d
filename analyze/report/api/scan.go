package api

import (
	"slices"

	"github.com/gpurec/gpurec/analyze/model/calls"
	"github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/model/sampling"
	"github.com/gpurec/gpurec/analyze/model/stack"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/stats"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// scan collects statistics of calls by function and group, in one pass. It is not safe for
// concurrent use.
type scan struct {
	*calls.CallCounter
	groupBy string // one of GroupNames
	groups  map[groupKey]*callGroup
	names   origin.StringNumbers
	sites   calls.CallSiteReader
	// identities has the group of each process id, if calls are grouped by rank, job and similar.
	identities map[int32]int64
}

// groupKey identifies a row: the driver function, and the group. group is a call site, stack,
// thread, stream, or the rank, job or container of processes. pid is set for threads and streams.
type groupKey struct {
	name, pid int32
	group     int64
}

// callGroup has the statistics of the calls of one row.
type callGroup struct {
	calls, errors, open, nested int64
	scaled                      int64           // calls in thousandths, with an estimate of unrecorded ones
	openNs                      int64           // time in open calls until the end of the recording, ns
	stack                       int32           // stack id of the first call
	kind                        string          // call kind, such as launch
	durations                   stats.Durations // durations of returned calls
}

// readRowGroup counts the calls of a row group.
func (sc *scan) readRowGroup(g *format.Group) {
	sc.Kind, sc.Name = g.StringsInto("kind", sc.Kind), g.StringsInto("name", sc.Name)
	sc.Kernel = format.Strings{}
	if sc.Filter.Kernel != nil {
		sc.Kernel = g.StringsInto("kernel", sc.Kernel)
	}
	sc.Start, sc.Dur = g.Int64("start_ns", sc.Start), g.Int64("dur_ns", sc.Dur)
	sc.Result, sc.Flags = g.Int32("result", sc.Result), g.Int32("flags", sc.Flags)
	parent := sc.T.DriverParents(g.Int64("parent_start_ns", nil))
	keys := sc.newKeyFunc(g)
	pass := sc.NewRowFilter(g, sc.Kind, sc.Kernel)
	names := sc.names.NumbersOf(sc.Name.Dict)
	launch, graph := sc.FindLaunches(g)
	var last groupKey
	var group *callGroup
	for i, start := range sc.Start {
		if start < sc.Window.FromNs || start > sc.Window.ToNs || !pass(i) {
			continue
		}
		key := keys(i)
		key.name = names[sc.Name.Index[i]]
		if group == nil || key != last {
			last = key
			if group = sc.groups[key]; group == nil {
				group = &callGroup{kind: sc.Kind.At(i)}
				if sc.groupBy == "stack" {
					group.stack = sc.sites.Stack[i]
				}
				sc.groups[key] = group
			}
		}
		if parent[i] != 0 {
			group.nested++
		}
		group.addCall(sc.Dur[i], sc.Result[i], sc.Flags[i])
		if sc.Weights != nil && launch[sc.Kind.Index[i]] && !graph[sc.Name.Index[i]] &&
			sc.Flags[i]&format.FlagCaptured == 0 {
			group.scaled += sc.Weights.WeightAt(start)
		} else {
			group.scaled += sampling.LaunchWeightUnit
		}
	}
}

// newKeyFunc returns a function that returns the groupKey of a row, with name unset.
func (sc *scan) newKeyFunc(g *format.Group) func(i int) groupKey {
	switch sc.groupBy {
	case "site":
		sc.sites.ReadGroup(g)
		return func(i int) groupKey { return groupKey{group: int64(sc.sites.SiteOfRow(i))} }
	case "stack":
		sc.sites.ReadGroup(g)
		return func(i int) groupKey { return groupKey{group: int64(sc.sites.Stack[i])} }
	case "thread":
		sc.Pid, sc.Tid = g.Int32("pid", sc.Pid), g.Int32("tid", sc.Tid)
		return func(i int) groupKey { return groupKey{pid: sc.Pid[i], group: int64(sc.Tid[i])} }
	case "stream":
		sc.Pid, sc.Stream = g.Int32("pid", sc.Pid), g.Int64("stream", sc.Stream)
		return func(i int) groupKey { return groupKey{pid: sc.Pid[i], group: sc.Stream[i]} }
	}
	if slices.Contains(stack.OperatorGroups, sc.groupBy) {
		sc.sites.ReadGroup(g)
		return func(i int) groupKey { return groupKey{group: int64(sc.sites.PartOfRow(i, sc.groupBy))} }
	}
	if slices.Contains(timeline.IdentityGroups, sc.groupBy) {
		sc.Pid = g.Int32("pid", sc.Pid)
		return func(i int) groupKey { return groupKey{group: sc.identityGroup(sc.Pid[i])} }
	}
	return func(int) groupKey { return groupKey{} }
}

// identityGroup returns the group of a process, an index of names.
func (sc *scan) identityGroup(pid int32) int64 {
	group, ok := sc.identities[pid]
	if !ok {
		group = int64(sc.names.NumberOf(sc.T.ProcessIdentityLabel(pid, sc.groupBy)))
		sc.identities[pid] = group
	}
	return group
}

// addCall adds a call to the group.
func (g *callGroup) addCall(durNs int64, result, flags int32) {
	g.calls++
	switch {
	case flags&format.FlagAbandoned != 0:
		g.open++
	case flags&format.FlagOpen != 0:
		g.open++
		g.openNs = units.EndOfRange(g.openNs, durNs)
	case flags&format.FlagNoReturn != 0:
	default:
		g.durations.Add(durNs)
		if calls.IsErrorResult(result) {
			g.errors++
		}
	}
}

// estimateDurationNs returns the estimated duration of all returned calls, an int64 in ns. It
// returns nil if no duration is known.
func (g *callGroup) estimateDurationNs() any {
	return g.durations.EstimatedTotal(sampling.RoundToLaunches(g.scaled) - g.open)
}
