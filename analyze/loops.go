package analyze

import (
	"strings"

	"github.com/gpurec/gpurec/analyze/model/ledger"
	originpkg "github.com/gpurec/gpurec/analyze/model/origin"
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

func (t *Timeline) newAllocLoops(f *query.Filter) *allocLoops {
	by, _ := t.groupBy("site", f) // there is such a group
	return &allocLoops{grouping: by}
}

// isSlow reports whether memory of the origin is of a kind that takes the driver long to hand out.
func (l *allocLoops) isSlow(t *Timeline, origin int32) bool {
	for int(origin) >= len(l.slow) {
		isSlow := false
		switch t.origins.Memory(int32(len(l.slow))) {
		case format.MemoryDevice, format.MemoryManaged, format.MemoryHost, format.MemoryRegistered:
			isSlow = true
		}
		l.slow = append(l.slow, isSlow)
	}
	return l.slow[origin]
}

// consume takes a change of memory as programs see it: the segments of their allocators are not among it.
func (l *allocLoops) consume(p *programMemory, c *ledger.Change) {
	b := &c.Block
	if c.Kind != ledger.Freed || c.AtNs-b.SinceNs > temporaryNs {
		return
	}
	if !l.isSlow(p.t, b.Origin) {
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
	*callUse
	names  originpkg.Names
	sites  siteReader
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

func (t *Timeline) newModuleUse(f *query.Filter) *moduleUse {
	w := t.activity(f)
	u := &moduleUse{callUse: t.newCallUse(f), places: make(map[int32]*moduleLoads), inits: make(map[int32]bool), middle: w.FromNs + w.DurNs()/2}
	u.sites = siteReader{t: t, names: &u.names}
	return u
}

// loadsCode reports whether a call loads code into a context.
func loadsCode(name string) bool {
	return strings.HasPrefix(name, "cuModuleLoad") || strings.HasPrefix(name, "cuLibraryLoad")
}

// group looks through a row group; most have no such call in their dictionary.
func (u *moduleUse) group(g *format.Group) {
	u.name = g.StringsInto("name", u.name)
	load, init, any := make([]bool, len(u.name.Dict)), make([]bool, len(u.name.Dict)), false
	for i, name := range u.name.Dict {
		load[i], init[i] = loadsCode(name), name == "cuInit"
		any = any || load[i] || init[i]
	}
	if !any {
		return
	}
	u.kind, u.kernel = g.StringsInto("kind", u.kind), format.Strings{}
	u.start, u.dur, u.flags = g.Int64("start_ns", u.start), g.Int64("dur_ns", u.dur), g.Int32("flags", u.flags)
	u.pid = g.Int32("pid", u.pid)
	if u.filter.Kernel != nil {
		u.kernel = g.StringsInto("kernel", u.kernel)
	}
	u.sites.read(g)
	pass := u.passes(g, u.kind, u.kernel)
	if g.Err() != nil {
		return
	}
	names := u.names.All(u.name.Dict)
	for i, start := range u.start {
		name := u.name.Index[i]
		if init[name] {
			u.inits[u.pid[i]] = true
		}
		if !load[name] || start < u.window.FromNs || start > u.window.ToNs || !pass(i) {
			continue
		}
		p := u.places[u.sites.at(i)]
		if p == nil {
			p = &moduleLoads{firstNs: start, lastNs: start, stack: u.sites.stack[i], name: names[name]}
			u.places[u.sites.at(i)] = p
		}
		p.loads++
		if start >= u.middle {
			p.late++
		}
		p.firstNs, p.lastNs = min(p.firstNs, start), max(p.lastNs, start)
		if u.flags[i]&noResult == 0 {
			p.took = units.EndOf(p.took, u.dur[i])
		}
	}
}
