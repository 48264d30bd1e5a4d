package allocator

import (
	"cmp"
	"math"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/caching"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
)

// Scan follows the totals of caching allocators. Memory from before the recording is known only at
// the end of a replay: finish adds it to all totals. A Scan is not safe for concurrent use.
type Scan struct {
	t      *timeline.Timeline
	opt    *Options
	window query.Window
	times  []int64 // moments, Unix ns, rising
	seen   *query.Callers
	stats  map[*caching.Allocator]*allocatorStats // nil: the filter leaves it out
	list   []*allocatorStats                      // set by finish, by process and device
}

// allocatorStats are the totals of one allocator at the moments, its peaks and the end.
type allocatorStats struct {
	a       *caching.Allocator
	lastNs  int64 // its last event so far, Unix ns
	firstNs int64 // its first event, Unix ns
	endNs   int64 // when its process ended, Unix ns; 0: it did not
	moments []caching.Totals
	end     caching.Totals // at the end of the window
	closed  bool           // end and pools are set
	peaks   [2]peak        // of allocated and reserved bytes
	actions [caching.SnapshotTaken + 1]actionCount
	pools   map[torchPool]*poolUse // at the end
}

// peak is the first moment with the most bytes.
type peak struct {
	atNs   int64 // Unix ns; 0: none yet
	totals caching.Totals
}

// actionCount counts events of one kind in the window, and sums up their bytes.
type actionCount struct{ events, bytes int64 }

// torchPool is a pool and a stream of it.
type torchPool struct{ pool, stream int64 }

// poolUse is the memory of a pool for a stream. All but blocks are bytes; old is that of blocks in
// segments from before the recording.
type poolUse struct{ reserved, allocated, awaiting, blocks, old int64 }

// NewScan returns a scan of the allocators that opt.Filter lets through.
func NewScan(t *timeline.Timeline, opt *Options) *Scan {
	s := &Scan{
		t:      t,
		opt:    opt,
		window: opt.Window(t.Recording()),
		seen:   query.NewCallers(),
		stats:  make(map[*caching.Allocator]*allocatorStats),
	}
	s.times = slices.Compact(slices.Sorted(slices.Values(opt.Times)))
	if n := int64(cmp.Or(opt.Moments, DefaultMoments)); len(s.times) == 0 {
		whole, rest := s.window.DurNs()/n, s.window.DurNs()%n
		for i := int64(1); i <= n; i++ {
			s.times = append(s.times, s.window.FromNs+whole*i+rest*i/n)
		}
	}
	return s
}

// Step takes the next change of an allocator.
func (s *Scan) Step(a *caching.Allocator, c *caching.Change) {
	b, met := s.stats[a]
	switch {
	case !met:
		s.seen.Add(a.Pid, 0, a.Device, 0)
		if s.opt.PassesAllocator(a.Pid, a.Device) {
			b = &allocatorStats{a: a, firstNs: c.AtNs}
			if c.AtNs > s.window.FromNs { // what was there before may have been the most
				b.peaks = [2]peak{{atNs: s.window.FromNs}, {atNs: s.window.FromNs}}
			}
		}
		s.stats[a] = b // nil: the filter leaves it out
	case b != nil && c.Op != caching.BlockResized:
		s.see(b, c.AtNs)
	}
	if b == nil || c.Op == caching.BlockResized {
		return
	}
	b.lastNs = c.AtNs
	switch {
	case c.Op == caching.AllocatorEnd:
		b.endNs = c.AtNs
		s.see(b, math.MaxInt64)
	case c.Op <= caching.SnapshotTaken && c.AtNs >= s.window.FromNs && c.AtNs <= s.window.ToNs:
		n := &b.actions[c.Op]
		n.events++
		if c.Op.IsSegment() {
			n.bytes += c.Bytes
		} else {
			n.bytes += c.Block.Requested
		}
	}
}

// see keeps the totals of an allocator where they are needed between its last event and untilNs,
// the time of its next one.
func (s *Scan) see(b *allocatorStats, untilNs int64) {
	now := b.a.Seen
	for len(b.moments) < len(s.times) && s.times[len(b.moments)] < untilNs {
		if at := s.times[len(b.moments)]; at < b.firstNs {
			b.moments = append(b.moments, caching.Totals{})
			continue
		}
		b.moments = append(b.moments, now)
	}
	if b.lastNs <= s.window.ToNs && untilNs > s.window.FromNs {
		for i, bytes := range [2]int64{now.Allocated, now.Reserved} {
			p := &b.peaks[i]
			if p.atNs == 0 || bytes > [2]int64{p.totals.Allocated, p.totals.Reserved}[i] {
				*p = peak{max(b.lastNs, s.window.FromNs), now}
			}
		}
	}
	if !b.closed && untilNs > s.window.ToNs {
		b.closed = true
		if b.lastNs <= s.window.ToNs {
			b.end = now
			b.pools = usePerPool(b.a)
		}
	}
}

// finish ends the replay, adds the memory from before the recording, and sets s.list.
func (s *Scan) finish(all *caching.Set) {
	all.All(func(a *caching.Allocator) {
		b := s.stats[a]
		if b == nil {
			return
		}
		if b.endNs == 0 {
			s.see(b, math.MaxInt64)
		}
		for i := range b.moments {
			b.moments[i] = b.moments[i].Plus(a.Before)
		}
		b.end = b.end.Plus(a.Before)
		for i := range b.peaks {
			b.peaks[i].totals = b.peaks[i].totals.Plus(a.Before)
		}
		s.list = append(s.list, b)
	})
	slices.SortStableFunc(s.list, func(x, y *allocatorStats) int {
		return cmp.Or(cmp.Compare(x.a.Pid, y.a.Pid), cmp.Compare(x.a.Device, y.a.Device))
	})
}

// usePerPool sums up the memory of an allocator by pool and stream.
func usePerPool(a *caching.Allocator) map[torchPool]*poolUse {
	pools := make(map[torchPool]*poolUse)
	of := func(p *caching.Piece) *poolUse {
		key := torchPool{p.Pool, p.Stream}
		if pools[key] == nil {
			pools[key] = new(poolUse)
		}
		return pools[key]
	}
	for s := range a.Ranges() {
		for _, p := range a.Within(s) {
			of(p).reserved += p.Size
		}
	}
	a.Each(func(p *caching.Piece) {
		u := of(p)
		u.blocks++
		if p.State == caching.IsBlock {
			u.allocated += p.Size
		} else {
			u.awaiting += p.Size
		}
		if p.Segment == caching.StraySegment {
			u.old += p.Size
		}
	})
	return pools
}

// statsSum are the sums over all allocators; late counts those whose first event is not recorded.
type statsSum struct {
	end                                   caching.Totals
	compared, disagreed, worst, late, oom int64
}

func (s *Scan) sum() statsSum {
	var sum statsSum
	for _, b := range s.list {
		k := &b.a.Check
		sum.end = sum.end.Plus(b.end)
		sum.compared += k.Compared
		sum.disagreed += k.Disagreed
		sum.worst = max(sum.worst, k.WorstBytes)
		sum.oom += b.actions[caching.OutOfMemory].events
		if !b.a.FromStart() {
			sum.late++
		}
	}
	return sum
}
