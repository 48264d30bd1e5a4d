package hang

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/gpurec/gpurec/analyze/catalog"
	callspkg "github.com/gpurec/gpurec/analyze/model/calls"
	"github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/stats"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// Scan reads the calls until a moment in one pass. Of each thread and process it keeps the times of
// its calls, the open calls and the last ones. Its size grows with the number of threads and
// streams, not with the number of calls. The details of the few calls that a report shows are read
// afterwards: see WantAll and ReadDetails.
type Scan struct {
	*callspkg.Counter
	Spans     []timeline.Span
	longNs    int64
	EndNs     int64 // the moment
	parts     *windowParts
	Threads   map[origin.Thread]*threadLife
	Processes map[int32]*processLife
	Long      []callRef // a heap of the longest calls that returned; the shortest is first
	details   map[rowRef]*callDetails

	// A cache of the last thread: most rows are of the same thread as the row before.
	thread origin.Thread
	life   *threadLife
}

// rowRef is a row of a recording: the index of its span in Scan.Spans, and its row in the span.
type rowRef struct{ span, row int32 }

// callRef is a call without its details.
type callRef struct {
	rowRef
	startNs, endNs int64 // endNs is math.MaxInt64 if the call had not returned
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
	active          activity
	launched        bool // it launched kernels: calls that sampling may leave out
}

// maxOpen bounds the open calls that are kept of a thread. Calls nested deeper add nothing.
const maxOpen = 16

// outermost returns the open call of a thread that its other open calls are inside of, or nil.
func (l *threadLife) outermost() *callRef {
	var first *callRef
	for i := range l.open {
		if c := &l.open[i]; first == nil || c.startNs < first.startNs {
			first = c
		}
	}
	return first
}

// processLife is what a process did.
type processLife struct {
	Pid                         int32
	calls, Launches, errors     int64
	firstNs, lastNs, LaunchedNs int64
	threads                     []*threadLife
	streams                     map[int64][]callRef // the last launches by stream, the earliest first
	longest                     map[string]int64    // ns of the longest call that returned, by function; from 1 ms on
	lastError                   callRef
}

// lastLaunch returns the last launch of a process, or nil.
func (p *processLife) lastLaunch() *callRef {
	var last *callRef
	for _, stream := range slices.Sorted(maps.Keys(p.streams)) {
		if c := &p.streams[stream][len(p.streams[stream])-1]; last == nil || c.startNs > last.startNs {
			last = c
		}
	}
	return last
}

// launchesPerStream is the number of last launches that are kept of each stream.
const launchesPerStream = 3

// longCalls bounds the long calls that are kept.
const longCalls = 1000

// NewScan returns a Scan of the calls that pass the filter, until the end of the window.
func NewScan(t *timeline.Timeline, opt *Options) *Scan {
	counter := callspkg.NewCounter(t, &opt.Filter)
	return &Scan{
		Counter:   counter,
		Spans:     slices.Concat(t.Memory, t.Calls),
		longNs:    opt.LongNs,
		EndNs:     counter.Window.ToNs,
		parts:     newWindowParts(counter.Window),
		Threads:   make(map[origin.Thread]*threadLife),
		Processes: make(map[int32]*processLife),
		details:   make(map[rowRef]*callDetails),
	}
}

// read reads all calls.
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

// bridgeSampling marks threads that launch kernels as active in times in which launches were not
// recorded, between their first and last call. Else these times would count as usual pauses.
func (s *Scan) bridgeSampling() {
	for _, w := range s.T.Facts.Sampling.NoLaunches {
		for _, l := range s.Threads {
			if from, to := max(w.FromNs, l.FirstNs), min(w.ToNs, l.LastNs); l.launched && from < to {
				l.active.mark(s.parts, from, to)
			}
		}
	}
}

// AddGroup adds the calls of a row group: that of the span with this index in Spans. If the group
// cannot be read, its Err says why.
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
		c := callRef{
			rowRef: rowRef{index, int32(i)}, startNs: start, endNs: start,
			pid: s.Pid[i], tid: s.Tid[i], flags: s.Flags[i],
		}
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
			p = &processLife{
				Pid: th.Pid, firstNs: startNs, lastNs: startNs, LaunchedNs: math.MinInt64,
				streams: make(map[int64][]callRef), longest: make(map[string]int64),
			}
			s.Processes[th.Pid] = p
		}
		life = &threadLife{Thread: th, process: p, FirstNs: startNs, LastNs: startNs}
		p.threads = append(p.threads, life)
		s.Threads[th] = life
	}
	s.thread, s.life = th, life
	return life
}

// addCall adds the call of row i.
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
	if life.calls == 1 ||
		cmp.Or(cmp.Compare(c.endNs, life.last.endNs), cmp.Compare(c.startNs, life.last.startNs)) >= 0 {
		life.last = *c
	}
	life.LastNs = max(life.LastNs, seenNs)
	life.active.mark(s.parts, c.startNs, seenNs)
	life.launched = life.launched || isLaunch
	if isLaunch && c.flags&format.FlagCaptured == 0 {
		p.Launches++
		p.LaunchedNs = max(p.LaunchedNs, c.startNs)
		list := p.streams[s.Stream[i]]
		if more := addLast(list, c); len(more) > len(list) {
			p.streams[s.Stream[i]] = more
		}
	}
	if c.flags&timeline.NoResult == 0 && callspkg.IsError(s.Result[i]) &&
		!catalog.IsQuestion(s.Name.At(i), s.Result[i]) {
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

// addLast adds a launch to the last ones of a stream, which are in order of time.
func addLast(list []callRef, c *callRef) []callRef {
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

// keepLong keeps a long call if it is among the longest.
func (s *Scan) keepLong(c *callRef) {
	shorter := func(a, b callRef) bool {
		return cmp.Or(
			cmp.Compare(a.endNs-a.startNs, b.endNs-b.startNs),
			cmp.Compare(b.startNs, a.startNs),
			cmp.Compare(b.tid, a.tid),
		) < 0
	}
	if len(s.Long) < longCalls {
		s.Long = stats.HeapPush(s.Long, *c, shorter)
	} else if shorter(s.Long[0], *c) {
		s.Long[0] = *c
		stats.HeapFix(s.Long, shorter)
	}
}
