package waits

import (
	"cmp"
	"strings"

	"github.com/gpurec/gpurec/analyze/model/calls"
	"github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/stats"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// A loop is at least MinLoopWaits waits of one thread at one call site within loopWindowNs.
const (
	MinLoopWaits = 20
	loopWindowNs = int64(1e9)
)

// Scan collects statistics of the time that threads wait for the GPU, in one pass over the
// synchronization calls. It is not safe for concurrent use.
type Scan struct {
	*calls.CallReader
	Groups     map[waitSite]*siteWaits
	loops      map[waitLoopKey]*calls.BurstDetector
	Threads    map[origin.Thread]*threadWaits
	longest    []calls.Call // heap of the longest waits, shortest first
	maxLongest int          // maximum length of longest
	gpu        *gpuWaits    // nil without GPU times
}

// waitSite is a driver function and its call site, both as indexes of Names.
type waitSite struct{ Name, Site int32 }

// waitLoopKey identifies the waits that may form a loop.
type waitLoopKey struct {
	waitSite
	thread origin.Thread
}

// siteWaits has the statistics of the waits at one call site.
type siteWaits struct {
	waits, open, errors, nested int64
	openNs                      int64 // total time of waits that were open at the end, ns
	loops, LoopWaits            int64 // number of loops, and of waits in loops
	FirstNs, LastNs             int64 // starts of the first and last wait, Unix ns
	Stack                       int32 // stack id of the first wait
	Took                        stats.Durations
	Threads                     map[origin.Thread]bool
}

// threadWaits has the statistics of the waits of one thread.
type threadWaits struct {
	waits           int64
	WaitNs          int64 // time in waits inside the window, ns; nested waits count once
	untilNs         int64 // end of the last wait, Unix ns
	firstNs, lastNs int64 // first and last recorded call of the thread in the window, Unix ns
}

// spanNs returns the time between the first and the last call of the thread, ns.
func (w *threadWaits) spanNs() int64 { return max(0, w.lastNs-w.firstNs) }

// NewScan returns a Scan of the calls of r. It keeps the keep longest waits for the table of them.
func NewScan(r *calls.CallReader, keep int) *Scan {
	return &Scan{
		CallReader: r,
		Groups:     make(map[waitSite]*siteWaits),
		loops:      make(map[waitLoopKey]*calls.BurstDetector),
		Threads:    make(map[origin.Thread]*threadWaits),
		maxLongest: keep,
	}
}

// AddWait adds a wait to the statistics. It skips queries such as cuEventQuery. It always returns
// nil.
func (sc *Scan) AddWait(c *calls.Call) error {
	if strings.Contains(sc.Names.List[c.Name], "Query") {
		return nil
	}
	key := waitSite{c.Name, c.Site}
	s := sc.Groups[key]
	if s == nil {
		s = &siteWaits{Threads: make(map[origin.Thread]bool), FirstNs: c.StartNs, Stack: c.Stack}
		sc.Groups[key] = s
	}
	th := sc.Threads[c.Thread()]
	if th == nil {
		th = &threadWaits{firstNs: c.StartNs, untilNs: c.StartNs}
		sc.Threads[c.Thread()] = th
	}
	s.waits++
	s.LastNs = c.StartNs
	s.Threads[c.Thread()] = true
	th.waits++
	if c.Nested {
		s.nested++
	}
	loop := waitLoopKey{key, c.Thread()}
	if sc.loops[loop] == nil {
		sc.loops[loop] = new(calls.BurstDetector)
	}
	joined, began := sc.loops[loop].AddEvent(c.StartNs, MinLoopWaits, loopWindowNs)
	s.LoopWaits += joined
	if began {
		s.loops++
	}
	if c.Flags&(format.FlagAbandoned|format.FlagNoReturn) != 0 {
		if c.Flags&format.FlagAbandoned != 0 {
			s.open++
		}
		return nil
	}
	if sc.gpu != nil {
		sc.gpu.add(c, sc.Names.List[c.Name])
	}
	th.addWaitTime(c, sc.Window)
	if c.Flags&format.FlagOpen != 0 {
		s.open++
		s.openNs = units.EndOfRange(s.openNs, c.EndNs-c.StartNs)
	} else {
		s.Took.Add(c.EndNs - c.StartNs)
		if calls.IsErrorResult(c.Result) {
			s.errors++
		}
	}
	sc.keepLongestWait(c)
	return nil
}

// addWaitTime adds the part of a wait that is in the window and in no earlier wait of the thread.
func (w *threadWaits) addWaitTime(c *calls.Call, window query.Window) {
	end := min(c.EndNs, window.ToNs)
	w.WaitNs += max(0, end-max(c.StartNs, w.untilNs))
	w.untilNs = max(w.untilNs, end)
}

// keepLongestWait keeps a wait if it is one of the longest.
func (sc *Scan) keepLongestWait(c *calls.Call) {
	shorter := func(a, b calls.Call) bool { return compareWaitDuration(&b, &a) < 0 }
	if len(sc.longest) < sc.maxLongest {
		sc.longest = stats.HeapPush(sc.longest, *c, shorter)
	} else if compareWaitDuration(c, &sc.longest[0]) < 0 {
		sc.longest[0] = *c
		stats.HeapFix(sc.longest, shorter)
	}
}

// compareWaitDuration compares calls by duration, longest first.
func compareWaitDuration(a, b *calls.Call) int {
	return cmp.Or(cmp.Compare(b.EndNs-b.StartNs, a.EndNs-a.StartNs),
		cmp.Compare(a.StartNs, b.StartNs), cmp.Compare(a.Pid, b.Pid), cmp.Compare(a.Tid, b.Tid))
}

// setThreadSpans sets the first and the last call of each thread that waits.
func (sc *Scan) setThreadSpans(all *threadSpans) {
	for id, th := range sc.Threads {
		th.lastNs = th.untilNs
		if span := all.spans[id]; span != nil {
			th.firstNs, th.lastNs = min(th.firstNs, span.firstNs), max(th.lastNs, span.lastNs)
		}
	}
}
