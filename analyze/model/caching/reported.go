package caching

import "github.com/gpurec/gpurec/analyze/model/origin"

// RecordSegmentsAdvice is the advice to record segments, which reported statistics do not contain.
const RecordSegmentsAdvice = "record with --allocator=auto; `gpurec check -p PID` reports whether this PyTorch " +
	"provides segment events"

// applyReportedAlloc applies the report of an allocation.
func (a *Allocator) applyReportedAlloc(e *AllocatorEvent, consume ChangeConsumer) {
	a.compareReportedTotals(e, e.Bytes)
	if i, ok := a.at.Get(e.Ptr); ok {
		a.endLostBlock(&a.Pieces[i], e.AtNs, consume)
		a.deletePiece(i)
	}
	b := a.newReportedBlock(e, e.Origin)
	b.SinceNs = e.AtNs
	a.emitReportedChange(OpBlockAllocated, &b, e.AtNs, consume)
	a.newPiece(b)
	a.Counts.allocs++
	a.addReportedBlocks(1, e)
}

// applyReportedFree applies the report of a free.
func (a *Allocator) applyReportedFree(e *AllocatorEvent, consume ChangeConsumer) {
	a.Counts.freeEvents++
	a.compareReportedTotals(e, -e.Bytes)
	i, ok := a.at.Get(e.Ptr)
	// its free was not recorded, and the address was used again
	if ok && a.Pieces[i].Size != e.Bytes {
		a.endLostBlock(&a.Pieces[i], e.AtNs, consume)
		a.deletePiece(i)
		ok = false
	}
	if ok {
		a.Counts.Frees++
	} else {
		if a.isStale {
			a.Counts.UnseenBlocks++
			a.Seen.Allocations++
			a.Seen.Requested += e.Bytes
		} else {
			a.Counts.UnmatchedFrees++
			a.Before.Allocations++
			a.Before.Requested += e.Bytes
		}
		i = a.newPiece(a.newReportedBlock(e, origin.NoOrigin))
	}
	a.emitReportedChange(OpBlockFreeRequested, &a.Pieces[i], e.AtNs, consume)
	a.deletePiece(i)
	a.addReportedBlocks(-1, e)
}

func (a *Allocator) newReportedBlock(e *AllocatorEvent, originID int32) SegmentPiece {
	return SegmentPiece{
		Ptr:       e.Ptr,
		Size:      e.Bytes,
		Requested: e.Bytes,
		Origin:    originID,
		Segment:   UnrecordedSegmentIndex,
		prev:      NoPiece,
		next:      NoPiece,
		State:     PieceBlock,
		agreed:    true,
	}
}

func (a *Allocator) emitReportedChange(op AllocatorOp, b *SegmentPiece, atNs int64, consume ChangeConsumer) {
	a.change = AllocatorChange{Op: op, AtNs: atNs, Block: *b, Origin: origin.NoOrigin}
	consume(a, &a.change)
}

// addReportedBlocks adds blocks (1 or -1) of the event's size to the totals. Reserved bytes come
// with each report; their changes between two reports are unknown.
func (a *Allocator) addReportedBlocks(blocks int64, e *AllocatorEvent) {
	bytes := blocks * e.Bytes
	a.Seen.Allocated += bytes
	a.Seen.Active += bytes
	a.Seen.Requested += bytes
	a.Seen.Allocations += blocks
	if e.Reserved >= 0 {
		a.Seen.Reserved = e.Reserved - a.Before.Reserved
	}
}

// compareReportedTotals checks the reported allocated bytes after a report that changed them by
// bytes.
func (a *Allocator) compareReportedTotals(e *AllocatorEvent, bytes int64) {
	c := &a.Check
	if e.Reserved >= 0 && !c.Known[ReservedTotalIndex] {
		c.Known[ReservedTotalIndex] = true
		isFirst := e.Allocated == e.Bytes && bytes > 0 && e.Reserved <= a.Rules.MaxSegmentSize(e.Bytes)
		if !isFirst {
			a.Before.Reserved = e.Reserved
		}
	}
	if e.Allocated < 0 {
		return
	}
	diff := e.Allocated - (a.Seen.Allocated + a.Before.Allocated + bytes)
	if !c.Known[AllocatedTotalIndex] {
		c.Known[AllocatedTotalIndex] = true
		a.Before.Allocated += diff
		a.Before.Active += diff
		return
	}
	if c.takesOver[AllocatedTotalIndex] {
		c.takesOver[AllocatedTotalIndex] = false
		a.Seen.Allocated += diff
		a.Seen.Active += diff
		return
	}
	c.Compared++
	if diff != 0 {
		a.countDisagreement(diff)
		a.Seen.Allocated += diff
		a.Seen.Active += diff
	}
}
