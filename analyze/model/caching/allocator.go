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
	IsHole     PieceState = iota // the piece is free space in its segment
	IsBlock                      // the program uses the piece
	IsAwaiting                   // the program freed the piece, but a stream still uses it
)

// Piece is a block or a hole of a segment.
type Piece struct {
	Ptr, Size int64 // Size is in bytes; for a block it is the requested size, rounded up
	Requested int64 // size that the program requested, bytes
	SinceNs   int64 // when the block was allocated, Unix ns; 0: before the recording
	Pool      int64 // number of the private pool; 0: none
	Stream    int64
	Origin    int32 // origin of the allocation; origin.None: before the recording
	Segment   int32 // index into Allocator.Segments, or one of the constants below
	prev      int32 // number of the previous piece of the segment, or None
	next      int32
	State     PieceState
	// agreed is set if the allocator's totals confirmed the size. Otherwise the size is predicted
	// by its rules.
	agreed bool
}

// Special values of Piece.Segment.
const (
	StraySegment      = -1 // the segment was allocated before the recording
	expandableSegment = -2 // the piece is in an expandable segment
)

// None means "no piece" where a piece's number is expected.
const None = -1

// Segment is memory from the driver. An expandable segment has one Segment for each contiguous
// range of mapped addresses; its Size and Used stay 0.
type Segment struct {
	Ptr, Size int64
	Used      int64 // bytes of the segment's blocks
	Pool      int64
	Origin    int32
	SinceNs   int64
}

// unused returns the bytes of holes that cannot return to the driver, because the segment has
// blocks.
func (s *Segment) unused() int64 {
	if s.Used == 0 {
		return 0
	}
	return s.Size - s.Used
}

// IsStretch reports whether the segment is a mapped range of an expandable segment.
func (s *Segment) IsStretch() bool { return s.Size == 0 }

// Totals are the current values of an allocator's statistics, summed over all its pools. Each field
// names its key in torch.cuda.memory_stats().
type Totals struct {
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

// Plus returns the sum of two Totals, field by field.
func (a Totals) Plus(b Totals) Totals {
	return Totals{
		a.Allocated + b.Allocated, a.Requested + b.Requested, a.Reserved + b.Reserved, a.Active + b.Active,
		a.InactiveSplit + b.InactiveSplit, a.Segments + b.Segments, a.Allocations + b.Allocations,
	}
}

// Allocator is the model of one caching allocator. Each process has one for each device. It is not
// safe for concurrent use.
type Allocator struct {
	Set         *Set // the Set that this allocator belongs to
	Pid, Device int32
	Rules       Rules
	Check       Check
	Reports     bool // known only from reported statistics, see reported.go
	// Seen are the totals of recorded events. Before are the totals of memory from before the
	// recording. Before.Allocated and Before.Reserved are known from the first event on; its other
	// fields grow with each free of such memory.
	Seen, Before Totals
	Counts       Counts

	Pieces   []Piece
	spare    []int32            // indexes of unused entries of Pieces
	at       addrmap.Map[int32] // start address of a piece → its number
	Segments []Segment
	idle     []int32         // indexes of unused entries of Segments
	Began    map[int64]int32 // start address of a segment, or of a mapped range → its number
	ends     map[int64]int32 // end address of a mapped range → number of its last piece
	change   Change          // reused for every step, to save an allocation
	// holes are the holes of expandable segments, sorted by address if holesSorted is set.
	holes       []hole
	holesSorted bool
}

// Counts are the events of an allocator, and those that the model could not match.
type Counts struct {
	Events, allocs, Frees int64
	// UnmatchedFrees counts frees of blocks that were allocated before the recording, or whose
	// allocation event was lost.
	UnmatchedFrees int64
	LostFrees      int64 // blocks and segments whose end was not recorded
	OutOfMemory    int64
}

func newAllocator(set *Set, key Key, rules Rules) *Allocator {
	return &Allocator{
		Set: set, Pid: key.Pid, Device: key.Device, Rules: rules, Check: Check{pending: None},
		Began: make(map[int64]int32), ends: make(map[int64]int32),
	}
}

// Totals returns the allocator's totals, as far as the events so far determine them.
func (a *Allocator) Totals() Totals { return a.Seen.Plus(a.Before) }

// Each calls yield for every live block, in an order that is the same in every run. A block from
// before the recording is unknown until its free.
func (a *Allocator) Each(yield func(p *Piece)) {
	for i := range a.Pieces {
		if a.Pieces[i].State != IsHole {
			yield(&a.Pieces[i])
		}
	}
}

// newPiece adds a piece and returns its number. It invalidates pointers to pieces.
func (a *Allocator) newPiece(p Piece) int32 {
	var i int32
	if n := len(a.spare); n > 0 {
		i = a.spare[n-1]
		a.spare = a.spare[:n-1]
		a.Pieces[i] = p
	} else {
		i = int32(len(a.Pieces))
		a.Pieces = append(a.Pieces, p)
	}
	a.index(i)
	return i
}

// index makes a piece findable by its address, unless a block already has that address. Two pieces
// at one address occur only after lost events; the block's free must find the block.
func (a *Allocator) index(i int32) {
	ptr := a.Pieces[i].Ptr
	if old, ok := a.at.Get(ptr); !ok || a.Pieces[old].State == IsHole {
		a.at.Set(ptr, i)
	}
}

// unindex undoes index.
func (a *Allocator) unindex(i int32) {
	ptr := a.Pieces[i].Ptr
	if n, ok := a.at.Get(ptr); ok && n == i {
		a.at.Delete(ptr)
	}
}

// drop deletes a piece that no other piece refers to.
func (a *Allocator) drop(i int32) {
	a.unindex(i)
	a.Pieces[i] = Piece{prev: None, next: None}
	a.spare = append(a.spare, i)
}

// pieceAt returns the number of the piece that starts at an address, or None.
func (a *Allocator) pieceAt(ptr int64) int32 {
	if i, ok := a.at.Get(ptr); ok {
		return i
	}
	return None
}

// sizeOf predicts the size of the block that an allocation event places in hole i. i may be None.
func (a *Allocator) sizeOf(e *Event, i int32) int64 {
	size := a.Rules.Round(e.Bytes)
	if i == None {
		return size
	}
	room := a.room(i)
	if room < size || a.Rules.splits(room, size, a.isSmall(i)) {
		return min(room, size)
	}
	return room
}

// room returns the bytes up to the next block: those of the piece and of a hole after it.
func (a *Allocator) room(i int32) int64 {
	p := &a.Pieces[i]
	if p.next != None && a.Pieces[p.next].State == IsHole {
		return p.Size + a.Pieces[p.next].Size
	}
	return p.Size
}

// isSmall reports whether a piece is in a segment for small blocks.
func (a *Allocator) isSmall(i int32) bool {
	switch s := a.Pieces[i].Segment; s {
	case StraySegment:
		return false
	case expandableSegment:
		return true // expandable segments are split like segments for small blocks
	default:
		return a.Segments[s].Size == SmallSegment
	}
}

// take turns the hole at the event's address into a block of size bytes. i is None if no hole is
// known there.
func (a *Allocator) take(e *Event, i int32, size, stream int64) int32 {
	if i == None {
		i = a.newPiece(Piece{Ptr: e.Ptr, Size: size, Segment: StraySegment, prev: None, next: None})
	}
	a.holesSorted = false
	p := &a.Pieces[i]
	p.State, p.Requested, p.SinceNs, p.Origin, p.Pool, p.Stream = IsBlock, e.Bytes, e.AtNs, e.Origin, e.Pool, stream
	p.agreed = false
	a.use(i, p.Size)
	a.resize(i, size)
	return i
}

// use adds more, which may be negative, to the bytes in blocks of a piece's segment.
func (a *Allocator) use(i int32, more int64) {
	if s := a.Pieces[i].Segment; s >= 0 {
		before := a.Segments[s].unused()
		a.Segments[s].Used += more
		a.Seen.InactiveSplit += a.Segments[s].unused() - before
	}
}

// resize moves the end of a block. The hole after it shrinks or grows.
func (a *Allocator) resize(i int32, size int64) {
	more := size - a.Pieces[i].Size
	if more == 0 {
		return
	}
	a.Pieces[i].Size = size
	if a.Pieces[i].Segment == StraySegment {
		return
	}
	a.use(i, more)
	p := &a.Pieces[i]
	next, end := p.next, p.Ptr+size
	if next != None && a.Pieces[next].State == IsHole {
		g := &a.Pieces[next]
		if g.Size > more {
			a.unindex(next)
			g.Ptr, g.Size = end, g.Size-more
			a.index(next)
			return
		}
		a.unlink(next)
		return
	}
	rest := Piece{
		Ptr:     end,
		Size:    -more,
		Pool:    p.Pool,
		Stream:  p.Stream,
		Origin:  origin.None,
		Segment: p.Segment,
		prev:    i,
		next:    next,
	}
	n := a.newPiece(rest)
	a.Pieces[i].next = n
	if next != None {
		a.Pieces[next].prev = n
	} else if rest.Segment == expandableSegment {
		a.ends[end+rest.Size] = n
	}
}

// unlink removes a piece from its list and deletes it. The caller has added its bytes to the
// previous piece.
func (a *Allocator) unlink(i int32) {
	p := a.Pieces[i]
	a.Pieces[p.prev].next = p.next
	if p.next != None {
		a.Pieces[p.next].prev = p.prev
	} else if p.Segment == expandableSegment {
		a.ends[p.Ptr+p.Size] = p.prev
	}
	a.drop(i)
}

// release turns a block into a hole and joins it with adjacent holes. A stray block is deleted.
func (a *Allocator) release(i int32) {
	p := &a.Pieces[i]
	if p.Segment == StraySegment {
		a.drop(i)
		return
	}
	a.holesSorted = false
	a.use(i, -p.Size)
	p.State, p.Requested, p.SinceNs, p.Origin = IsHole, 0, 0, origin.None
	a.join(i)
}

// join merges a hole with the holes before and after it.
func (a *Allocator) join(i int32) {
	if next := a.Pieces[i].next; next != None && a.Pieces[next].State == IsHole {
		a.Pieces[i].Size += a.Pieces[next].Size
		a.unlink(next)
	}
	if prev := a.Pieces[i].prev; prev != None && a.Pieces[prev].State == IsHole {
		a.Pieces[prev].Size += a.Pieces[i].Size
		a.unlink(i)
	}
}
