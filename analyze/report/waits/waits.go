package waits

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/model/calls"
	"github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/frames"
	"github.com/gpurec/gpurec/analyze/report/processes"
	"github.com/gpurec/gpurec/analyze/report/quality"
	"github.com/gpurec/gpurec/analyze/stats"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// Waits of one thread at one place that are so close together are a loop.
const (
	LoopWaits = 20
	loopNs    = int64(1e9)
)

// longestWaits is how many waits are told one by one if --top does not bound them.
const longestWaits = 1000

// Scan sums up the time that threads wait for the GPU.
type Scan struct {
	*calls.Reader
	Groups  map[callSite]*siteWaits
	loops   map[loopKey]*calls.BurstDetector
	Threads map[origin.Thread]*threadWaits
	longest []calls.Call // a heap: the shortest is first
	keep    int
}

// callSite is what waits have in common.
type callSite struct{ Name, Site int32 }

type loopKey struct {
	callSite
	thread origin.Thread
}

// siteWaits is what was counted of waits.
type siteWaits struct {
	waits, open, errors, nested int64
	openNs                      int64
	loops, LoopWaits            int64
	FirstNs, LastNs             int64 // entries
	Stack                       int32 // of the first one
	Took                        stats.Durations
	Threads                     map[origin.Thread]bool
}

// threadWaits is a thread that waits.
type threadWaits struct {
	waits         int64
	WaitNs        int64 // of the window, waits inside of others counted once
	untilNs       int64 // end of the last one
	firstNs, last int64 // first and last that is recorded of it, inside of the window
}

// spanNs is the time between the first and the last call of the thread.
func (w *threadWaits) spanNs() int64 { return max(0, w.last-w.firstNs) }

// Run reports where threads wait for the GPU, for how long and for what. Questions (cuStreamQuery, cuEventQuery) are no waits. It
// returns a *SortError for a column that there is not.
func Run(t *timeline.Timeline, opt query.Options) (*report.Report, error) {
	t = t.View()
	if err := quality.Needs(t, "sync"); err != nil {
		return nil, err
	}
	sc := NewScan(calls.NewReader(t, &opt.Filter, format.KindSync), cmp.Or(opt.Top, longestWaits))
	counts, err := calls.CountsWhile(t, func() error { return sc.Each(sc.Add) })
	if err != nil {
		return nil, err
	}
	if err := sc.measureThreads(); err != nil {
		return nil, err
	}
	r := &report.Report{Command: "sync", Window: sc.Window, Quality: quality.OfRecording(t, counts), Notes: t.Facts.Notes}
	if r.Facts = report.Fill(factColumns, ""); len(sc.Groups) == 0 {
		r.Facts[0].Value = "no waits in the window"
		if len(sc.Seen.Pids) > 0 {
			r.NoMatch = sc.Seen.Explain(&opt.Filter)
		}
	}
	r.Totals = sc.totals()
	table := sc.table()
	if err := table.Arrange(opt.Sort, opt.Top); err != nil {
		return nil, err
	}
	threads, longest := sc.threadTable(), sc.longestTable()
	if err := threads.Arrange("", opt.Top); err != nil {
		return nil, err
	}
	frames.Fill(t, &longest, &opt)
	r.Tables = []report.Table{table, threads, longest}
	return r, nil
}

func NewScan(r *calls.Reader, keep int) *Scan {
	return &Scan{Reader: r, Groups: make(map[callSite]*siteWaits), loops: make(map[loopKey]*calls.BurstDetector), Threads: make(map[origin.Thread]*threadWaits), keep: keep}
}

// Add counts a wait.
func (sc *Scan) Add(c *calls.Call) error {
	if strings.Contains(sc.Names.List[c.Name], "Query") {
		return nil
	}
	key := callSite{c.Name, c.Site}
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
	loop := loopKey{key, c.Thread()}
	if sc.loops[loop] == nil {
		sc.loops[loop] = new(calls.BurstDetector)
	}
	joined, began := sc.loops[loop].Add(c.StartNs, LoopWaits, loopNs)
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
	th.cover(c, sc.Window)
	if c.Flags&format.FlagOpen != 0 {
		s.open++
		s.openNs = units.EndOf(s.openNs, c.EndNs-c.StartNs)
	} else {
		s.Took.Add(c.EndNs - c.StartNs)
		if calls.IsError(c.Result) {
			s.errors++
		}
	}
	sc.remember(c)
	return nil
}

// cover adds the part of a wait that lies in the window and in no earlier wait of the thread.
func (w *threadWaits) cover(c *calls.Call, window query.Window) {
	end := min(c.EndNs, window.ToNs)
	w.WaitNs += max(0, end-max(c.StartNs, w.untilNs))
	w.untilNs = max(w.untilNs, end)
}

// remember keeps the longest waits.
func (sc *Scan) remember(c *calls.Call) {
	shorter := func(a, b calls.Call) bool { return longer(&b, &a) < 0 }
	if len(sc.longest) < sc.keep {
		sc.longest = stats.HeapPush(sc.longest, *c, shorter)
	} else if longer(c, &sc.longest[0]) < 0 {
		sc.longest[0] = *c
		stats.HeapFix(sc.longest, shorter)
	}
}

// longer orders calls from long to short.
func longer(a, b *calls.Call) int {
	return cmp.Or(cmp.Compare(b.EndNs-b.StartNs, a.EndNs-a.StartNs), cmp.Compare(a.StartNs, b.StartNs), cmp.Compare(a.Pid, b.Pid), cmp.Compare(a.Tid, b.Tid))
}

// measureThreads finds out from when until when each thread that waits made calls.
func (sc *Scan) measureThreads() error {
	if len(sc.Threads) == 0 {
		return nil
	}
	for _, th := range sc.Threads {
		th.last = th.untilNs
	}
	for _, spans := range [][]timeline.Span{sc.T.Calls, sc.T.Memory} {
		for _, s := range spans {
			sc.Start, sc.Dur = s.Group.Int64("start_ns", sc.Start), s.Group.Int64("dur_ns", sc.Dur)
			sc.Pid, sc.Tid = s.Group.Int32("pid", sc.Pid), s.Group.Int32("tid", sc.Tid)
			if err := s.Group.Err(); err != nil {
				return sc.T.Wrap(err)
			}
			var last origin.Thread
			var th *threadWaits
			for i, start := range sc.Start {
				if now := (origin.Thread{Pid: sc.Pid[i], Tid: sc.Tid[i]}); th == nil || now != last {
					last, th = now, sc.Threads[now]
				}
				if th != nil && start >= sc.Window.FromNs && start <= sc.Window.ToNs {
					th.firstNs, th.last = min(th.firstNs, start), max(th.last, min(units.EndOf(start, sc.Dur[i]), sc.Window.ToNs))
				}
			}
		}
	}
	return nil
}

var factColumns = []report.Column{{Key: "result", Title: "result", Unit: report.UnitText, About: "set if there is nothing to tell"}}

var totalColumns = []report.Column{
	{Key: "waits", Title: "waits", Unit: report.UnitCount, About: "waits that began in the window; questions such as cuEventQuery are none"},
	{Key: "wait_sum_ns", Title: "waited", Unit: report.UnitNs, About: "sum of the durations of waits that returned; threads add up"},
	{Key: "wait_union_pct_max", Title: "% of its time, the thread that waited most", Unit: report.UnitPercent, About: "share of the time between its first and last recorded call that a thread waited, of the thread with the highest share"},
	{Key: "loops", Title: "loops", Unit: report.UnitCount, About: "stretches of at least 20 waits within a second at one place by one thread"},
	{Key: "loop_waits", Title: "waits in loops", Unit: report.UnitCount, About: "waits in these"},
	{Key: "open_waits", Title: "open", Unit: report.UnitCount, About: "waits that were not seen to return"},
	{Key: "open_ns", Title: "open for", Unit: report.UnitNs, About: "how long those had taken that were open at the end, together"},
	{Key: "errors", Title: "errors", Unit: report.UnitCount, About: "waits that returned an error"},
}

func (sc *Scan) totals() []report.Fact {
	var sum siteWaits
	for _, s := range sc.Groups {
		sum.waits += s.waits
		sum.Took.Merge(&s.Took)
		sum.loops += s.loops
		sum.LoopWaits += s.LoopWaits
		sum.open += s.open
		sum.openNs = units.EndOf(sum.openNs, s.openNs)
		sum.errors += s.errors
	}
	var highest any
	for _, th := range sc.Threads {
		if span := th.spanNs(); span > 0 {
			highest = report.Most(highest, units.Percent(th.WaitNs, span))
		}
	}
	return report.Fill(totalColumns, sum.waits, sum.Took.SumNs, highest, sum.loops, sum.LoopWaits, sum.open, sum.openNs, sum.errors)
}

var callColumns = []report.Column{
	{Key: "wait_sum_ns", Title: "WAITED", Unit: report.UnitNs, About: "sum of the durations of those that returned; threads add up"},
	{Key: "window_pct", Title: "WINDOW%", Unit: report.UnitPercent, About: "wait_sum_ns by the length of the window; above 100 where several threads wait at a time"},
	{Key: "threads_pct", Title: "THREADS%", Unit: report.UnitPercent, About: "wait_sum_ns by the time between first and last recorded call of the threads that wait here, in the window"},
	{Key: "waits", Title: "WAITS", Unit: report.UnitCount, About: "waits that began in the window"},
	{Key: "avg_ns", Title: "AVG", Unit: report.UnitNs, About: "average duration"},
	{Key: "p95_ns", Title: "P95", Unit: report.UnitNs, About: "95% took no longer; off by less than 0.8%"},
	{Key: "max_ns", Title: "MAX", Unit: report.UnitNs, About: "longest that returned"},
	{Key: "loop_waits", Title: "IN LOOPS", Unit: report.UnitCount, About: "waits that belong to at least 20 within a second, at this place by one thread"},
	{Key: "loops", Title: "", Unit: report.UnitCount, About: "how many such stretches there are"},
	{Key: "threads", Title: "", Unit: report.UnitCount, About: "threads that wait here"},
	{Key: "timed_waits", Title: "", Unit: report.UnitCount, About: "waits that returned: times are of these"},
	{Key: "open_waits", Title: "OPEN", Unit: report.UnitCount, About: "waits that were not seen to return"},
	{Key: "open_ns", Title: "", Unit: report.UnitNs, About: "how long those had taken that were open at the end, together"},
	{Key: "errors", Title: "ERRORS", Unit: report.UnitCount, About: "waits that returned an error"},
	{Key: "nested_waits", Title: "", Unit: report.UnitCount, About: "waits inside of another recorded call"},
	{Key: "waits_for", Title: "FOR", Unit: report.UnitText, About: "stream: all work given to it before; event: the work before it was recorded; context: all work of the context, also that of other threads (cudaDeviceSynchronize ends here)"},
	{Key: "name", Title: "CALL", Unit: report.UnitText, About: "function of the CUDA driver"},
	{Key: "site", Title: "SITE", Unit: report.UnitText, About: "the frame of the program's own code that made the call"},
}

// waitsFor says what a call waits for.
func waitsFor(name string) string {
	switch {
	case strings.HasPrefix(name, "cuStream"):
		return "stream"
	case strings.HasPrefix(name, "cuEvent"):
		return "event"
	case strings.HasPrefix(name, "cuCtx"):
		return "context"
	}
	return "other"
}

// table has a row per call and place.
func (sc *Scan) table() report.Table {
	table := report.Table{Name: "sync", Title: "waits by call and place", Columns: slices.Clone(callColumns), Spare: []string{"p95_ns", "threads_pct", "waits_for", "avg_ns"}}
	var open, errors int64
	for key, s := range sc.Groups {
		var span int64
		for th := range s.Threads {
			span = units.EndOf(span, sc.Threads[th].spanNs())
		}
		name := sc.Names.List[key.Name]
		open, errors = open+s.open, errors+s.errors
		table.Rows = append(table.Rows, report.Row{Cells: []any{s.Took.SumNs, units.Percent(s.Took.SumNs, sc.Window.DurNs()), units.Percent(s.Took.SumNs, span), s.waits, s.Took.Avg(), s.Took.At(0.95),
			s.Took.Most(), s.LoopWaits, s.loops, int64(len(s.Threads)), s.Took.Count, s.open, s.openNs, s.errors, s.nested, waitsFor(name), name, sc.Names.List[key.Site]}})
	}
	for name, n := range map[string]int64{"open_waits": open, "errors": errors} {
		if n == 0 {
			report.Hide(table.Columns, name)
		}
	}
	slices.SortFunc(table.Rows, func(a, b report.Row) int {
		return cmp.Or(report.CompareCells(a.Cells[0], b.Cells[0]), report.CompareCells(a.Cells[3], b.Cells[3]), report.CompareCells(a.Cells[16], b.Cells[16]), report.CompareCells(a.Cells[17], b.Cells[17]))
	})
	return table
}

var threadColumns = []report.Column{
	{Key: "wait_ns", Title: "WAITED", Unit: report.UnitNs, About: "time in which the thread waited, inside of the window; open waits are in it, waits inside of others count once"},
	{Key: "thread_pct", Title: "THREAD%", Unit: report.UnitPercent, About: "share of the time between its first and last recorded call in the window"},
	{Key: "window_pct", Title: "WINDOW%", Unit: report.UnitPercent, About: "share of the window"},
	{Key: "thread_ns", Title: "ITS TIME", Unit: report.UnitNs, About: "time between its first and last recorded call in the window"},
	{Key: "waits", Title: "WAITS", Unit: report.UnitCount, About: "waits that began in the window"},
	{Key: "pid", Title: "PID", Unit: report.UnitID, About: "process"},
	{Key: "thread", Title: "THREAD", Unit: report.UnitText, About: "thread and its name"},
}

// threadTable has a row per thread that waits.
func (sc *Scan) threadTable() report.Table {
	table := report.Table{Name: "threads", Title: "threads by time waited", Columns: threadColumns, Aside: true}
	keys := slices.SortedFunc(maps.Keys(sc.Threads), func(a, b origin.Thread) int {
		return cmp.Or(cmp.Compare(sc.Threads[b].WaitNs, sc.Threads[a].WaitNs), cmp.Compare(a.Pid, b.Pid), cmp.Compare(a.Tid, b.Tid))
	})
	for _, key := range keys {
		w := sc.Threads[key]
		table.Rows = append(table.Rows, report.Row{Cells: []any{w.WaitNs, units.Percent(w.WaitNs, w.spanNs()), units.Percent(w.WaitNs, sc.Window.DurNs()), w.spanNs(), w.waits, int64(key.Pid), sc.T.ThreadLabel(key)}})
	}
	processes.AddRanks(sc.T, &table)
	return table
}

var longestColumns = []report.Column{
	{Key: "dur_ns", Title: "WAITED", Unit: report.UnitNs, About: "how long it took; of an open one, until the end of the recording"},
	{Key: "at_ns", Title: "AT", Unit: report.UnitNs, About: "when it began, from the recording's start"},
	{Key: "state", Title: "", Unit: report.UnitText, About: "returned, or open"},
	{Key: "name", Title: "CALL", Unit: report.UnitText, About: "function of the CUDA driver"},
	{Key: "waited_for", Title: "FOR", Unit: report.UnitText, About: "stream, event or context it waited for"},
	{Key: "thread", Title: "THREAD", Unit: report.UnitText, About: "thread and its name"},
	{Key: "site", Title: "SITE", Unit: report.UnitText, About: "the frame of the program's own code that made the call"},
}

// longestStacks is of how many of the longest waits text shows the stack.
const longestStacks = 3

// longestTable lists the longest waits.
func (sc *Scan) longestTable() report.Table {
	table := report.Table{Name: "longest", Title: "longest waits", Columns: longestColumns, Aside: true, Spare: []string{"thread", "waited_for"}}
	slices.SortFunc(sc.longest, func(a, b calls.Call) int { return longer(&a, &b) })
	start := sc.T.Recording().FromNs
	for i := range sc.longest {
		c := &sc.longest[i]
		state := "returned"
		if c.Flags&format.FlagOpen != 0 {
			state = "open"
		}
		name := sc.Names.List[c.Name]
		table.Rows = append(table.Rows, report.Row{StackID: c.Stack, Brief: i >= longestStacks, Cells: []any{c.EndNs - c.StartNs, c.StartNs - start, state, name, sc.target(c, waitsFor(name)),
			sc.T.ThreadLabel(c.Thread()), sc.Names.List[c.Site]}})
	}
	return table
}

// target names what a call waited for.
func (sc *Scan) target(c *calls.Call, what string) string {
	switch what {
	case "stream":
		return "stream " + query.StreamName(c.Stream)
	case "event":
		return fmt.Sprintf("event 0x%x", uint64(c.Ptr))
	case "context":
		return "context of device " + sc.T.DeviceLabel(c.Device)
	}
	return what
}
