package caching

import (
	"slices"

	"github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/query"
)

// AllocatorChange is one step of an allocator. The consumer gets it before the model is updated,
// and must not keep the pointer. OpBlockFound and OpBlockResized are exceptions: they come after the update. A new size
// applies since the block's allocation. The size of a block may become known only with
// the next event of its allocator. So an allocator's totals are exact at its own changes and at the
// end, not at those of other allocators.
type AllocatorChange struct {
	Op   AllocatorOp
	AtNs int64
	// Block is the block that is allocated, freed or lost. For OpOutOfMemory it has the size that
	// could not be allocated. For OpBlockResized it has its new size. A block from before the
	// recording has the origin origin.NoOrigin.
	Block SegmentPiece
	// oldSize is the block's size before OpBlockResized.
	oldSize int64
	// DeviceFree is the free memory of the device at OpOutOfMemory, in bytes.
	DeviceFree int64
	// Ptr, Bytes and Origin describe the segment, or mapped range, that is added or removed.
	Ptr, Bytes int64
	Origin     int32
	// IsUnseen is set if events were not recorded before: a block that was allocated, or ended, without a recorded
	// event did so then.
	IsUnseen bool
	// Own are the totals of OpTotalsRead; nil for other operations.
	Own *TotalsChange
}

// ChangeConsumer gets every change of an allocator. It may read the allocator:
//
//	a.Totals()   the totals
//	a.Each       the blocks, live or awaiting
//	a.Ranges()   the segments; a.Within lists the blocks and holes of a segment
//
// At OpAllocatorEnd they describe the memory that the process held when it ended.
type ChangeConsumer func(a *Allocator, c *AllocatorChange)

// AllocatorSet holds the allocators of a recording.
type AllocatorSet struct {
	numbers *AllocatorNumbers
	rules   map[int32]AllocatorRules // allocator configurations by pid
	earlier []*EarlierState          // states that are not applied yet, in order of time
	gaps    []query.Window           // times without events, in order of time
	// gapsBegun is the number of gaps that began so far.
	gapsBegun int
	List      []*Allocator // by number in Numbers; nil if an allocator has no event yet
	// Ended are the allocators whose process ended. The kernel may reuse the pid.
	Ended []*Allocator
}

// NewAllocatorSet returns an empty Set. Apply adds an allocator at its first event. rules are the
// configurations by pid.
func NewAllocatorSet(numbers *AllocatorNumbers, rules map[int32]AllocatorRules) *AllocatorSet {
	return &AllocatorSet{numbers: numbers, rules: rules}
}

// allocatorOf returns the allocator with a number. It creates the allocator if there is none.
func (s *AllocatorSet) allocatorOf(n int32) *Allocator {
	for len(s.List) <= int(n) {
		s.List = append(s.List, nil)
	}
	if s.List[n] == nil {
		key := s.numbers.Keys[n]
		s.List[n] = newAllocator(s, key, s.rules[key.Pid])
		s.List[n].isStale = s.gapsBegun > 0
	}
	return s.List[n]
}

// EndProcess ends the allocators of a process at atNs (Unix ns).
func (s *AllocatorSet) EndProcess(pid int32, atNs int64, consume ChangeConsumer) {
	for n, a := range s.List {
		if a != nil && a.Pid == pid {
			a.change = AllocatorChange{Op: OpAllocatorEnd, AtNs: atNs, Origin: origin.NoOrigin}
			consume(a, &a.change)
			s.Ended = append(s.Ended, a)
			s.List[n] = nil
		}
	}
}

// EachAllocator calls yield for every allocator, those of ended processes first.
func (s *AllocatorSet) EachAllocator(yield func(*Allocator)) {
	for _, a := range s.Ended {
		yield(a)
	}
	for _, a := range s.List {
		if a != nil {
			yield(a)
		}
	}
}

// ApplyEvent applies an allocator event to the allocator's model.
//
// A free of an unknown pointer ends a block from before the recording. Its size follows from the
// allocator's totals; it is counted, and no total becomes negative. An alloc at the address of a
// live block proves that a free was lost. The end of a segment with live blocks proves the same.
// Where the model differs from the allocator's totals, the model takes the totals.
func (s *AllocatorSet) ApplyEvent(e *AllocatorEvent, consume ChangeConsumer) {
	if len(s.gaps) > 0 {
		s.enterGaps(e.AtNs)
	}
	a := s.allocatorOf(e.Allocator)
	a.Counts.Events++
	if a.Counts.Events == 1 {
		a.Reports = e.Op.isReportedStatistic()
	}
	if a.Reports != e.Op.isReportedStatistic() {
		return // the recorder never writes both kinds of events for one process
	}
	switch e.Op {
	case OpBlockAllocated:
		a.applyAlloc(e, e.Stream, consume)
	case OpBlockFreeRequested:
		a.applyFreeRequested(e, consume)
	case OpBlockFreeCompleted:
		a.applyFreeCompleted(e, consume)
	case OpOutOfMemory:
		a.compareTotals(e, NoPiece, consume)
		a.Counts.OutOfMemory++
		a.emitChange(
			consume,
			e,
			&SegmentPiece{
				Requested: e.Bytes,
				Size:      e.Bytes,
				Pool:      e.Pool,
				Stream:    e.Stream,
				Origin:    e.Origin,
				SinceNs:   e.AtNs,
				Segment:   UnrecordedSegmentIndex,
				prev:      NoPiece,
				next:      NoPiece,
			},
		)
	case OpReportedAlloc:
		a.applyReportedAlloc(e, consume)
	case OpReportedFree:
		a.applyReportedFree(e, consume)
	case OpSnapshotTaken: // PyTorch reports snapshots always for device 0
	default:
		a.applySegmentEvent(e, e.Stream, consume)
	}
}

// compareTotals checks the allocator's totals and corrects the model. It returns the size of the
// block that an unmatched free ends.
func (a *Allocator) compareTotals(e *AllocatorEvent, freed int32, consume ChangeConsumer) int64 {
	sizes := [2]int64{}
	blocks := [2]int32{a.Check.pending, freed}
	for k, i := range blocks {
		if i != NoPiece {
			sizes[k] = a.Pieces[i].Size
		}
	}
	size, corrected := a.compareAllocatedBytes(e, freed)
	a.compareReservedBytes(e)
	if corrected != NoPiece {
		b := a.Pieces[corrected]
		a.change = AllocatorChange{
			Op:      OpBlockResized,
			AtNs:    b.SinceNs,
			Block:   b,
			oldSize: sizes[slices.Index(blocks[:], corrected)],
			Origin:  origin.NoOrigin,
		}
		consume(a, &a.change)
	}
	return size
}

// emitChange passes a block's change to consume. It copies the block only once, because it runs for
// nearly every event.
func (a *Allocator) emitChange(consume ChangeConsumer, e *AllocatorEvent, b *SegmentPiece) {
	c := &a.change
	c.Op, c.AtNs, c.Origin = e.Op, e.AtNs, origin.NoOrigin
	c.Block = *b
	c.oldSize, c.DeviceFree, c.Ptr, c.Bytes, c.IsUnseen = 0, 0, 0, 0, false
	if e.Op == OpOutOfMemory {
		c.DeviceFree = e.Ptr
	}
	consume(a, c)
}

func (a *Allocator) applyAlloc(e *AllocatorEvent, stream int64, consume ChangeConsumer) {
	a.compareTotals(e, NoPiece, consume)
	at := a.findHoleForBlock(e, consume)
	size := a.predictBlockSize(e, at)
	b := SegmentPiece{
		Ptr:       e.Ptr,
		Size:      size,
		Requested: e.Bytes,
		SinceNs:   e.AtNs,
		Pool:      e.Pool,
		Stream:    stream,
		Origin:    e.Origin,
		Segment:   UnrecordedSegmentIndex,
		prev:      NoPiece,
		next:      NoPiece,
		State:     PieceBlock,
	}
	a.emitChange(consume, e, &b)
	a.Counts.allocs++
	a.Seen.Allocated += size
	a.Seen.Active += size
	a.Seen.Requested += e.Bytes
	a.Seen.Allocations++
	a.Check.pending = a.placeBlock(e, at, size, stream)
}

// findHoleForBlock returns the hole in which a new block starts, or None if nothing is known at its
// address. A block at that address was freed without a record. If a hole of an expandable segment
// is too small, memory mapped before the recording follows it, and the hole is deleted.
func (a *Allocator) findHoleForBlock(e *AllocatorEvent, consume ChangeConsumer) int32 {
	i, ok := a.at.Get(e.Ptr)
	if !ok {
		return NoPiece
	}
	if a.Pieces[i].State != PieceHole {
		a.endLostBlock(&a.Pieces[i], e.AtNs, consume)
		// not joined with its neighbors, because the new block starts at the same address
		a.Pieces[i].State = PieceHole
		a.addUsedBytes(i, -a.Pieces[i].Size)
		if a.Pieces[i].Segment == UnrecordedSegmentIndex {
			a.deletePiece(i)
			return NoPiece
		}
	}
	if a.Pieces[i].Segment == expandableSegmentIndex && a.bytesToNextBlock(i) < a.Rules.RoundBlockSize(e.Bytes) {
		a.cutHole(i, e.Ptr, e.Ptr+a.Pieces[i].Size)
		return a.pieceAt(e.Ptr)
	}
	return i
}

// endLostBlock ends a block whose free was not recorded. If the allocator's totals are known, they
// already include the free.
func (a *Allocator) endLostBlock(p *SegmentPiece, atNs int64, consume ChangeConsumer) {
	b := *p
	a.change = AllocatorChange{Op: OpBlockLost, AtNs: atNs, Block: b, Origin: origin.NoOrigin, IsUnseen: a.isStale}
	consume(a, &a.change)
	a.countLostFree()
	if b.State == PieceBlock {
		a.Seen.Allocations--
	}
	a.Seen.Requested -= b.Requested
	if !a.Check.Known[AllocatedTotalIndex] {
		a.Seen.Active -= b.Size
		if b.State == PieceBlock {
			a.Seen.Allocated -= b.Size
		}
	}
}

func (a *Allocator) applyFreeRequested(e *AllocatorEvent, consume ChangeConsumer) {
	a.Counts.freeEvents++
	i, ok := a.at.Get(e.Ptr)
	// the free was completed unseen, and the address was used again
	if ok && a.Pieces[i].State == PieceAwaitsStream {
		a.endLostBlock(&a.Pieces[i], e.AtNs, consume)
		a.releaseBlock(i)
	}
	if !ok || a.Pieces[i].State != PieceBlock {
		i = NoPiece
	}
	size := a.compareTotals(e, i, consume)
	if i == NoPiece {
		i = a.addOlderBlock(e, size)
		if a.isStale {
			a.Counts.UnseenBlocks++
			a.Seen.Allocations++
		} else {
			a.Counts.UnmatchedFrees++
			a.Before.Allocations++
		}
		if !a.Check.Known[AllocatedTotalIndex] {
			a.Before.Allocated += size
			a.Before.Active += size
		}
	} else {
		a.Counts.Frees++
	}
	a.emitChange(consume, e, &a.Pieces[i])
	a.Pieces[i].State = PieceAwaitsStream
	a.Seen.Allocated -= a.Pieces[i].Size
	a.Seen.Allocations--
}

// addOlderBlock adds a block from before the recording, so that its free_completed event finds it.
func (a *Allocator) addOlderBlock(e *AllocatorEvent, size int64) int32 {
	if a.isStale {
		a.Seen.Requested += e.Bytes
	} else {
		a.Before.Requested += e.Bytes
	}
	return a.newPiece(
		SegmentPiece{
			Ptr:       e.Ptr,
			Size:      size,
			Requested: e.Bytes,
			Pool:      e.Pool,
			Stream:    e.Stream,
			Origin:    origin.NoOrigin,
			Segment:   UnrecordedSegmentIndex,
			prev:      NoPiece,
			next:      NoPiece,
			State:     PieceBlock,
			IsUnseen:  a.isStale,
		},
	)
}

func (a *Allocator) applyFreeCompleted(e *AllocatorEvent, consume ChangeConsumer) {
	a.compareTotals(e, NoPiece, consume)
	i, ok := a.at.Get(e.Ptr)
	switch {
	case !ok || a.Pieces[i].State == PieceHole: // the block was freed before the recording
		i = a.addOlderBlock(e, a.Rules.RoundBlockSize(e.Bytes))
		if a.isStale {
			a.Seen.Active += a.Pieces[i].Size
		} else {
			a.Before.Active += a.Pieces[i].Size
		}
	case a.Pieces[i].State == PieceBlock: // the block's free_requested event was lost
		if a.isStale {
			a.takeAwaiting(&a.Pieces[i], e.AtNs, consume)
		} else {
			a.Counts.LostFrees++
		}
		a.Seen.Allocations--
		if !a.Check.Known[AllocatedTotalIndex] {
			a.Seen.Allocated -= a.Pieces[i].Size
		}
	}
	a.emitChange(consume, e, &a.Pieces[i])
	a.Seen.Active -= a.Pieces[i].Size
	a.Seen.Requested -= a.Pieces[i].Requested
	a.releaseBlock(i)
}

func (a *Allocator) applySegmentEvent(e *AllocatorEvent, stream int64, consume ChangeConsumer) {
	a.compareTotals(e, NoPiece, consume)
	n, known := a.Began[e.Ptr]
	known = known && !a.Segments[n].IsMappedRange()
	if known && (e.Op == OpSegmentAllocated || e.Op == OpSegmentFreed) {
		for _, p := range a.PiecesWithin(&a.Segments[n]) {
			if p.State != PieceHole {
				a.endLostBlock(p, e.AtNs, consume)
			}
		}
	}
	a.change = AllocatorChange{Op: e.Op, AtNs: e.AtNs, Ptr: e.Ptr, Bytes: e.Bytes, Origin: e.Origin}
	consume(a, &a.change)
	switch e.Op {
	case OpSegmentAllocated:
		if known {
			a.countLostFree()
			a.removeSegment(n)
		}
		a.addSegment(e, stream)
		a.Seen.Reserved += e.Bytes
	case OpSegmentFreed:
		if known {
			a.removeSegment(n)
		} else {
			if a.isStale {
				a.Seen.Segments++
			} else {
				a.Before.Segments++
			}
			a.Seen.Segments--
			a.subtractOlderReserved(e)
		}
		a.Seen.Reserved -= e.Bytes
	case OpSegmentMapped:
		a.addMapping(e, stream)
		a.Seen.Reserved += e.Bytes
	case OpSegmentUnmapped:
		if !a.removeMapping(e) {
			a.subtractOlderReserved(e)
		}
		a.Seen.Reserved -= e.Bytes
	}
}

// subtractOlderReserved accounts for the end of a segment from before the recording.
func (a *Allocator) subtractOlderReserved(e *AllocatorEvent) {
	if !a.Check.Known[ReservedTotalIndex] {
		a.Before.Reserved += e.Bytes
	}
}
