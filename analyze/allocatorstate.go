package analyze

import (
	"cmp"
	"iter"
	"maps"
	"math"
	"slices"
)

// AllocatorState is what a caching allocator, that of one process and device, has at
// one moment.
type AllocatorState struct {
	Pid, Device int32
	AllocatorTotals
	// FromStart: the recording has the allocator's first event, and all of the above
	// is exact. Otherwise Allocated and Reserved are, and the others lack what was there
	// before the recording and was not freed until its end; differences between two
	// moments are exact for all but InactiveSplit.
	FromStart bool
	// Ended: the process ended. What it had is still here.
	Ended bool
	// Blocks in use by program or streams, in order of address, without those from
	// before the recording.
	Blocks []AllocatorBlock
	// Ranges are the segments and the contiguous stretches of expandable segments, in
	// order of address, without those from before the recording.
	Ranges []AllocatorRange

	Events         int64 // of the whole recording, as the next three
	UnmatchedFrees int64 // of blocks from before the recording
	LostFrees      int64 // blocks and segments that ended unseen
	OutOfMemory    int64
	// Compared events told the allocator's own totals; in Disagreed of them the model had
	// others, by up to WorstBytes. It went on with the allocator's.
	Compared, Disagreed, WorstBytes int64
	// Resized blocks had another size, by the allocator's totals, than its rules say.
	Resized int64
}

// AllocatorBlock is a block of a caching allocator that is in use.
type AllocatorBlock struct {
	Ptr       int64
	Bytes     int64 // of the block
	Requested int64 // bytes asked for
	SinceNs   int64 // when it was handed out, Unix ns
	Awaiting  bool  // the program gave it back, but a stream still uses it
	Stream    int64
	Pool      int64 // private pool as in the column src_ptr, 0 is none
	StackID   int32
	Site      string
	Tid       int32
}

// AllocatorRange is memory that a caching allocator has of the driver.
type AllocatorRange struct {
	Ptr, Bytes int64
	Expandable bool
	Stream     int64
	Pool       int64
	SinceNs    int64 // of an expandable segment: since when its first bytes are mapped
	StackID    int32
}

// Allocators replays the recording until untilNs (Unix ns, included; 0: all of it) and
// returns the caching allocators that there are or were, in order of process and
// device. The error is one of reading the recording.
func (t *Timeline) Allocators(untilNs int64) ([]AllocatorState, error) {
	at := untilNs
	if at == 0 {
		at = math.MaxInt64 - 1
	}
	var states []AllocatorState
	err := t.atMoments([]int64{at}, func(_ int, a *allocator, ended bool) { states = append(states, t.allocatorState(a, ended)) },
		func(i int, a *allocator) { states[i].settle(a) })
	sortAllocators(states)
	return states, err
}

// AllocatorsAt returns the totals of all caching allocators at each of the times (Unix
// ns, rising; events of that moment included), without blocks and ranges.
func (t *Timeline) AllocatorsAt(times []int64) ([][]AllocatorState, error) {
	states := make([][]AllocatorState, len(times))
	var all []*AllocatorState
	var when []int
	err := t.atMoments(times, func(i int, a *allocator, ended bool) {
		all = append(all, &AllocatorState{Pid: a.pid, Device: a.device, AllocatorTotals: a.seen, Ended: ended})
		when = append(when, i)
	}, func(i int, a *allocator) { all[i].settle(a) })
	for i, s := range all {
		states[when[i]] = append(states[when[i]], *s)
	}
	for _, list := range states {
		sortAllocators(list)
	}
	return states, err
}

func sortAllocators(list []AllocatorState) {
	slices.SortStableFunc(list, func(a, b AllocatorState) int {
		return cmp.Or(cmp.Compare(a.Pid, b.Pid), cmp.Compare(a.Device, b.Device))
	})
}

// atMoments calls see for every allocator at each of the times, and at the end of the
// recording, in the same order, settle: only then it is known what was there before.
func (t *Timeline) atMoments(times []int64, see func(moment int, a *allocator, ended bool), settle func(i int, a *allocator)) error {
	var seen []*allocator
	next := make(map[*allocator]int) // moment
	// Each allocator is looked at when its own next event comes: that may correct the
	// size of its newest block.
	until := func(a *allocator, ns int64, ended bool) {
		for ; next[a] < len(times) && times[next[a]] < ns; next[a]++ {
			see(next[a], a, ended)
			seen = append(seen, a)
		}
	}
	_, s, err := t.replayAll(func(*ledger, *change) {}, func(a *allocator, c *allocatorChange) {
		if c.what != blockResized {
			until(a, c.atNs, false)
		}
	})
	s.all(func(a *allocator) { until(a, math.MaxInt64, slices.Contains(s.ended, a)) })
	for i, a := range seen {
		settle(i, a)
	}
	return err
}

// allocatorState copies what is in an allocator; totals are only those seen.
func (t *Timeline) allocatorState(a *allocator, ended bool) AllocatorState {
	s := AllocatorState{Pid: a.pid, Device: a.device, AllocatorTotals: a.seen, Ended: ended}
	a.each(func(p *piece) {
		if p.origin != noOrigin {
			s.Blocks = append(s.Blocks, t.allocatorBlock(p))
		}
	})
	slices.SortFunc(s.Blocks, func(a, b AllocatorBlock) int { return cmp.Compare(a.Ptr, b.Ptr) })
	for seg := range a.ranges() {
		r := AllocatorRange{Ptr: seg.ptr, Expandable: seg.isStretch(), Pool: seg.pool, SinceNs: seg.sinceNs}
		if seg.origin != noOrigin {
			r.StackID = t.origins.list[seg.origin].stack
		}
		for _, p := range a.within(seg) {
			r.Bytes += p.size
			r.Stream = p.stream
		}
		s.Ranges = append(s.Ranges, r)
	}
	return s
}

func (t *Timeline) allocatorBlock(p *piece) AllocatorBlock {
	o := &t.origins.list[p.origin]
	return AllocatorBlock{
		Ptr: p.ptr, Bytes: p.size, Requested: p.requested, SinceNs: p.sinceNs, Awaiting: p.state == isAwaiting,
		Stream: p.stream, Pool: p.pool, StackID: o.stack, Site: t.siteLabel(p.origin), Tid: o.tid,
	}
}

// settle adds what the whole recording tells.
func (s *AllocatorState) settle(a *allocator) {
	s.AllocatorTotals = s.AllocatorTotals.plus(a.before)
	s.FromStart = a.fromStart()
	c, k := &a.counts, &a.check
	s.Events, s.UnmatchedFrees, s.LostFrees, s.OutOfMemory = c.events, c.unmatchedFrees, c.lostFrees, c.outOfMemory
	s.Compared, s.Disagreed, s.WorstBytes, s.Resized = k.compared, k.disagreed, k.worstBytes, k.resized
}

// ranges returns the segments, and the stretches of expandable segments, by address.
func (a *allocator) ranges() iter.Seq[*segment] {
	return func(yield func(*segment) bool) {
		for _, ptr := range slices.Sorted(maps.Keys(a.began)) {
			if !yield(&a.segments[a.began[ptr]]) {
				return
			}
		}
	}
}

// within returns the blocks and gaps of a range by address, and their numbers. They
// may be dropped while they are walked through.
func (a *allocator) within(s *segment) iter.Seq2[int32, *piece] {
	return func(yield func(int32, *piece) bool) {
		n := a.began[s.ptr]
		if s.isStretch() {
			n = expandableSegment
		}
		i, ok := a.at.get(s.ptr)
		for ok && i != none && a.pieces[i].segment == n {
			number, p := i, &a.pieces[i]
			if i = p.next; !yield(number, p) {
				return
			}
		}
	}
}
