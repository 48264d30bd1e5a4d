package caching

import (
	"slices"

	"github.com/gpurec/gpurec/analyze/model/origin"
)

// Change is one step of an allocator. The consumer gets it before the model is updated, and must
// not keep the pointer. BlockResized is the exception: it comes after the update, and the new size
// applies since the block's allocation. The size of a block may become known only with the next
// event of its allocator. So an allocator's totals are exact at its own changes and at the end, not
// at those of other allocators.
type Change struct {
	Op   Op
	AtNs int64
	// Block is the block that is allocated, freed or lost. For OutOfMemory it has the size that
	// could not be allocated. For BlockResized it has its new size. A block from before the
	// recording has the origin origin.None.
	Block Piece
	// oldSize is the block's size before BlockResized.
	oldSize int64
	// DeviceFree is the free memory of the device at OutOfMemory, in bytes.
	DeviceFree int64
	// Ptr, Bytes and Origin describe the segment, or mapped range, that is added or removed.
	Ptr, Bytes int64
	Origin     int32
}

// Consumer gets every change of an allocator. It may read the allocator:
//
//	a.Totals()   the totals
//	a.Each       the blocks, live or awaiting
//	a.Ranges()   the segments; a.Within lists the blocks and holes of a segment
//
// At AllocatorEnd they describe the memory that the process held when it ended.
type Consumer func(a *Allocator, c *Change)

// Set holds the allocators of a recording.
type Set struct {
	numbers *Numbers
	rules   map[int32]Rules // allocator configurations by pid
	List    []*Allocator    // by number in Numbers; nil if an allocator has no event yet
	// Ended are the allocators whose process ended. The kernel may reuse the pid.
	Ended []*Allocator
}

// NewSet returns an empty Set. Apply adds an allocator at its first event. rules are the
// configurations by pid.
func NewSet(numbers *Numbers, rules map[int32]Rules) *Set {
	return &Set{numbers: numbers, rules: rules}
}

// of returns the allocator with a number. It creates the allocator if there is none.
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

// Exit ends the allocators of a process at atNs (Unix ns).
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

// All calls yield for every allocator, those of ended processes first.
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

// Apply applies an event.
//
// A free of an unknown pointer ends a block from before the recording. Its size follows from the
// allocator's totals; it is counted, and no total becomes negative. An alloc at the address of a
// live block proves that a free was lost. The end of a segment with live blocks proves the same.
// Where the model differs from the allocator's totals, the model takes the totals.
func (s *Set) Apply(e *Event, consume Consumer) {
	a := s.of(e.Allocator)
	a.Counts.Events++
	if a.Counts.Events == 1 {
		a.Reports = e.Op.isReport()
	}
	if a.Reports != e.Op.isReport() {
		return // the recorder never writes both kinds of events for one process
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
	case SnapshotTaken: // PyTorch reports snapshots always for device 0
	default:
		a.segmentChange(e, e.Stream, consume)
	}
}

// compare checks the allocator's totals and corrects the model. It returns the size of the block
// that an unmatched free ends.
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

// emit passes a block's change to consume. It copies the block only once, because it runs for
// nearly every event.
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

// holeFor returns the hole in which a new block starts, or None if nothing is known at its address.
// A block at that address was freed without a record. If a hole of an expandable segment is too
// small, memory mapped before the recording follows it, and the hole is deleted.
func (a *Allocator) holeFor(e *Event, consume Consumer) int32 {
	i, ok := a.at.Get(e.Ptr)
	if !ok {
		return None
	}
	if a.Pieces[i].State != IsHole {
		a.lose(&a.Pieces[i], e.AtNs, consume)
		// not joined with its neighbors, because the new block starts at the same address
		a.Pieces[i].State = IsHole
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

// lose ends a block whose free was not recorded. If the allocator's totals are known, they already
// include the free.
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
	// the free was completed unseen, and the address was used again
	if ok && a.Pieces[i].State == IsAwaiting {
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

// addOlderBlock adds a block from before the recording, so that its free_completed event finds it.
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
	case !ok || a.Pieces[i].State == IsHole: // the block was freed before the recording
		i = a.addOlderBlock(e, a.Rules.Round(e.Bytes))
		a.Before.Active += a.Pieces[i].Size
	case a.Pieces[i].State == IsBlock: // the block's free_requested event was lost
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

// forgetReserved accounts for the end of a segment from before the recording.
func (a *Allocator) forgetReserved(e *Event) {
	if !a.Check.Known[ReservedTotal] {
		a.Before.Reserved += e.Bytes
	}
}
