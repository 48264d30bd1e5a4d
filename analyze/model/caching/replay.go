package caching

import (
	"slices"

	"github.com/gpurec/gpurec/analyze/model/origin"
)

// Change is one step of an allocator. A consumer gets it before the model
// changes, and must not keep the pointer: until then, and since the step before, the
// model was what it is now. Only BlockResized comes when it is done, because it was so
// all the time since the block began: how large a block is may become known with the
// next event of its allocator. So the books of one allocator are exact when a change of
// the same allocator is handed out, or at the end.
type Change struct {
	Op   Op
	AtNs int64
	// Block is the block that begins, is given back, becomes a gap or is lost, for
	// OutOfMemory one of the size that could not be had (requested and size), for
	// BlockResized the block with its new size. A block from before the recording has
	// origin origin.None.
	Block Piece
	// oldSize of BlockResized is what the block's size was taken for.
	oldSize int64
	// DeviceFree of OutOfMemory is what the device had free, bytes.
	DeviceFree int64
	// ptr, bytes and origin of a segment that comes or goes, or of a stretch of one.
	Ptr, Bytes int64
	Origin     int32
}

// Consumer is told what an allocator does. It may read the allocator:
//
//	a.totals()   the books
//	a.each       the blocks, live or awaiting
//	a.ranges()   the segments, and with a.within what is in one, gaps too
//
// At AllocatorEnd all of that is what the process held when it ended.
type Consumer func(a *Allocator, c *Change)

// Set are the allocators of a recording, by Timeline.allocators.
type Set struct {
	numbers *Numbers
	rules   map[int32]Rules // by process
	List    []*Allocator
	// Ended are those whose process ended; a number may be used again.
	Ended []*Allocator
}

// NewSet returns no allocators yet: they come with their first events.
func NewSet(numbers *Numbers, rules map[int32]Rules) *Set {
	return &Set{numbers: numbers, rules: rules}
}

// of returns the allocator with a number.
func (s *Set) of(n int32) *Allocator {
	for len(s.List) <= int(n) {
		s.List = append(s.List, nil)
	}
	if s.List[n] == nil {
		key := s.numbers.Keys[n]
		s.List[n] = newAllocator(s, key, s.rules[key.Pid])
	}
	return s.List[n]
}

// Exit ends the allocators of a process.
func (s *Set) Exit(pid int32, atNs int64, consume Consumer) {
	for n, a := range s.List {
		if a != nil && a.Pid == pid {
			a.change = Change{Op: AllocatorEnd, AtNs: atNs, Origin: origin.None}
			consume(a, &a.change)
			s.Ended = append(s.Ended, a)
			s.List[n] = nil
		}
	}
}

// All calls yield for every allocator, those that ended first.
func (s *Set) All(yield func(*Allocator)) {
	for _, a := range s.Ended {
		yield(a)
	}
	for _, a := range s.List {
		if a != nil {
			yield(a)
		}
	}
}

// Apply makes one step.
//
// The rules: a free of an unknown pointer ends a block from before the recording, of
// which the size shows in the allocator's totals; it is counted and makes no bytes
// negative. An alloc at a live pointer, and the end of a segment with live blocks,
// prove that frees were lost. Where model and totals differ, the totals are believed.
func (s *Set) Apply(e *Event, consume Consumer) {
	a := s.of(e.Allocator)
	a.Counts.Events++
	if a.Counts.Events == 1 {
		a.Reports = e.Op.isReport()
	}
	if a.Reports != e.Op.isReport() {
		return // the recorder never writes both of one process
	}
	switch e.Op {
	case BlockAllocated:
		a.alloc(e, e.Stream, consume)
	case BlockFreeRequested:
		a.freeRequested(e, consume)
	case BlockFreeCompleted:
		a.freeCompleted(e, consume)
	case OutOfMemory:
		a.compare(e, None, consume)
		a.Counts.OutOfMemory++
		a.emit(
			consume,
			e,
			&Piece{
				Requested: e.Bytes,
				Size:      e.Bytes,
				Pool:      e.Pool,
				Stream:    e.Stream,
				Origin:    e.Origin,
				SinceNs:   e.AtNs,
				Segment:   StraySegment,
				prev:      None,
				next:      None,
			},
		)
	case ReportedAlloc:
		a.reportedAlloc(e, consume)
	case ReportedFree:
		a.reportedFree(e, consume)
	case SnapshotTaken: // torch tells it of device 0 whichever it is about
	default:
		a.segmentChange(e, e.Stream, consume)
	}
}

// compare learns from the allocator's totals; it returns the size of the block that an
// unmatched free ends.
func (a *Allocator) compare(e *Event, freed int32, consume Consumer) int64 {
	sizes := [2]int64{}
	blocks := [2]int32{a.Check.pending, freed}
	for k, i := range blocks {
		if i != None {
			sizes[k] = a.Pieces[i].Size
		}
	}
	size, corrected := a.compareAllocated(e, freed)
	a.compareReserved(e)
	if corrected != None {
		b := a.Pieces[corrected]
		a.change = Change{
			Op:      BlockResized,
			AtNs:    b.SinceNs,
			Block:   b,
			oldSize: sizes[slices.Index(blocks[:], corrected)],
			Origin:  origin.None,
		}
		consume(a, &a.change)
	}
	return size
}

// emit hands out a change to a block. It copies the block once: this is done for nearly every event.
func (a *Allocator) emit(consume Consumer, e *Event, b *Piece) {
	c := &a.change
	c.Op, c.AtNs, c.Origin = e.Op, e.AtNs, origin.None
	c.Block = *b
	c.oldSize, c.DeviceFree, c.Ptr, c.Bytes = 0, 0, 0, 0
	if e.Op == OutOfMemory {
		c.DeviceFree = e.Ptr
	}
	consume(a, c)
}

func (a *Allocator) alloc(e *Event, stream int64, consume Consumer) {
	a.compare(e, None, consume)
	at := a.holeFor(e, consume)
	size := a.sizeOf(e, at)
	b := Piece{
		Ptr:       e.Ptr,
		Size:      size,
		Requested: e.Bytes,
		SinceNs:   e.AtNs,
		Pool:      e.Pool,
		Stream:    stream,
		Origin:    e.Origin,
		Segment:   StraySegment,
		prev:      None,
		next:      None,
		State:     IsBlock,
	}
	a.emit(consume, e, &b)
	a.Counts.allocs++
	a.Seen.Allocated += size
	a.Seen.Active += size
	a.Seen.Requested += e.Bytes
	a.Seen.Allocations++
	a.Check.pending = a.take(e, at, size, stream)
}

// holeFor returns the gap in which a new block begins, or none if nothing is known there. A
// block there has ended unseen. A gap of an expandable segment that is too small for the
// block is forgotten: what was mapped before the recording goes on behind it.
func (a *Allocator) holeFor(e *Event, consume Consumer) int32 {
	i, ok := a.at.Get(e.Ptr)
	if !ok {
		return None
	}
	if a.Pieces[i].State != IsHole {
		a.lose(&a.Pieces[i], e.AtNs, consume)
		a.Pieces[i].State = IsHole // not joined: the new block begins where it did
		a.use(i, -a.Pieces[i].Size)
		if a.Pieces[i].Segment == StraySegment {
			a.drop(i)
			return None
		}
	}
	if a.Pieces[i].Segment == expandableSegment && a.room(i) < a.Rules.Round(e.Bytes) {
		a.cut(i, e.Ptr, e.Ptr+a.Pieces[i].Size)
		return a.pieceAt(e.Ptr)
	}
	return i
}

// lose ends a block of which the free was not recorded. If the allocator's totals are
// known, they have told that already.
func (a *Allocator) lose(p *Piece, atNs int64, consume Consumer) {
	b := *p
	a.change = Change{Op: BlockLost, AtNs: atNs, Block: b, Origin: origin.None}
	consume(a, &a.change)
	a.Counts.LostFrees++
	if b.State == IsBlock {
		a.Seen.Allocations--
	}
	a.Seen.Requested -= b.Requested
	if !a.Check.Known[AllocatedTotal] {
		a.Seen.Active -= b.Size
		if b.State == IsBlock {
			a.Seen.Allocated -= b.Size
		}
	}
}

func (a *Allocator) freeRequested(e *Event, consume Consumer) {
	i, ok := a.at.Get(e.Ptr)
	if ok && a.Pieces[i].State == IsAwaiting { // it has ended, and its address was handed out again
		a.lose(&a.Pieces[i], e.AtNs, consume)
		a.release(i)
	}
	if !ok || a.Pieces[i].State != IsBlock {
		i = None
	}
	size := a.compare(e, i, consume)
	if i == None {
		a.Counts.UnmatchedFrees++
		i = a.addOlderBlock(e, size)
		a.Before.Allocations++
		if !a.Check.Known[AllocatedTotal] {
			a.Before.Allocated += size
			a.Before.Active += size
		}
	} else {
		a.Counts.Frees++
	}
	a.emit(consume, e, &a.Pieces[i])
	a.Pieces[i].State = IsAwaiting
	a.Seen.Allocated -= a.Pieces[i].Size
	a.Seen.Allocations--
}

// older adds a block from before the recording, so that the end of its freeing finds it.
func (a *Allocator) addOlderBlock(e *Event, size int64) int32 {
	a.Before.Requested += e.Bytes
	return a.newPiece(
		Piece{
			Ptr:       e.Ptr,
			Size:      size,
			Requested: e.Bytes,
			Pool:      e.Pool,
			Stream:    e.Stream,
			Origin:    origin.None,
			Segment:   StraySegment,
			prev:      None,
			next:      None,
			State:     IsBlock,
		},
	)
}

func (a *Allocator) freeCompleted(e *Event, consume Consumer) {
	a.compare(e, None, consume)
	i, ok := a.at.Get(e.Ptr)
	switch {
	case !ok || a.Pieces[i].State == IsHole: // given back before the recording
		i = a.addOlderBlock(e, a.Rules.Round(e.Bytes))
		a.Before.Active += a.Pieces[i].Size
	case a.Pieces[i].State == IsBlock: // the request was lost
		a.Counts.LostFrees++
		a.Seen.Allocations--
		if !a.Check.Known[AllocatedTotal] {
			a.Seen.Allocated -= a.Pieces[i].Size
		}
	}
	a.emit(consume, e, &a.Pieces[i])
	a.Seen.Active -= a.Pieces[i].Size
	a.Seen.Requested -= a.Pieces[i].Requested
	a.release(i)
}

func (a *Allocator) segmentChange(e *Event, stream int64, consume Consumer) {
	a.compare(e, None, consume)
	n, known := a.Began[e.Ptr]
	known = known && !a.Segments[n].IsStretch()
	if known && (e.Op == SegmentAllocated || e.Op == SegmentFreed) {
		for _, p := range a.Within(&a.Segments[n]) {
			if p.State != IsHole {
				a.lose(p, e.AtNs, consume)
			}
		}
	}
	a.change = Change{Op: e.Op, AtNs: e.AtNs, Ptr: e.Ptr, Bytes: e.Bytes, Origin: e.Origin}
	consume(a, &a.change)
	switch e.Op {
	case SegmentAllocated:
		if known {
			a.Counts.LostFrees++
			a.removeSegment(n)
		}
		a.addSegment(e, stream)
		a.Seen.Reserved += e.Bytes
	case SegmentFreed:
		if known {
			a.removeSegment(n)
		} else {
			a.Before.Segments++
			a.Seen.Segments--
			a.forgetReserved(e)
		}
		a.Seen.Reserved -= e.Bytes
	case SegmentMapped:
		a.addMapping(e, stream)
		a.Seen.Reserved += e.Bytes
	case SegmentUnmapped:
		if !a.removeMapping(e) {
			a.forgetReserved(e)
		}
		a.Seen.Reserved -= e.Bytes
	}
}

// forgetReserved accounts for the end of memory that was there before the recording.
func (a *Allocator) forgetReserved(e *Event) {
	if !a.Check.Known[ReservedTotal] {
		a.Before.Reserved += e.Bytes
	}
}
