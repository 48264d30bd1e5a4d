package caching

// TotalsCheck compares the model with the totals that the allocator reports in its events. From
// them it learns facts that no event states: the exact size of a block, and the memory from before
// the recording.
//
// The order matters. An alloc event comes before the allocator's totals grow, so the next event
// shows the block's size. A free event comes after allocated bytes have shrunk, but before the
// block becomes a hole. Segment events come after the segment is added, and before it is removed;
// an unmap event comes after.
type TotalsCheck struct {
	pending int32 // the block whose size the next event determines, or None
	// Known says which totals were reported so far; index with AllocatedTotalIndex or
	// ReservedTotalIndex.
	Known [2]bool
	// takesOver says which totals the next event sets, without a comparison: events were not recorded before it.
	takesOver  [2]bool
	Compared   int64 // allocator events whose totals were compared with the model
	Disagreed  int64 // compared events whose totals differ from the model
	WorstBytes int64 // largest difference between model and allocator, bytes
	Resized    int64 // blocks whose size differs from the allocator's rules
}

// maxUnseenSlackBytes bounds how much larger than its request a block in an unrecorded segment may
// be. An allocator leaves at most this much without splitting.
const maxUnseenSlackBytes = LargeSegmentBytes

// Indexes of Check.Known.
const (
	AllocatedTotalIndex = iota
	ReservedTotalIndex
)

// compareAllocatedBytes checks the reported allocated bytes of an event. freed is the block of a
// free event, or None. It returns the size of the block that an unmatched free ended, and the block
// whose size it corrected, or None.
func (a *Allocator) compareAllocatedBytes(e *AllocatorEvent, freed int32) (size int64, corrected int32) {
	c := &a.Check
	pending := c.pending
	c.pending = NoPiece
	guess, learnt := a.Rules.RoundBlockSize(e.Bytes), false
	if e.Allocated < 0 || e.Op == OpSnapshotTaken {
		return guess, NoPiece
	}
	model := a.Seen.Allocated + a.Before.Allocated
	unknown := e.Op == OpBlockFreeRequested && freed == NoPiece
	switch {
	case e.Op == OpBlockFreeRequested && !unknown:
		model -= a.Pieces[freed].Size
	case unknown && c.Known[AllocatedTotalIndex] && !c.takesOver[AllocatedTotalIndex]:
		if s := model - e.Allocated; s >= e.Bytes && s <= guess+maxUnseenSlackBytes && s%BlockUnitBytes == 0 {
			guess, learnt = s, true
		}
		model -= guess
	case unknown:
		model -= guess
	}
	if !c.Known[AllocatedTotalIndex] {
		c.Known[AllocatedTotalIndex] = true
		a.Before.Allocated += e.Allocated - model
		a.Before.Active += e.Allocated - model
		return guess, NoPiece
	}
	diff := e.Allocated - model
	if c.takesOver[AllocatedTotalIndex] {
		c.takesOver[AllocatedTotalIndex] = false
		a.Seen.Allocated += diff
		a.Seen.Active += diff
		return guess, NoPiece
	}
	c.Compared++
	switch {
	case unknown && learnt: // the size of the pending block remains a prediction
	case pending != NoPiece && freed != pending && a.correctBlockSize(pending, diff):
		// The size is not certain either if the freed block's size was predicted.
		a.Pieces[pending].agreed = !unknown && (freed == NoPiece || a.Pieces[freed].agreed)
		if diff != 0 {
			a.Seen.Allocated += diff
			a.Seen.Active += diff
			return guess, pending
		}
	case diff == 0:
	case freed != NoPiece && !a.Pieces[freed].agreed && a.correctBlockSize(freed, -diff):
		return guess, freed // an unmatched free had compensated the error of this block's size
	default:
		a.countDisagreement(diff)
		a.Seen.Allocated += diff
		a.Seen.Active += diff
	}
	return guess, NoPiece
}

// correctBlockSize changes the size of a block by diff bytes, to match the allocator's totals. It
// reports whether that size is possible.
func (a *Allocator) correctBlockSize(i int32, diff int64) bool {
	p := &a.Pieces[i]
	size, most := p.Size+diff, a.bytesToNextBlock(i)
	if p.Segment == UnrecordedSegmentIndex {
		most = a.Rules.RoundBlockSize(p.Requested) + maxUnseenSlackBytes
	}
	if size < p.Requested || size > most || size%BlockUnitBytes != 0 {
		return false
	}
	p.agreed = true
	if diff != 0 {
		a.Check.Resized++
		a.resizeBlock(i, size)
	}
	return true
}

// compareReservedBytes checks the reported reserved bytes of an event.
func (a *Allocator) compareReservedBytes(e *AllocatorEvent) {
	c := &a.Check
	if e.Reserved < 0 || e.Op == OpSnapshotTaken {
		return
	}
	model := a.Seen.Reserved + a.Before.Reserved
	switch e.Op {
	case OpSegmentAllocated, OpSegmentMapped:
		model += e.Bytes
	case OpSegmentUnmapped:
		model -= e.Bytes
	}
	diff := e.Reserved - model
	if !c.Known[ReservedTotalIndex] {
		c.Known[ReservedTotalIndex] = true
		a.Before.Reserved += diff
		return
	}
	if e.Op == OpSegmentFreed && diff == -e.Bytes {
		return // PyTorch before 2.1 reports a segment's end after its removal
	}
	if c.takesOver[ReservedTotalIndex] {
		c.takesOver[ReservedTotalIndex] = false
		a.Seen.Reserved += diff
		return
	}
	if diff != 0 {
		a.countDisagreement(diff)
		a.Seen.Reserved += diff
	}
}

// countDisagreement counts an event at which the model differs. That of a stale model is no fault.
func (a *Allocator) countDisagreement(diff int64) {
	if a.isStale {
		return
	}
	if diff < 0 {
		diff = -diff
	}
	a.Check.Disagreed++
	a.Check.WorstBytes = max(a.Check.WorstBytes, diff)
}

// HasWholeState reports whether the model knows all memory of the allocator: from its first event on, or since its
// state was read from the process.
func (a *Allocator) HasWholeState() bool { return a.IsRecordedFromStart() || a.WasRead() }

// WasRead reports whether the blocks of the allocator were read from the process: when the recording began, or since.
func (a *Allocator) WasRead() bool { return a.Earlier != nil || a.hasReading }

// IsRecordedFromStart reports whether the recording has the allocator's first event, so no memory
// existed before.
func (a *Allocator) IsRecordedFromStart() bool {
	return a.Check.Known == [2]bool{true, true} && a.Before.Allocated == 0 && a.Before.Reserved == 0
}
