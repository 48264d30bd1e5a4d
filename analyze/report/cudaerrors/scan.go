package cudaerrors

import (
	"slices"

	callspkg "github.com/gpurec/gpurec/analyze/model/calls"
	"github.com/gpurec/gpurec/analyze/model/fault"
	"github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/format"
)

// Scan counts calls that returned an error, by function, result and place.
type Scan struct {
	*callspkg.Counter
	Groups map[Key]*Group
	quiet  map[Key]*Group // results that are no failure; without place
	Names  origin.Names
	frees  fault.FailedFrees

	stack []int32
	site  format.Strings
}

// Key is what calls have in common; name and site index Scan.Names.
type Key struct {
	Name, Site int32
	Result     int32
}

// Group is what was counted of them.
type Group struct {
	Calls, nested   int64
	FirstNs, LastNs int64 // entries
	Stack           int32 // of the first one
	Threads         map[origin.Thread]int64
}

func NewScan(t *timeline.Timeline, f *query.Filter) *Scan {
	return &Scan{Counter: callspkg.NewCounter(t, f), Groups: make(map[Key]*Group), quiet: make(map[Key]*Group)}
}

// matched reports whether the filter let any caller through, failed or not.
func (u *Scan) matched() bool {
	n := u.Seen.Explain(u.Filter)
	return n.Filter == ""
}

// scan reads the results of all calls, and the rest where some are not success.
func (u *Scan) scan() error {
	for _, spans := range [][]timeline.Span{u.T.Memory, u.T.Calls} {
		for _, s := range spans {
			u.Group(s.Group)
			if err := s.Group.Err(); err != nil {
				return u.T.Wrap(err)
			}
		}
	}
	return nil
}

func (u *Scan) Group(g *format.Group) {
	u.Result, u.Flags = g.Int32("result", u.Result), g.Int32("flags", u.Flags)
	if !u.Filter.Callers() && !slices.ContainsFunc(u.Result, func(r int32) bool { return r != 0 }) {
		return
	}
	u.Kind, u.Name, u.Kernel = g.StringsInto("kind", u.Kind), g.StringsInto("name", u.Name), g.StringsInto("kernel", u.Kernel)
	u.site = g.StringsInto("site", u.site)
	u.Start, u.stack = g.Int64("start_ns", u.Start), g.Int32("stack_id", u.stack)
	u.Pid, u.Tid = g.Int32("pid", u.Pid), g.Int32("tid", u.Tid)
	parent := g.Int64("parent_start_ns", nil)
	pass := u.Passes(g, u.Kind, u.Kernel)
	names := u.Names.All(u.Name.Dict)
	u.frees.Next()
	for i, start := range u.Start {
		if start < u.Window.FromNs || start > u.Window.ToNs || !pass(i) || u.Result[i] == 0 || u.Flags[i]&timeline.NoResult != 0 {
			continue
		}
		key := Key{Name: names[u.Name.Index[i]], Result: u.Result[i]}
		groups := u.quiet
		if callspkg.IsError(u.Result[i]) {
			groups = u.Groups
			key.Site = u.Names.ID(u.T.SiteOfCall(u.stack[i], u.site.At(i)))
			u.frees.Add(g, i, u.Kind.At(i), fault.FailedFree{StartNs: start, Pid: u.Pid[i], Tid: u.Tid[i], Stack: u.stack[i],
				Result: u.Result[i], Name: key.Name, Site: key.Site})
		}
		e := groups[key]
		if e == nil {
			e = &Group{FirstNs: start, LastNs: start, Stack: u.stack[i], Threads: make(map[origin.Thread]int64)}
			groups[key] = e
		}
		e.add(start, u.stack[i], origin.Thread{Pid: u.Pid[i], Tid: u.Tid[i]}, parent[i] != 0)
	}
}

func (e *Group) add(startNs int64, stack int32, th origin.Thread, nested bool) {
	e.Calls++
	if nested {
		e.nested++
	}
	e.Threads[th]++
	e.LastNs = max(e.LastNs, startNs)
	if startNs < e.FirstNs {
		e.FirstNs, e.Stack = startNs, stack
	}
}

// recordedFromStart returns the processes that are recorded from their first call on.
func recordedFromStart(t *timeline.Timeline) (map[int32]bool, error) {
	started := make(map[int32]bool)
	var name format.Strings
	var pid []int32
	for _, s := range t.Calls {
		name = s.Group.StringsInto("name", name)
		if first := slices.Index(name.Dict, "cuInit"); first >= 0 {
			pid = s.Group.Int32("pid", pid)
			for i := range pid {
				if int(name.Index[i]) == first {
					started[pid[i]] = true
				}
			}
		}
		if err := s.Group.Err(); err != nil {
			return nil, t.Wrap(err)
		}
	}
	return started, nil
}
