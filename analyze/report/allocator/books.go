package allocator

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/caching"
	"github.com/gpurec/gpurec/analyze/model/ledger"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/processes"
	"github.com/gpurec/gpurec/analyze/report/quality"
	"github.com/gpurec/gpurec/analyze/units"
)

// DefaultMoments is how many moments AllocatorReport tells of if no times are named.
const DefaultMoments = 20

// Options shape the report of caching allocators. Of the filter's conditions
// only those on time, process and device count.
type Options struct {
	query.Options
	// Times are moments to tell of, Unix ns. Without any, there are Moments of them, at
	// equal distances up to the end of the window; 0: DefaultMoments.
	Times   []int64
	Moments int
}

// Run is RunWith without options of its own.
func Run(t *timeline.Timeline, opt query.Options) (*report.Report, error) {
	return RunWith(t, Options{Options: opt})
}

// RunWith reports the books of PyTorch's caching allocators, exactly: at moments, at
// the peaks and at the end, by pool and stream, and how far they agree with what the
// allocators count themselves.
func RunWith(t *timeline.Timeline, opt Options) (*report.Report, error) {
	t = t.View()
	s := NewBooksScan(t, &opt)
	l, all, err := t.ReplayAll(func(*ledger.Ledger, *ledger.Change) {}, s.Step)
	if err != nil {
		return nil, err
	}
	return s.Report(all, &l.Counts)
}

// Report is the report of a scan that has seen a replay.
func (s *BooksScan) Report(all *caching.Set, counts *ledger.Counts) (*report.Report, error) {
	t, opt := s.t, s.opt
	s.finish(all)
	r := &report.Report{Command: "allocator", Window: s.window, Quality: quality.OfRecording(t, counts), Notes: t.Facts.Notes}
	if len(s.list) == 0 && len(t.Allocations) > 0 {
		r.NoMatch = s.seen.Explain(&query.Filter{Pids: opt.Pids, Devices: opt.Devices, Choice: opt.Choice})
	}
	r.Facts = s.facts()
	moments := s.momentTable()
	if err := moments.Arrange(opt.Sort, opt.Top); err != nil {
		return nil, err
	}
	r.Tables = []report.Table{s.table(), s.peakTable(), s.eventTable(), s.poolTable(), moments}
	r.Totals = s.totals()
	return r, nil
}

// BooksScan follows the books of allocators. What was there before the recording is known
// only at the end; until then all totals are without it.
type BooksScan struct {
	t      *timeline.Timeline
	opt    *Options
	window query.Window
	times  []int64 // rising
	seen   *query.Callers
	books  map[*caching.Allocator]*books
	list   []*books // in order of process and device
}

// books are what is told of one allocator.
type books struct {
	a       *caching.Allocator
	lastNs  int64 // its last event
	firstNs int64
	endNs   int64 // when its process ended; 0: not
	moments []caching.Totals
	end     caching.Totals
	closed  bool    // the end of the window is passed
	peaks   [2]peak // of allocated and reserved bytes
	actions [caching.LookedAt + 1]actionCount
	pools   map[torchPool]*poolUse // at the end
}

// peak is the moment of the most bytes of something.
type peak struct {
	atNs   int64
	totals caching.Totals
}

// actionCount counts events of one kind in the window.
type actionCount struct{ events, bytes int64 }

type torchPool struct{ pool, stream int64 }

// poolUse is what a pool has for a stream.
type poolUse struct{ reserved, allocated, awaiting, blocks, old int64 }

func NewBooksScan(t *timeline.Timeline, opt *Options) *BooksScan {
	s := &BooksScan{t: t, opt: opt, window: opt.Window(t.Recording()), seen: query.NewCallers(), books: make(map[*caching.Allocator]*books)}
	s.times = slices.Compact(slices.Sorted(slices.Values(opt.Times)))
	if n := int64(cmp.Or(opt.Moments, DefaultMoments)); len(s.times) == 0 {
		whole, rest := s.window.DurNs()/n, s.window.DurNs()%n
		for i := int64(1); i <= n; i++ {
			s.times = append(s.times, s.window.FromNs+whole*i+rest*i/n)
		}
	}
	return s
}

func (s *BooksScan) Step(a *caching.Allocator, c *caching.Change) {
	b, met := s.books[a]
	switch {
	case !met:
		s.seen.Add(a.Pid, 0, a.Device, 0)
		if s.opt.PassesAllocator(a.Pid, a.Device) {
			b = &books{a: a, firstNs: c.AtNs}
			if c.AtNs > s.window.FromNs { // what was there before may have been the most
				b.peaks = [2]peak{{atNs: s.window.FromNs}, {atNs: s.window.FromNs}}
			}
		}
		s.books[a] = b // nil: the filter leaves it out
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
	case c.Op <= caching.LookedAt && c.AtNs >= s.window.FromNs && c.AtNs <= s.window.ToNs:
		n := &b.actions[c.Op]
		n.events++
		if c.Op.IsSegment() {
			n.bytes += c.Bytes
		} else {
			n.bytes += c.Block.Requested
		}
	}
}

// see notes what an allocator had from its last event until untilNs, when it had
// another one.
func (s *BooksScan) see(b *books, untilNs int64) {
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
			b.pools = ofAllocatorPoolUse(b.a)
		}
	}
}

// finish ends the books, and puts in what was there before the recording.
func (s *BooksScan) finish(all *caching.Set) {
	all.All(func(a *caching.Allocator) {
		b := s.books[a]
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
	slices.SortStableFunc(s.list, func(x, y *books) int {
		return cmp.Or(cmp.Compare(x.a.Pid, y.a.Pid), cmp.Compare(x.a.Device, y.a.Device))
	})
}

// ofAllocatorPoolUse sums up what an allocator has by pool and stream.
func ofAllocatorPoolUse(a *caching.Allocator) map[torchPool]*poolUse {
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

// totalsColumns are the columns of an allocator's books.
var totalsColumns = []report.Column{
	{Key: "allocated_bytes", Title: "ALLOCATED", Unit: report.UnitBytes, About: "bytes of blocks that the program has: allocated_bytes.all.current of torch.cuda.memory_stats()"},
	{Key: "reserved_bytes", Title: "RESERVED", Unit: report.UnitBytes, About: "bytes from the driver: reserved_bytes.all.current"},
	{Key: "requested_bytes", Title: "REQUESTED", Unit: report.UnitBytes, About: "bytes asked for, of blocks in use by program or streams: requested_bytes.all.current"},
	{Key: "active_bytes", Title: "ACTIVE", Unit: report.UnitBytes, About: "bytes of blocks in use by program or streams: active_bytes.all.current"},
	{Key: "cached_bytes", Title: "CACHED", Unit: report.UnitBytes, About: "reserved bytes that are not active; of an allocator that is known by its reports, that are not allocated"},
	{Key: "inactive_split_bytes", Title: "SPLIT", Unit: report.UnitBytes, About: "of cached bytes, those in segments that have blocks in use, which therefore cannot go back to the driver; without expandable segments: inactive_split_bytes.all.current"},
	{Key: "segments", Title: "SEGMENTS", Unit: report.UnitCount, About: "pieces of memory from the driver, without expandable segments: segment.all.current"},
	{Key: "allocations", Title: "BLOCKS", Unit: report.UnitCount, About: "blocks that the program has: allocation.all.current"},
}

// totalsValues returns the values of totalsColumns. An allocator that is known by its reports tells
// only some of them.
func totalsValues(t caching.Totals, byReports bool) report.Values {
	v := report.Values{
		"allocated_bytes":      t.Allocated,
		"reserved_bytes":       t.Reserved,
		"requested_bytes":      t.Requested,
		"active_bytes":         t.Active,
		"cached_bytes":         t.Reserved - t.Active,
		"inactive_split_bytes": t.InactiveSplit,
		"segments":             t.Segments,
		"allocations":          t.Allocations,
	}
	if byReports {
		v["cached_bytes"] = t.Reserved - t.Allocated
		for _, key := range []string{"requested_bytes", "active_bytes", "inactive_split_bytes", "segments"} {
			v[key] = nil
		}
	}
	return v
}

// ownerColumns name the allocator of a row.
var ownerColumns = []report.Column{
	{Key: "pid", Title: "PID", Unit: report.UnitID, About: "process"},
	{Key: "device", Title: "DEVICE", Unit: report.UnitID, About: "CUDA device of the process"},
}

// ownerValues returns the values of ownerColumns.
func (b *books) ownerValues() report.Values {
	return report.Values{"pid": int64(b.a.Pid), "device": int64(b.a.Device)}
}

var MomentColumns = slices.Concat(
	[]report.Column{
		{Key: "at_ns", Title: "", Unit: report.UnitTime, About: "a moment, Unix ns; events of that moment are included"},
		{Key: "offset_ns", Title: "AT", Unit: report.UnitNs, About: "the same, from the recording's start"},
	}, ownerColumns, totalsColumns)

// momentTable has a row per moment and allocator, as long as its process lives.
func (s *BooksScan) momentTable() report.Table {
	table := report.Table{Name: "moments", Title: "over time", Columns: MomentColumns, Spare: spareTotals}
	start := s.t.Recording().FromNs
	for i, at := range s.times {
		for _, b := range s.list {
			if b.endNs == 0 || at < b.endNs {
				table.Add(report.Join(report.Values{"at_ns": at, "offset_ns": at - start}, b.ownerValues(), totalsValues(b.moments[i], b.a.Reports)))
			}
		}
	}
	processes.AddRanks(s.t, &table)
	return table
}

// spareTotals are columns of books that narrow terminals do without.
var spareTotals = []string{"active_bytes", "requested_bytes", "segments", "inactive_split_bytes", "pid"}

var BooksColumns = slices.Concat(ownerColumns, []report.Column{
	{Key: "process", Title: "PROCESS", Unit: report.UnitText, About: "its name"},
}, totalsColumns, []report.Column{
	{Key: "ended", Title: "", Unit: report.UnitRatio, About: "true if the process ended: the values are what it had then"},
	{Key: "from_start", Title: "", Unit: report.UnitRatio, About: "true if the recording has the allocator's first event: all values are exact. Otherwise allocated_bytes and reserved_bytes are, the others lack blocks and segments from before the recording that were not freed in it, and their changes are exact but for inactive_split_bytes"},
	{Key: "events", Title: "", Unit: report.UnitCount, About: "events of the allocator in the recording"},
	{Key: "compared_events", Title: "", Unit: report.UnitCount, About: "events that tell the allocator's own totals of allocated and reserved bytes; in the report they are compared with the model, one by one"},
	{Key: "disagreed_events", Title: "", Unit: report.UnitCount, About: "of those, events at which the model had others; it goes on with the allocator's"},
	{Key: "worst_difference_bytes", Title: "", Unit: report.UnitBytes, About: "the largest such difference"},
	{Key: "resized_blocks", Title: "", Unit: report.UnitCount, About: "blocks of another size, by the allocator's totals, than its rules say"},
	{Key: "unmatched_frees", Title: "", Unit: report.UnitCount, About: "frees of blocks from before the recording"},
	{Key: "lost_frees", Title: "", Unit: report.UnitCount, About: "blocks and segments that ended unseen: events were lost"},
})

// table has a row per allocator, at the end of the window.
func (s *BooksScan) table() report.Table {
	table := report.Table{Name: "allocators", Title: "at the end", Columns: BooksColumns, Spare: append([]string{"process"}, spareTotals[:4]...), Aside: true}
	for _, b := range s.list {
		c, k := &b.a.Counts, &b.a.Check
		table.Add(report.Join(b.ownerValues(), totalsValues(b.end, b.a.Reports), report.Values{
			"process":                units.Known(s.t.Facts.Processes[b.a.Pid].Name),
			"ended":                  b.endNs != 0,
			"from_start":             b.a.FromStart(),
			"events":                 c.Events,
			"compared_events":        k.Compared,
			"disagreed_events":       k.Disagreed,
			"worst_difference_bytes": k.WorstBytes,
			"resized_blocks":         k.Resized,
			"unmatched_frees":        c.UnmatchedFrees,
			"lost_frees":             c.LostFrees,
		}))
	}
	processes.AddRanks(s.t, &table)
	return table
}

var PeakColumns = slices.Concat([]report.Column{
	{Key: "peak_of", Title: "PEAK OF", Unit: report.UnitText, About: "allocated or reserved bytes: the first moment of the window at which they were highest"},
	{Key: "at_ns", Title: "", Unit: report.UnitTime, About: "that moment, Unix ns"},
	{Key: "offset_ns", Title: "AT", Unit: report.UnitNs, About: "the same, from the recording's start"},
}, ownerColumns, totalsColumns)

func (s *BooksScan) peakTable() report.Table {
	table := report.Table{Name: "peaks", Title: "at the peaks", Columns: PeakColumns, Spare: spareTotals, Aside: true}
	start := s.t.Recording().FromNs
	for i, name := range []string{"allocated", "reserved"} {
		for _, b := range s.list {
			if p := &b.peaks[i]; p.atNs != 0 {
				table.Add(report.Join(report.Values{"peak_of": name, "at_ns": p.atNs, "offset_ns": p.atNs - start}, b.ownerValues(), totalsValues(p.totals, b.a.Reports)))
			}
		}
	}
	processes.AddRanks(s.t, &table)
	return table
}

var EventColumns = slices.Concat(ownerColumns, []report.Column{
	{Key: "action", Title: "ACTION", Unit: report.UnitText, About: "what the allocator did, in PyTorch's words; that somebody took a snapshot is not told"},
	{Key: "events", Title: "EVENTS", Unit: report.UnitCount, About: "how often it did in the window"},
	{Key: "bytes", Title: "BYTES", Unit: report.UnitBytes, About: "sum of the bytes: of blocks as asked for, of segments their size"},
})

func (s *BooksScan) eventTable() report.Table {
	table := report.Table{Name: "events", Title: "events", Columns: EventColumns, Aside: true}
	for _, b := range s.list {
		for op, n := range b.actions {
			if n.events > 0 {
				table.Add(report.Join(b.ownerValues(), report.Values{"action": caching.ActionsByOp[caching.Op(op)], "events": n.events, "bytes": n.bytes}))
			}
		}
	}
	processes.AddRanks(s.t, &table)
	return table
}

var PoolUseColumns = slices.Concat(ownerColumns, []report.Column{
	{Key: "pool", Title: "POOL", Unit: report.UnitText, About: "default; private n, asked for by the program (PyTorch's pool (0, n)); graph n, of a captured graph (pool (n, 0))"},
	{Key: "stream", Title: "STREAM", Unit: report.UnitText, About: "stream that the memory is for"},
	{Key: "reserved_bytes", Title: "RESERVED", Unit: report.UnitBytes, About: "bytes from the driver at the end; without segments from before the recording"},
	{Key: "allocated_bytes", Title: "ALLOCATED", Unit: report.UnitBytes, About: "bytes of blocks that the program has, as far as their allocation was seen"},
	{Key: "awaiting_bytes", Title: "AWAITING", Unit: report.UnitBytes, About: "bytes of blocks that the program gave back and a stream still uses"},
	{Key: "cached_bytes", Title: "CACHED", Unit: report.UnitBytes, About: "bytes of gaps between the blocks"},
	{Key: "blocks", Title: "BLOCKS", Unit: report.UnitCount, About: "blocks that the program has or streams use"},
})

// poolTable has a row per pool and stream, largest first.
func (s *BooksScan) poolTable() report.Table {
	table := report.Table{Name: "pools", Title: "pools and streams at the end", Columns: PoolUseColumns, Aside: true}
	for _, b := range s.list {
		if b.a.Reports {
			continue // reports name neither
		}
		keys := slices.SortedFunc(maps.Keys(b.pools), func(x, y torchPool) int {
			return cmp.Or(cmp.Compare(b.pools[y].reserved, b.pools[x].reserved), cmp.Compare(x.pool, y.pool), cmp.Compare(x.stream, y.stream))
		})
		for _, key := range keys {
			u := b.pools[key]
			table.Add(report.Join(b.ownerValues(), report.Values{
				"pool":            caching.PoolName(key.pool),
				"stream":          query.StreamName(key.stream),
				"reserved_bytes":  u.reserved,
				"allocated_bytes": u.allocated,
				"awaiting_bytes":  u.awaiting,
				"cached_bytes":    u.reserved - (u.allocated + u.awaiting - u.old),
				"blocks":          u.blocks,
			}))
		}
	}
	processes.AddRanks(s.t, &table)
	return table
}

var BooksFacts = []report.Column{
	{Key: "agreement", Title: "agreement", Unit: report.UnitText, About: "how far the model agrees with the totals of allocated and reserved bytes that the allocators keep themselves"},
	{Key: "seen_from", Title: "seen from", Unit: report.UnitText, About: "whether the recording has the allocators' first events"},
}

func (s *BooksScan) facts() []report.Fact {
	if len(s.list) == 0 {
		return report.Facts(BooksFacts, report.Values{
			"agreement": "the recording has no events of PyTorch's caching allocator that pass the filter",
			"seen_from": "",
		})
	}
	sum := s.sum()
	agreement := fmt.Sprintf("%s compared with the allocator's own totals, all equal", units.Plural(sum.compared, "event"))
	switch {
	case sum.compared == 0:
		agreement = "no event tells the allocator's own totals: sizes of blocks are as its rules say"
	case sum.disagreed > 0:
		agreement = fmt.Sprintf("%s compared with the allocator's own totals, %s differ, by up to %s", units.Plural(sum.compared, "event"), units.Count(sum.disagreed), units.Bytes(sum.worst))
	}
	from := "their first event: all values are exact"
	if sum.late > 0 {
		from = fmt.Sprintf("a later moment in %d of %d allocators: allocated and reserved bytes are exact, the rest lacks what was there before and was not freed; see --explain", sum.late, len(s.list))
	}
	return report.Facts(BooksFacts, report.Values{
		"agreement": agreement,
		"seen_from": from,
	})
}

// booksSum is what is summed up over allocators.
type booksSum struct {
	end                                   caching.Totals
	compared, disagreed, worst, late, oom int64
}

func (s *BooksScan) sum() booksSum {
	var sum booksSum
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

var BooksTotals = []report.Column{
	{Key: "allocated_bytes", Title: "allocated", Unit: report.UnitBytes, About: "of all allocators, at the end of the window or of their process"},
	{Key: "reserved_bytes", Title: "reserved", Unit: report.UnitBytes, About: "of all allocators, then"},
	{Key: "cached_bytes", Title: "cached", Unit: report.UnitBytes, About: "of all allocators, then"},
	{Key: "ooms", Title: "out of memory", Unit: report.UnitCount, About: "requests in the window that could not be fulfilled"},
	{Key: "compared_events", Title: "compared events", Unit: report.UnitCount, About: "of all allocators, in the whole recording"},
	{Key: "disagreed_events", Title: "disagreed", Unit: report.UnitCount, About: "of all allocators, in the whole recording"},
	{Key: "worst_difference_bytes", Title: "", Unit: report.UnitBytes, About: "the largest difference"},
	{Key: "late_allocators", Title: "seen late", Unit: report.UnitCount, About: "allocators of which the recording does not have the first event"},
}

func (s *BooksScan) totals() []report.Fact {
	sum := s.sum()
	return report.Facts(BooksTotals, report.Values{
		"allocated_bytes":        sum.end.Allocated,
		"reserved_bytes":         sum.end.Reserved,
		"cached_bytes":           sum.end.Reserved - sum.end.Active,
		"ooms":                   sum.oom,
		"compared_events":        sum.compared,
		"disagreed_events":       sum.disagreed,
		"worst_difference_bytes": sum.worst,
		"late_allocators":        sum.late,
	})
}
