package analyze

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

// pieceState is what a stretch of a segment is used for.
type pieceState uint8

const (
	isGap      pieceState = iota
	isBlock               // the program has it
	isAwaiting            // the program gave it back, but a stream still uses it
)

// piece is a stretch of a segment.
type piece struct {
	ptr, size int64 // size is the block's own: what was asked for, rounded up
	requested int64 // bytes that the program asked for
	sinceNs   int64 // when the program got it; 0: before the recording
	pool      int64 // private pool, 0 is none
	stream    int64
	origin    int32 // who asked for it; noOrigin: before the recording
	segment   int32 // in allocator.segments, or one of the constants below
	prev      int32 // piece before it in the segment, none at its end
	next      int32
	state     pieceState
	// agreed: the size is what the allocator's totals say, not only a guess.
	agreed bool
}

// Values of piece.segment beside numbers.
const (
	straySegment      = -1 // not seen to come
	expandableSegment = -2
)

// none ends a list of pieces.
const none = -1

// segment is memory from the driver. Expandable segments have one per contiguous
// stretch of mapped addresses, in which used and size are not kept up.
type segment struct {
	ptr, size int64
	used      int64 // bytes that are in blocks
	pool      int64
	origin    int32
	sinceNs   int64
}

// unused returns the bytes of gaps that cannot go back to the driver because of blocks.
func (s *segment) unused() int64 {
	if s.used == 0 {
		return 0
	}
	return s.size - s.used
}

// isStretch reports whether this is a stretch of an expandable segment.
func (s *segment) isStretch() bool { return s.size == 0 }

// AllocatorTotals are current values of an allocator's books as
// torch.cuda.memory_stats() has them, for all its pools together.
type AllocatorTotals struct {
	Allocated     int64 // bytes of blocks that the program has: allocated_bytes.all.current
	Requested     int64 // bytes asked for, of blocks in use by program or streams: requested_bytes.all.current
	Reserved      int64 // bytes from the driver: reserved_bytes.all.current
	Active        int64 // bytes of blocks in use by program or streams: active_bytes.all.current
	InactiveSplit int64 // bytes of gaps in segments that have blocks, expandable segments left out: inactive_split_bytes.all.current
	Segments      int64 // pieces of memory from the driver, expandable segments left out: segment.all.current
	Allocations   int64 // blocks that the program has: allocation.all.current
}

func (a AllocatorTotals) plus(b AllocatorTotals) AllocatorTotals {
	return AllocatorTotals{
		a.Allocated + b.Allocated, a.Requested + b.Requested, a.Reserved + b.Reserved, a.Active + b.Active,
		a.InactiveSplit + b.InactiveSplit, a.Segments + b.Segments, a.Allocations + b.Allocations,
	}
}

// allocator is the model of one caching allocator: that of one process and device.
type allocator struct {
	set         *allocators // that it belongs to
	pid, device int32
	rules       allocatorRules
	check       allocatorCheck
	reports     bool // known by reports only, see allocatorreports.go
	// seen are totals of what the recording shows, before of what must have been there
	// when it began: Allocated and Reserved are known from the first event on, the rest
	// only as far as frees have told so far.
	seen, before AllocatorTotals
	counts       allocatorCounts

	pieces   []piece
	spare    []int32       // numbers of pieces that are free to use
	at       ptrMap[int32] // beginning of a piece → its number
	segments []segment
	idle     []int32         // numbers of segments that are free to use
	began    map[int64]int32 // beginning of a segment, or of a mapped stretch → number of segment
	ends     map[int64]int32 // end of a mapped stretch → its last piece
	change   allocatorChange // the one that is handed out
	// gaps of expandable segments by address, if gapsSorted.
	gaps       []gap
	gapsSorted bool
}

// allocatorCounts are what happened to an allocator, and what could not be accounted for.
type allocatorCounts struct {
	events, allocs, frees int64
	// unmatchedFrees ended blocks that were allocated before the recording began, or
	// whose allocation was lost.
	unmatchedFrees int64
	lostFrees      int64 // blocks and segments that ended unseen
	outOfMemory    int64
}

func newAllocator(set *allocators, key allocatorKey, rules allocatorRules) *allocator {
	return &allocator{
		set: set, pid: key.pid, device: key.device, rules: rules, check: allocatorCheck{pending: none},
		began: make(map[int64]int32), ends: make(map[int64]int32),
	}
}

// totals returns the books as far as they are known by now.
func (a *allocator) totals() AllocatorTotals { return a.seen.plus(a.before) }

// each calls yield for every live block, in an order that is the same in every run.
// Blocks that were there before the recording are known only after their free.
func (a *allocator) each(yield func(p *piece)) {
	for i := range a.pieces {
		if a.pieces[i].state != isGap {
			yield(&a.pieces[i])
		}
	}
}

// newPiece makes room for a piece; pointers to pieces are invalid afterwards.
func (a *allocator) newPiece(p piece) int32 {
	var i int32
	if n := len(a.spare); n > 0 {
		i = a.spare[n-1]
		a.spare = a.spare[:n-1]
		a.pieces[i] = p
	} else {
		i = int32(len(a.pieces))
		a.pieces = append(a.pieces, p)
	}
	a.put(i)
	return i
}

// put makes a piece found at its address, unless there is a block already: only after
// events were lost, and the block is what its free will ask for.
func (a *allocator) put(i int32) {
	ptr := a.pieces[i].ptr
	if old, ok := a.at.get(ptr); !ok || a.pieces[old].state == isGap {
		a.at.set(ptr, i)
	}
}

// unput undoes put.
func (a *allocator) unput(i int32) {
	ptr := a.pieces[i].ptr
	if n, ok := a.at.get(ptr); ok && n == i {
		a.at.delete(ptr)
	}
}

// drop forgets a piece that others do not refer to any more.
func (a *allocator) drop(i int32) {
	a.unput(i)
	a.pieces[i] = piece{prev: none, next: none}
	a.spare = append(a.spare, i)
}

// found returns the piece that begins at an address, or none.
func (a *allocator) found(ptr int64) int32 {
	if i, ok := a.at.get(ptr); ok {
		return i
	}
	return none
}

// sizeOf predicts the size of the block that an event hands out of a gap, or of none.
func (a *allocator) sizeOf(e *allocatorEvent, i int32) int64 {
	size := a.rules.round(e.bytes)
	if i == none {
		return size
	}
	room := a.room(i)
	if room < size || a.rules.splits(room, size, a.isSmall(i)) {
		return min(room, size)
	}
	return room
}

// room returns the bytes up to the next block: of the piece and of a gap behind it.
func (a *allocator) room(i int32) int64 {
	p := &a.pieces[i]
	if p.next != none && a.pieces[p.next].state == isGap {
		return p.size + a.pieces[p.next].size
	}
	return p.size
}

// isSmall reports whether a piece lies in a segment for small blocks.
func (a *allocator) isSmall(i int32) bool {
	switch s := a.pieces[i].segment; s {
	case straySegment:
		return false
	case expandableSegment:
		return true // they are split like those, whatever is in them
	default:
		return a.segments[s].size == smallSegment
	}
}

// take makes a block of size bytes out of the gap at the event's address, or of none.
func (a *allocator) take(e *allocatorEvent, i int32, size, stream int64) int32 {
	if i == none {
		i = a.newPiece(piece{ptr: e.ptr, size: size, segment: straySegment, prev: none, next: none})
	}
	a.gapsSorted = false
	p := &a.pieces[i]
	p.state, p.requested, p.sinceNs, p.origin, p.pool, p.stream = isBlock, e.bytes, e.atNs, e.origin, e.pool, stream
	p.agreed = false
	a.use(i, p.size)
	a.resize(i, size)
	return i
}

// use notes that more or fewer bytes of a piece's segment are in blocks.
func (a *allocator) use(i int32, more int64) {
	if s := a.pieces[i].segment; s >= 0 {
		before := a.segments[s].unused()
		a.segments[s].used += more
		a.seen.InactiveSplit += a.segments[s].unused() - before
	}
}

// resize moves the end of a block; the gap behind it becomes larger or smaller.
func (a *allocator) resize(i int32, size int64) {
	more := size - a.pieces[i].size
	if more == 0 {
		return
	}
	a.pieces[i].size = size
	if a.pieces[i].segment == straySegment {
		return
	}
	a.use(i, more)
	p := &a.pieces[i]
	next, end := p.next, p.ptr+size
	if next != none && a.pieces[next].state == isGap {
		g := &a.pieces[next]
		if g.size > more {
			a.unput(next)
			g.ptr, g.size = end, g.size-more
			a.put(next)
			return
		}
		a.unlink(next)
		return
	}
	rest := piece{ptr: end, size: -more, pool: p.pool, stream: p.stream, origin: noOrigin, segment: p.segment, prev: i, next: next}
	n := a.newPiece(rest)
	a.pieces[i].next = n
	if next != none {
		a.pieces[next].prev = n
	} else if rest.segment == expandableSegment {
		a.ends[end+rest.size] = n
	}
}

// unlink takes a piece out of its list and forgets it; the piece before it has got its
// bytes.
func (a *allocator) unlink(i int32) {
	p := a.pieces[i]
	a.pieces[p.prev].next = p.next
	if p.next != none {
		a.pieces[p.next].prev = p.prev
	} else if p.segment == expandableSegment {
		a.ends[p.ptr+p.size] = p.prev
	}
	a.drop(i)
}

// release makes a gap of a block and joins it with the gaps around it. Strays go.
func (a *allocator) release(i int32) {
	p := &a.pieces[i]
	if p.segment == straySegment {
		a.drop(i)
		return
	}
	a.gapsSorted = false
	a.use(i, -p.size)
	p.state, p.requested, p.sinceNs, p.origin = isGap, 0, 0, noOrigin
	a.join(i)
}

// join makes one gap of a gap and its neighbours.
func (a *allocator) join(i int32) {
	if next := a.pieces[i].next; next != none && a.pieces[next].state == isGap {
		a.pieces[i].size += a.pieces[next].size
		a.unlink(next)
	}
	if prev := a.pieces[i].prev; prev != none && a.pieces[prev].state == isGap {
		a.pieces[prev].size += a.pieces[i].size
		a.unlink(i)
	}
}
