package waits

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/model/calls"
	"github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/processes"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// longestWaits bounds the rows of the longest waits where --top does not.
const longestWaits = 1000

// longestStacks is the number of longest waits whose stack text shows.
const longestStacks = 3

var factColumns = []report.Column{{Key: "result", Title: "result", Unit: report.UnitText, About: "set if there is " +
	"nothing to tell"}}

var totalColumns = []report.Column{
	{
		Key: "waits", Title: "waits", Unit: report.UnitCount,
		About: "waits that began in the window; questions such as cuEventQuery are none",
	},
	{
		Key: "wait_sum_ns", Title: "waited", Unit: report.UnitNs,
		About: "sum of the durations of waits that returned; threads add up",
	},
	{
		Key: "wait_union_pct_max", Title: "% of its time, the thread that waited most", Unit: report.UnitPercent,
		About: "share of the time between its first and last recorded call that a thread waited, of the thread with " +
			"the highest share",
	},
	{
		Key: "loops", Title: "loops", Unit: report.UnitCount,
		About: "stretches of at least 20 waits within a second at one place by one thread",
	},
	{Key: "loop_waits", Title: "waits in loops", Unit: report.UnitCount, About: "waits in these"},
	{Key: "open_waits", Title: "open", Unit: report.UnitCount, About: "waits that were not seen to return"},
	{
		Key: "open_ns", Title: "open for", Unit: report.UnitNs,
		About: "how long those had taken that were open at the end, together",
	},
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
			highest = report.MaxCell(highest, units.Percent(th.WaitNs, span))
		}
	}
	return report.Facts(totalColumns, report.Values{
		"waits":              sum.waits,
		"wait_sum_ns":        sum.Took.SumNs,
		"wait_union_pct_max": highest,
		"loops":              sum.loops,
		"loop_waits":         sum.LoopWaits,
		"open_waits":         sum.open,
		"open_ns":            sum.openNs,
		"errors":             sum.errors,
	})
}

var callColumns = []report.Column{
	{
		Key: "wait_sum_ns", Title: "WAITED", Unit: report.UnitNs,
		About: "sum of the durations of those that returned; threads add up",
	},
	{
		Key: "window_pct", Title: "WINDOW%", Unit: report.UnitPercent,
		About: "wait_sum_ns by the length of the window; above 100 where several threads wait at a time",
	},
	{
		Key: "threads_pct", Title: "THREADS%", Unit: report.UnitPercent,
		About: "wait_sum_ns by the time between first and last recorded call of the threads that wait here, in the " +
			"window",
	},
	{Key: "waits", Title: "WAITS", Unit: report.UnitCount, About: "waits that began in the window"},
	{Key: "avg_ns", Title: "AVG", Unit: report.UnitNs, About: "average duration"},
	{Key: "p95_ns", Title: "P95", Unit: report.UnitNs, About: "95% took no longer; off by less than 0.8%"},
	{Key: "max_ns", Title: "MAX", Unit: report.UnitNs, About: "longest that returned"},
	{
		Key: "loop_waits", Title: "IN LOOPS", Unit: report.UnitCount,
		About: "waits that belong to at least 20 within a second, at this place by one thread",
	},
	{Key: "loops", Title: "", Unit: report.UnitCount, About: "how many such stretches there are"},
	{Key: "threads", Title: "", Unit: report.UnitCount, About: "threads that wait here"},
	{Key: "timed_waits", Title: "", Unit: report.UnitCount, About: "waits that returned: times are of these"},
	{Key: "open_waits", Title: "OPEN", Unit: report.UnitCount, About: "waits that were not seen to return"},
	{
		Key: "open_ns", Title: "", Unit: report.UnitNs,
		About: "how long those had taken that were open at the end, together",
	},
	{Key: "errors", Title: "ERRORS", Unit: report.UnitCount, About: "waits that returned an error"},
	{Key: "nested_waits", Title: "", Unit: report.UnitCount, About: "waits inside of another recorded call"},
	{
		Key: "waits_for", Title: "FOR", Unit: report.UnitText,
		About: "stream: all work given to it before; event: the work before it was recorded; context: all work of " +
			"the context, also that of other threads (cudaDeviceSynchronize ends here)",
	},
	{Key: "name", Title: "CALL", Unit: report.UnitText, About: "function of the CUDA driver"},
	{
		Key: "site", Title: "SITE", Unit: report.UnitText,
		About: "the frame of the program's own code that made the call",
	},
}

// table has a row per function and call site.
func (sc *Scan) table() report.Table {
	table := report.Table{
		Name: "sync", Title: "waits by call and place", Columns: slices.Clone(callColumns),
		HideFirst: []string{"p95_ns", "threads_pct", "waits_for", "avg_ns"},
	}
	var open, errors int64
	for key, s := range sc.Groups {
		open, errors = open+s.open, errors+s.errors
		sc.addRow(&table, key, s)
	}
	for name, n := range map[string]int64{"open_waits": open, "errors": errors} {
		if n == 0 {
			report.HideTitle(table.Columns, name)
		}
	}
	table.Sort("wait_sum_ns", "waits", "name", "site")
	return table
}

func (sc *Scan) addRow(table *report.Table, key callSite, s *siteWaits) {
	var span int64
	for th := range s.Threads {
		span = units.EndOf(span, sc.Threads[th].spanNs())
	}
	name := sc.Names.List[key.Name]
	table.Add(report.Values{
		"wait_sum_ns":  s.Took.SumNs,
		"window_pct":   units.Percent(s.Took.SumNs, sc.Window.DurNs()),
		"threads_pct":  units.Percent(s.Took.SumNs, span),
		"waits":        s.waits,
		"avg_ns":       s.Took.Avg(),
		"p95_ns":       s.Took.At(0.95),
		"max_ns":       s.Took.Most(),
		"loop_waits":   s.LoopWaits,
		"loops":        s.loops,
		"threads":      int64(len(s.Threads)),
		"timed_waits":  s.Took.Count,
		"open_waits":   s.open,
		"open_ns":      s.openNs,
		"errors":       s.errors,
		"nested_waits": s.nested,
		"waits_for":    waitsFor(name),
		"name":         name,
		"site":         sc.Names.List[key.Site],
	})
}

var threadColumns = []report.Column{
	{
		Key: "wait_ns", Title: "WAITED", Unit: report.UnitNs,
		About: "time in which the thread waited, inside of the window; open waits are in it, waits inside of others " +
			"count once",
	},
	{
		Key: "thread_pct", Title: "THREAD%", Unit: report.UnitPercent,
		About: "share of the time between its first and last recorded call in the window",
	},
	{Key: "window_pct", Title: "WINDOW%", Unit: report.UnitPercent, About: "share of the window"},
	{
		Key: "thread_ns", Title: "ITS TIME", Unit: report.UnitNs,
		About: "time between its first and last recorded call in the window",
	},
	{Key: "waits", Title: "WAITS", Unit: report.UnitCount, About: "waits that began in the window"},
	{Key: "pid", Title: "PID", Unit: report.UnitID, About: "process"},
	{Key: "thread", Title: "THREAD", Unit: report.UnitText, About: "thread and its name"},
}

// threadTable has a row per thread that waits.
func (sc *Scan) threadTable() report.Table {
	table := report.Table{Name: "threads", Title: "threads by time waited", Columns: threadColumns, Secondary: true}
	keys := slices.SortedFunc(maps.Keys(sc.Threads), func(a, b origin.Thread) int {
		return cmp.Or(
			cmp.Compare(sc.Threads[b].WaitNs, sc.Threads[a].WaitNs),
			cmp.Compare(a.Pid, b.Pid),
			cmp.Compare(a.Tid, b.Tid),
		)
	})
	for _, key := range keys {
		w := sc.Threads[key]
		table.Add(report.Values{
			"wait_ns":    w.WaitNs,
			"thread_pct": units.Percent(w.WaitNs, w.spanNs()),
			"window_pct": units.Percent(w.WaitNs, sc.Window.DurNs()),
			"thread_ns":  w.spanNs(),
			"waits":      w.waits,
			"pid":        int64(key.Pid),
			"thread":     sc.T.ThreadLabel(key),
		})
	}
	processes.AddRanks(sc.T, &table)
	return table
}

var longestColumns = []report.Column{
	{
		Key: "dur_ns", Title: "WAITED", Unit: report.UnitNs,
		About: "how long it took; of an open one, until the end of the recording",
	},
	{Key: "at_ns", Title: "AT", Unit: report.UnitNs, About: "when it began, from the recording's start"},
	{Key: "state", Title: "", Unit: report.UnitText, About: "returned, or open"},
	{Key: "name", Title: "CALL", Unit: report.UnitText, About: "function of the CUDA driver"},
	{Key: "waited_for", Title: "FOR", Unit: report.UnitText, About: "stream, event or context it waited for"},
	{Key: "thread", Title: "THREAD", Unit: report.UnitText, About: "thread and its name"},
	{
		Key: "site", Title: "SITE", Unit: report.UnitText,
		About: "the frame of the program's own code that made the call",
	},
}

// longestTable lists the longest waits.
func (sc *Scan) longestTable() report.Table {
	table := report.Table{
		Name:      "longest",
		Title:     "longest waits",
		Columns:   longestColumns,
		Secondary: true,
		HideFirst: []string{"thread", "waited_for"},
	}
	slices.SortFunc(sc.longest, func(a, b calls.Call) int { return longer(&a, &b) })
	start := sc.T.Recording().FromNs
	for i := range sc.longest {
		c := &sc.longest[i]
		state := "returned"
		if c.Flags&format.FlagOpen != 0 {
			state = "open"
		}
		name := sc.Names.List[c.Name]
		row := table.Add(report.Values{
			"dur_ns":     c.EndNs - c.StartNs,
			"at_ns":      c.StartNs - start,
			"state":      state,
			"name":       name,
			"waited_for": sc.target(c, waitsFor(name)),
			"thread":     sc.T.ThreadLabel(c.Thread()),
			"site":       sc.Names.List[c.Site],
		})
		row.StackID, row.Brief = c.Stack, i >= longestStacks
	}
	return table
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
