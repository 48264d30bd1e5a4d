package caching

import (
	"github.com/gpurec/gpurec/analyze/model/addrmap"
	"github.com/gpurec/gpurec/analyze/model/origin"
)

// This file models a framework's caching allocator. The allocator gets segments of memory from the
// driver, and divides them into blocks for the program. A segment is memory from the driver. A
// piece is a range of a segment: a block, which the program or a stream uses, or a hole between
// blocks. The pieces of a segment are linked in order of address and cover it. Every block starts
// at the address where a hole started, so a map from start addresses finds every piece.
//
// If the recording started after the program, some segments have no recorded allocation. Blocks in
// such segments are strays: pieces without neighbors, known only while they are live.

// PieceState is the use of a piece of a segment.
type PieceState uint8

const (
	PieceHole         PieceState = iota // the piece is free space in its segment
	PieceBlock                          // the program uses the piece
	PieceAwaitsStream                   // the program freed the piece, but a stream still uses it
)

// SegmentPiece is a block or a hole of a segment.
type SegmentPiece struct {
	Ptr, Size int64 // Size is in bytes; for a block it is the requested size, rounded up
	Requested int64 // size that the program requested, bytes
	SinceNs   int64 // when the block was allocated, Unix ns; 0: before the recording; see IsUnseen
	Pool      int64 // number of the private pool; 0: none
	Stream    int64
	Origin    int32 // origin of the allocation; origin.NoOrigin: before the recording, or IsUnseen
	Segment   int32 // index into Allocator.Segments, or one of the constants below
	prev      int32 // number of the previous piece of the segment, or NoPiece
	next      int32
	State     PieceState
	// agreed is set if the allocator's totals confirmed the size. Otherwise the size is predicted
	// by its rules.
	agreed bool
	// IsEarlier is set for a block from before the recording that was read from the process: see earlier.go.
	IsEarlier bool
	// IsUnseen is set for a block whose allocation is in a time without events: see gaps.go. Origin is NoOrigin.
	// SinceNs is the first time at which the block is known to exist: that of a reading in the time without events,
	// or else the time from which events are there again. The block is at least that old, unless its address was
	// given out again since then with the same properties.
	IsUnseen bool
}

// IsSizePredicted reports whether the size of a block follows from the allocator's rules. Its totals have not confirmed
// it.
func (p *SegmentPiece) IsSizePredicted() bool { return !p.agreed }

// Special values of Piece.Segment.
const (
	UnrecordedSegmentIndex = -1 // the segment was allocated before the recording
	expandableSegmentIndex = -2 // the piece is in an expandable segment
)

// NoPiece means "no piece" where a piece's number is expected.
const NoPiece = -1

// AllocatorSegment is memory from the driver. An expandable segment has one Segment for each
// contiguous range of mapped addresses; its Size and Used stay 0.
type AllocatorSegment struct {
	Ptr, Size int64
	Used      int64 // bytes of the segment's blocks
	Pool      int64
	Origin    int32
	SinceNs   int64
	// IsUnseen is set for a segment that a reading showed after times without events, and whose allocation is not
	// known.
	IsUnseen bool
}

// strandedBytes returns the bytes of holes that cannot return to the driver, because the segment
// has blocks.
func (s *AllocatorSegment) strandedBytes() int64 {
	if s.Used == 0 {
		return 0
	}
	return s.Size - s.Used
}

// IsMappedRange reports whether the segment is a mapped range of an expandable segment.
func (s *AllocatorSegment) IsMappedRange() bool { return s.Size == 0 }

// AllocatorTotals are the current values of an allocator's statistics, summed over all its pools.
// Each field names its key in torch.cuda.memory_stats().
type AllocatorTotals struct {
	Allocated int64 // bytes of blocks in use by the program: allocated_bytes.all.current
	// requested bytes of blocks in use by the program or a stream: requested_bytes.all.current
	Requested int64
	Reserved  int64 // bytes of segments from the driver: reserved_bytes.all.current
	Active    int64 // bytes of blocks in use by the program or a stream: active_bytes.all.current
	// InactiveSplit is the bytes of holes in segments that also have blocks, without expandable
	// segments: inactive_split_bytes.all.current.
	InactiveSplit int64
	Segments      int64 // segments, without expandable ones: segment.all.current
	Allocations   int64 // blocks in use by the program: allocation.all.current
}

// AddTotals returns the sum of two Totals, field by field.
func (a AllocatorTotals) AddTotals(b AllocatorTotals) AllocatorTotals {
	return AllocatorTotals{
		a.Allocated + b.Allocated, a.Requested + b.Requested, a.Reserved + b.Reserved, a.Active + b.Active,
		a.InactiveSplit + b.InactiveSplit, a.Segments + b.Segments, a.Allocations + b.Allocations,
	}
}

// Allocator is the model of one caching allocator. Each process has one for each device. It is not
// safe for concurrent use.
type Allocator struct {
	Set         *AllocatorSet // the AllocatorSet that this allocator belongs to
	Pid, Device int32
	Rules       AllocatorRules
	Check       TotalsCheck
	Reports     bool // the allocator is known only from its reported statistics, see reported.go
	// Seen are the totals of recorded events. Before are the totals of memory from before the
	// recording. Before.Allocated and Before.Reserved are known from the first event on; its other
	// fields grow with each free of such memory.
	Seen, Before AllocatorTotals
	Counts       EventCounts
	// Earlier is the state that was read from the memory of the process; nil: none was. Since its
	// time, the model has all blocks and segments. IsRewound is set if the model has them since the start of the
	// recording: see Rewind.
	Earlier   *EarlierState
	IsRewound bool
	isStale   bool // see IsStale
	// hasReading is set if a reading was applied: see gaps.go.
	hasReading bool
	own        ownCounts

	Pieces   []SegmentPiece
	spare    []int32            // indexes of unused entries of Pieces
	at       addrmap.Map[int32] // start address of a piece → its number
	Segments []AllocatorSegment
	idle     []int32         // indexes of unused entries of Segments
	Began    map[int64]int32 // start address of a segment, or of a mapped range → its number
	ends     map[int64]int32 // end address of a mapped range → number of its last piece
	change   AllocatorChange // reused for every step, to save an allocation
	// holes are the holes of expandable segments, sorted by address if holesSorted is set.
	holes       []expandableHole
	holesSorted bool
}

// EventCounts are the events of an allocator, and those that the model could not match.
type EventCounts struct {
	Events, allocs, Frees int64
	// UnmatchedFrees counts frees of blocks that were allocated before the recording, or whose
	// allocation event was lost.
	UnmatchedFrees int64
	LostFrees      int64 // blocks and segments whose end was not recorded
	OutOfMemory    int64
	// UnseenBlocks counts blocks whose allocation is in a time without events, and that an event or a reading shows.
	// UnseenFrees counts blocks and segments whose end is in such a time. Neither counts blocks that were allocated and
	// freed between two readings.
	UnseenBlocks, UnseenFrees int64
	// UnrecordedAllocs and UnrecordedFrees count the blocks that were allocated and freed without a recorded event,
	// by the allocator's own counters: see totals.go. Lost events are among them.
	UnrecordedAllocs, UnrecordedFrees int64
	freeEvents                        int64 // recorded frees by the program
}

func newAllocator(set *AllocatorSet, key AllocatorKey, rules AllocatorRules) *Allocator {
	return &Allocator{
		Set: set, Pid: key.Pid, Device: key.Device, Rules: rules, Check: TotalsCheck{pending: NoPiece},
		Began: make(map[int64]int32), ends: make(map[int64]int32),
	}
}

// RecordedCalls returns the numbers of recorded allocations and frees of blocks.
func (c *EventCounts) RecordedCalls() (allocs, frees int64) { return c.allocs, c.freeEvents }

// Totals returns the allocator's totals after the events so far. Totals that these events do not
// determine are unknown.
func (a *Allocator) Totals() AllocatorTotals { return a.Seen.AddTotals(a.Before) }

// EachLiveBlock calls yield for every live block, in an order that is the same in every run. A
// block from before the recording is unknown until its free.
func (a *Allocator) EachLiveBlock(yield func(p *SegmentPiece)) {
	for i := range a.Pieces {
		if a.Pieces[i].State != PieceHole {
			yield(&a.Pieces[i])
		}
	}
}

// newPiece adds a piece and returns its number. It invalidates pointers to pieces.
func (a *Allocator) newPiece(p SegmentPiece) int32 {
	var i int32
	if n := len(a.spare); n > 0 {
		i = a.spare[n-1]
		a.spare = a.spare[:n-1]
		a.Pieces[i] = p
	} else {
		i = int32(len(a.Pieces))
		a.Pieces = append(a.Pieces, p)
	}
	a.indexPiece(i)
	return i
}

// indexPiece makes a piece findable by its address, unless a block already has that address. Two
// pieces at one address occur only after lost events; the block's free must find the block.
func (a *Allocator) indexPiece(i int32) {
	ptr := a.Pieces[i].Ptr
	if old, ok := a.at.Get(ptr); !ok || a.Pieces[old].State == PieceHole {
		a.at.Set(ptr, i)
	}
}

// unindexPiece undoes index.
func (a *Allocator) unindexPiece(i int32) {
	ptr := a.Pieces[i].Ptr
	if n, ok := a.at.Get(ptr); ok && n == i {
		a.at.Delete(ptr)
	}
}

// deletePiece deletes a piece that no other piece refers to.
func (a *Allocator) deletePiece(i int32) {
	a.unindexPiece(i)
	a.Pieces[i] = SegmentPiece{prev: NoPiece, next: NoPiece}
	a.spare = append(a.spare, i)
}

// pieceAt returns the number of the piece that starts at an address, or None.
func (a *Allocator) pieceAt(ptr int64) int32 {
	if i, ok := a.at.Get(ptr); ok {
		return i
	}
	return NoPiece
}

// predictBlockSize predicts the size of the block that an allocation event places in hole i. i may
// be None.
func (a *Allocator) predictBlockSize(e *AllocatorEvent, i int32) int64 {
	size := a.Rules.RoundBlockSize(e.Bytes)
	if i == NoPiece {
		return size
	}
	room := a.bytesToNextBlock(i)
	if room < size || a.Rules.splitsHole(room, size, a.isInSmallSegment(i)) {
		return min(room, size)
	}
	return room
}

// bytesToNextBlock returns the bytes up to the next block: those of the piece and of a hole after
// it.
func (a *Allocator) bytesToNextBlock(i int32) int64 {
	p := &a.Pieces[i]
	if p.next != NoPiece && a.Pieces[p.next].State == PieceHole {
		return p.Size + a.Pieces[p.next].Size
	}
	return p.Size
}

// isInSmallSegment reports whether a piece is in a segment for small blocks.
func (a *Allocator) isInSmallSegment(i int32) bool {
	switch s := a.Pieces[i].Segment; s {
	case UnrecordedSegmentIndex:
		return false
	case expandableSegmentIndex:
		return true // expandable segments are split like segments for small blocks
	default:
		return a.Segments[s].Size == SmallSegmentBytes
	}
}

// placeBlock turns the hole at the event's address into a block of size bytes. i is None if no hole
// is known there.
func (a *Allocator) placeBlock(e *AllocatorEvent, i int32, size, stream int64) int32 {
	if i == NoPiece {
		i = a.newPiece(
			SegmentPiece{Ptr: e.Ptr, Size: size, Segment: UnrecordedSegmentIndex, prev: NoPiece, next: NoPiece},
		)
	}
	a.holesSorted = false
	p := &a.Pieces[i]
	p.State, p.Requested, p.SinceNs, p.Origin, p.Pool, p.Stream = PieceBlock, e.Bytes, e.AtNs, e.Origin, e.Pool, stream
	p.agreed, p.IsEarlier, p.IsUnseen = false, false, false
	a.addUsedBytes(i, p.Size)
	a.resizeBlock(i, size)
	return i
}

// addUsedBytes adds more, which may be negative, to the bytes in blocks of a piece's segment.
func (a *Allocator) addUsedBytes(i int32, more int64) {
	if s := a.Pieces[i].Segment; s >= 0 {
		before := a.Segments[s].strandedBytes()
		a.Segments[s].Used += more
		a.Seen.InactiveSplit += a.Segments[s].strandedBytes() - before
	}
}

// resizeBlock moves the end of a block. The hole after it shrinks or grows.
func (a *Allocator) resizeBlock(i int32, size int64) {
	more := size - a.Pieces[i].Size
	if more == 0 {
		return
	}
	a.Pieces[i].Size = size
	if a.Pieces[i].Segment == UnrecordedSegmentIndex {
		return
	}
	a.addUsedBytes(i, more)
	p := &a.Pieces[i]
	next, end := p.next, p.Ptr+size
	if next != NoPiece && a.Pieces[next].State == PieceHole {
		g := &a.Pieces[next]
		if g.Size > more {
			a.unindexPiece(next)
			g.Ptr, g.Size = end, g.Size-more
			a.indexPiece(next)
			return
		}
		a.unlinkPiece(next)
		return
	}
	rest := SegmentPiece{
		Ptr:     end,
		Size:    -more,
		Pool:    p.Pool,
		Stream:  p.Stream,
		Origin:  origin.NoOrigin,
		Segment: p.Segment,
		prev:    i,
		next:    next,
	}
	n := a.newPiece(rest)
	a.Pieces[i].next = n
	if next != NoPiece {
		a.Pieces[next].prev = n
	} else if rest.Segment == expandableSegmentIndex {
		a.ends[end+rest.Size] = n
	}
}

// unlinkPiece removes a piece from its list and deletes it. The caller has added its bytes to the
// previous piece.
func (a *Allocator) unlinkPiece(i int32) {
	p := a.Pieces[i]
	a.Pieces[p.prev].next = p.next
	if p.next != NoPiece {
		a.Pieces[p.next].prev = p.prev
	} else if p.Segment == expandableSegmentIndex {
		a.ends[p.Ptr+p.Size] = p.prev
	}
	a.deletePiece(i)
}

// releaseBlock turns a block into a hole and joins it with adjacent holes. A stray block is
// deleted.
func (a *Allocator) releaseBlock(i int32) {
	p := &a.Pieces[i]
	if p.Segment == UnrecordedSegmentIndex {
		a.deletePiece(i)
		return
	}
	a.holesSorted = false
	a.addUsedBytes(i, -p.Size)
	p.State, p.Requested, p.SinceNs, p.Origin = PieceHole, 0, 0, origin.NoOrigin
	p.IsEarlier, p.IsUnseen = false, false
	a.joinHoles(i)
}

// joinHoles merges a hole with the holes before and after it.
func (a *Allocator) joinHoles(i int32) {
	if next := a.Pieces[i].next; next != NoPiece && a.Pieces[next].State == PieceHole {
		a.Pieces[i].Size += a.Pieces[next].Size
		a.unlinkPiece(next)
	}
	if prev := a.Pieces[i].prev; prev != NoPiece && a.Pieces[prev].State == PieceHole {
		a.Pieces[prev].Size += a.Pieces[i].Size
		a.unlinkPiece(i)
	}
}
