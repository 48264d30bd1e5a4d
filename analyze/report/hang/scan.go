package hang

import (
	"cmp"
	"maps"
	"math"
	"slices"

	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/model/calls"
	"github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/model/threadstate"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/stats"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// Scan reads the calls up to a point in time in one pass. For each thread and process it keeps the
// call times, the open calls and the last calls. Its size grows with the number of threads and
// streams, not with the number of calls. RequestAllDetails and ReadDetails then read the details of
// the few calls that a report shows. A Scan is not safe for concurrent use.
type Scan struct {
	*calls.CallCounter
	Spans      []timeline.Span
	longNs     int64
	EndNs      int64 // the reported point in time, Unix ns
	parts      *windowParts
	Threads    map[origin.Thread]*threadHistory
	Processes  map[int32]*processHistory
	Long       []callRef // heap of the longest calls that returned, shortest first
	details    map[rowRef]*callDetails
	operations gpuOperations
	snapshots  map[int32][]threadstate.Snapshot // by pid

	// thread and history are those of the last row, because most rows have the same thread as the
	// row before.
	thread  origin.Thread
	history *threadHistory
}

// rowRef is a row of a recording: the index of its span in Scan.Spans, and the row in the span.
type rowRef struct{ span, row int32 }

// callRef is a call without its details.
type callRef struct {
	rowRef
	startNs, endNs int64 // Unix ns; endNs is math.MaxInt64 for an open call
	pid, tid       int32
	flags          int32
}

// isOpen reports whether the call had not returned.
func (c *callRef) isOpen() bool { return c.endNs == math.MaxInt64 }

// threadHistory is the history of a thread.
type threadHistory struct {
	origin.Thread
	process         *processHistory
	calls           int64
	FirstNs, LastNs int64 // start of the first call; last start or return of a call, Unix ns
	last            callRef
	open            []callRef // open calls of the thread, unordered
	active          threadActivity
	launched        bool // the thread launched kernels, which sampling may skip
}

// maxOpenCallsPerThread is the number of open calls kept per thread. More deeply nested calls add
// no information.
const maxOpenCallsPerThread = 16

// outermostOpenCall returns the open call that encloses the thread's other open calls, or nil.
func (h *threadHistory) outermostOpenCall() *callRef {
	var first *callRef
	for i := range h.open {
		if c := &h.open[i]; first == nil || c.startNs < first.startNs {
			first = c
		}
	}
	return first
}

// processHistory is the history of a process.
type processHistory struct {
	Pid                         int32
	calls, Launches, errors     int64
	firstNs, lastNs, LaunchedNs int64 // first call, last return, last launch, Unix ns
	threads                     []*threadHistory
	streams                     map[int64][]callRef // last launches by stream, earliest first
	longest                     map[string]int64    // longest returned call by function, ns; at least 1 ms
	lastError                   callRef
}

// lastLaunch returns the last launch of a process, or nil.
func (p *processHistory) lastLaunch() *callRef {
	var last *callRef
	for _, stream := range slices.Sorted(maps.Keys(p.streams)) {
		if c := &p.streams[stream][len(p.streams[stream])-1]; last == nil || c.startNs > last.startNs {
			last = c
		}
	}
	return last
}

// maxLaunchesPerStream is the number of last launches kept per stream.
const maxLaunchesPerStream = 3

// maxLongCalls is the number of long calls kept.
const maxLongCalls = 1000

// NewScan returns a Scan of the calls that pass the filter, up to the end of the window.
func NewScan(t *timeline.Timeline, opt *Options) *Scan {
	counter := calls.NewCallCounter(t, &opt.Filter)
	return &Scan{
		CallCounter: counter,
		Spans:       slices.Concat(t.Memory, t.Calls),
		longNs:      opt.LongNs,
		EndNs:       counter.Window.ToNs,
		parts:       newWindowParts(counter.Window),
		Threads:     make(map[origin.Thread]*threadHistory),
		Processes:   make(map[int32]*processHistory),
		details:     make(map[rowRef]*callDetails),
	}
}

// markUnrecordedLaunches marks threads that launch kernels as active while launches were not
// recorded, between their first and last call. These times would count as pauses otherwise.
func (s *Scan) markUnrecordedLaunches() {
	for _, w := range s.T.Facts.Sampling.NoLaunches {
		for _, l := range s.Threads {
			if from, to := max(w.FromNs, l.FirstNs), min(w.ToNs, l.LastNs); l.launched && from < to {
				l.active.markActive(s.parts, from, to)
			}
		}
	}
}

// ReadSpan adds the calls of a span, unless all are later than the end. g has the rows of sp.Group, and may cache its
// columns. A read error is available as g.Err.
func (s *Scan) ReadSpan(sp timeline.Span, g *format.Group) {
	if sp.FirstNs <= s.EndNs {
		index := slices.IndexFunc(s.Spans, func(o timeline.Span) bool { return o.Group == sp.Group })
		if index < 0 { // the recording has grown
			index = len(s.Spans)
			s.Spans = append(s.Spans, sp)
		}
		s.readRowGroup(g, int32(index))
	}
}

// readRowGroup adds the calls of a row group. index is the index of its span in Spans. A read error
// is available as g.Err.
func (s *Scan) readRowGroup(g *format.Group, index int32) {
	s.Kind, s.Name, s.Kernel = g.StringsInto("kind", s.Kind), g.StringsInto("name", s.Name), format.Strings{}
	if s.Filter.Kernel != nil {
		s.Kernel = g.StringsInto("kernel", s.Kernel)
	}
	s.Start, s.Dur, s.Stream = g.Int64("start_ns", s.Start), g.Int64("dur_ns", s.Dur), g.Int64("stream", s.Stream)
	s.Pid, s.Tid = g.Int32("pid", s.Pid), g.Int32("tid", s.Tid)
	s.Result, s.Flags = g.Int32("result", s.Result), g.Int32("flags", s.Flags)
	pass := s.NewRowFilter(g, s.Kind, s.Kernel)
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
			if c.endNs = units.EndOfRange(start, s.Dur[i]); c.flags&format.FlagOpen != 0 || c.endNs > s.EndNs {
				c.endNs = math.MaxInt64
			}
		}
		if c.endNs >= s.Window.FromNs {
			s.addCall(&c, i, isLaunch[s.Kind.Index[i]])
		}
	}
}

// historyOfThread returns the history of a thread, and creates it if necessary.
func (s *Scan) historyOfThread(th origin.Thread, startNs int64) *threadHistory {
	if s.history != nil && s.thread == th {
		return s.history
	}
	life := s.Threads[th]
	if life == nil {
		p := s.Processes[th.Pid]
		if p == nil {
			p = &processHistory{
				Pid: th.Pid, firstNs: startNs, lastNs: startNs, LaunchedNs: math.MinInt64,
				streams: make(map[int64][]callRef), longest: make(map[string]int64),
			}
			s.Processes[th.Pid] = p
		}
		life = &threadHistory{Thread: th, process: p, FirstNs: startNs, LastNs: startNs}
		p.threads = append(p.threads, life)
		s.Threads[th] = life
	}
	s.thread, s.history = th, life
	return life
}

// addCall adds the call c, which is row i of the current row group.
func (s *Scan) addCall(c *callRef, i int, isLaunch bool) {
	life := s.historyOfThread(origin.Thread{Pid: c.pid, Tid: c.tid}, c.startNs)
	p := life.process
	life.calls++
	p.calls++
	life.FirstNs, p.firstNs = min(life.FirstNs, c.startNs), min(p.firstNs, c.startNs)
	seenNs := c.endNs
	if c.isOpen() {
		seenNs = c.startNs
		if len(life.open) < maxOpenCallsPerThread {
			life.open = append(life.open, *c)
		}
	} else {
		p.lastNs = max(p.lastNs, c.endNs)
	}
	last := &life.last
	if life.calls == 1 || c.endNs > last.endNs || c.endNs == last.endNs && c.startNs >= last.startNs {
		life.last = *c
	}
	life.LastNs = max(life.LastNs, seenNs)
	life.active.markActive(s.parts, c.startNs, seenNs)
	life.launched = life.launched || isLaunch
	if isLaunch && c.flags&format.FlagCaptured == 0 {
		p.Launches++
		p.LaunchedNs = max(p.LaunchedNs, c.startNs)
		list := p.streams[s.Stream[i]]
		if more := insertLastLaunch(list, c); len(more) > len(list) {
			p.streams[s.Stream[i]] = more
		}
	}
	if c.flags&timeline.NoResultFlags == 0 && calls.IsErrorResult(s.Result[i]) &&
		!catalog.IsExpectedQueryFailure(s.Name.At(i), s.Result[i]) {
		if p.errors++; p.errors == 1 || c.endNs >= p.lastError.endNs {
			p.lastError = *c
		}
	}
	if dur := s.Dur[i]; !c.isOpen() && c.endNs > c.startNs && dur >= int64(1e6) {
		name := s.Name.At(i)
		p.longest[name] = max(p.longest[name], dur)
		if dur >= s.longNs {
			s.keepLongCall(c)
		}
	}
}

// insertLastLaunch inserts a launch into the last launches of a stream, which are sorted by time.
func insertLastLaunch(list []callRef, c *callRef) []callRef {
	if len(list) == maxLaunchesPerStream && c.startNs < list[0].startNs {
		return list
	}
	at := len(list)
	for at > 0 && list[at-1].startNs > c.startNs {
		at--
	}
	if len(list) < maxLaunchesPerStream {
		return slices.Insert(list, at, *c)
	}
	copy(list, list[1:at]) // in place, because this happens for every launch
	list[at-1] = *c
	return list
}

// keepLongCall keeps a long call if it is one of the longest.
func (s *Scan) keepLongCall(c *callRef) {
	shorter := func(a, b callRef) bool {
		return cmp.Or(
			cmp.Compare(a.endNs-a.startNs, b.endNs-b.startNs),
			cmp.Compare(b.startNs, a.startNs),
			cmp.Compare(b.tid, a.tid),
		) < 0
	}
	if len(s.Long) < maxLongCalls {
		s.Long = stats.HeapPush(s.Long, *c, shorter)
	} else if shorter(s.Long[0], *c) {
		s.Long[0] = *c
		stats.HeapFix(s.Long, shorter)
	}
}
