package leaks

import (
	"strings"

	"github.com/gpurec/gpurec/analyze/model/calls"
	"github.com/gpurec/gpurec/analyze/model/ledger"
	originpkg "github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	grouppkg "github.com/gpurec/gpurec/analyze/report/group"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// Some calls are meant for the beginning of a program, and are slow: what they do in a loop
// is looked at here.

// AllocLoops counts by place what is allocated from the driver and freed again soon.
type AllocLoops struct {
	grouping *grouppkg.Grouping
	Sites    []AllocLoop
	slow     []bool // by origin
}

// AllocLoop is what one place allocated.
type AllocLoop struct {
	Pairs           int64 // allocations that were freed within temporaryNs
	Bytes           int64 // of these
	FirstNs, LastNs int64 // when the first and the last of these was allocated
	Origin          int32 // of the first
}

// temporaryNs is how long memory lives at most that was allocated for a step: slower steps are not held up by allocating.
const temporaryNs = int64(1e9)

func NewAllocLoops(t *timeline.Timeline, f *query.Filter) *AllocLoops {
	by, _ := grouppkg.New(t, "site", f) // there is such a group
	return &AllocLoops{grouping: by}
}

// isSlow reports whether memory of the origin is of a kind that takes the driver long to hand out.
func (l *AllocLoops) isSlow(t *timeline.Timeline, origin int32) bool {
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

// Consume takes a change of memory as programs see it: the segments of their allocators are not among it.
func (l *AllocLoops) Consume(p *timeline.Program, c *ledger.Change) {
	b := &c.Block
	if c.Kind != ledger.Freed || c.AtNs-b.SinceNs > temporaryNs {
		return
	}
	if !l.isSlow(p.T, b.Origin) {
		return // pools and caches are for this
	}
	i, ok := l.grouping.Of(b.Origin, b.Bytes)
	if !ok || b.SinceNs < l.grouping.Filter.FromNs || l.grouping.Filter.ToNs != 0 && b.SinceNs > l.grouping.Filter.ToNs {
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

// ModuleUse looks for calls that load code, and for the first call of processes.
type ModuleUse struct {
	*calls.Counter
	Names  originpkg.Names
	sites  calls.SiteReader
	Places map[int32]*ModuleLoads // by site
	Inits  map[int32]bool         // processes that were recorded from their first call
	middle int64                  // of the time in which the program did something
}

// ModuleLoads are the loads of one place.
type ModuleLoads struct {
	Loads, Late     int64 // late: in the second half of the time
	FirstNs, LastNs int64
	Took            int64 // ns, of those that returned
	Stack           int32
	Name            int32
}

func NewModuleUse(t *timeline.Timeline, f *query.Filter) *ModuleUse {
	w := t.Activity(f)
	u := &ModuleUse{Counter: calls.NewCounter(t, f), Places: make(map[int32]*ModuleLoads), Inits: make(map[int32]bool), middle: w.FromNs + w.DurNs()/2}
	u.sites = calls.SiteReader{T: t, Names: &u.Names}
	return u
}

// loadsCode reports whether a call loads code into a context.
func loadsCode(name string) bool {
	return strings.HasPrefix(name, "cuModuleLoad") || strings.HasPrefix(name, "cuLibraryLoad")
}

// Group looks through a row group; most have no such call in their dictionary.
func (u *ModuleUse) Group(g *format.Group) {
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
			p = &ModuleLoads{FirstNs: start, LastNs: start, Stack: u.sites.Stack[i], Name: names[name]}
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
