package caching

import originpkg "github.com/gpurec/gpurec/analyze/model/origin"

// RecordSegments is how to record what reports do not tell.
const RecordSegments = "record with --allocator=auto, of a PyTorch whose record_trace can be probed (gpurec check " +
	"-p PID says so)"

// ReportedAlloc makes one step.
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

// ReportedFree makes one step.
func (a *Allocator) reportedFree(e *Event, consume Consumer) {
	a.compareReported(e, -e.Bytes)
	i, ok := a.at.Get(e.Ptr)
	if ok && a.Pieces[i].Size != e.Bytes { // it has ended, and its address was handed out again
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
		i = a.newPiece(a.reportedBlock(e, originpkg.None))
	}
	a.emitReported(BlockFreeRequested, &a.Pieces[i], e.AtNs, consume)
	a.drop(i)
	a.moveReported(-1, e)
}

func (a *Allocator) reportedBlock(e *Event, origin int32) Piece {
	return Piece{
		Ptr:       e.Ptr,
		Size:      e.Bytes,
		Requested: e.Bytes,
		Origin:    origin,
		Segment:   StraySegment,
		prev:      None,
		next:      None,
		State:     IsBlock,
		agreed:    true,
	}
}

func (a *Allocator) emitReported(op Op, b *Piece, atNs int64, consume Consumer) {
	a.change = Change{Op: op, AtNs: atNs, Block: *b, Origin: originpkg.None}
	consume(a, &a.change)
}

// moveReported changes the books by a block that came or went. What is reserved is told by
// every report, and when it changed in between is not.
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

// compareReported checks the allocated bytes after a report, which changed them by bytes.
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
