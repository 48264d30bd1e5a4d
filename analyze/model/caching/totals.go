package caching

import "github.com/gpurec/gpurec/analyze/model/origin"

// OwnTotals are an allocator's own statistics at a time, as read from the memory of its process.
type OwnTotals struct {
	Pid, Device int32
	AtNs        int64 // Unix ns
	// Allocated and Reserved are the present totals, Peak the highest allocated bytes since the program last reset
	// them.
	Allocated, Reserved, Peak int64
	Allocs, Frees             int64 // numbers of blocks that were allocated and freed so far
}

// TotalsChange compares OwnTotals with the ones before: see OpTotalsRead.
type TotalsChange struct {
	OwnTotals
	// UnseenAllocs and UnseenFrees are the numbers of blocks that were allocated and freed without a recorded event.
	// Lost events are among them.
	UnseenAllocs, UnseenFrees int64
	// NewPeak is the peak of the allocated bytes, if it was reached since the totals before; otherwise 0.
	NewPeak int64
}

// ownCounts has the last own totals of an allocator, and the recorded events before them.
type ownCounts struct {
	OwnTotals
	isKnown             bool
	seenAllocs, seenEnd int64 // recorded allocations and frees
}

// ApplyTotals takes over an allocator's own totals. They must come in order of AtNs, and the caller calls it before it
// applies later events. Between two of them, the totals of a stale model do not change.
func (s *AllocatorSet) ApplyTotals(own *OwnTotals, consume ChangeConsumer) {
	s.ApplyStatesBefore(own.AtNs, consume)
	s.enterGaps(own.AtNs)
	a := s.allocatorOf(s.numbers.NumberOf(AllocatorKey{own.Pid, own.Device}))
	step := a.newTotalsChange(own)
	a.change = AllocatorChange{Op: OpTotalsRead, AtNs: own.AtNs, Own: &step, Origin: origin.NoOrigin}
	consume(a, &a.change)
	a.change.Own = nil
	if !a.isStale {
		return
	}
	more := own.Allocated - a.Seen.Allocated - a.Before.Allocated
	a.Seen.Allocated += more
	a.Seen.Active += more
	a.Seen.Reserved = own.Reserved - a.Before.Reserved
	a.Check.Known = [2]bool{true, true}
	a.Check.takesOver = a.Check.Known
}

// newTotalsChange compares own totals with the ones before and with the recorded events, and counts what was not seen.
func (a *Allocator) newTotalsChange(own *OwnTotals) TotalsChange {
	step, last := TotalsChange{OwnTotals: *own}, &a.own
	seenAllocs, seenFrees := a.Counts.allocs, a.Counts.freeEvents
	// The program may reset its counters.
	if allocs, frees := own.Allocs-last.Allocs, own.Frees-last.Frees; last.isKnown && min(allocs, frees) >= 0 {
		step.UnseenAllocs = max(0, allocs-(seenAllocs-last.seenAllocs))
		step.UnseenFrees = max(0, frees-(seenFrees-last.seenEnd))
		a.Counts.UnrecordedAllocs += step.UnseenAllocs
		a.Counts.UnrecordedFrees += step.UnseenFrees
		if own.Peak > last.Peak {
			step.NewPeak = own.Peak
		}
	}
	*last = ownCounts{*own, true, seenAllocs, seenFrees}
	return step
}
