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

// AllocatorState is the state of a caching allocator at one point in time. Each process has one for
// each device.
type AllocatorState struct {
	Pid, Device int32
	caching.AllocatorTotals
	// FromStart is set if the recording has the allocator's first event. Then all totals are exact.
	// Otherwise Allocated and Reserved are exact. The other totals lack memory from before the
	// recording that was not freed by its end. Differences between two points in time are exact
	// except for InactiveSplit.
	FromStart bool
	// Ended is set if the process ended. The state is that at its end.
	Ended bool
	// Blocks are the blocks in use by the program or a stream, in order of address. Blocks from
	// before the recording are left out, unless they were read from the process: their SinceNs is 0.
	Blocks []AllocatorBlock
	// Ranges are the segments and the mapped ranges of expandable segments, in order of address.
	// Ranges from before the recording are left out, unless they were read from the process.
	Ranges []AllocatorRange

	Events         int64 // allocator events in the whole recording; the next three counts too
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

// AllocatorBlock is a block of a caching allocator that is in use by the program or a stream.
type AllocatorBlock struct {
	Ptr       int64
	Bytes     int64 // size of the block, rounded up
	Requested int64 // size that the program requested, bytes
	SinceNs   int64 // when the block was allocated, Unix ns
	Awaiting  bool  // the program freed the block, but a stream still uses it
	Stream    int64
	Pool      int64 // private pool as in the column src_ptr; 0: none
	StackID   int32
	Site      string
	Tid       int32
}

// AllocatorRange is memory that a caching allocator got from the driver.
type AllocatorRange struct {
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
func ReadAllocators(t *timeline.Timeline, untilNs int64) ([]AllocatorState, error) {
	at := untilNs
	if at == 0 {
		at = math.MaxInt64 - 1
	}
	var states []AllocatorState
	err := VisitAllocatorsAt(
		t,
		[]int64{at},
		func(_ int, a *caching.Allocator, ended bool) { states = append(states, newAllocatorState(t, a, ended)) },
		func(i int, a *caching.Allocator) { states[i].addFinalTotals(a) },
	)
	sortAllocators(states)
	return states, err
}

// ReadAllocatorsAt returns the totals of all caching allocators at each of the times (Unix ns,
// increasing, inclusive). Blocks and Ranges are empty.
func ReadAllocatorsAt(t *timeline.Timeline, times []int64) ([][]AllocatorState, error) {
	states := make([][]AllocatorState, len(times))
	var all []*AllocatorState
	var when []int
	err := VisitAllocatorsAt(t, times, func(i int, a *caching.Allocator, ended bool) {
		all = append(all, &AllocatorState{Pid: a.Pid, Device: a.Device, AllocatorTotals: a.Seen, Ended: ended})
		when = append(when, i)
	}, func(i int, a *caching.Allocator) { all[i].addFinalTotals(a) })
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

// VisitAllocatorsAt calls visit for every allocator at each of the times. At the end of the
// recording it calls settle for each visit, in the same order. Only then is the memory from before
// the recording known.
func VisitAllocatorsAt(
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
	_, s, err := t.ReplayMemoryAndAllocators(
		func(*livemem.Set, *livemem.Change) {},
		func(a *caching.Allocator, c *caching.AllocatorChange) {
			if c.Op != caching.OpBlockResized {
				until(a, c.AtNs, false)
			}
		},
	)
	s.EachAllocator(func(a *caching.Allocator) { until(a, math.MaxInt64, slices.Contains(s.Ended, a)) })
	for i, a := range visited {
		settle(i, a)
	}
	return err
}

// newAllocatorState copies the state of an allocator. The totals are those of recorded events only.
func newAllocatorState(t *timeline.Timeline, a *caching.Allocator, ended bool) AllocatorState {
	s := AllocatorState{Pid: a.Pid, Device: a.Device, AllocatorTotals: a.Seen, Ended: ended}
	a.EachLiveBlock(func(p *caching.SegmentPiece) {
		if p.Origin != origin.NoOrigin || a.WasRead() {
			s.Blocks = append(s.Blocks, newBlock(t, p))
		}
	})
	slices.SortFunc(s.Blocks, func(a, b AllocatorBlock) int { return cmp.Compare(a.Ptr, b.Ptr) })
	for seg := range a.SegmentsInOrder() {
		r := AllocatorRange{Ptr: seg.Ptr, Expandable: seg.IsMappedRange(), Pool: seg.Pool, SinceNs: seg.SinceNs}
		if seg.Origin != origin.NoOrigin {
			r.StackID = t.Origins.List[seg.Origin].Stack
		}
		for _, p := range a.PiecesWithin(seg) {
			r.Bytes += p.Size
			r.Stream = p.Stream
		}
		s.Ranges = append(s.Ranges, r)
	}
	return s
}

func newBlock(t *timeline.Timeline, p *caching.SegmentPiece) AllocatorBlock {
	var o origin.CallOrigin
	if p.Origin != origin.NoOrigin {
		o = t.Origins.List[p.Origin]
	}
	return AllocatorBlock{
		Ptr:       p.Ptr,
		Bytes:     p.Size,
		Requested: p.Requested,
		SinceNs:   p.SinceNs,
		Awaiting:  p.State == caching.PieceAwaitsStream,
		Stream:    p.Stream,
		Pool:      p.Pool,
		StackID:   o.Stack,
		Site:      t.SiteOfPiece(p),
		Tid:       o.Tid,
	}
}

// addFinalTotals adds the values that are known only at the end of the recording.
func (s *AllocatorState) addFinalTotals(a *caching.Allocator) {
	s.AllocatorTotals = s.AllocatorTotals.AddTotals(a.Before)
	s.FromStart = a.IsRecordedFromStart()
	c, k := &a.Counts, &a.Check
	s.Events, s.UnmatchedFrees, s.LostFrees, s.OutOfMemory = c.Events, c.UnmatchedFrees, c.LostFrees, c.OutOfMemory
	s.Compared, s.Disagreed, s.WorstBytes, s.Resized = k.Compared, k.Disagreed, k.WorstBytes, k.Resized
}
