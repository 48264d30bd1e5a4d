package caching

// Check compares the model with what the allocator counts itself, event by
// event, and learns from that what the events do not say: how large a block is, and
// how much there was before the recording.
//
// An alloc is told before the allocator's totals grow, so that its size shows in those
// of the next event; a free is told when allocated bytes have shrunk already, but
// before the block is a gap. Segments are told when they have been added, and before
// (when unmapped: after) they are taken away.
type Check struct {
	pending    int32 // the block whose size the next event will tell, or none
	Known      [2]bool
	Compared   int64 // events that tell totals
	Disagreed  int64 // of those, events where the model has others
	WorstBytes int64 // the largest difference
	Resized    int64 // blocks of another size than the rules say
}

// unseenSlack bounds by how much a block in a segment that was not seen to come may be
// larger than what was asked for: what an allocator leaves over without splitting.
const unseenSlack = LargeSegment

// totals of Check.Known.
const (
	AllocatedTotal = iota
	ReservedTotal
)

// compareAllocated checks the allocated bytes at an event, which for a free names the
// block that was freed, or none. It returns the size that the block of an unmatched
// free must have had, and whether it corrected the size of the block before.
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
	case unknown && learnt: // the size of the block before remains a guess
	case pending != None && freed != pending && a.correct(pending, diff):
		// Nor is it sure if the block that goes has a size that is guessed.
		a.Pieces[pending].agreed = !unknown && (freed == None || a.Pieces[freed].agreed)
		if diff != 0 {
			a.Seen.Allocated += diff
			a.Seen.Active += diff
			return guess, pending
		}
	case diff == 0:
	case freed != None && !a.Pieces[freed].agreed && a.correct(freed, -diff):
		return guess, freed // what its size was wrong by, an unmatched free has made good
	default:
		a.disagree(diff)
		a.Seen.Allocated += diff
		a.Seen.Active += diff
	}
	return guess, None
}

// correct gives a block its size, if the allocator's totals say that it is larger or
// smaller by diff, and reports whether that can be.
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

// compareReserved checks the reserved bytes at an event.
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
		return // versions before 2.1 tell it afterwards
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

// FromStart reports whether the recording has the allocator's first event, so that
// there was nothing before.
func (a *Allocator) FromStart() bool {
	return a.Check.Known == [2]bool{true, true} && a.Before.Allocated == 0 && a.Before.Reserved == 0
}
