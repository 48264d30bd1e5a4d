package analyze

import (
	"strings"

	"github.com/gpurec/gpurec/analyze/model/calls"
	"github.com/gpurec/gpurec/analyze/model/ledger"
	originpkg "github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// Some calls are meant for the beginning of a program, and are slow: what they do in a loop
// is looked at here.

// allocLoops counts by place what is allocated from the driver and freed again soon.
type allocLoops struct {
	grouping *grouping
	sites    []allocLoop
	slow     []bool // by origin
}

// allocLoop is what one place allocated.
type allocLoop struct {
	pairs           int64 // allocations that were freed within temporaryNs
	bytes           int64 // of these
	firstNs, lastNs int64 // when the first and the last of these was allocated
	origin          int32 // of the first
}

// temporaryNs is how long memory lives at most that was allocated for a step: slower steps are not held up by allocating.
const temporaryNs = int64(1e9)

func newAllocLoops(t *timeline.Timeline, f *query.Filter) *allocLoops {
	by, _ := groupBy(t, "site", f) // there is such a group
	return &allocLoops{grouping: by}
}

// isSlow reports whether memory of the origin is of a kind that takes the driver long to hand out.
func (l *allocLoops) isSlow(t *timeline.Timeline, origin int32) bool {
	for int(origin) >= len(l.slow) {
		isSlow := false
		switch t.Origins.Memory(int32(len(l.slow))) {
		case format.MemoryDevice, format.MemoryManaged, format.MemoryHost, format.MemoryRegistered:
			isSlow = true
		}
		l.slow = append(l.slow, isSlow)
	}
	return l.slow[origin]
}

// consume takes a change of memory as programs see it: the segments of their allocators are not among it.
func (l *allocLoops) consume(p *timeline.Program, c *ledger.Change) {
	b := &c.Block
	if c.Kind != ledger.Freed || c.AtNs-b.SinceNs > temporaryNs {
		return
	}
	if !l.isSlow(p.T, b.Origin) {
		return // pools and caches are for this
	}
	i, ok := l.grouping.of(b.Origin, b.Bytes)
	if !ok || b.SinceNs < l.grouping.filter.FromNs || l.grouping.filter.ToNs != 0 && b.SinceNs > l.grouping.filter.ToNs {
		return
	}
	l.sites = units.Grow(l.sites, i)
	s := &l.sites[i]
	if s.pairs == 0 {
		s.firstNs, s.lastNs, s.origin = b.SinceNs, b.SinceNs, b.Origin
	}
	s.pairs++
	s.bytes = units.EndOf(s.bytes, b.Bytes)
	s.firstNs, s.lastNs = min(s.firstNs, b.SinceNs), max(s.lastNs, b.SinceNs)
}

// moduleUse looks for calls that load code, and for the first call of processes.
type moduleUse struct {
	*calls.Counter
	names  originpkg.Names
	sites  calls.SiteReader
	places map[int32]*moduleLoads // by site
	inits  map[int32]bool         // processes that were recorded from their first call
	middle int64                  // of the time in which the program did something
}

// moduleLoads are the loads of one place.
type moduleLoads struct {
	loads, late     int64 // late: in the second half of the time
	firstNs, lastNs int64
	took            int64 // ns, of those that returned
	stack           int32
	name            int32
}

func newModuleUse(t *timeline.Timeline, f *query.Filter) *moduleUse {
	w := t.Activity(f)
	u := &moduleUse{Counter: calls.NewCounter(t, f), places: make(map[int32]*moduleLoads), inits: make(map[int32]bool), middle: w.FromNs + w.DurNs()/2}
	u.sites = calls.SiteReader{T: t, Names: &u.names}
	return u
}

// loadsCode reports whether a call loads code into a context.
func loadsCode(name string) bool {
	return strings.HasPrefix(name, "cuModuleLoad") || strings.HasPrefix(name, "cuLibraryLoad")
}

// group looks through a row group; most have no such call in their dictionary.
func (u *moduleUse) group(g *format.Group) {
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
	names := u.names.All(u.Name.Dict)
	for i, start := range u.Start {
		name := u.Name.Index[i]
		if init[name] {
			u.inits[u.Pid[i]] = true
		}
		if !load[name] || start < u.Window.FromNs || start > u.Window.ToNs || !pass(i) {
			continue
		}
		p := u.places[u.sites.At(i)]
		if p == nil {
			p = &moduleLoads{firstNs: start, lastNs: start, stack: u.sites.Stack[i], name: names[name]}
			u.places[u.sites.At(i)] = p
		}
		p.loads++
		if start >= u.middle {
			p.late++
		}
		p.firstNs, p.lastNs = min(p.firstNs, start), max(p.lastNs, start)
		if u.Flags[i]&timeline.NoResult == 0 {
			p.took = units.EndOf(p.took, u.Dur[i])
		}
	}
}
