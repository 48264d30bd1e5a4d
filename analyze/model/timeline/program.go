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

// Program is the memory of a recording as the recorded program sees it. A program with a caching
// allocator does not see the segments that the allocator gets from the driver; it sees the blocks
// that it allocates. So Program has the blocks of caching allocators, and the driver memory that is
// not a segment of an allocator.
type Program struct {
	T          *Timeline
	Driver     *livemem.Set
	Allocators *caching.Set
	// Block.Number of the driver memory that is a segment of an allocator
	segments livemem.BlockSet
	consume  func(*Program, *livemem.Change)
	change   livemem.Change // reused for every step, to save an allocation
}

// ReplayProgram replays the recording as a Program. A block ends when the program frees it, even if
// a stream still uses it, and has the requested size. The callbacks onDriver and onAllocator, if
// not nil, get all changes of driver memory and of caching allocators.
func (t *Timeline) ReplayProgram(
	consume func(*Program, *livemem.Change),
	onDriver func(*livemem.Change),
	onAllocator caching.Consumer,
) (*Program, error) {
	p := &Program{T: t, consume: consume}
	replayDriver := func(l *livemem.Set, c *livemem.Change) {
		p.Driver = l
		p.driverChange(c)
		if onDriver != nil {
			onDriver(c)
		}
	}
	var err error
	if len(t.Allocations) == 0 {
		p.Allocators = caching.NewSet(&t.Allocators, t.Facts.AllocatorRules)
		p.Driver, err = t.Replay(replayDriver)
		return p, err
	}
	if t.segments == nil {
		if err = t.FindSegments(nil); err != nil {
			return nil, err
		}
	}
	p.segments = *t.segments
	p.Driver, p.Allocators, err = t.ReplayAll(replayDriver, func(a *caching.Allocator, c *caching.Change) {
		p.Allocators = a.Set
		p.allocatorChange(a, c)
		if onAllocator != nil {
			onAllocator(a, c)
		}
	})
	return p, err
}

// FindSegments finds the driver memory that caching allocators use for segments. It searches memory
// at the address of a segment event, around a reported block, and allocated by code of the
// allocator. It also searches memory that the allocator had before its events were recorded. The
// callback onDriver, if not nil, gets all changes of driver memory.
func (t *Timeline) FindSegments(onDriver func(*livemem.Change)) error {
	s := segmentSearch{
		t:          t,
		inside:     make(map[int32]bool),
		tries:      make(map[*caching.Allocator]int),
		candidates: make(map[int32]*SegmentCandidates),
		byReports:  t.Facts.Reported() > 0,
	}
	_, _, err := t.replayTogether(true, func(l *livemem.Set, c *livemem.Change) {
		s.driverChange(l, c)
		if onDriver != nil {
			onDriver(c)
		}
	}, s.allocatorChange)
	if err == nil {
		s.reported.Union(s.inner)
		t.segments = &s.reported
	}
	return err
}

// segmentSearch finds the driver memory that caching allocators use for segments.
type segmentSearch struct {
	t        *Timeline
	driver   *livemem.Set
	reported livemem.BlockSet // memory at the address of an allocator's event
	inner    livemem.BlockSet // memory that code of an allocator allocated
	inside   map[int32]bool   // by stack: whether it passes through an allocator
	// how often findOlder was tried for an allocator; maxTries: done
	tries map[*caching.Allocator]int
	// candidates has the driver memory of each process, if allocators are known only from reported
	// statistics.
	candidates map[int32]*SegmentCandidates
	byReports  bool
}

func (s *segmentSearch) driverChange(l *livemem.Set, c *livemem.Change) {
	s.driver = l
	if c.Kind == livemem.Allocated && s.t.fromAllocator(s.t.Origins.List[c.Block.Origin].Stack, s.inside) {
		s.inner.Add(c.Block.Number)
	}
	if s.byReports && s.t.Origins.Memory(c.Block.Origin) == format.MemoryDevice {
		s.candidatesOf(s.t.Origins.Process[c.Block.Origin]).Note(c)
	}
}

func (s *segmentSearch) candidatesOf(process int32) *SegmentCandidates {
	l := s.candidates[process]
	if l == nil {
		l = new(SegmentCandidates)
		s.candidates[process] = l
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
		if number, ok := s.candidatesOf(process).Around(c.Block.Ptr); ok {
			s.reported.Add(number)
		} else if c.Op == caching.BlockAllocated {
			s.mapped(h, c.Block.Ptr, c.Block.Size, s.reported.Add)
		}
		if s.tries[a] < maxTries && a.Check.Known[caching.AllocatedTotal] && a.Counts.Events > 1 &&
			s.findOlder(h, a, a.Totals().Reserved) {
			s.tries[a] = maxTries
		}
		s.tries[a]++
		return
	}
	s.at(h, c, s.reported.Add)
	if s.tries[a] == 0 && a.Check.Known[caching.ReservedTotal] {
		s.tries[a] = maxTries
		s.findOlder(h, a, a.Before.Reserved)
	}
}

// maxTries bounds the search for the memory that an allocator known from reported statistics had at
// its first report. A try fails if the allocator has got more memory from the driver since.
const maxTries = 256

// at calls yield for the driver memory of a new segment.
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

// mapped calls yield for the physical memory mapped to an address range.
func (s *segmentSearch) mapped(h *livemem.ProcessMemory, ptr, bytes int64, yield func(number int32)) {
	h.Mappings.Overlapping(ptr, units.EndOf(ptr, bytes), func(m livemem.Mapping) {
		if m.Handle != nil && m.Handle.Borrows == 0 {
			yield(m.Handle.Block.Number)
		}
	})
}

// findOlder adds memory that the allocator must have had before its first event or report.
// Candidates are memory allocated by the allocator's code, or without a stack. They are added only
// if their sizes sum up to the allocator's reserved bytes.
func (s *segmentSearch) findOlder(h *livemem.ProcessMemory, a *caching.Allocator, reserved int64) bool {
	var before livemem.BlockSet
	bytes := int64(0)
	h.Each(func(_ int64, b livemem.Block) {
		isReported := s.reported.Has(b.Number)
		isCandidate := s.inner.Has(b.Number) || isReported || s.t.SiteLabel(b.Origin) == NoStack
		if isCandidate && (a.Reports || !isReported) && s.t.Origins.List[b.Origin].Device == a.Device &&
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

// fromAllocator reports whether a stack passes through PyTorch's caching allocator. known caches
// the answers.
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

// allocatorChange emits the change that a caching allocator's event means to the program.
func (p *Program) allocatorChange(a *caching.Allocator, c *caching.Change) {
	switch c.Op {
	case caching.BlockAllocated:
		p.emit(livemem.Allocated, c.AtNs, &c.Block)
	case caching.BlockFreeRequested:
		kind := livemem.Freed
		if p.T.TearsDown(a.Pid, c.AtNs) {
			kind = livemem.FreedByExit
		}
		p.emit(kind, c.AtNs, &c.Block)
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

// teardown is the length of the phase before a process's end in which frees count as part of the
// end, unless the process allocates again. Python frees the memory of modules then, and contexts
// with much memory take seconds to destroy.
const teardown = int64(10 * time.Second)

// TearsDown reports whether a process is in the teardown before its end at atNs (Unix ns). Memory
// that the interpreter frees then was not freed by the program, just like memory that the driver
// frees.
func (t *Timeline) TearsDown(pid int32, atNs int64) bool {
	if t.teardowns == nil {
		t.teardowns = t.findTeardowns()
	}
	from, ok := t.teardowns[pid]
	return ok && atNs > from
}

// findTeardowns returns the start of the teardown, Unix ns, of each process whose end was recorded.
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
			if name := c.name.Index[i]; !c.known[name] || !c.ops[name].IsAlloc() {
				continue
			}
			if from, ok := found[c.pid[i]]; ok && start > from {
				found[c.pid[i]] = start
			}
		}
	}
	return found
}

// emit passes a change of a block to the consumer. Blocks from before the recording are skipped.
func (p *Program) emit(kind livemem.ChangeKind, atNs int64, b *caching.Piece) {
	if b.Origin == origin.None {
		return
	}
	c := &p.change
	c.Kind, c.AtNs, c.Ptr, c.By = kind, atNs, b.Ptr, b.Origin
	c.Block = block(b)
	p.consume(p, c)
}

// block returns a block with the requested size, as the program sees it.
func block(b *caching.Piece) livemem.Block {
	return livemem.Block{Bytes: b.Requested, SinceNs: b.SinceNs, Origin: b.Origin}
}

// Each calls yield for every live block, in no order.
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

// Counts returns the counts of the driver calls' replay.
func (p *Program) Counts() *livemem.Counts { return &p.Driver.Counts }

// HasMemory reports whether the recording has any memory call or allocator event.
func (t *Timeline) HasMemory() bool { return len(t.Memory)+len(t.Allocations) > 0 }

// firstMemoryNs returns the time of the first memory call or allocator event, Unix ns.
func (t *Timeline) firstMemoryNs() (ns int64, ok bool) {
	for i, s := range slices.Concat(t.Memory, t.Allocations) {
		if i == 0 || s.FirstNs < ns {
			ns = s.FirstNs
		}
	}
	return ns, t.HasMemory()
}
