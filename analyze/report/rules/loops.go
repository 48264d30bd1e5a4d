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

// allocLoops finds places that allocate memory of the driver and free it again soon. Such calls
// are slow and belong at the start of a program.
type allocLoops struct {
	grouping *group.Grouping
	Sites    []allocLoop
	slow     []bool // by origin
}

// allocLoop is the memory that one place allocated and freed again soon.
type allocLoop struct {
	Pairs           int64 // allocations that were freed within temporaryNs
	Bytes           int64 // of these
	FirstNs, LastNs int64 // when the first and the last of these was allocated
	Origin          int32 // of the first
}

// temporaryNs is the longest life of memory that counts as allocated for a step, in ns. Slower
// steps are not held up by allocating.
const temporaryNs = int64(1e9)

// newAllocLoops returns a scan of changes that pass the filter.
func newAllocLoops(t *timeline.Timeline, f *query.Filter) *allocLoops {
	by, _ := group.New(t, "site", f) // there is such a group
	return &allocLoops{grouping: by}
}

// isSlow reports whether the driver takes long to hand out memory of the origin with this id.
func (l *allocLoops) isSlow(t *timeline.Timeline, id int32) bool {
	for int(id) >= len(l.slow) {
		isSlow := false
		switch t.Origins.Memory(int32(len(l.slow))) {
		case format.MemoryDevice, format.MemoryManaged, format.MemoryHost, format.MemoryRegistered:
			isSlow = true
		}
		l.slow = append(l.slow, isSlow)
	}
	return l.slow[id]
}

// Consume takes a change of the program's memory. Segments of caching allocators are not part of
// that memory.
func (l *allocLoops) Consume(p *timeline.Program, c *livemem.Change) {
	b := &c.Block
	if c.Kind != livemem.Freed || c.AtNs-b.SinceNs > temporaryNs {
		return
	}
	if !l.isSlow(p.T, b.Origin) {
		return // pools and caches are for this
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

// moduleScan counts calls that load code, and finds processes that were recorded from their
// first call.
type moduleScan struct {
	*calls.Counter
	Names  origin.Names
	sites  calls.SiteReader
	Places map[int32]*moduleLoads // by site
	Inits  map[int32]bool         // processes that were recorded from their first call
	middle int64                  // of the time in which the program did something
}

// moduleLoads are the loads of one place.
type moduleLoads struct {
	Loads, Late     int64 // late: in the second half of the time
	FirstNs, LastNs int64
	Took            int64 // ns, of those that returned
	Stack           int32
	Name            int32
}

// newModuleScan returns a scan of calls that pass the filter.
func newModuleScan(t *timeline.Timeline, f *query.Filter) *moduleScan {
	w := t.Activity(f)
	u := &moduleScan{
		Counter: calls.NewCounter(t, f),
		Places:  make(map[int32]*moduleLoads),
		Inits:   make(map[int32]bool),
		middle:  w.FromNs + w.DurNs()/2,
	}
	u.sites = calls.SiteReader{T: t, Names: &u.Names}
	return u
}

// loadsCode reports whether a call loads code into a context.
func loadsCode(name string) bool {
	return strings.HasPrefix(name, "cuModuleLoad") || strings.HasPrefix(name, "cuLibraryLoad")
}

// Group reads a row group. Most have no such call in their dictionary.
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
			u.Inits[u.Pid[i]] = true
		}
		if !load[name] || start < u.Window.FromNs || start > u.Window.ToNs || !pass(i) {
			continue
		}
		p := u.Places[u.sites.At(i)]
		if p == nil {
			p = &moduleLoads{FirstNs: start, LastNs: start, Stack: u.sites.Stack[i], Name: names[name]}
			u.Places[u.sites.At(i)] = p
		}
		p.Loads++
		if start >= u.middle {
			p.Late++
		}
		p.FirstNs, p.LastNs = min(p.FirstNs, start), max(p.LastNs, start)
		if u.Flags[i]&timeline.NoResult == 0 {
			p.Took = units.EndOf(p.Took, u.Dur[i])
		}
	}
}
