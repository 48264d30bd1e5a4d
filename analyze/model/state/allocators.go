package state

import (
	"cmp"
	"math"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/caching"
	"github.com/gpurec/gpurec/analyze/model/livemem"
	"github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/model/timeline"
)

// Allocator is what a caching allocator, that of one process and device, has at
// one moment.
type Allocator struct {
	Pid, Device int32
	caching.Totals
	// FromStart: the recording has the allocator's first event, and all of the above
	// is exact. Otherwise Allocated and Reserved are, and the others lack what was there
	// before the recording and was not freed until its end; differences between two
	// moments are exact for all but InactiveSplit.
	FromStart bool
	// Ended: the process ended. What it had is still here.
	Ended bool
	// Blocks in use by program or streams, in order of address, without those from
	// before the recording.
	Blocks []Block
	// Ranges are the segments and the contiguous stretches of expandable segments, in
	// order of address, without those from before the recording.
	Ranges []Range

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

// Block is a block of a caching allocator that is in use.
type Block struct {
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

// Range is memory that a caching allocator has of the driver.
type Range struct {
	Ptr, Bytes int64
	Expandable bool
	Stream     int64
	Pool       int64
	SinceNs    int64 // of an expandable segment: since when its first bytes are mapped
	StackID    int32
}

// ReadAllocators replays the recording until untilNs (Unix ns, included; 0: all of it) and
// returns the caching allocators that there are or were, in order of process and
// device. The error is one of reading the recording.
func ReadAllocators(t *timeline.Timeline, untilNs int64) ([]Allocator, error) {
	at := untilNs
	if at == 0 {
		at = math.MaxInt64 - 1
	}
	var states []Allocator
	err := AtMoments(
		t,
		[]int64{at},
		func(_ int, a *caching.Allocator, ended bool) { states = append(states, allocatorState(t, a, ended)) },
		func(i int, a *caching.Allocator) { states[i].settle(a) },
	)
	sortAllocators(states)
	return states, err
}

// AllocatorsAt returns the totals of all caching allocators at each of the times (Unix
// ns, rising; events of that moment included), without blocks and ranges.
func AllocatorsAt(t *timeline.Timeline, times []int64) ([][]Allocator, error) {
	states := make([][]Allocator, len(times))
	var all []*Allocator
	var when []int
	err := AtMoments(t, times, func(i int, a *caching.Allocator, ended bool) {
		all = append(all, &Allocator{Pid: a.Pid, Device: a.Device, Totals: a.Seen, Ended: ended})
		when = append(when, i)
	}, func(i int, a *caching.Allocator) { all[i].settle(a) })
	for i, s := range all {
		states[when[i]] = append(states[when[i]], *s)
	}
	for _, list := range states {
		sortAllocators(list)
	}
	return states, err
}

func sortAllocators(list []Allocator) {
	slices.SortStableFunc(list, func(a, b Allocator) int {
		return cmp.Or(cmp.Compare(a.Pid, b.Pid), cmp.Compare(a.Device, b.Device))
	})
}

// AtMoments calls see for every allocator at each of the times, and at the end of the
// recording, in the same order, settle: only then it is known what was there before.
func AtMoments(
	t *timeline.Timeline,
	times []int64,
	see func(moment int, a *caching.Allocator, ended bool),
	settle func(i int, a *caching.Allocator),
) error {
	var seen []*caching.Allocator
	next := make(map[*caching.Allocator]int) // moment
	// Each allocator is looked at when its own next event comes: that may correct the
	// size of its newest block.
	until := func(a *caching.Allocator, ns int64, ended bool) {
		for ; next[a] < len(times) && times[next[a]] < ns; next[a]++ {
			see(next[a], a, ended)
			seen = append(seen, a)
		}
	}
	_, s, err := t.ReplayAll(func(*livemem.Set, *livemem.Change) {}, func(a *caching.Allocator, c *caching.Change) {
		if c.Op != caching.BlockResized {
			until(a, c.AtNs, false)
		}
	})
	s.All(func(a *caching.Allocator) { until(a, math.MaxInt64, slices.Contains(s.Ended, a)) })
	for i, a := range seen {
		settle(i, a)
	}
	return err
}

// allocatorState copies what is in an allocator; totals are only those seen.
func allocatorState(t *timeline.Timeline, a *caching.Allocator, ended bool) Allocator {
	s := Allocator{Pid: a.Pid, Device: a.Device, Totals: a.Seen, Ended: ended}
	a.Each(func(p *caching.Piece) {
		if p.Origin != origin.None {
			s.Blocks = append(s.Blocks, allocatorBlock(t, p))
		}
	})
	slices.SortFunc(s.Blocks, func(a, b Block) int { return cmp.Compare(a.Ptr, b.Ptr) })
	for seg := range a.Ranges() {
		r := Range{Ptr: seg.Ptr, Expandable: seg.IsStretch(), Pool: seg.Pool, SinceNs: seg.SinceNs}
		if seg.Origin != origin.None {
			r.StackID = t.Origins.List[seg.Origin].Stack
		}
		for _, p := range a.Within(seg) {
			r.Bytes += p.Size
			r.Stream = p.Stream
		}
		s.Ranges = append(s.Ranges, r)
	}
	return s
}

func allocatorBlock(t *timeline.Timeline, p *caching.Piece) Block {
	o := &t.Origins.List[p.Origin]
	return Block{
		Ptr: p.Ptr, Bytes: p.Size, Requested: p.Requested, SinceNs: p.SinceNs, Awaiting: p.State == caching.IsAwaiting,
		Stream: p.Stream, Pool: p.Pool, StackID: o.Stack, Site: t.SiteLabel(p.Origin), Tid: o.Tid,
	}
}

// settle adds what the whole recording tells.
func (s *Allocator) settle(a *caching.Allocator) {
	s.Totals = s.Totals.Plus(a.Before)
	s.FromStart = a.FromStart()
	c, k := &a.Counts, &a.Check
	s.Events, s.UnmatchedFrees, s.LostFrees, s.OutOfMemory = c.Events, c.UnmatchedFrees, c.LostFrees, c.OutOfMemory
	s.Compared, s.Disagreed, s.WorstBytes, s.Resized = k.Compared, k.Disagreed, k.WorstBytes, k.Resized
}
