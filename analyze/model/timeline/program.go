package timeline

import (
	"slices"
	"strings"
	"time"

	"github.com/gpurec/gpurec/analyze/model/caching"
	"github.com/gpurec/gpurec/analyze/model/livemem"
	"github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/symbolize"
)

// A program that has a caching allocator knows nothing of the memory that the allocator
// has of the driver: its memory are the blocks that it was handed out. Program is
// memory as programs see it: blocks of caching allocators, and of the driver's memory
// what is not an allocator's segment.
type Program struct {
	T          *Timeline
	Driver     *livemem.Set
	Allocators *caching.Set
	segments   livemem.BlockSet // block.number of the driver's memory that is allocators' segments
	consume    func(*Program, *livemem.Change)
	change     livemem.Change // the one that is handed out
}

// ReplayProgram is replay with the memory that programs see. Blocks end when the
// program gives them back, whether a stream still uses them or not, and are as large as
// the program asked for. also, if it is set, gets all changes of the driver's memory,
// and watch those of allocators.
func (t *Timeline) ReplayProgram(
	consume func(*Program, *livemem.Change),
	also func(*livemem.Change),
	watch caching.Consumer,
) (*Program, error) {
	p := &Program{T: t, consume: consume}
	onDriver := func(l *livemem.Set, c *livemem.Change) {
		p.Driver = l
		p.driverChange(c)
		if also != nil {
			also(c)
		}
	}
	var err error
	if len(t.Allocations) == 0 {
		p.Allocators = caching.NewSet(&t.Allocators, t.Facts.AllocatorRules)
		p.Driver, err = t.Replay(onDriver)
		return p, err
	}
	if t.segments == nil {
		if err = t.FindSegments(nil); err != nil {
			return nil, err
		}
	}
	p.segments = *t.segments
	p.Driver, p.Allocators, err = t.ReplayAll(onDriver, func(a *caching.Allocator, c *caching.Change) {
		p.Allocators = a.Set
		p.allocatorChange(a, c)
		if watch != nil {
			watch(a, c)
		}
	})
	return p, err
}

// FindSegments finds the driver's memory that allocators made segments of: what is at the
// address of a segment when the allocator tells of it, or around a block that it reports,
// what was allocated from inside of the allocator, and what it had before its events were
// recorded. also, if it is set, gets
// all changes of the driver's memory.
func (t *Timeline) FindSegments(also func(*livemem.Change)) error {
	s := segmentSearch{
		t:         t,
		inside:    make(map[int32]bool),
		looks:     make(map[*caching.Allocator]int),
		addressed: make(map[int32]*Addressed),
		byReports: t.Facts.Reported() > 0,
	}
	_, _, err := t.replayTogether(true, func(l *livemem.Set, c *livemem.Change) {
		s.driverChange(l, c)
		if also != nil {
			also(c)
		}
	}, s.allocatorChange)
	if err == nil {
		s.told.Union(s.inner)
		t.segments = &s.told
	}
	return err
}

// segmentSearch is the search for the driver's memory that is allocators' segments.
type segmentSearch struct {
	t      *Timeline
	driver *livemem.Set
	told   livemem.BlockSet           // that an allocator told of
	inner  livemem.BlockSet           // that comes from inside of one
	inside map[int32]bool             // stack → it goes through an allocator
	looks  map[*caching.Allocator]int // how often older was asked; maxLooks: it is known
	// addressed is the memory of a process, if allocators are known by their reports.
	addressed map[int32]*Addressed
	byReports bool
}

func (s *segmentSearch) driverChange(l *livemem.Set, c *livemem.Change) {
	s.driver = l
	if c.Kind == livemem.Allocated && s.t.fromAllocator(s.t.Origins.List[c.Block.Origin].Stack, s.inside) {
		s.inner.Add(c.Block.Number)
	}
	if s.byReports && s.t.Origins.Memory(c.Block.Origin) == format.MemoryDevice {
		s.addressedOf(s.t.Origins.Process[c.Block.Origin]).Note(c)
	}
}

func (s *segmentSearch) addressedOf(process int32) *Addressed {
	l := s.addressed[process]
	if l == nil {
		l = new(Addressed)
		s.addressed[process] = l
	}
	return l
}

func (s *segmentSearch) allocatorChange(a *caching.Allocator, c *caching.Change) {
	process, ok := s.t.Origins.Pids[a.Pid]
	if s.driver == nil || !ok {
		return
	}
	h := s.driver.OfProcess(process)
	if a.Reports {
		if number, ok := s.addressedOf(process).Around(c.Block.Ptr); ok {
			s.told.Add(number)
		} else if c.Op == caching.BlockAllocated {
			s.mapped(h, c.Block.Ptr, c.Block.Size, s.told.Add)
		}
		if s.looks[a] < maxLooks && a.Check.Known[caching.AllocatedTotal] && a.Counts.Events > 1 &&
			s.older(h, a, a.Totals().Reserved) {
			s.looks[a] = maxLooks
		}
		s.looks[a]++
		return
	}
	s.at(h, c, s.told.Add)
	if s.looks[a] == 0 && a.Check.Known[caching.ReservedTotal] {
		s.looks[a] = maxLooks
		s.older(h, a, a.Before.Reserved)
	}
}

// maxLooks is how often it is tried to find what an allocator that is known by its reports had
// at the first of them. One try fails where the driver was asked for more meanwhile.
const maxLooks = 256

// at calls yield for the driver's memory that a segment comes from.
func (s *segmentSearch) at(h *livemem.ProcessMemory, c *caching.Change, yield func(number int32)) {
	switch c.Op {
	case caching.SegmentAllocated:
		if b, ok := h.Pointers.Get(c.Ptr); ok {
			yield(b.Number)
		}
	case caching.SegmentMapped:
		s.mapped(h, c.Ptr, c.Bytes, yield)
	}
}

// mapped calls yield for the physical memory behind addresses.
func (s *segmentSearch) mapped(h *livemem.ProcessMemory, ptr, bytes int64, yield func(number int32)) {
	h.Mappings.Overlapping(ptr, units.EndOf(ptr, bytes), func(m livemem.Mapping) {
		if m.Handle != nil && m.Handle.Borrows == 0 {
			yield(m.Handle.Block.Number)
		}
	})
}

// older adds what must have been an allocator's before its first event, or report: memory of
// the process that comes from inside of it or from nowhere known, if that is exactly as much
// as the allocator had. Reports tell that with what came for them.
func (s *segmentSearch) older(h *livemem.ProcessMemory, a *caching.Allocator, reserved int64) bool {
	var before livemem.BlockSet
	bytes := int64(0)
	h.Each(func(_ int64, b livemem.Block) {
		told := s.told.Has(b.Number)
		isCandidate := s.inner.Has(b.Number) || told || s.t.SiteLabel(b.Origin) == NoStack
		if isCandidate && (a.Reports || !told) && s.t.Origins.List[b.Origin].Device == a.Device &&
			b.Bytes%caching.SmallSegment == 0 &&
			!s.t.OnHost(b.Origin) {
			before.Add(b.Number)
			bytes += b.Bytes
		}
	})
	if bytes != reserved {
		return false
	}
	s.inner.Union(before)
	return true
}

// oom.fromAllocator reports whether a stack goes through PyTorch's caching allocator; known
// are the answers so far.
func (t *Timeline) fromAllocator(stack int32, known map[int32]bool) bool {
	answer, ok := known[stack]
	if !ok {
		answer = slices.ContainsFunc(t.Stacks.Stacks[stack], func(id int32) bool {
			return strings.HasPrefix(symbolize.ModuleName(t.Stacks.Frames[id].Module), "libc10_cuda")
		})
		known[stack] = answer
	}
	return answer
}

func (p *Program) driverChange(c *livemem.Change) {
	if c.Kind == livemem.AllocFailed || !p.segments.Has(c.Block.Number) {
		p.consume(p, c)
	}
}

// caching.Change hands out what a change of an allocator is to the program.
func (p *Program) allocatorChange(a *caching.Allocator, c *caching.Change) {
	switch c.Op {
	case caching.BlockAllocated:
		p.emit(livemem.Allocated, c.AtNs, &c.Block)
	case caching.BlockFreeRequested:
		what := livemem.Freed
		if p.T.TearsDown(a.Pid, c.AtNs) {
			what = livemem.FreedByExit
		}
		p.emit(what, c.AtNs, &c.Block)
	case caching.BlockLost:
		if c.Block.State == caching.IsBlock {
			p.emit(livemem.FreeLost, c.AtNs, &c.Block)
		}
	case caching.AllocatorEnd:
		a.Each(func(b *caching.Piece) {
			if b.State == caching.IsBlock {
				p.emit(livemem.FreedByExit, c.AtNs, b)
			}
		})
	}
}

// teardown is how long before the end of a process what it gives back, having asked for
// nothing more, is part of that end. Python frees what modules hold, and CUDA contexts
// with much memory take seconds to go.
const teardown = int64(10 * time.Second)

// TearsDown reports whether a process that gives a block back at a moment is ending. To
// the program, which did not free it before, it is all the same whether its interpreter
// frees it at the end or the driver.
func (t *Timeline) TearsDown(pid int32, atNs int64) bool {
	if t.teardowns == nil {
		t.teardowns = t.findTeardowns()
	}
	from, ok := t.teardowns[pid]
	return ok && atNs > from
}

// findTeardowns returns for processes of which the end was seen from when on they are
// ending.
func (t *Timeline) findTeardowns() map[int32]int64 {
	found := make(map[int32]int64)
	for _, e := range t.Facts.Exits {
		found[e.Pid] = e.AtNs - teardown
	}
	var c allocatorColumns
	for _, s := range t.Allocations {
		if len(found) == 0 || !c.readNames(s.Group, false) {
			continue
		}
		c.start, c.pid = s.Group.Int64("start_ns", c.start), s.Group.Int32("pid", c.pid)
		for i, start := range c.start {
			if name := c.name.Index[i]; !c.known[name] || !c.whats[name].IsAlloc() {
				continue
			}
			if from, ok := found[c.pid[i]]; ok && start > from {
				found[c.pid[i]] = start
			}
		}
	}
	return found
}

// emit hands out a change to a block, unless it is from before the recording.
func (p *Program) emit(what livemem.ChangeKind, atNs int64, b *caching.Piece) {
	if b.Origin == origin.None {
		return
	}
	c := &p.change
	c.Kind, c.AtNs, c.Ptr, c.By = what, atNs, b.Ptr, b.Origin
	c.Block = block(b)
	p.consume(p, c)
}

// block is a block as the program sees it.
func block(b *caching.Piece) livemem.Block {
	return livemem.Block{Bytes: b.Requested, SinceNs: b.SinceNs, Origin: b.Origin}
}

// Each calls yield for everything that is live, in no order.
func (p *Program) Each(yield func(ptr int64, b livemem.Block)) {
	if p.Driver != nil {
		p.Driver.Each(func(ptr int64, b livemem.Block) {
			if !p.segments.Has(b.Number) {
				yield(ptr, b)
			}
		})
	}
	if p.Allocators == nil {
		return
	}
	for _, a := range p.Allocators.List {
		if a == nil {
			continue
		}
		a.Each(func(b *caching.Piece) {
			if b.State == caching.IsBlock && b.Origin != origin.None {
				yield(b.Ptr, block(b))
			}
		})
	}
}

// Counts are what the replay of the driver's calls could not account for.
func (p *Program) Counts() *livemem.Counts { return &p.Driver.Counts }

// HasMemory reports whether the recording has any row about memory.
func (t *Timeline) HasMemory() bool { return len(t.Memory)+len(t.Allocations) > 0 }

// firstMemoryNs is when memory was first asked for or given back.
func (t *Timeline) firstMemoryNs() (ns int64, ok bool) {
	for i, s := range slices.Concat(t.Memory, t.Allocations) {
		if i == 0 || s.FirstNs < ns {
			ns = s.FirstNs
		}
	}
	return ns, t.HasMemory()
}
