package analyze

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
	"github.com/gpurec/gpurec/analyze/stats"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// Waits of one thread at one place that are so close together are a loop.
const (
	loopWaits = 20
	loopNs    = int64(1e9)
)

// longestWaits is how many waits are told one by one if --top does not bound them.
const longestWaits = 1000

// waitUse sums up the time that threads wait for the GPU.
type waitUse struct {
	*calls.Reader
	groups  map[waitKey]*waitStats
	loops   map[waitLoop]*calls.BurstDetector
	threads map[origin.Thread]*waitThread
	longest []calls.Call // a heap: the shortest is first
	keep    int
}

// waitKey is what waits have in common.
type waitKey struct{ name, site int32 }

type waitLoop struct {
	waitKey
	thread origin.Thread
}

// waitStats is what was counted of waits.
type waitStats struct {
	waits, open, errors, nested int64
	openNs                      int64
	loops, loopWaits            int64
	firstNs, lastNs             int64 // entries
	stack                       int32 // of the first one
	took                        stats.Durations
	threads                     map[origin.Thread]bool
}

// waitThread is a thread that waits.
type waitThread struct {
	waits         int64
	waitNs        int64 // of the window, waits inside of others counted once
	untilNs       int64 // end of the last one
	firstNs, last int64 // first and last that is recorded of it, inside of the window
}

// spanNs is the time between the first and the last call of the thread.
func (w *waitThread) spanNs() int64 { return max(0, w.last-w.firstNs) }

// Sync reports where threads wait for the GPU, for how long and for what. Questions (cuStreamQuery, cuEventQuery) are no waits. It
// returns a *SortError for a column that there is not.
func Sync(t *timeline.Timeline, opt query.Options) (*Report, error) {
	if err := needClasses(t, "sync"); err != nil {
		return nil, err
	}
	u := newWaitUse(calls.NewReader(t, &opt.Filter, format.KindSync), cmp.Or(opt.Top, longestWaits))
	counts, err := calls.CountsWhile(t, func() error { return u.Each(u.add) })
	if err != nil {
		return nil, err
	}
	if err := u.measureThreads(); err != nil {
		return nil, err
	}
	r := &Report{Command: "sync", Window: u.Window, Quality: qualityOf(t, counts), Notes: t.Facts.Notes}
	if r.Facts = fill(waitFacts, ""); len(u.groups) == 0 {
		r.Facts[0].Value = "no waits in the window"
		if len(u.Seen.Pids) > 0 {
			r.NoMatch = u.Seen.Explain(&opt.Filter)
		}
	}
	r.Totals = u.totals()
	table := u.table()
	if err := table.arrange(opt.Sort, opt.Top); err != nil {
		return nil, err
	}
	threads, longest := u.threadTable(), u.longestTable()
	if err := threads.arrange("", opt.Top); err != nil {
		return nil, err
	}
	addStacks(t, &longest, &opt)
	r.Tables = []Table{table, threads, longest}
	return r, nil
}

func newWaitUse(r *calls.Reader, keep int) *waitUse {
	return &waitUse{Reader: r, groups: make(map[waitKey]*waitStats), loops: make(map[waitLoop]*calls.BurstDetector), threads: make(map[origin.Thread]*waitThread), keep: keep}
}

// add counts a wait.
func (u *waitUse) add(c *calls.Call) error {
	if strings.Contains(u.Names.List[c.Name], "Query") {
		return nil
	}
	key := waitKey{c.Name, c.Site}
	s := u.groups[key]
	if s == nil {
		s = &waitStats{threads: make(map[origin.Thread]bool), firstNs: c.StartNs, stack: c.Stack}
		u.groups[key] = s
	}
	th := u.threads[c.Thread()]
	if th == nil {
		th = &waitThread{firstNs: c.StartNs, untilNs: c.StartNs}
		u.threads[c.Thread()] = th
	}
	s.waits++
	s.lastNs = c.StartNs
	s.threads[c.Thread()] = true
	th.waits++
	if c.Nested {
		s.nested++
	}
	loop := waitLoop{key, c.Thread()}
	if u.loops[loop] == nil {
		u.loops[loop] = new(calls.BurstDetector)
	}
	joined, began := u.loops[loop].Add(c.StartNs, loopWaits, loopNs)
	s.loopWaits += joined
	if began {
		s.loops++
	}
	if c.Flags&(format.FlagAbandoned|format.FlagNoReturn) != 0 {
		if c.Flags&format.FlagAbandoned != 0 {
			s.open++
		}
		return nil
	}
	th.cover(c, u.Window)
	if c.Flags&format.FlagOpen != 0 {
		s.open++
		s.openNs = units.EndOf(s.openNs, c.EndNs-c.StartNs)
	} else {
		s.took.Add(c.EndNs - c.StartNs)
		if calls.IsError(c.Result) {
			s.errors++
		}
	}
	u.remember(c)
	return nil
}

// cover adds the part of a wait that lies in the window and in no earlier wait of the thread.
func (w *waitThread) cover(c *calls.Call, window query.Window) {
	end := min(c.EndNs, window.ToNs)
	w.waitNs += max(0, end-max(c.StartNs, w.untilNs))
	w.untilNs = max(w.untilNs, end)
}

// remember keeps the longest waits.
func (u *waitUse) remember(c *calls.Call) {
	shorter := func(a, b calls.Call) bool { return longer(&b, &a) < 0 }
	if len(u.longest) < u.keep {
		u.longest = stats.HeapPush(u.longest, *c, shorter)
	} else if longer(c, &u.longest[0]) < 0 {
		u.longest[0] = *c
		stats.HeapFix(u.longest, shorter)
	}
}

// longer orders calls from long to short.
func longer(a, b *calls.Call) int {
	return cmp.Or(cmp.Compare(b.EndNs-b.StartNs, a.EndNs-a.StartNs), cmp.Compare(a.StartNs, b.StartNs), cmp.Compare(a.Pid, b.Pid), cmp.Compare(a.Tid, b.Tid))
}

// measureThreads finds out from when until when each thread that waits made calls.
func (u *waitUse) measureThreads() error {
	if len(u.threads) == 0 {
		return nil
	}
	for _, th := range u.threads {
		th.last = th.untilNs
	}
	for _, spans := range [][]timeline.Span{u.T.Calls, u.T.Memory} {
		for _, s := range spans {
			u.Start, u.Dur = s.Group.Int64("start_ns", u.Start), s.Group.Int64("dur_ns", u.Dur)
			u.Pid, u.Tid = s.Group.Int32("pid", u.Pid), s.Group.Int32("tid", u.Tid)
			if err := s.Group.Err(); err != nil {
				return u.T.Wrap(err)
			}
			var last origin.Thread
			var th *waitThread
			for i, start := range u.Start {
				if now := (origin.Thread{Pid: u.Pid[i], Tid: u.Tid[i]}); th == nil || now != last {
					last, th = now, u.threads[now]
				}
				if th != nil && start >= u.Window.FromNs && start <= u.Window.ToNs {
					th.firstNs, th.last = min(th.firstNs, start), max(th.last, min(units.EndOf(start, u.Dur[i]), u.Window.ToNs))
				}
			}
		}
	}
	return nil
}

var waitFacts = []Column{{"result", "result", UnitText, "set if there is nothing to tell"}}

var waitTotals = []Column{
	{"waits", "waits", UnitCount, "waits that began in the window; questions such as cuEventQuery are none"},
	{"wait_sum_ns", "waited", UnitNs, "sum of the durations of waits that returned; threads add up"},
	{"wait_union_pct_max", "% of its time, the thread that waited most", UnitPercent, "share of the time between its first and last recorded call that a thread waited, of the thread with the highest share"},
	{"loops", "loops", UnitCount, "stretches of at least 20 waits within a second at one place by one thread"},
	{"loop_waits", "waits in loops", UnitCount, "waits in these"},
	{"open_waits", "open", UnitCount, "waits that were not seen to return"},
	{"open_ns", "open for", UnitNs, "how long those had taken that were open at the end, together"},
	{"errors", "errors", UnitCount, "waits that returned an error"},
}

func (u *waitUse) totals() []Fact {
	var sum waitStats
	for _, s := range u.groups {
		sum.waits += s.waits
		sum.took.Merge(&s.took)
		sum.loops += s.loops
		sum.loopWaits += s.loopWaits
		sum.open += s.open
		sum.openNs = units.EndOf(sum.openNs, s.openNs)
		sum.errors += s.errors
	}
	var highest any
	for _, th := range u.threads {
		if span := th.spanNs(); span > 0 {
			highest = most(highest, units.Percent(th.waitNs, span))
		}
	}
	return fill(waitTotals, sum.waits, sum.took.SumNs, highest, sum.loops, sum.loopWaits, sum.open, sum.openNs, sum.errors)
}

var waitColumns = []Column{
	{"wait_sum_ns", "WAITED", UnitNs, "sum of the durations of those that returned; threads add up"},
	{"window_pct", "WINDOW%", UnitPercent, "wait_sum_ns by the length of the window; above 100 where several threads wait at a time"},
	{"threads_pct", "THREADS%", UnitPercent, "wait_sum_ns by the time between first and last recorded call of the threads that wait here, in the window"},
	{"waits", "WAITS", UnitCount, "waits that began in the window"},
	{"avg_ns", "AVG", UnitNs, "average duration"},
	{"p95_ns", "P95", UnitNs, "95% took no longer; off by less than 0.8%"},
	{"max_ns", "MAX", UnitNs, "longest that returned"},
	{"loop_waits", "IN LOOPS", UnitCount, "waits that belong to at least 20 within a second, at this place by one thread"},
	{"loops", "", UnitCount, "how many such stretches there are"},
	{"threads", "", UnitCount, "threads that wait here"},
	{"timed_waits", "", UnitCount, "waits that returned: times are of these"},
	{"open_waits", "OPEN", UnitCount, "waits that were not seen to return"},
	{"open_ns", "", UnitNs, "how long those had taken that were open at the end, together"},
	{"errors", "ERRORS", UnitCount, "waits that returned an error"},
	{"nested_waits", "", UnitCount, "waits inside of another recorded call"},
	{"waits_for", "FOR", UnitText, "stream: all work given to it before; event: the work before it was recorded; context: all work of the context, also that of other threads (cudaDeviceSynchronize ends here)"},
	{"name", "CALL", UnitText, "function of the CUDA driver"},
	{"site", "SITE", UnitText, "the frame of the program's own code that made the call"},
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
func (u *waitUse) table() Table {
	table := Table{Name: "sync", Title: "waits by call and place", Columns: slices.Clone(waitColumns), Spare: []string{"p95_ns", "threads_pct", "waits_for", "avg_ns"}}
	var open, errors int64
	for key, s := range u.groups {
		var span int64
		for th := range s.threads {
			span = units.EndOf(span, u.threads[th].spanNs())
		}
		name := u.Names.List[key.name]
		open, errors = open+s.open, errors+s.errors
		table.Rows = append(table.Rows, Row{Cells: []any{s.took.SumNs, units.Percent(s.took.SumNs, u.Window.DurNs()), units.Percent(s.took.SumNs, span), s.waits, s.took.Avg(), s.took.At(0.95),
			s.took.Most(), s.loopWaits, s.loops, int64(len(s.threads)), s.took.Count, s.open, s.openNs, s.errors, s.nested, waitsFor(name), name, u.Names.List[key.site]}})
	}
	for name, n := range map[string]int64{"open_waits": open, "errors": errors} {
		if n == 0 {
			hide(table.Columns, name)
		}
	}
	slices.SortFunc(table.Rows, func(a, b Row) int {
		return cmp.Or(compareCells(a.Cells[0], b.Cells[0]), compareCells(a.Cells[3], b.Cells[3]), compareCells(a.Cells[16], b.Cells[16]), compareCells(a.Cells[17], b.Cells[17]))
	})
	return table
}

var waitThreadColumns = []Column{
	{"wait_ns", "WAITED", UnitNs, "time in which the thread waited, inside of the window; open waits are in it, waits inside of others count once"},
	{"thread_pct", "THREAD%", UnitPercent, "share of the time between its first and last recorded call in the window"},
	{"window_pct", "WINDOW%", UnitPercent, "share of the window"},
	{"thread_ns", "ITS TIME", UnitNs, "time between its first and last recorded call in the window"},
	{"waits", "WAITS", UnitCount, "waits that began in the window"},
	{"pid", "PID", UnitID, "process"},
	{"thread", "THREAD", UnitText, "thread and its name"},
}

// threadTable has a row per thread that waits.
func (u *waitUse) threadTable() Table {
	table := Table{Name: "threads", Title: "threads by time waited", Columns: waitThreadColumns, Aside: true}
	keys := slices.SortedFunc(maps.Keys(u.threads), func(a, b origin.Thread) int {
		return cmp.Or(cmp.Compare(u.threads[b].waitNs, u.threads[a].waitNs), cmp.Compare(a.Pid, b.Pid), cmp.Compare(a.Tid, b.Tid))
	})
	for _, key := range keys {
		w := u.threads[key]
		table.Rows = append(table.Rows, Row{Cells: []any{w.waitNs, units.Percent(w.waitNs, w.spanNs()), units.Percent(w.waitNs, u.Window.DurNs()), w.spanNs(), w.waits, int64(key.Pid), u.T.ThreadLabel(key)}})
	}
	addRanks(u.T, &table)
	return table
}

var longestColumns = []Column{
	{"dur_ns", "WAITED", UnitNs, "how long it took; of an open one, until the end of the recording"},
	{"at_ns", "AT", UnitNs, "when it began, from the recording's start"},
	{"state", "", UnitText, "returned, or open"},
	{"name", "CALL", UnitText, "function of the CUDA driver"},
	{"waited_for", "FOR", UnitText, "stream, event or context it waited for"},
	{"thread", "THREAD", UnitText, "thread and its name"},
	{"site", "SITE", UnitText, "the frame of the program's own code that made the call"},
}

// longestStacks is of how many of the longest waits text shows the stack.
const longestStacks = 3

// longestTable lists the longest waits.
func (u *waitUse) longestTable() Table {
	table := Table{Name: "longest", Title: "longest waits", Columns: longestColumns, Aside: true, Spare: []string{"thread", "waited_for"}}
	slices.SortFunc(u.longest, func(a, b calls.Call) int { return longer(&a, &b) })
	start := u.T.Recording().FromNs
	for i := range u.longest {
		c := &u.longest[i]
		state := "returned"
		if c.Flags&format.FlagOpen != 0 {
			state = "open"
		}
		name := u.Names.List[c.Name]
		table.Rows = append(table.Rows, Row{stack: c.Stack, Brief: i >= longestStacks, Cells: []any{c.EndNs - c.StartNs, c.StartNs - start, state, name, u.target(c, waitsFor(name)),
			u.T.ThreadLabel(c.Thread()), u.Names.List[c.Site]}})
	}
	return table
}

// target names what a call waited for.
func (u *waitUse) target(c *calls.Call, what string) string {
	switch what {
	case "stream":
		return "stream " + query.StreamName(c.Stream)
	case "event":
		return fmt.Sprintf("event 0x%x", uint64(c.Ptr))
	case "context":
		return "context of device " + u.T.DeviceLabel(c.Device)
	}
	return what
}
