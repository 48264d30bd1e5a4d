package hang

import (
	"cmp"
	"math"
	"slices"
	"sort"
	"strings"

	"github.com/gpurec/gpurec/analyze/catalog"
	callspkg "github.com/gpurec/gpurec/analyze/model/calls"
	"github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/stats"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// Scan looks once through the calls until a moment, and keeps of each thread and process no more than when it did something,
// what it is in and what it did last: as much as there are threads and streams, however many calls there are. What stands in
// the other columns of the few calls that are told of is read afterwards.
type Scan struct {
	*callspkg.Counter
	Spans     []timeline.Span
	longNs    int64
	EndNs     int64 // the moment
	parts     *windowParts
	Threads   map[origin.Thread]*threadLife
	Processes map[int32]*processLife
	Long      []callRef // a heap of the longest calls that returned: the shortest is first
	details   map[rowRef]*callDetails

	// The last thread that was looked up: most rows are of the same one as the row before.
	thread origin.Thread
	life   *threadLife
}

// rowRef is a row of a recording: which of Scan.Spans, and which row of it.
type rowRef struct{ span, row int32 }

// callRef is a call, in short.
type callRef struct {
	rowRef
	startNs, endNs int64 // endNs: math.MaxInt64 if it had not returned
	pid, tid       int32
	flags          int32
}

func (c *callRef) isOpen() bool { return c.endNs == math.MaxInt64 }

// threadLife is what a thread did.
type threadLife struct {
	origin.Thread
	process         *processLife
	calls           int64
	FirstNs, LastNs int64 // first entry, last entry or return
	last            callRef
	open            []callRef // in no order
	lively          activity
	launched        bool // kernels, that is calls that may not have been recorded
}

// maxOpen bounds the open calls that are kept of a thread: what is nested deeper says no more.
const maxOpen = 16

// processLife is what a process did.
type processLife struct {
	Pid                         int32
	calls, Launches, errors     int64
	firstNs, lastNs, LaunchedNs int64
	threads                     []*threadLife
	streams                     map[int64][]callRef // the last launches by stream, the earliest first
	longest                     map[string]int64    // by function, the longest call that returned, if it took a millisecond or more
	lastError                   callRef
}

// launchesPerStream is how many launches are told of each stream.
const launchesPerStream = 3

// longCalls is how many long calls are kept.
const longCalls = 1000

// activity is in which parts of a window something happened.
type activity [4]uint64

const activityParts = 256

func (a *activity) mark(p *windowParts, fromNs, toNs int64) {
	first, last := p.of(fromNs), p.of(toNs)
	for i := first; i <= last; i++ {
		a[i/64] |= 1 << (i % 64)
	}
}

// windowParts are the parts of a window. It finds the one of a time that is near the time before without a division.
type windowParts struct {
	window query.Window
	begins [activityParts + 1]int64 // the last one is the window's end
	part   int                      // that was asked for last
}

func newWindowParts(w query.Window) *windowParts {
	p := &windowParts{window: w}
	for i := range p.begins {
		p.begins[i] = w.FromNs + int64(sort.Search(int(w.DurNs()), func(ns int) bool { return partOf(w, w.FromNs+int64(ns)) >= i }))
	}
	return p
}

func (p *windowParts) of(ns int64) int {
	if ns < p.begins[p.part] || ns >= p.begins[p.part+1] {
		p.part = partOf(p.window, ns)
	}
	return p.part
}

func partOf(w query.Window, ns int64) int {
	part := float64(ns-w.FromNs) / float64(max(1, w.DurNs())) * activityParts
	return int(max(0, min(part, activityParts-1)))
}

// longestPause is the longest time between two parts with activity, to within a part or two.
func (a *activity) longestPause(w query.Window) int64 {
	last, longest := -1, 0
	for i := range activityParts {
		if a[i/64]>>(i%64)&1 == 0 {
			continue
		}
		if last >= 0 {
			longest = max(longest, i-last-1)
		}
		last = i
	}
	return int64(float64(longest) * float64(w.DurNs()) / activityParts)
}

func NewScan(t *timeline.Timeline, opt *Options) *Scan {
	u := callspkg.NewCounter(t, &opt.Filter)
	s := &Scan{Counter: u, Spans: slices.Concat(t.Memory, t.Calls), longNs: opt.LongNs, EndNs: u.Window.ToNs, parts: newWindowParts(u.Window),
		Threads: make(map[origin.Thread]*threadLife), Processes: make(map[int32]*processLife), details: make(map[rowRef]*callDetails)}
	return s
}

// scan reads all calls.
func (s *Scan) read() error {
	for i := range s.Spans {
		g := s.Spans[i].Group
		if s.Spans[i].FirstNs > s.EndNs {
			continue
		}
		s.AddGroup(g, int32(i))
		if err := g.Err(); err != nil {
			return s.T.Wrap(err)
		}
	}
	s.bridgeSampling()
	return nil
}

// bridgeSampling takes threads that launch kernels to be lively where launches were not recorded, between their first and last call: else
// the times without would look like pauses that are usual.
func (s *Scan) bridgeSampling() {
	for _, w := range s.T.Facts.Sampling.NoLaunches {
		for _, l := range s.Threads {
			if from, to := max(w.FromNs, l.FirstNs), min(w.ToNs, l.LastNs); l.launched && from < to {
				l.lively.mark(s.parts, from, to)
			}
		}
	}
}

func (s *Scan) AddGroup(g *format.Group, index int32) {
	s.Kind, s.Name, s.Kernel = g.StringsInto("kind", s.Kind), g.StringsInto("name", s.Name), format.Strings{}
	if s.Filter.Kernel != nil {
		s.Kernel = g.StringsInto("kernel", s.Kernel)
	}
	s.Start, s.Dur, s.Stream = g.Int64("start_ns", s.Start), g.Int64("dur_ns", s.Dur), g.Int64("stream", s.Stream)
	s.Pid, s.Tid = g.Int32("pid", s.Pid), g.Int32("tid", s.Tid)
	s.Result, s.Flags = g.Int32("result", s.Result), g.Int32("flags", s.Flags)
	pass := s.Passes(g, s.Kind, s.Kernel)
	isLaunch := make([]bool, len(s.Kind.Dict))
	for i, k := range s.Kind.Dict {
		isLaunch[i] = k == format.KindLaunch
	}
	for i, start := range s.Start {
		if start > s.EndNs || !pass(i) {
			continue
		}
		c := callRef{rowRef: rowRef{index, int32(i)}, startNs: start, endNs: start, pid: s.Pid[i], tid: s.Tid[i], flags: s.Flags[i]}
		if c.flags&(format.FlagAbandoned|format.FlagNoReturn) == 0 {
			if c.endNs = units.EndOf(start, s.Dur[i]); c.flags&format.FlagOpen != 0 || c.endNs > s.EndNs {
				c.endNs = math.MaxInt64
			}
		}
		if c.endNs >= s.Window.FromNs {
			s.addCall(&c, i, isLaunch[s.Kind.Index[i]])
		}
	}
}

// lifeOf returns the thread that made a call.
func (s *Scan) lifeOf(th origin.Thread, startNs int64) *threadLife {
	if s.life != nil && s.thread == th {
		return s.life
	}
	life := s.Threads[th]
	if life == nil {
		p := s.Processes[th.Pid]
		if p == nil {
			p = &processLife{Pid: th.Pid, firstNs: startNs, lastNs: startNs, LaunchedNs: math.MinInt64, streams: make(map[int64][]callRef), longest: make(map[string]int64)}
			s.Processes[th.Pid] = p
		}
		life = &threadLife{Thread: th, process: p, FirstNs: startNs, LastNs: startNs}
		p.threads = append(p.threads, life)
		s.Threads[th] = life
	}
	s.thread, s.life = th, life
	return life
}

// call notes the call of row i.
func (s *Scan) addCall(c *callRef, i int, isLaunch bool) {
	life := s.lifeOf(origin.Thread{Pid: c.pid, Tid: c.tid}, c.startNs)
	p := life.process
	life.calls++
	p.calls++
	life.FirstNs, p.firstNs = min(life.FirstNs, c.startNs), min(p.firstNs, c.startNs)
	seenNs := c.endNs
	if c.isOpen() {
		seenNs = c.startNs
		if len(life.open) < maxOpen {
			life.open = append(life.open, *c)
		}
	} else {
		p.lastNs = max(p.lastNs, c.endNs)
	}
	if life.calls == 1 || cmp.Or(cmp.Compare(c.endNs, life.last.endNs), cmp.Compare(c.startNs, life.last.startNs)) >= 0 {
		life.last = *c
	}
	life.LastNs = max(life.LastNs, seenNs)
	life.lively.mark(s.parts, c.startNs, seenNs)
	life.launched = life.launched || isLaunch
	if isLaunch && c.flags&format.FlagCaptured == 0 {
		p.Launches++
		p.LaunchedNs = max(p.LaunchedNs, c.startNs)
		list := p.streams[s.Stream[i]]
		if more := lastOnes(list, c); len(more) > len(list) {
			p.streams[s.Stream[i]] = more
		}
	}
	if c.flags&timeline.NoResult == 0 && callspkg.IsError(s.Result[i]) && !catalog.IsQuestion(s.Name.At(i), s.Result[i]) {
		if p.errors++; p.errors == 1 || c.endNs >= p.lastError.endNs {
			p.lastError = *c
		}
	}
	if dur := s.Dur[i]; !c.isOpen() && c.endNs > c.startNs && dur >= int64(1e6) {
		name := s.Name.At(i)
		p.longest[name] = max(p.longest[name], dur)
		if dur >= s.longNs {
			s.keepLong(c)
		}
	}
}

// lastOnes adds a call to the last ones of a stream, which are in order of time.
func lastOnes(list []callRef, c *callRef) []callRef {
	if len(list) == launchesPerStream && c.startNs < list[0].startNs {
		return list
	}
	at := len(list)
	for at > 0 && list[at-1].startNs > c.startNs {
		at--
	}
	if len(list) < launchesPerStream {
		return slices.Insert(list, at, *c)
	}
	copy(list, list[1:at]) // in place: this is done for every launch
	list[at-1] = *c
	return list
}

// keepLong notes a call that took long, if it is among the longest.
func (s *Scan) keepLong(c *callRef) {
	shorter := func(a, b callRef) bool {
		return cmp.Or(cmp.Compare(a.endNs-a.startNs, b.endNs-b.startNs), cmp.Compare(b.startNs, a.startNs), cmp.Compare(b.tid, a.tid)) < 0
	}
	if len(s.Long) < longCalls {
		s.Long = stats.HeapPush(s.Long, *c, shorter)
	} else if shorter(s.Long[0], *c) {
		s.Long[0] = *c
		stats.HeapFix(s.Long, shorter)
	}
}

// callDetails is what else is known of a call.
type callDetails struct {
	kind, name, kernel, Site string
	stream, ptr, context     int64
	parentNs                 int64
	device, result, Stack    int32
	flags                    int32
	grid, block              [3]int32
}

// want notes calls whose details are needed.
func (s *Scan) want(calls ...callRef) {
	for i := range calls {
		s.details[calls[i].rowRef] = new(callDetails)
	}
}

// Details returns the details of a call that was wanted.
func (s *Scan) Details(c *callRef) *callDetails { return s.details[c.rowRef] }

// ReadDetails reads the details that are wanted, row group by row group.
func (s *Scan) ReadDetails() error {
	bySpan := make(map[int32][]int32)
	for ref := range s.details {
		bySpan[ref.span] = append(bySpan[ref.span], ref.row)
	}
	for index, rows := range bySpan {
		g := s.Spans[index].Group
		for _, row := range rows {
			*s.details[rowRef{index, row}] = callDetails{}
		}
		s.detailsOf(g, index, rows)
		if err := g.Err(); err != nil {
			return s.T.Wrap(err)
		}
	}
	return nil
}

func (s *Scan) detailsOf(g *format.Group, index int32, rows []int32) {
	texts := func(column string, to func(*callDetails) *string) {
		values := g.Strings(column)
		for _, row := range rows {
			*to(s.details[rowRef{index, row}]) = values.At(int(row))
		}
	}
	texts("kind", func(d *callDetails) *string { return &d.kind })
	texts("name", func(d *callDetails) *string { return &d.name })
	texts("kernel", func(d *callDetails) *string { return &d.kernel })
	texts("site", func(d *callDetails) *string { return &d.Site })
	for column, to := range map[string]func(*callDetails) *int64{
		"stream": func(d *callDetails) *int64 { return &d.stream }, "ptr": func(d *callDetails) *int64 { return &d.ptr },
		"context": func(d *callDetails) *int64 { return &d.context }, "parent_start_ns": func(d *callDetails) *int64 { return &d.parentNs },
	} {
		s.Start = g.Int64(column, s.Start)
		for _, row := range rows {
			*to(s.details[rowRef{index, row}]) = s.Start[row]
		}
	}
	for column, to := range map[string]func(*callDetails) *int32{
		"device": func(d *callDetails) *int32 { return &d.device }, "result": func(d *callDetails) *int32 { return &d.result },
		"stack_id": func(d *callDetails) *int32 { return &d.Stack }, "flags": func(d *callDetails) *int32 { return &d.flags },
		"grid_x": func(d *callDetails) *int32 { return &d.grid[0] }, "grid_y": func(d *callDetails) *int32 { return &d.grid[1] },
		"grid_z": func(d *callDetails) *int32 { return &d.grid[2] }, "block_x": func(d *callDetails) *int32 { return &d.block[0] },
		"block_y": func(d *callDetails) *int32 { return &d.block[1] }, "block_z": func(d *callDetails) *int32 { return &d.block[2] },
	} {
		s.Flags = g.Int32(column, s.Flags)
		for _, row := range rows {
			*to(s.details[rowRef{index, row}]) = s.Flags[row]
		}
	}
}

// outermost returns the open call of a thread that the others are inside of.
func (l *threadLife) outermost() *callRef {
	var first *callRef
	for i := range l.open {
		if c := &l.open[i]; first == nil || c.startNs < first.startNs {
			first = c
		}
	}
	return first
}

// recordedOn returns the stream on which an event was recorded last before a moment, and when; false if that was not seen.
func (s *Scan) recordedOn(pid int32, event, beforeNs int64) (stream, atNs int64, ok bool) {
	for i := range s.Spans {
		g := s.Spans[i].Group
		if s.Spans[i].FirstNs > beforeNs || !slices.Contains(g.Kinds(), format.KindAPI) {
			continue
		}
		s.Name = g.StringsInto("name", s.Name)
		records := make([]bool, len(s.Name.Dict))
		for k, n := range s.Name.Dict {
			records[k] = strings.HasPrefix(n, "cuEventRecord")
		}
		if !slices.Contains(records, true) {
			continue
		}
		s.Start, s.Dur, s.Stream = g.Int64("start_ns", s.Start), g.Int64("ptr", s.Dur), g.Int64("stream", s.Stream)
		s.Pid = g.Int32("pid", s.Pid)
		for k, at := range s.Start {
			if records[s.Name.Index[k]] && s.Pid[k] == pid && s.Dur[k] == event && at <= beforeNs && (!ok || at >= atNs) {
				stream, atNs, ok = s.Stream[k], at, true
			}
		}
	}
	return stream, atNs, ok
}
