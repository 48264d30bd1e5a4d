package allocator

import (
	"cmp"
	"math"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/caching"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
)

// Scan collects the totals of caching allocators over time. Blocks and segments from before the
// recording are known only at the end of a replay. finish then adds them to all totals. A Scan is
// not safe for concurrent use.
type Scan struct {
	t       *timeline.Timeline
	opt     *Options
	window  query.Window
	times   []int64 // reported points in time, Unix ns, ascending
	callers *query.SeenCallers
	stats   map[*caching.Allocator]*allocatorStats // nil value: the filter excludes the allocator
	list    []*allocatorStats                      // set by finish, sorted by process and device
}

// allocatorStats are the totals of one allocator at the reported times, at its peaks and at the
// end.
type allocatorStats struct {
	a       *caching.Allocator
	lastNs  int64 // time of its last event so far, Unix ns
	firstNs int64 // time of its first event, Unix ns
	endNs   int64 // time at which its process ended, Unix ns; 0: still running
	moments []caching.AllocatorTotals
	end     caching.AllocatorTotals // at the end of the window
	hasEnd  bool                    // end and pools are set
	peaks   [2]memoryPeak           // of allocated and of reserved bytes
	// hasOwnPeak is set if the allocator's own statistics show its peak in the window.
	hasOwnPeak bool
	actions    [caching.OpSnapshotTaken + 1]actionCount
	pools      map[poolStreamKey]*poolTotals // at the end of the window
}

// memoryPeak is the first point in time with the highest number of bytes.
type memoryPeak struct {
	atNs   int64 // Unix ns; 0: no event yet
	totals caching.AllocatorTotals
}

// actionCount has the number of events of one kind in the window, and the sum of their bytes.
type actionCount struct{ events, bytes int64 }

// poolStreamKey is a memory pool of PyTorch's allocator and one of its streams.
type poolStreamKey struct{ pool, stream int64 }

// poolTotals is the memory of a pool for one stream. blocks is a number, all other fields are
// bytes. old is the size of blocks in segments from before the recording.
type poolTotals struct{ reserved, allocated, awaiting, blocks, old int64 }

// NewScan returns a scan of the allocators that pass opt.Filter.
func NewScan(t *timeline.Timeline, opt *Options) *Scan {
	s := &Scan{
		t:       t,
		opt:     opt,
		window:  opt.NarrowWindow(t.RecordingWindow()),
		callers: query.NewSeenCallers(),
		stats:   make(map[*caching.Allocator]*allocatorStats),
	}
	s.times = slices.Compact(slices.Sorted(slices.Values(opt.Times)))
	if n := int64(cmp.Or(opt.Moments, DefaultMomentCount)); len(s.times) == 0 {
		stepNs, remainderNs := s.window.DurNs()/n, s.window.DurNs()%n
		for i := int64(1); i <= n; i++ {
			s.times = append(s.times, s.window.FromNs+stepNs*i+remainderNs*i/n)
		}
	}
	return s
}

// OnAllocatorChange processes the next change of an allocator.
func (s *Scan) OnAllocatorChange(a *caching.Allocator, c *caching.AllocatorChange) {
	b, known := s.stats[a]
	switch {
	case !known:
		s.callers.AddCaller(a.Pid, 0, a.Device, 0)
		if s.opt.PassesAllocator(a.Pid, a.Device) {
			b = &allocatorStats{a: a, firstNs: c.AtNs}
			if c.AtNs > s.window.FromNs { // memory from before the window may be the peak
				b.peaks = [2]memoryPeak{{atNs: s.window.FromNs}, {atNs: s.window.FromNs}}
			}
		}
		s.stats[a] = b // nil: the filter excludes it
	case b != nil && c.Op != caching.OpBlockResized:
		s.recordTotals(b, c.AtNs)
	}
	if b == nil || c.Op == caching.OpBlockResized {
		return
	}
	b.lastNs = c.AtNs
	switch {
	case c.Op == caching.OpTotalsRead:
		s.recordOwnPeak(b, c)
	case c.Op == caching.OpAllocatorEnd:
		b.endNs = c.AtNs
		s.recordTotals(b, math.MaxInt64)
	case c.Op <= caching.OpSnapshotTaken && c.AtNs >= s.window.FromNs && c.AtNs <= s.window.ToNs:
		n := &b.actions[c.Op]
		n.events++
		if c.Op.ChangesSegment() {
			n.bytes += c.Bytes
		} else {
			n.bytes += c.Block.Requested
		}
	}
}

// recordOwnPeak records a peak that the allocator's own statistics show. Only its allocated bytes are known, and that it
// was reached since the own totals before.
func (s *Scan) recordOwnPeak(b *allocatorStats, c *caching.AllocatorChange) {
	p, allocated := &b.peaks[0], c.Own.NewPeak-b.a.Before.Allocated
	if c.Own.NewPeak == 0 || c.AtNs < s.window.FromNs || c.AtNs > s.window.ToNs {
		return
	}
	b.hasOwnPeak = true
	if allocated <= p.totals.Allocated {
		return
	}
	p.atNs, p.totals = c.AtNs, b.a.Seen
	p.totals.Allocated = allocated
}

// recordTotals stores the current totals of an allocator for all reported times between its last
// event and untilNs, the time of its next event (Unix ns).
func (s *Scan) recordTotals(b *allocatorStats, untilNs int64) {
	now := b.a.Seen
	for len(b.moments) < len(s.times) && s.times[len(b.moments)] < untilNs {
		if at := s.times[len(b.moments)]; at < b.firstNs {
			b.moments = append(b.moments, caching.AllocatorTotals{})
			continue
		}
		b.moments = append(b.moments, now)
	}
	if b.lastNs <= s.window.ToNs && untilNs > s.window.FromNs {
		for i, bytes := range [2]int64{now.Allocated, now.Reserved} {
			p := &b.peaks[i]
			if p.atNs == 0 || bytes > [2]int64{p.totals.Allocated, p.totals.Reserved}[i] {
				*p = memoryPeak{max(b.lastNs, s.window.FromNs), now}
			}
		}
	}
	if !b.hasEnd && untilNs > s.window.ToNs {
		b.hasEnd = true
		if b.lastNs <= s.window.ToNs {
			b.end = now
			b.pools = sumByPool(b.a)
		}
	}
}

// finishReplay ends the replay, adds memory from before the recording to all totals, and sets
// s.list.
func (s *Scan) finishReplay(all *caching.AllocatorSet) {
	all.EachAllocator(func(a *caching.Allocator) {
		b := s.stats[a]
		if b == nil {
			return
		}
		if b.endNs == 0 {
			s.recordTotals(b, math.MaxInt64)
		}
		for i := range b.moments {
			b.moments[i] = b.moments[i].AddTotals(a.Before)
		}
		b.end = b.end.AddTotals(a.Before)
		for i := range b.peaks {
			b.peaks[i].totals = b.peaks[i].totals.AddTotals(a.Before)
		}
		s.list = append(s.list, b)
	})
	slices.SortStableFunc(s.list, func(x, y *allocatorStats) int {
		return cmp.Or(cmp.Compare(x.a.Pid, y.a.Pid), cmp.Compare(x.a.Device, y.a.Device))
	})
}

// sumByPool returns the memory of an allocator by pool and stream.
func sumByPool(a *caching.Allocator) map[poolStreamKey]*poolTotals {
	pools := make(map[poolStreamKey]*poolTotals)
	poolOf := func(p *caching.SegmentPiece) *poolTotals {
		key := poolStreamKey{p.Pool, p.Stream}
		if pools[key] == nil {
			pools[key] = new(poolTotals)
		}
		return pools[key]
	}
	for s := range a.SegmentsInOrder() {
		for _, p := range a.PiecesWithin(s) {
			poolOf(p).reserved += p.Size
		}
	}
	a.EachLiveBlock(func(p *caching.SegmentPiece) {
		u := poolOf(p)
		u.blocks++
		if p.State == caching.PieceBlock {
			u.allocated += p.Size
		} else {
			u.awaiting += p.Size
		}
		if p.Segment == caching.UnrecordedSegmentIndex {
			u.old += p.Size
		}
	})
	return pools
}

// allocatorsSum has the sums over all allocators. late is the number of allocators whose first
// event is not in the recording.
type allocatorsSum struct {
	end                                   caching.AllocatorTotals
	compared, disagreed, worst, late, oom int64
}

// sumAllocators returns the sums over all allocators of the report.
func (s *Scan) sumAllocators() allocatorsSum {
	var sum allocatorsSum
	for _, b := range s.list {
		k := &b.a.Check
		sum.end = sum.end.AddTotals(b.end)
		sum.compared += k.Compared
		sum.disagreed += k.Disagreed
		sum.worst = max(sum.worst, k.WorstBytes)
		sum.oom += b.actions[caching.OpOutOfMemory].events
		if !b.a.HasWholeState() {
			sum.late++
		}
	}
	return sum
}
