package caching

import (
	"github.com/gpurec/gpurec/analyze/model/addrmap"
	"github.com/gpurec/gpurec/analyze/model/origin"
)

// The second level of the model: what a framework's caching allocator has of the
// driver, and what it hands out of that. A segment is memory from the driver; a piece
// is a stretch of a segment, either a block, which the program has or streams still
// use, or a gap between blocks. Pieces of a segment are linked in order of their
// addresses and cover it. A block always begins where a gap did, so that a map from
// the beginnings of pieces finds everything.
//
// When the recording began with the program already running, there are segments that
// were not seen to come. Blocks in them are strays: pieces without neighbours, known
// only as long as they are live.

// PieceState is what a stretch of a segment is used for.
type PieceState uint8

const (
	IsHole     PieceState = iota
	IsBlock               // the program has it
	IsAwaiting            // the program gave it back, but a stream still uses it
)

// Piece is a stretch of a segment.
type Piece struct {
	Ptr, Size int64 // size is the block's own: what was asked for, rounded up
	Requested int64 // bytes that the program asked for
	SinceNs   int64 // when the program got it; 0: before the recording
	Pool      int64 // private pool, 0 is none
	Stream    int64
	Origin    int32 // who asked for it; origin.None: before the recording
	Segment   int32 // in allocator.segments, or one of the constants below
	prev      int32 // piece before it in the segment, none at its end
	next      int32
	State     PieceState
	// agreed: the size is what the allocator's totals say, not only a guess.
	agreed bool
}

// Values of piece.segment beside numbers.
const (
	StraySegment      = -1 // not seen to come
	expandableSegment = -2
)

// None ends a list of pieces.
const None = -1

// Segment is memory from the driver. Expandable segments have one per contiguous
// stretch of mapped addresses, in which used and size are not kept up.
type Segment struct {
	Ptr, Size int64
	Used      int64 // bytes that are in blocks
	Pool      int64
	Origin    int32
	SinceNs   int64
}

// unused returns the bytes of gaps that cannot go back to the driver because of blocks.
func (s *Segment) unused() int64 {
	if s.Used == 0 {
		return 0
	}
	return s.Size - s.Used
}

// IsStretch reports whether this is a stretch of an expandable segment.
func (s *Segment) IsStretch() bool { return s.Size == 0 }

// Totals are current values of an allocator's books as
// torch.cuda.memory_stats() has them, for all its pools together.
type Totals struct {
	Allocated int64 // bytes of blocks that the program has: allocated_bytes.all.current
	Requested int64 // bytes asked for, of blocks in use by program or streams: requested_bytes.all.current
	Reserved  int64 // bytes from the driver: reserved_bytes.all.current
	Active    int64 // bytes of blocks in use by program or streams: active_bytes.all.current
	// bytes of gaps in segments that have blocks, expandable segments left out: inactive_split_bytes.all.current
	InactiveSplit int64
	Segments      int64 // pieces of memory from the driver, expandable segments left out: segment.all.current
	Allocations   int64 // blocks that the program has: allocation.all.current
}

func (a Totals) Plus(b Totals) Totals {
	return Totals{
		a.Allocated + b.Allocated, a.Requested + b.Requested, a.Reserved + b.Reserved, a.Active + b.Active,
		a.InactiveSplit + b.InactiveSplit, a.Segments + b.Segments, a.Allocations + b.Allocations,
	}
}

// Allocator is the model of one caching allocator: that of one process and device.
type Allocator struct {
	Set         *Set // that it belongs to
	Pid, Device int32
	Rules       Rules
	Check       Check
	Reports     bool // known by reports only, see reported.go
	// Seen are totals of what the recording shows, before of what must have been there
	// when it began: Allocated and Reserved are known from the first event on, the rest
	// only as far as frees have told so far.
	Seen, Before Totals
	Counts       Counts

	Pieces   []Piece
	spare    []int32            // numbers of pieces that are free to use
	at       addrmap.Map[int32] // beginning of a piece → its number
	Segments []Segment
	idle     []int32         // numbers of segments that are free to use
	Began    map[int64]int32 // beginning of a segment, or of a mapped stretch → number of segment
	ends     map[int64]int32 // end of a mapped stretch → its last piece
	change   Change          // the one that is handed out
	// gaps of expandable segments by address, if holesSorted.
	holes       []hole
	holesSorted bool
}

// Counts are what happened to an allocator, and what could not be accounted for.
type Counts struct {
	Events, allocs, Frees int64
	// UnmatchedFrees ended blocks that were allocated before the recording began, or
	// whose allocation was lost.
	UnmatchedFrees int64
	LostFrees      int64 // blocks and segments that ended unseen
	OutOfMemory    int64
}

func newAllocator(set *Set, key Key, rules Rules) *Allocator {
	return &Allocator{
		Set: set, Pid: key.Pid, Device: key.Device, Rules: rules, Check: Check{pending: None},
		Began: make(map[int64]int32), ends: make(map[int64]int32),
	}
}

// Totals returns the books as far as they are known by now.
func (a *Allocator) Totals() Totals { return a.Seen.Plus(a.Before) }

// Each calls yield for every live block, in an order that is the same in every run.
// Blocks that were there before the recording are known only after their free.
func (a *Allocator) Each(yield func(p *Piece)) {
	for i := range a.Pieces {
		if a.Pieces[i].State != IsHole {
			yield(&a.Pieces[i])
		}
	}
}

// newPiece makes room for a piece; pointers to pieces are invalid afterwards.
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

// put makes a piece found at its address, unless there is a block already: only after
// events were lost, and the block is what its free will ask for.
func (a *Allocator) index(i int32) {
	ptr := a.Pieces[i].Ptr
	if old, ok := a.at.Get(ptr); !ok || a.Pieces[old].State == IsHole {
		a.at.Set(ptr, i)
	}
}

// unput undoes put.
func (a *Allocator) unindex(i int32) {
	ptr := a.Pieces[i].Ptr
	if n, ok := a.at.Get(ptr); ok && n == i {
		a.at.Delete(ptr)
	}
}

// drop forgets a piece that others do not refer to any more.
func (a *Allocator) drop(i int32) {
	a.unindex(i)
	a.Pieces[i] = Piece{prev: None, next: None}
	a.spare = append(a.spare, i)
}

// found returns the piece that begins at an address, or none.
func (a *Allocator) pieceAt(ptr int64) int32 {
	if i, ok := a.at.Get(ptr); ok {
		return i
	}
	return None
}

// sizeOf predicts the size of the block that an event hands out of a gap, or of none.
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

// room returns the bytes up to the next block: of the piece and of a gap behind it.
func (a *Allocator) room(i int32) int64 {
	p := &a.Pieces[i]
	if p.next != None && a.Pieces[p.next].State == IsHole {
		return p.Size + a.Pieces[p.next].Size
	}
	return p.Size
}

// isSmall reports whether a piece lies in a segment for small blocks.
func (a *Allocator) isSmall(i int32) bool {
	switch s := a.Pieces[i].Segment; s {
	case StraySegment:
		return false
	case expandableSegment:
		return true // they are split like those, whatever is in them
	default:
		return a.Segments[s].Size == SmallSegment
	}
}

// take makes a block of size bytes out of the gap at the event's address, or of none.
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

// use notes that more or fewer bytes of a piece's segment are in blocks.
func (a *Allocator) use(i int32, more int64) {
	if s := a.Pieces[i].Segment; s >= 0 {
		before := a.Segments[s].unused()
		a.Segments[s].Used += more
		a.Seen.InactiveSplit += a.Segments[s].unused() - before
	}
}

// resize moves the end of a block; the gap behind it becomes larger or smaller.
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

// unlink takes a piece out of its list and forgets it; the piece before it has got its
// bytes.
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

// release makes a gap of a block and joins it with the gaps around it. Strays go.
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

// join makes one gap of a gap and its neighbours.
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
