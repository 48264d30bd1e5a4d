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

// allocLoopScan finds call sites that allocate driver memory and free it within maxShortLifeNs.
// Driver allocations are slow, so a program should make them once at its start.
type allocLoopScan struct {
	grouping *group.Grouping
	Sites    []allocLoopSite // by group of grouping
	slow     []bool          // by origin: cached results of isSlowAllocation
}

// allocLoopSite counts the short-lived allocations of one call site.
type allocLoopSite struct {
	Pairs           int64 // allocations that were freed within maxShortLifeNs
	Bytes           int64 // sum of their sizes
	FirstNs, LastNs int64 // times of the first and the last of these allocations, Unix ns
	Origin          int32 // origin of the first of these allocations
}

// maxShortLifeNs is the longest life of a short-lived allocation, ns. In a loop with longer steps
// the time to allocate does not matter.
const maxShortLifeNs = int64(1e9)

// newAllocLoopScan returns a scan of the allocations that pass the filter.
func newAllocLoopScan(t *timeline.Timeline, f *query.Filter) *allocLoopScan {
	grouping, _ := group.NewGrouping(t, "site", f) // no error: "site" is a valid grouping
	return &allocLoopScan{grouping: grouping}
}

// isSlowAllocation reports whether an origin allocates with a slow driver function, not from a pool
// or a cache. id is the number of the origin.
func (l *allocLoopScan) isSlowAllocation(t *timeline.Timeline, id int32) bool {
	for int(id) >= len(l.slow) {
		isSlowMemory := false
		switch t.Origins.MemoryKindOf(int32(len(l.slow))) {
		case format.MemoryDevice, format.MemoryManaged, format.MemoryHost, format.MemoryRegistered:
			isSlowMemory = true
		}
		l.slow = append(l.slow, isSlowMemory)
	}
	return l.slow[id]
}

// consumeChange counts a short-lived allocation when it is freed. The program's memory does not
// include the segments of caching allocators.
func (l *allocLoopScan) consumeChange(p *timeline.ProgramMemory, c *livemem.Change) {
	b := &c.Block
	if c.Kind != livemem.ChangeFreed || c.AtNs-b.SinceNs > maxShortLifeNs {
		return
	}
	if !l.isSlowAllocation(p.T, b.Origin) {
		return // pools and caches make short-lived allocations fast
	}
	i, ok := l.grouping.GroupOf(b.Origin, b.Bytes)
	if !ok || b.SinceNs < l.grouping.Filter.FromNs ||
		l.grouping.Filter.ToNs != 0 && b.SinceNs > l.grouping.Filter.ToNs {
		return
	}
	l.Sites = units.GrowToIndex(l.Sites, i)
	s := &l.Sites[i]
	if s.Pairs == 0 {
		s.FirstNs, s.LastNs, s.Origin = b.SinceNs, b.SinceNs, b.Origin
	}
	s.Pairs++
	s.Bytes = units.EndOfRange(s.Bytes, b.Bytes)
	s.FirstNs, s.LastNs = min(s.FirstNs, b.SinceNs), max(s.LastNs, b.SinceNs)
}

// moduleLoadScan counts the calls that load code by call site. It also finds the processes that
// were recorded from their first call.
type moduleLoadScan struct {
	*calls.CallCounter
	Names    origin.StringNumbers
	sites    calls.CallSiteReader
	Sites    map[int32]*moduleLoadSite // by site
	SeenInit map[int32]bool            // processes that were recorded from their first call
	middleNs int64                     // middle of the time in which the program was active, Unix ns
}

// moduleLoadSite counts the calls of one call site that load code.
type moduleLoadSite struct {
	Loads           int64 // all calls
	Late            int64 // calls in the second half of the time
	FirstNs, LastNs int64 // start of the first and of the last call, Unix ns
	TookNs          int64 // sum of the durations of the calls that returned
	Stack           int32 // stack id of the first call
	Name            int32 // number of the function's name in moduleLoadScan.Names
}

// newModuleLoadScan returns a scan of the calls that pass the filter.
func newModuleLoadScan(t *timeline.Timeline, f *query.Filter) *moduleLoadScan {
	w := t.ActivityWindow(f)
	u := &moduleLoadScan{
		CallCounter: calls.NewCallCounter(t, f),
		Sites:       make(map[int32]*moduleLoadSite),
		SeenInit:    make(map[int32]bool),
		middleNs:    w.FromNs + w.DurNs()/2,
	}
	u.sites = calls.CallSiteReader{T: t, Names: &u.Names}
	return u
}

// loadsModule reports whether a CUDA driver function loads code into a context.
func loadsModule(name string) bool {
	return strings.HasPrefix(name, "cuModuleLoad") || strings.HasPrefix(name, "cuLibraryLoad")
}

// addRowGroup reads a row group. It returns early if the group's dictionary of names has no
// function that loads code and no cuInit, which is the usual case.
func (u *moduleLoadScan) addRowGroup(g *format.Group) {
	u.Name = g.StringsInto("name", u.Name)
	load, init, any := make([]bool, len(u.Name.Dict)), make([]bool, len(u.Name.Dict)), false
	for i, name := range u.Name.Dict {
		load[i], init[i] = loadsModule(name), name == "cuInit"
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
	u.sites.ReadGroup(g)
	pass := u.NewRowFilter(g, u.Kind, u.Kernel)
	if g.Err() != nil {
		return
	}
	names := u.Names.NumbersOf(u.Name.Dict)
	for i, start := range u.Start {
		name := u.Name.Index[i]
		if init[name] {
			u.SeenInit[u.Pid[i]] = true
		}
		if !load[name] || start < u.Window.FromNs || start > u.Window.ToNs || !pass(i) {
			continue
		}
		p := u.Sites[u.sites.SiteOfRow(i)]
		if p == nil {
			p = &moduleLoadSite{FirstNs: start, LastNs: start, Stack: u.sites.Stack[i], Name: names[name]}
			u.Sites[u.sites.SiteOfRow(i)] = p
		}
		p.Loads++
		if start >= u.middleNs {
			p.Late++
		}
		p.FirstNs, p.LastNs = min(p.FirstNs, start), max(p.LastNs, start)
		if u.Flags[i]&timeline.NoResultFlags == 0 {
			p.TookNs = units.EndOfRange(p.TookNs, u.Dur[i])
		}
	}
}
