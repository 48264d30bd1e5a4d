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

// maxLongestWaits is the maximum number of rows of the table of longest waits without --top.
const maxLongestWaits = 1000

// maxPrintedWaitStacks is the number of longest waits whose stack text output prints.
const maxPrintedWaitStacks = 3

// factColumns are the facts of the report.
var factColumns = []report.Column{
	{Key: "result", Title: "result", Unit: report.UnitText, About: "set if the window has no waits"},
}

// totalColumns are the totals of the report.
var totalColumns = []report.Column{
	{
		Key: "waits", Title: "waits", Unit: report.UnitCount,
		About: "number of waits that began in the window; excludes queries such as cuEventQuery",
	},
	{
		Key: "wait_sum_ns", Title: "waited", Unit: report.UnitNs,
		About: "sum of the durations of returned waits, over all threads",
	},
	{
		Key: "wait_union_pct_max", Title: "% of its time, the thread that waited most", Unit: report.UnitPercent,
		About: "highest share of waiting of any thread, in the time between the thread's first and last recorded call",
	},
	{
		Key: "loops", Title: "loops", Unit: report.UnitCount,
		About: "number of loops: at least 20 waits of one thread at one call site within a second",
	},
	{Key: "loop_waits", Title: "waits in loops", Unit: report.UnitCount, About: "number of waits in loops"},
	{Key: "open_waits", Title: "open", Unit: report.UnitCount, About: "waits without a recorded return"},
	{
		Key: "open_ns", Title: "open for", Unit: report.UnitNs,
		About: "total duration of waits that were open at the end of the recording",
	},
	{Key: "errors", Title: "errors", Unit: report.UnitCount, About: "waits that returned an error"},
}

// computeTotals returns the totals of the report.
func (sc *Scan) computeTotals() []report.Fact {
	var sum siteWaits
	for _, s := range sc.Groups {
		sum.waits += s.waits
		sum.Took.Merge(&s.Took)
		sum.loops += s.loops
		sum.LoopWaits += s.LoopWaits
		sum.open += s.open
		sum.openNs = units.EndOfRange(sum.openNs, s.openNs)
		sum.errors += s.errors
	}
	var highest any
	for _, th := range sc.Threads {
		if span := th.spanNs(); span > 0 {
			highest = report.MaxCell(highest, units.Percent(th.WaitNs, span))
		}
	}
	return report.NewFacts(totalColumns, report.Values{
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

// waitColumns are the columns of Scan.waitTable.
var waitColumns = []report.Column{
	{
		Key: "wait_sum_ns", Title: "WAITED", Unit: report.UnitNs,
		About: "sum of the durations of returned waits, over all threads",
	},
	{
		Key: "window_pct", Title: "WINDOW%", Unit: report.UnitPercent,
		About: "wait_sum_ns / length of the window; above 100 if several threads wait at the same time",
	},
	{
		Key: "threads_pct", Title: "THREADS%", Unit: report.UnitPercent,
		About: "wait_sum_ns / time between the first and last recorded call in the window, summed over the threads " +
			"that wait here",
	},
	{Key: "waits", Title: "WAITS", Unit: report.UnitCount, About: "number of waits that began in the window"},
	{Key: "avg_ns", Title: "AVG", Unit: report.UnitNs, About: "average duration of returned waits"},
	{
		Key: "p95_ns", Title: "P95", Unit: report.UnitNs,
		About: "95th percentile of the duration of returned waits; the error is below 0.8%",
	},
	{Key: "max_ns", Title: "MAX", Unit: report.UnitNs, About: "duration of the longest returned wait"},
	{
		Key: "loop_waits", Title: "IN LOOPS", Unit: report.UnitCount,
		About: "waits in loops: at least 20 waits of one thread at this call site within a second",
	},
	{Key: "loops", Title: "", Unit: report.UnitCount, About: "number of loops"},
	{Key: "threads", Title: "", Unit: report.UnitCount, About: "number of threads that wait at this call site"},
	{
		Key: "timed_waits", Title: "", Unit: report.UnitCount,
		About: "number of returned waits, which all durations cover",
	},
	{Key: "open_waits", Title: "OPEN", Unit: report.UnitCount, About: "waits without a recorded return"},
	{
		Key: "open_ns", Title: "", Unit: report.UnitNs,
		About: "total duration of waits that were open at the end of the recording",
	},
	{Key: "errors", Title: "ERRORS", Unit: report.UnitCount, About: "waits that returned an error"},
	{Key: "nested_waits", Title: "", Unit: report.UnitCount, About: "waits inside another recorded call"},
	{
		Key: "waits_for", Title: "FOR", Unit: report.UnitText,
		About: "object that the call waits for. Stream: all earlier work of the stream. Event: the work before the " +
			"event. Context: all work of the context, by all threads (cudaDeviceSynchronize)",
	},
	{Key: "name", Title: "CALL", Unit: report.UnitText, About: "CUDA driver function"},
	{
		Key: "site", Title: "SITE", Unit: report.UnitText,
		About: "call site: the frame of the program's own code that made the call",
	},
}

// waitTable returns a table with one row per driver function and call site.
func (sc *Scan) waitTable() report.Table {
	table := report.Table{
		Name: "sync", Title: "waits by function and call site", Columns: slices.Clone(waitColumns),
		HideFirst: []string{"p95_ns", "threads_pct", "waits_for", "avg_ns"},
	}
	var open, errors int64
	var gpu map[waitSite]*gpuSums
	if sc.gpu != nil {
		gpu = sc.gpu.sumWaits()
	}
	sc.addGPUColumns(&table, "max_ns")
	for key, s := range sc.Groups {
		open, errors = open+s.open, errors+s.errors
		sc.addWaitRow(&table, key, s, gpu[key])
	}
	for name, n := range map[string]int64{"open_waits": open, "errors": errors} {
		if n == 0 {
			report.HideTitle(table.Columns, name)
		}
	}
	table.Sort("wait_sum_ns", "waits", "name", "site")
	return table
}

// addWaitRow adds the row of one function and call site.
func (sc *Scan) addWaitRow(table *report.Table, key waitSite, s *siteWaits, gpu *gpuSums) {
	var span int64
	for th := range s.Threads {
		span = units.EndOfRange(span, sc.Threads[th].spanNs())
	}
	name := sc.Names.List[key.Name]
	table.Add(report.JoinValues(sc.gpuValues(gpu), report.Values{
		"wait_sum_ns":  s.Took.SumNs,
		"window_pct":   units.Percent(s.Took.SumNs, sc.Window.DurNs()),
		"threads_pct":  units.Percent(s.Took.SumNs, span),
		"waits":        s.waits,
		"avg_ns":       s.Took.Average(),
		"p95_ns":       s.Took.Quantile(0.95),
		"max_ns":       s.Took.Longest(),
		"loop_waits":   s.LoopWaits,
		"loops":        s.loops,
		"threads":      int64(len(s.Threads)),
		"timed_waits":  s.Took.Count,
		"open_waits":   s.open,
		"open_ns":      s.openNs,
		"errors":       s.errors,
		"nested_waits": s.nested,
		"waits_for":    waitTargetKind(name),
		"name":         name,
		"site":         sc.Names.List[key.Site],
	}))
}

// threadColumns are the columns of Scan.threadTable.
var threadColumns = []report.Column{
	{
		Key: "wait_ns", Title: "WAITED", Unit: report.UnitNs,
		About: "time in which the thread waited in the window, including open waits; nested waits count once",
	},
	{
		Key: "thread_pct", Title: "THREAD%", Unit: report.UnitPercent,
		About: "share of WAITED in ITS TIME, the time of the thread",
	},
	{Key: "window_pct", Title: "WINDOW%", Unit: report.UnitPercent, About: "share of WAITED in the window"},
	{
		Key: "thread_ns", Title: "ITS TIME", Unit: report.UnitNs,
		About: "time between the thread's first and last recorded call in the window",
	},
	{Key: "waits", Title: "WAITS", Unit: report.UnitCount, About: "number of waits that began in the window"},
	{Key: "pid", Title: "PID", Unit: report.UnitID, About: "process id"},
	{Key: "thread", Title: "THREAD", Unit: report.UnitText, About: "id and name of the thread"},
}

// threadTable returns a table with one row per thread that waits.
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
	processes.AddRankColumn(sc.T, &table)
	return table
}

// longestWaitColumns are the columns of Scan.longestWaitTable.
var longestWaitColumns = []report.Column{
	{
		Key: "dur_ns", Title: "WAITED", Unit: report.UnitNs,
		About: "duration of the wait; for an open wait until the end of the recording",
	},
	{Key: "at_ns", Title: "AT", Unit: report.UnitNs, About: "start of the wait, from the start of the recording"},
	{Key: "state", Title: "", Unit: report.UnitText, About: "state of the wait: returned or open"},
	{Key: "name", Title: "CALL", Unit: report.UnitText, About: "CUDA driver function"},
	{
		Key: "waited_for", Title: "FOR", Unit: report.UnitText,
		About: "stream, event or context that the call waited for",
	},
	{Key: "thread", Title: "THREAD", Unit: report.UnitText, About: "id and name of the thread"},
	{
		Key: "site", Title: "SITE", Unit: report.UnitText,
		About: "call site: the frame of the program's own code that made the call",
	},
}

// longestWaitTable returns a table with the longest waits.
func (sc *Scan) longestWaitTable() report.Table {
	table := report.Table{
		Name:      "longest",
		Title:     "longest waits",
		Columns:   longestWaitColumns,
		Secondary: true,
		HideFirst: []string{"thread", "waited_for"},
	}
	sc.addGPUColumns(&table, "at_ns")
	slices.SortFunc(sc.longest, func(a, b calls.Call) int { return compareWaitDuration(&a, &b) })
	start := sc.T.RecordingWindow().FromNs
	for i := range sc.longest {
		c := &sc.longest[i]
		state := "returned"
		if c.Flags&format.FlagOpen != 0 {
			state = "open"
		}
		name := sc.Names.List[c.Name]
		row := table.Add(report.JoinValues(sc.gpuValues(sc.gpuSumsOf(c, name)), report.Values{
			"dur_ns":     c.EndNs - c.StartNs,
			"at_ns":      c.StartNs - start,
			"state":      state,
			"name":       name,
			"waited_for": sc.waitTargetName(c, waitTargetKind(name)),
			"thread":     sc.T.ThreadLabel(c.Thread()),
			"site":       sc.Names.List[c.Site],
		}))
		row.StackID, row.Brief = c.Stack, i >= maxPrintedWaitStacks
	}
	return table
}

// waitTargetKind returns the kind of object that a driver function waits for.
func waitTargetKind(name string) string {
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

// waitTargetName returns the name of the object that a call waited for. kind is the result of
// waitTargetKind.
func (sc *Scan) waitTargetName(c *calls.Call, kind string) string {
	switch kind {
	case "stream":
		return "stream " + query.StreamName(c.Stream)
	case "event":
		return fmt.Sprintf("event 0x%x", uint64(c.Ptr))
	case "context":
		return "context of device " + sc.T.DeviceLabel(c.Device)
	}
	return kind
}
