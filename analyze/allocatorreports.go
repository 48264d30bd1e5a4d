package analyze

import (
	"slices"

	"github.com/gpurec/gpurec/format"
)

// An allocator that is known by its reports only (format.SourceReports) has blocks and totals,
// but no segments, pools and streams: all its blocks are strays, as those in segments from
// before the recording are. Of a block the size is told and not what was asked for. A free
// ends it at once. Reports come when the totals have changed already.

// limitsText says what all of that means to a reader.
const limitsText = "bytes are sizes of blocks, what was asked for rounded up; segments and what is unused in them, streams, pools and requests that failed are not known"

// recordSegments is how to record what reports do not tell.
const recordSegments = "record with --allocator=auto, of a PyTorch whose record_trace can be probed (gpurec check -p PID says so)"

// reportedAlloc makes one step.
func (a *allocator) reportedAlloc(e *allocatorEvent, consume allocatorConsumer) {
	a.compareReported(e, e.bytes)
	if i, ok := a.at.get(e.ptr); ok {
		a.lose(&a.pieces[i], e.atNs, consume)
		a.drop(i)
	}
	b := a.reportedBlock(e, e.origin)
	b.sinceNs = e.atNs
	a.emitReported(blockAllocated, &b, e.atNs, consume)
	a.newPiece(b)
	a.counts.allocs++
	a.moveReported(1, e)
}

// reportedFree makes one step.
func (a *allocator) reportedFree(e *allocatorEvent, consume allocatorConsumer) {
	a.compareReported(e, -e.bytes)
	i, ok := a.at.get(e.ptr)
	if ok && a.pieces[i].size != e.bytes { // it has ended, and its address was handed out again
		a.lose(&a.pieces[i], e.atNs, consume)
		a.drop(i)
		ok = false
	}
	if ok {
		a.counts.frees++
	} else {
		a.counts.unmatchedFrees++
		a.before.Allocations++
		a.before.Requested += e.bytes
		i = a.newPiece(a.reportedBlock(e, noOrigin))
	}
	a.emitReported(blockFreeRequested, &a.pieces[i], e.atNs, consume)
	a.drop(i)
	a.moveReported(-1, e)
}

func (a *allocator) reportedBlock(e *allocatorEvent, origin int32) piece {
	return piece{ptr: e.ptr, size: e.bytes, requested: e.bytes, origin: origin, segment: straySegment, prev: none, next: none, state: isBlock, agreed: true}
}

func (a *allocator) emitReported(what allocatorWhat, b *piece, atNs int64, consume allocatorConsumer) {
	a.change = allocatorChange{what: what, atNs: atNs, block: *b, origin: noOrigin}
	consume(a, &a.change)
}

// moveReported changes the books by a block that came or went. What is reserved is told by
// every report, and when it changed in between is not.
func (a *allocator) moveReported(blocks int64, e *allocatorEvent) {
	bytes := blocks * e.bytes
	a.seen.Allocated += bytes
	a.seen.Active += bytes
	a.seen.Requested += bytes
	a.seen.Allocations += blocks
	if e.reserved >= 0 {
		a.seen.Reserved = e.reserved - a.before.Reserved
	}
}

// compareReported checks the allocated bytes after a report, which changed them by bytes.
func (a *allocator) compareReported(e *allocatorEvent, bytes int64) {
	c := &a.check
	if e.reserved >= 0 && !c.known[reservedTotal] {
		c.known[reservedTotal] = true
		isFirst := e.allocated == e.bytes && bytes > 0 && e.reserved <= a.rules.segment(e.bytes)
		if !isFirst {
			a.before.Reserved = e.reserved
		}
	}
	if e.allocated < 0 {
		return
	}
	diff := e.allocated - (a.seen.Allocated + a.before.Allocated + bytes)
	if !c.known[allocatedTotal] {
		c.known[allocatedTotal] = true
		a.before.Allocated += diff
		a.before.Active += diff
		return
	}
	c.compared++
	if diff != 0 {
		a.disagree(diff)
		a.seen.Allocated += diff
		a.seen.Active += diff
	}
}

// reported returns how many processes have allocators that are known by reports only.
func (f *facts) reported() (n int64) {
	pids := make(map[int32]bool)
	for _, a := range f.allocators {
		if a.Source == format.SourceReports {
			pids[a.pid] = true
		}
	}
	return int64(len(pids))
}

// addressed is the driver's memory of a process that can be a segment, by address.
type addressed []addressedBlock

type addressedBlock struct {
	ptr, end int64
	number   int32
}

// note follows a change of the driver's memory.
func (l *addressed) note(c *change) {
	i, found := slices.BinarySearchFunc(*l, c.ptr, func(b addressedBlock, ptr int64) int { return int(min(1, max(-1, b.ptr-ptr))) })
	switch {
	case c.what == allocFailed:
	case c.what != allocated && found:
		*l = slices.Delete(*l, i, i+1)
	case c.what == allocated && !found && c.block.bytes >= smallSegment:
		*l = slices.Insert(*l, i, addressedBlock{c.ptr, endOf(c.ptr, c.block.bytes), c.block.number})
	}
}

// around returns what holds an address.
func (l addressed) around(ptr int64) (number int32, ok bool) {
	i, found := slices.BinarySearchFunc(l, ptr, func(b addressedBlock, ptr int64) int { return int(min(1, max(-1, b.ptr-ptr))) })
	if !found {
		i--
	}
	if i < 0 || ptr >= l[i].end {
		return 0, false
	}
	return l[i].number, true
}
