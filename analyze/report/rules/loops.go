package rules

import (
	"strings"

	"github.com/gpurec/gpurec/analyze/model/calls"
	"github.com/gpurec/gpurec/analyze/model/livemem"
	"github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report/group"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// allocLoops finds call sites that allocate driver memory and free it within maxTemporaryNs. Driver
// allocations are slow, so a program should make them once at its start.
type allocLoops struct {
	grouping *group.Grouping
	Sites    []allocLoop // by group of grouping
	slow     []bool      // by origin: cached results of isSlowMemory
}

// allocLoop counts the short-lived allocations of one call site.
type allocLoop struct {
	Pairs           int64 // allocations that were freed within maxTemporaryNs
	Bytes           int64 // sum of their sizes
	FirstNs, LastNs int64 // times of the first and the last of these allocations, Unix ns
	Origin          int32 // origin of the first of these allocations
}

// maxTemporaryNs is the longest life of a short-lived allocation, ns. In a loop with longer steps
// the time to allocate does not matter.
const maxTemporaryNs = int64(1e9)

// newAllocLoops returns a scan of the allocations that pass the filter.
func newAllocLoops(t *timeline.Timeline, f *query.Filter) *allocLoops {
	grouping, _ := group.New(t, "site", f) // no error: "site" is a valid grouping
	return &allocLoops{grouping: grouping}
}

// isSlowMemory reports whether an origin allocates with a slow driver function, not from a pool or
// a cache. id is the number of the origin.
func (l *allocLoops) isSlowMemory(t *timeline.Timeline, id int32) bool {
	for int(id) >= len(l.slow) {
		isSlowMemory := false
		switch t.Origins.Memory(int32(len(l.slow))) {
		case format.MemoryDevice, format.MemoryManaged, format.MemoryHost, format.MemoryRegistered:
			isSlowMemory = true
		}
		l.slow = append(l.slow, isSlowMemory)
	}
	return l.slow[id]
}

// Consume counts a short-lived allocation when it is freed. The program's memory does not include
// the segments of caching allocators.
func (l *allocLoops) Consume(p *timeline.Program, c *livemem.Change) {
	b := &c.Block
	if c.Kind != livemem.Freed || c.AtNs-b.SinceNs > maxTemporaryNs {
		return
	}
	if !l.isSlowMemory(p.T, b.Origin) {
		return // pools and caches make short-lived allocations fast
	}
	i, ok := l.grouping.Of(b.Origin, b.Bytes)
	if !ok || b.SinceNs < l.grouping.Filter.FromNs ||
		l.grouping.Filter.ToNs != 0 && b.SinceNs > l.grouping.Filter.ToNs {
		return
	}
	l.Sites = units.Grow(l.Sites, i)
	s := &l.Sites[i]
	if s.Pairs == 0 {
		s.FirstNs, s.LastNs, s.Origin = b.SinceNs, b.SinceNs, b.Origin
	}
	s.Pairs++
	s.Bytes = units.EndOf(s.Bytes, b.Bytes)
	s.FirstNs, s.LastNs = min(s.FirstNs, b.SinceNs), max(s.LastNs, b.SinceNs)
}

// moduleScan counts the calls that load code by call site. It also finds the processes that were
// recorded from their first call.
type moduleScan struct {
	*calls.Counter
	Names    origin.Names
	sites    calls.SiteReader
	Sites    map[int32]*moduleLoads // by site
	SeenInit map[int32]bool         // processes that were recorded from their first call
	middleNs int64                  // middle of the time in which the program was active, Unix ns
}

// moduleLoads counts the calls of one call site that load code.
type moduleLoads struct {
	Loads           int64 // all calls
	Late            int64 // calls in the second half of the time
	FirstNs, LastNs int64 // start of the first and of the last call, Unix ns
	TookNs          int64 // sum of the durations of the calls that returned
	Stack           int32 // stack id of the first call
	Name            int32 // number of the function's name in moduleScan.Names
}

// newModuleScan returns a scan of the calls that pass the filter.
func newModuleScan(t *timeline.Timeline, f *query.Filter) *moduleScan {
	w := t.Activity(f)
	u := &moduleScan{
		Counter:  calls.NewCounter(t, f),
		Sites:    make(map[int32]*moduleLoads),
		SeenInit: make(map[int32]bool),
		middleNs: w.FromNs + w.DurNs()/2,
	}
	u.sites = calls.SiteReader{T: t, Names: &u.Names}
	return u
}

// loadsCode reports whether a CUDA driver function loads code into a context.
func loadsCode(name string) bool {
	return strings.HasPrefix(name, "cuModuleLoad") || strings.HasPrefix(name, "cuLibraryLoad")
}

// Group reads a row group. It returns early if the group's dictionary of names has no function that
// loads code and no cuInit, which is the usual case.
func (u *moduleScan) Group(g *format.Group) {
	u.Name = g.StringsInto("name", u.Name)
	load, init, any := make([]bool, len(u.Name.Dict)), make([]bool, len(u.Name.Dict)), false
	for i, name := range u.Name.Dict {
		load[i], init[i] = loadsCode(name), name == "cuInit"
		any = any || load[i] || init[i]
	}
	if !any {
		return
	}
	u.Kind, u.Kernel = g.StringsInto("kind", u.Kind), format.Strings{}
	u.Start, u.Dur, u.Flags = g.Int64("start_ns", u.Start), g.Int64("dur_ns", u.Dur), g.Int32("flags", u.Flags)
	u.Pid = g.Int32("pid", u.Pid)
	if u.Filter.Kernel != nil {
		u.Kernel = g.StringsInto("kernel", u.Kernel)
	}
	u.sites.Read(g)
	pass := u.Passes(g, u.Kind, u.Kernel)
	if g.Err() != nil {
		return
	}
	names := u.Names.All(u.Name.Dict)
	for i, start := range u.Start {
		name := u.Name.Index[i]
		if init[name] {
			u.SeenInit[u.Pid[i]] = true
		}
		if !load[name] || start < u.Window.FromNs || start > u.Window.ToNs || !pass(i) {
			continue
		}
		p := u.Sites[u.sites.At(i)]
		if p == nil {
			p = &moduleLoads{FirstNs: start, LastNs: start, Stack: u.sites.Stack[i], Name: names[name]}
			u.Sites[u.sites.At(i)] = p
		}
		p.Loads++
		if start >= u.middleNs {
			p.Late++
		}
		p.FirstNs, p.LastNs = min(p.FirstNs, start), max(p.LastNs, start)
		if u.Flags[i]&timeline.NoResult == 0 {
			p.TookNs = units.EndOf(p.TookNs, u.Dur[i])
		}
	}
}
