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

// Allocator is the state of a caching allocator at one point in time. Each process has one for each
// device.
type Allocator struct {
	Pid, Device int32
	caching.Totals
	// FromStart is set if the recording has the allocator's first event. Then all totals are exact.
	// Otherwise Allocated and Reserved are exact. The other totals lack memory from before the
	// recording that was not freed by its end. Differences between two points in time are exact
	// except for InactiveSplit.
	FromStart bool
	// Ended is set if the process ended. The state is that at its end.
	Ended bool
	// Blocks are the blocks in use by the program or a stream, in order of address. Blocks from
	// before the recording are left out.
	Blocks []Block
	// Ranges are the segments and the mapped ranges of expandable segments, in order of address.
	// Ranges from before the recording are left out.
	Ranges []Range

	Events         int64 // of the whole recording, as are the next three counts
	UnmatchedFrees int64 // frees of blocks from before the recording
	LostFrees      int64 // blocks and segments whose end was not recorded
	OutOfMemory    int64
	// Compared is the number of events with the allocator's own totals. Disagreed counts those that
	// differ from the model, by at most WorstBytes. After a difference the model takes the
	// allocator's totals.
	Compared, Disagreed, WorstBytes int64
	// Resized counts blocks whose size, by the allocator's totals, differs from its rules.
	Resized int64
}

// Block is a block of a caching allocator that is in use by the program or a stream.
type Block struct {
	Ptr       int64
	Bytes     int64 // size of the block, rounded up
	Requested int64 // size that the program requested, bytes
	SinceNs   int64 // when the block was allocated, Unix ns
	Awaiting  bool  // freed by the program, but still in use by a stream
	Stream    int64
	Pool      int64 // private pool as in the column src_ptr; 0: none
	StackID   int32
	Site      string
	Tid       int32
}

// Range is memory that a caching allocator got from the driver.
type Range struct {
	Ptr, Bytes int64
	Expandable bool
	Stream     int64
	Pool       int64
	SinceNs    int64 // for an expandable segment, when its first bytes were mapped, Unix ns
	StackID    int32
}

// ReadAllocators replays the recording up to untilNs (Unix ns, inclusive; 0: to its end). It
// returns all caching allocators up to then, in order of process and device. It returns errors of
// reading the recording.
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

// AllocatorsAt returns the totals of all caching allocators at each of the times (Unix ns,
// increasing, inclusive). Blocks and Ranges are empty.
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

// AtMoments calls visit for every allocator at each of the times. At the end of the recording it
// calls settle for each visit, in the same order. Only then is the memory from before the recording
// known.
func AtMoments(
	t *timeline.Timeline,
	times []int64,
	visit func(moment int, a *caching.Allocator, ended bool),
	settle func(i int, a *caching.Allocator),
) error {
	var visited []*caching.Allocator
	next := make(map[*caching.Allocator]int) // index in times of the next visit
	// An allocator is visited at its own next event, because that event may correct the size of its
	// newest block.
	until := func(a *caching.Allocator, ns int64, ended bool) {
		for ; next[a] < len(times) && times[next[a]] < ns; next[a]++ {
			visit(next[a], a, ended)
			visited = append(visited, a)
		}
	}
	_, s, err := t.ReplayAll(func(*livemem.Set, *livemem.Change) {}, func(a *caching.Allocator, c *caching.Change) {
		if c.Op != caching.BlockResized {
			until(a, c.AtNs, false)
		}
	})
	s.All(func(a *caching.Allocator) { until(a, math.MaxInt64, slices.Contains(s.Ended, a)) })
	for i, a := range visited {
		settle(i, a)
	}
	return err
}

// allocatorState copies the state of an allocator. The totals are those of recorded events only.
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

// settle adds the values that are known only at the end of the recording.
func (s *Allocator) settle(a *caching.Allocator) {
	s.Totals = s.Totals.Plus(a.Before)
	s.FromStart = a.FromStart()
	c, k := &a.Counts, &a.Check
	s.Events, s.UnmatchedFrees, s.LostFrees, s.OutOfMemory = c.Events, c.UnmatchedFrees, c.LostFrees, c.OutOfMemory
	s.Compared, s.Disagreed, s.WorstBytes, s.Resized = k.Compared, k.Disagreed, k.WorstBytes, k.Resized
}
