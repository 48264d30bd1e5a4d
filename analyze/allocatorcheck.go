package analyze

// allocatorCheck compares the model with what the allocator counts itself, event by
// event, and learns from that what the events do not say: how large a block is, and
// how much there was before the recording.
//
// An alloc is told before the allocator's totals grow, so that its size shows in those
// of the next event; a free is told when allocated bytes have shrunk already, but
// before the block is a gap. Segments are told when they have been added, and before
// (when unmapped: after) they are taken away.
type allocatorCheck struct {
	pending    int32 // the block whose size the next event will tell, or none
	known      [2]bool
	compared   int64 // events that tell totals
	disagreed  int64 // of those, events where the model has others
	worstBytes int64 // the largest difference
	resized    int64 // blocks of another size than the rules say
}

// unseenSlack bounds by how much a block in a segment that was not seen to come may be
// larger than what was asked for: what an allocator leaves over without splitting.
const unseenSlack = largeSegment

// totals of allocatorCheck.known.
const (
	allocatedTotal = iota
	reservedTotal
)

// compareAllocated checks the allocated bytes at an event, which for a free names the
// block that was freed, or none. It returns the size that the block of an unmatched
// free must have had, and whether it corrected the size of the block before.
func (a *allocator) compareAllocated(e *allocatorEvent, freed int32) (size int64, corrected int32) {
	c := &a.check
	pending := c.pending
	c.pending = none
	guess, learnt := a.rules.round(e.bytes), false
	if e.allocated < 0 || e.what == lookedAt {
		return guess, none
	}
	model := a.seen.Allocated + a.before.Allocated
	unknown := e.what == blockFreeRequested && freed == none
	switch {
	case e.what == blockFreeRequested && !unknown:
		model -= a.pieces[freed].size
	case unknown && c.known[allocatedTotal]:
		if s := model - e.allocated; s >= e.bytes && s <= guess+unseenSlack && s%blockUnit == 0 {
			guess, learnt = s, true
		}
		model -= guess
	case unknown:
		model -= guess
	}
	if !c.known[allocatedTotal] {
		c.known[allocatedTotal] = true
		a.before.Allocated += e.allocated - model
		a.before.Active += e.allocated - model
		return guess, none
	}
	c.compared++
	diff := e.allocated - model
	switch {
	case unknown && learnt: // the size of the block before remains a guess
	case pending != none && freed != pending && a.correct(pending, diff):
		// Nor is it sure if the block that goes has a size that is guessed.
		a.pieces[pending].agreed = !unknown && (freed == none || a.pieces[freed].agreed)
		if diff != 0 {
			a.seen.Allocated += diff
			a.seen.Active += diff
			return guess, pending
		}
	case diff == 0:
	case freed != none && !a.pieces[freed].agreed && a.correct(freed, -diff):
		return guess, freed // what its size was wrong by, an unmatched free has made good
	default:
		a.disagree(diff)
		a.seen.Allocated += diff
		a.seen.Active += diff
	}
	return guess, none
}

// correct gives a block its size, if the allocator's totals say that it is larger or
// smaller by diff, and reports whether that can be.
func (a *allocator) correct(i int32, diff int64) bool {
	p := &a.pieces[i]
	size, most := p.size+diff, a.room(i)
	if p.segment == straySegment {
		most = a.rules.round(p.requested) + unseenSlack
	}
	if size < p.requested || size > most || size%blockUnit != 0 {
		return false
	}
	p.agreed = true
	if diff != 0 {
		a.check.resized++
		a.resize(i, size)
	}
	return true
}

// compareReserved checks the reserved bytes at an event.
func (a *allocator) compareReserved(e *allocatorEvent) {
	c := &a.check
	if e.reserved < 0 || e.what == lookedAt {
		return
	}
	model := a.seen.Reserved + a.before.Reserved
	switch e.what {
	case segmentAllocated, segmentMapped:
		model += e.bytes
	case segmentUnmapped:
		model -= e.bytes
	}
	diff := e.reserved - model
	if !c.known[reservedTotal] {
		c.known[reservedTotal] = true
		a.before.Reserved += diff
		return
	}
	if e.what == segmentFreed && diff == -e.bytes {
		return // versions before 2.1 tell it afterwards
	}
	if diff != 0 {
		a.disagree(diff)
		a.seen.Reserved += diff
	}
}

func (a *allocator) disagree(diff int64) {
	if diff < 0 {
		diff = -diff
	}
	a.check.disagreed++
	a.check.worstBytes = max(a.check.worstBytes, diff)
}

// fromStart reports whether the recording has the allocator's first event, so that
// there was nothing before.
func (a *allocator) fromStart() bool {
	return a.check.known == [2]bool{true, true} && a.before.Allocated == 0 && a.before.Reserved == 0
}
