package caching

// Check compares the model with the totals that the allocator reports in its events. From them it
// learns facts that no event states: the exact size of a block, and the memory from before the
// recording.
//
// The order matters. An alloc event comes before the allocator's totals grow, so the next event
// shows the block's size. A free event comes after allocated bytes have shrunk, but before the
// block becomes a hole. Segment events come after the segment is added, and before it is removed;
// an unmap event comes after.
type Check struct {
	pending int32 // the block whose size the next event determines, or None
	// Known says which totals were reported so far; index with AllocatedTotal or ReservedTotal.
	Known      [2]bool
	Compared   int64 // allocator events whose totals were compared with the model
	Disagreed  int64 // of Compared, events whose totals differ from the model
	WorstBytes int64 // largest difference between model and allocator, bytes
	Resized    int64 // blocks whose size differs from the allocator's rules
}

// unseenSlack bounds how much larger than its request a block in an unrecorded segment may be. An
// allocator leaves at most this much without splitting.
const unseenSlack = LargeSegment

// Indexes of Check.Known.
const (
	AllocatedTotal = iota
	ReservedTotal
)

// compareAllocated checks the reported allocated bytes of an event. freed is the block of a free
// event, or None. It returns the size of the block that an unmatched free ended, and the block
// whose size it corrected, or None.
func (a *Allocator) compareAllocated(e *Event, freed int32) (size int64, corrected int32) {
	c := &a.Check
	pending := c.pending
	c.pending = None
	guess, learnt := a.Rules.Round(e.Bytes), false
	if e.Allocated < 0 || e.Op == SnapshotTaken {
		return guess, None
	}
	model := a.Seen.Allocated + a.Before.Allocated
	unknown := e.Op == BlockFreeRequested && freed == None
	switch {
	case e.Op == BlockFreeRequested && !unknown:
		model -= a.Pieces[freed].Size
	case unknown && c.Known[AllocatedTotal]:
		if s := model - e.Allocated; s >= e.Bytes && s <= guess+unseenSlack && s%BlockUnit == 0 {
			guess, learnt = s, true
		}
		model -= guess
	case unknown:
		model -= guess
	}
	if !c.Known[AllocatedTotal] {
		c.Known[AllocatedTotal] = true
		a.Before.Allocated += e.Allocated - model
		a.Before.Active += e.Allocated - model
		return guess, None
	}
	c.Compared++
	diff := e.Allocated - model
	switch {
	case unknown && learnt: // the size of the pending block remains a prediction
	case pending != None && freed != pending && a.correct(pending, diff):
		// The size is not certain either if the freed block's size was predicted.
		a.Pieces[pending].agreed = !unknown && (freed == None || a.Pieces[freed].agreed)
		if diff != 0 {
			a.Seen.Allocated += diff
			a.Seen.Active += diff
			return guess, pending
		}
	case diff == 0:
	case freed != None && !a.Pieces[freed].agreed && a.correct(freed, -diff):
		return guess, freed // an unmatched free had compensated the error of this block's size
	default:
		a.disagree(diff)
		a.Seen.Allocated += diff
		a.Seen.Active += diff
	}
	return guess, None
}

// correct changes the size of a block by diff bytes, to match the allocator's totals. It reports
// whether that size is possible.
func (a *Allocator) correct(i int32, diff int64) bool {
	p := &a.Pieces[i]
	size, most := p.Size+diff, a.room(i)
	if p.Segment == StraySegment {
		most = a.Rules.Round(p.Requested) + unseenSlack
	}
	if size < p.Requested || size > most || size%BlockUnit != 0 {
		return false
	}
	p.agreed = true
	if diff != 0 {
		a.Check.Resized++
		a.resize(i, size)
	}
	return true
}

// compareReserved checks the reported reserved bytes of an event.
func (a *Allocator) compareReserved(e *Event) {
	c := &a.Check
	if e.Reserved < 0 || e.Op == SnapshotTaken {
		return
	}
	model := a.Seen.Reserved + a.Before.Reserved
	switch e.Op {
	case SegmentAllocated, SegmentMapped:
		model += e.Bytes
	case SegmentUnmapped:
		model -= e.Bytes
	}
	diff := e.Reserved - model
	if !c.Known[ReservedTotal] {
		c.Known[ReservedTotal] = true
		a.Before.Reserved += diff
		return
	}
	if e.Op == SegmentFreed && diff == -e.Bytes {
		return // PyTorch before 2.1 reports a segment's end after its removal
	}
	if diff != 0 {
		a.disagree(diff)
		a.Seen.Reserved += diff
	}
}

func (a *Allocator) disagree(diff int64) {
	if diff < 0 {
		diff = -diff
	}
	a.Check.Disagreed++
	a.Check.WorstBytes = max(a.Check.WorstBytes, diff)
}

// FromStart reports whether the recording has the allocator's first event, so no memory existed
// before.
func (a *Allocator) FromStart() bool {
	return a.Check.Known == [2]bool{true, true} && a.Before.Allocated == 0 && a.Before.Reserved == 0
}
