package caching

import "github.com/gpurec/gpurec/analyze/model/origin"

// RecordSegments is the advice to record segments, which reported statistics do not contain.
const RecordSegments = "record with --allocator=auto; `gpurec check -p PID` reports whether this PyTorch " +
	"provides segment events"

// reportedAlloc applies the report of an allocation.
func (a *Allocator) reportedAlloc(e *Event, consume Consumer) {
	a.compareReported(e, e.Bytes)
	if i, ok := a.at.Get(e.Ptr); ok {
		a.lose(&a.Pieces[i], e.AtNs, consume)
		a.drop(i)
	}
	b := a.reportedBlock(e, e.Origin)
	b.SinceNs = e.AtNs
	a.emitReported(BlockAllocated, &b, e.AtNs, consume)
	a.newPiece(b)
	a.Counts.allocs++
	a.moveReported(1, e)
}

// reportedFree applies the report of a free.
func (a *Allocator) reportedFree(e *Event, consume Consumer) {
	a.compareReported(e, -e.Bytes)
	i, ok := a.at.Get(e.Ptr)
	// its free was not recorded, and the address was used again
	if ok && a.Pieces[i].Size != e.Bytes {
		a.lose(&a.Pieces[i], e.AtNs, consume)
		a.drop(i)
		ok = false
	}
	if ok {
		a.Counts.Frees++
	} else {
		a.Counts.UnmatchedFrees++
		a.Before.Allocations++
		a.Before.Requested += e.Bytes
		i = a.newPiece(a.reportedBlock(e, origin.None))
	}
	a.emitReported(BlockFreeRequested, &a.Pieces[i], e.AtNs, consume)
	a.drop(i)
	a.moveReported(-1, e)
}

func (a *Allocator) reportedBlock(e *Event, originID int32) Piece {
	return Piece{
		Ptr:       e.Ptr,
		Size:      e.Bytes,
		Requested: e.Bytes,
		Origin:    originID,
		Segment:   StraySegment,
		prev:      None,
		next:      None,
		State:     IsBlock,
		agreed:    true,
	}
}

func (a *Allocator) emitReported(op Op, b *Piece, atNs int64, consume Consumer) {
	a.change = Change{Op: op, AtNs: atNs, Block: *b, Origin: origin.None}
	consume(a, &a.change)
}

// moveReported adds blocks (1 or -1) of the event's size to the totals. Reserved bytes come with
// each report; their changes between two reports are unknown.
func (a *Allocator) moveReported(blocks int64, e *Event) {
	bytes := blocks * e.Bytes
	a.Seen.Allocated += bytes
	a.Seen.Active += bytes
	a.Seen.Requested += bytes
	a.Seen.Allocations += blocks
	if e.Reserved >= 0 {
		a.Seen.Reserved = e.Reserved - a.Before.Reserved
	}
}

// compareReported checks the reported allocated bytes after a report that changed them by bytes.
func (a *Allocator) compareReported(e *Event, bytes int64) {
	c := &a.Check
	if e.Reserved >= 0 && !c.Known[ReservedTotal] {
		c.Known[ReservedTotal] = true
		isFirst := e.Allocated == e.Bytes && bytes > 0 && e.Reserved <= a.Rules.Segment(e.Bytes)
		if !isFirst {
			a.Before.Reserved = e.Reserved
		}
	}
	if e.Allocated < 0 {
		return
	}
	diff := e.Allocated - (a.Seen.Allocated + a.Before.Allocated + bytes)
	if !c.Known[AllocatedTotal] {
		c.Known[AllocatedTotal] = true
		a.Before.Allocated += diff
		a.Before.Active += diff
		return
	}
	c.Compared++
	if diff != 0 {
		a.disagree(diff)
		a.Seen.Allocated += diff
		a.Seen.Active += diff
	}
}
