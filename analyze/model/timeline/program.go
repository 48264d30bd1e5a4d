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

// ProgramMemory is the memory of a recording as the recorded program sees it. A program with a
// caching allocator does not see the segments that the allocator gets from the driver; it sees the
// blocks that it allocates. So Program has the blocks of caching allocators, and the driver memory
// that is not a segment of an allocator.
type ProgramMemory struct {
	T          *Timeline
	Driver     *livemem.Set
	Allocators *caching.AllocatorSet
	// Block.Number of the driver memory that is a segment of an allocator
	segments *livemem.BlockNumberSet
	consume  func(*ProgramMemory, *livemem.Change)
	change   livemem.Change // the change value is reused for every replay step, to save an allocation
}

// ReplayProgram replays the recording as a Program. A block ends when the program frees it, even if
// a stream still uses it, and has the requested size. The callbacks onDriver and onAllocator, if
// not nil, get all changes of driver memory and of caching allocators.
func (t *Timeline) ReplayProgram(
	consume func(*ProgramMemory, *livemem.Change),
	onDriver func(*livemem.Change),
	onAllocator caching.ChangeConsumer,
) (*ProgramMemory, error) {
	return t.NewProgramReplay(consume, onDriver, onAllocator).Finish()
}

// ProgramReplay is a replay of a ProgramMemory that continues as the recording grows: Extend adds rows to its Timeline,
// and Advance replays them. Finish ends it, and so does an error. It is not safe for concurrent use, and not while
// Extend runs.
type ProgramReplay struct {
	memory      *ProgramMemory
	replay      *MemoryReplay  // nil before the first Advance or Finish
	search      *SegmentSearch // nil before the first Advance
	onDriver    func(*livemem.Change)
	onAllocator caching.ChangeConsumer
}

// segmentDelayNs is how far Advance keeps a program's replay behind the search for segments. An allocator gets a
// segment from the driver first; the event that proves the segment comes within this time.
const segmentDelayNs = int64(time.Second)

// NewProgramReplay returns a replay of the recording as a ProgramMemory, as ReplayProgram does it.
func (t *Timeline) NewProgramReplay(
	consume func(*ProgramMemory, *livemem.Change),
	onDriver func(*livemem.Change),
	onAllocator caching.ChangeConsumer,
) *ProgramReplay {
	m := &ProgramMemory{T: t, consume: consume, segments: new(livemem.BlockNumberSet)}
	return &ProgramReplay{memory: m, onDriver: onDriver, onAllocator: onAllocator}
}

// Memory returns the memory after the changes so far.
func (r *ProgramReplay) Memory() *ProgramMemory { return r.memory }

// Advance searches for segments before untilNs, Unix ns, and replays the program before untilNs - 1 s. untilNs has the
// meaning of MemoryReplay.Advance. Memory that only later turns out to be a segment, because an allocator had it before
// its first event, was then passed to consume, but its end is not. It returns errors of reading the recording.
func (r *ProgramReplay) Advance(untilNs int64) error {
	if r.search == nil {
		r.search = r.memory.T.NewSegmentSearch(nil)
		r.memory.segments = &r.search.found
		r.beginReplay(true)
	}
	if err := r.search.Advance(untilNs); err != nil {
		return err
	}
	return r.replay.Advance(untilNs - segmentDelayNs)
}

// Finish replays the rest of the recording, and returns the final memory. It returns errors of reading the recording.
func (r *ProgramReplay) Finish() (*ProgramMemory, error) {
	t := r.memory.T
	hasAllocators := len(t.Allocations)+len(t.earlierStates) > 0 || t.readings != nil && t.readings.HasReadings()
	switch {
	case r.search != nil:
		if err := r.search.Finish(); err != nil {
			return nil, err
		}
		if !hasAllocators {
			r.replay.omitEarlierStates()
		}
	case hasAllocators && t.segments == nil:
		if err := t.FindSegments(nil); err != nil {
			return nil, err
		}
	}
	if r.replay == nil {
		r.beginReplay(hasAllocators)
		if hasAllocators {
			r.memory.segments = t.segments
		}
	}
	return r.memory, r.replay.Finish()
}

// beginReplay sets replay, with or without the events of allocators.
func (r *ProgramReplay) beginReplay(hasAllocators bool) {
	m := r.memory
	replayDriver := func(_ *livemem.Set, c *livemem.Change) {
		m.applyDriverChange(c)
		if r.onDriver != nil {
			r.onDriver(c)
		}
	}
	if !hasAllocators {
		r.replay = m.T.NewMemoryReplay(replayDriver)
		m.Driver, m.Allocators = r.replay.Live(), caching.NewAllocatorSet(&m.T.Allocators, m.T.Facts.AllocatorRules)
		return
	}
	r.replay = m.T.NewMemoryAndAllocatorReplay(replayDriver, func(a *caching.Allocator, c *caching.AllocatorChange) {
		m.applyAllocatorChange(a, c)
		if r.onAllocator != nil {
			r.onAllocator(a, c)
		}
	})
	m.Driver, m.Allocators = r.replay.Live(), r.replay.Allocators
}

// FindSegments finds the driver memory that caching allocators use for segments. It searches memory
// at the address of a segment event, around a reported block, and allocated by code of the
// allocator. It also searches memory that the allocator had before its events were recorded. The
// callback onDriver, if not nil, gets all changes of driver memory.
func (t *Timeline) FindSegments(onDriver func(*livemem.Change)) error {
	return t.NewSegmentSearch(onDriver).Finish()
}

// NewSegmentSearch returns a search for segments, as FindSegments does it.
func (t *Timeline) NewSegmentSearch(onDriver func(*livemem.Change)) *SegmentSearch {
	s := &SegmentSearch{
		t:          t,
		inside:     make(map[int32]bool),
		tries:      make(map[*caching.Allocator]int),
		candidates: make(map[int32]*SegmentCandidates),
		byReports:  t.Facts.CountReportedAllocators() > 0,
	}
	s.replay = t.newReplayOfBoth(true, func(l *livemem.Set, c *livemem.Change) {
		s.applyDriverChange(l, c)
		if onDriver != nil {
			onDriver(c)
		}
	}, s.applyAllocatorChange)
	s.replay.onReading = s.applyReading
	return s
}

// Advance searches before untilNs, Unix ns, which has the meaning of MemoryReplay.Advance. It returns errors of reading
// the recording.
func (s *SegmentSearch) Advance(untilNs int64) error {
	s.byReports = true // an allocator may become known later
	return s.replay.Advance(untilNs)
}

// Finish searches the rest of the recording. IsSegment has the result. It returns errors of reading the recording.
func (s *SegmentSearch) Finish() error {
	err := s.replay.Finish()
	if err == nil {
		s.t.segments = &s.found
	}
	return err
}

// IsSegment reports whether the driver memory with this Block.Number is a segment of a caching
// allocator. It returns false before FindSegments or ReplayProgram.
func (t *Timeline) IsSegment(number int32) bool {
	return number == livemem.EarlierNumber || t.segments != nil && t.segments.Has(number)
}

// SegmentSearch finds the driver memory that caching allocators use for segments. It continues as the recording grows:
// Extend adds rows to its Timeline, and Advance reads them. Finish ends it, and so does an error. It is not safe for
// concurrent use, and not while Extend runs.
type SegmentSearch struct {
	t        *Timeline
	replay   *MemoryReplay
	driver   *livemem.Set
	reported livemem.BlockNumberSet // memory at the address of an allocator's event
	inner    livemem.BlockNumberSet // memory that code of an allocator allocated
	found    livemem.BlockNumberSet // both
	inside   map[int32]bool         // by stack: whether it passes through an allocator
	// how often findSegmentsAllocatedBefore was tried for an allocator; maxSegmentSearchTries: done
	tries map[*caching.Allocator]int
	// candidates has the driver memory of each process, if allocators are known only from reported
	// statistics.
	candidates map[int32]*SegmentCandidates
	byReports  bool
}

// addReported adds memory at the address of an allocator's event.
func (s *SegmentSearch) addReported(number int32) {
	s.reported.AddNumber(number)
	s.found.AddNumber(number)
}

func (s *SegmentSearch) applyDriverChange(l *livemem.Set, c *livemem.Change) {
	s.driver = l
	if c.Block.Number == livemem.EarlierNumber {
		return
	}
	if c.Kind == livemem.ChangeAllocated && s.t.isAllocatorStack(s.t.Origins.List[c.Block.Origin].Stack, s.inside) {
		s.inner.AddNumber(c.Block.Number)
		s.found.AddNumber(c.Block.Number)
	}
	if s.byReports && s.t.Origins.MemoryKindOf(c.Block.Origin) == format.MemoryDevice {
		s.candidatesOf(s.t.Origins.Process[c.Block.Origin]).ApplyChange(c)
	}
}

func (s *SegmentSearch) candidatesOf(process int32) *SegmentCandidates {
	l := s.candidates[process]
	if l == nil {
		l = new(SegmentCandidates)
		s.candidates[process] = l
	}
	return l
}

// applyReading adds the memory that a reading shows to be segments.
func (s *SegmentSearch) applyReading(state *caching.EarlierState) {
	process, ok := s.t.Origins.Pids[state.Pid]
	if s.driver == nil || !ok {
		return
	}
	h := s.driver.MemoryOfProcess(process)
	for i := range state.Segments {
		g := &state.Segments[i]
		c := caching.AllocatorChange{Op: caching.OpSegmentAllocated, Ptr: g.Ptr, Bytes: g.Bytes}
		if g.IsExpandable {
			c.Op = caching.OpSegmentMapped
		}
		s.findSegmentBlock(h, &c, s.addReported)
	}
}

func (s *SegmentSearch) applyAllocatorChange(a *caching.Allocator, c *caching.AllocatorChange) {
	process, ok := s.t.Origins.Pids[a.Pid]
	if s.driver == nil || !ok {
		return
	}
	h := s.driver.MemoryOfProcess(process)
	if a.Reports {
		if number, ok := s.candidatesOf(process).BlockAround(c.Block.Ptr); ok {
			s.addReported(number)
		} else if c.Op == caching.OpBlockAllocated {
			s.findMappedBlocks(h, c.Block.Ptr, c.Block.Size, s.addReported)
		}
		if s.tries[a] < maxSegmentSearchTries && a.Check.Known[caching.AllocatedTotalIndex] && a.Counts.Events > 1 &&
			s.findSegmentsAllocatedBefore(h, a, a.Totals().Reserved) {
			s.tries[a] = maxSegmentSearchTries
		}
		s.tries[a]++
		return
	}
	s.findSegmentBlock(h, c, s.addReported)
	if s.tries[a] == 0 && a.Check.Known[caching.ReservedTotalIndex] {
		s.tries[a] = maxSegmentSearchTries
		s.findSegmentsAllocatedBefore(h, a, a.Before.Reserved)
	}
}

// maxSegmentSearchTries bounds the search for the memory that an allocator known from reported
// statistics had at its first report. A try fails if the allocator has got more memory from the
// driver since.
const maxSegmentSearchTries = 256

// findSegmentBlock calls yield for the driver memory of a new segment.
func (s *SegmentSearch) findSegmentBlock(
	h *livemem.ProcessMemory,
	c *caching.AllocatorChange,
	yield func(number int32),
) {
	switch c.Op {
	case caching.OpSegmentAllocated:
		if b, ok := h.Pointers.Get(c.Ptr); ok && b.Number != livemem.EarlierNumber {
			yield(b.Number)
		}
	case caching.OpSegmentMapped:
		s.findMappedBlocks(h, c.Ptr, c.Bytes, yield)
	}
}

// findMappedBlocks calls yield for the physical memory mapped to an address range.
func (s *SegmentSearch) findMappedBlocks(
	h *livemem.ProcessMemory,
	ptr, bytes int64,
	yield func(number int32),
) {
	h.Mappings.EachOverlapping(ptr, units.EndOfRange(ptr, bytes), func(m livemem.Mapping) {
		if m.Handle != nil && m.Handle.Borrows == 0 && m.Handle.Block.Number != livemem.EarlierNumber {
			yield(m.Handle.Block.Number)
		}
	})
}

// findSegmentsAllocatedBefore adds memory that the allocator must have had before its first event or
// report. Candidates are memory allocated by the allocator's code, or without a stack. They are added
// only if their sizes sum up to the allocator's reserved bytes.
func (s *SegmentSearch) findSegmentsAllocatedBefore(
	h *livemem.ProcessMemory,
	a *caching.Allocator,
	reserved int64,
) bool {
	var before livemem.BlockNumberSet
	bytes := int64(0)
	h.EachBlock(func(_ int64, b livemem.Block) {
		if b.Number == livemem.EarlierNumber {
			if s.t.Origins.List[b.Origin].Device == a.Device {
				bytes += b.Bytes
			}
			return
		}
		isReported := s.reported.Has(b.Number)
		isCandidate := s.inner.Has(b.Number) || isReported || s.t.SiteOfOrigin(b.Origin) == NoStackSite
		if isCandidate && (a.Reports || !isReported) && s.t.Origins.List[b.Origin].Device == a.Device &&
			b.Bytes%caching.SmallSegmentBytes == 0 &&
			!s.t.IsHostOrigin(b.Origin) {
			before.AddNumber(b.Number)
			bytes += b.Bytes
		}
	})
	if bytes != reserved {
		return false
	}
	s.inner.Union(before)
	s.found.Union(before)
	return true
}

// isAllocatorStack reports whether a stack passes through PyTorch's caching allocator. known caches
// the answers.
func (t *Timeline) isAllocatorStack(stack int32, known map[int32]bool) bool {
	answer, ok := known[stack]
	if !ok {
		answer = slices.ContainsFunc(t.Stacks.Stacks[stack], func(id int32) bool {
			return strings.HasPrefix(symbolize.ModuleName(t.Stacks.Frames[id].Module), "libc10_cuda")
		})
		known[stack] = answer
	}
	return answer
}

func (p *ProgramMemory) applyDriverChange(c *livemem.Change) {
	if c.Kind == livemem.ChangeAllocFailed || !p.isSegment(&c.Block) {
		p.consume(p, c)
	}
}

// isSegment reports whether driver memory is a segment of an allocator.
func (p *ProgramMemory) isSegment(b *livemem.Block) bool {
	return b.Number == livemem.EarlierNumber || p.segments.Has(b.Number)
}

// applyAllocatorChange emits the change that a caching allocator's event means to the program.
func (p *ProgramMemory) applyAllocatorChange(a *caching.Allocator, c *caching.AllocatorChange) {
	switch c.Op {
	case caching.OpBlockAllocated:
		p.emitChange(livemem.ChangeAllocated, c.AtNs, a, &c.Block)
	case caching.OpBlockFound:
		if c.Block.State == caching.PieceBlock {
			p.emitChange(livemem.ChangeAllocated, c.AtNs, a, &c.Block)
		}
	case caching.OpBlockFreeRequested:
		kind := livemem.ChangeFreed
		if p.T.IsInTeardown(a.Pid, c.AtNs) {
			kind = livemem.ChangeFreedByExit
		}
		p.emitChange(kind, c.AtNs, a, &c.Block)
	case caching.OpBlockLost:
		if c.Block.State == caching.PieceBlock {
			p.emitChange(p.kindOfLostFree(a, c), c.AtNs, a, &c.Block)
		}
	case caching.OpAllocatorEnd:
		a.EachLiveBlock(func(b *caching.SegmentPiece) {
			if b.State == caching.PieceBlock {
				p.emitChange(livemem.ChangeFreedByExit, c.AtNs, a, b)
			}
		})
	}
}

// kindOfLostFree returns the kind of a change that ends a block whose free was not recorded. If events were not recorded
// meanwhile, it is that of a free.
func (p *ProgramMemory) kindOfLostFree(a *caching.Allocator, c *caching.AllocatorChange) livemem.ChangeKind {
	switch {
	case !c.IsUnseen:
		return livemem.ChangeFreeLost
	case p.T.IsInTeardown(a.Pid, c.AtNs):
		return livemem.ChangeFreedByExit
	}
	return livemem.ChangeFreed
}

// teardownNs is the length of the phase before a process's end in which frees count as part of the
// end, unless the process allocates again. Python frees the memory of modules then, and contexts
// with much memory take seconds to destroy.
const teardownNs = int64(10 * time.Second)

// IsInTeardown reports whether a process is in the teardown before its end at atNs (Unix ns).
// Memory that the interpreter frees then was not freed by the program, just like memory that the
// driver frees.
func (t *Timeline) IsInTeardown(pid int32, atNs int64) bool {
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
		found[e.Pid] = e.AtNs - teardownNs
	}
	if len(found) > 0 {
		t.readLastBlocks()
	}
	for pid, from := range found {
		if last, ok := t.blockAllocs.ns[pid]; ok {
			found[pid] = max(from, last)
		}
	}
	return found
}

// readLastBlocks finds when each process last allocated a block of a caching allocator.
func (t *Timeline) readLastBlocks() {
	last := &t.blockAllocs
	if last.ns == nil {
		last.ns = make(map[int32]int64)
	}
	var c allocatorColumns
	for _, s := range t.Allocations[last.spans:] {
		if !c.readNames(s.Group, false) {
			continue
		}
		c.start, c.pid = s.Group.Int64("start_ns", c.start), s.Group.Int32("pid", c.pid)
		for i, start := range c.start {
			name, pid := c.name.Index[i], c.pid[i]
			if !c.known[name] || !c.ops[name].AllocatesBlock() {
				continue
			}
			if ns, ok := last.ns[pid]; !ok || start > ns {
				last.ns[pid] = start
			}
		}
	}
	last.spans = len(t.Allocations)
}

// emitChange passes a change of an allocator's block to the consumer. Blocks from before the recording are skipped,
// unless they were read from the process.
func (p *ProgramMemory) emitChange(
	kind livemem.ChangeKind,
	atNs int64,
	a *caching.Allocator,
	b *caching.SegmentPiece,
) {
	c := &p.change
	var known bool
	if c.Block, known = p.newProgramBlock(a, b); !known {
		return
	}
	c.Kind, c.AtNs, c.Ptr, c.By = kind, atNs, b.Ptr, c.Block.Origin
	p.consume(p, c)
}

// newProgramBlock returns a block with the requested size, as the program sees it. It returns false for a block from
// before the recording that was not read from the process.
func (p *ProgramMemory) newProgramBlock(a *caching.Allocator, b *caching.SegmentPiece) (livemem.Block, bool) {
	id := b.Origin
	switch {
	case b.IsEarlier:
		id = p.T.Origins.NumberOfEarlier(
			a.Pid, a.Device, b.Stream, format.MemoryTorch, caching.FormatPool(b.Pool),
		)
	case b.IsUnseen && b.SinceNs > 0: // otherwise only its end is known
		id = p.T.Origins.NumberOfUnseen(
			a.Pid, a.Device, b.Stream, format.MemoryTorch, caching.FormatPool(b.Pool),
		)
	}
	return livemem.Block{Bytes: b.Requested, SinceNs: b.SinceNs, Origin: id}, id != origin.NoOrigin
}

// EachBlock calls yield for every live block, in no order.
func (p *ProgramMemory) EachBlock(yield func(ptr int64, b livemem.Block)) {
	if p.Driver != nil {
		p.Driver.EachBlock(func(ptr int64, b livemem.Block) {
			if !p.isSegment(&b) {
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
		a.EachLiveBlock(func(b *caching.SegmentPiece) {
			if block, known := p.newProgramBlock(a, b); known && b.State == caching.PieceBlock {
				yield(b.Ptr, block)
			}
		})
	}
}

// DriverCounts returns the counts of the driver calls' replay.
func (p *ProgramMemory) DriverCounts() *livemem.ReplayCounts { return &p.Driver.Counts }

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
