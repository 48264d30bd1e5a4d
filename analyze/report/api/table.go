package api

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/model/sampling"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/frames"
	"github.com/gpurec/gpurec/analyze/units"
)

// factColumns are the facts of the report.
var factColumns = []report.Column{
	{Key: "result", Title: "result", Unit: report.UnitText, About: "set if the window has no calls"},
}

// totalColumns are the totals of the report.
var totalColumns = []report.Column{
	{Key: "calls", Title: "calls", Unit: report.UnitCount, About: "number of calls that began in the window"},
	{Key: "timed_calls", Title: "timed", Unit: report.UnitCount, About: "number of calls with a known duration"},
	{Key: "total_ns", Title: "time", Unit: report.UnitNs, About: "sum of the durations of timed calls"},
	{
		Key: "estimated_total_ns", Title: "estimated for all", Unit: report.UnitNs,
		About: "estimated duration of all calls: sum of ~TOTAL; absent if all calls are timed",
	},
	{Key: "errors", Title: "errors", Unit: report.UnitCount, About: "calls that returned an error"},
	{Key: "open_calls", Title: "open", Unit: report.UnitCount, About: "calls without a recorded return"},
}

// computeTotals returns the totals of the report.
func (sc *scan) computeTotals() []report.Fact {
	var sum callGroup
	var estimated int64
	for _, a := range sc.groups {
		sum.calls += a.calls
		sum.scaled += a.scaled
		sum.errors += a.errors
		sum.open += a.open
		sum.durations.Merge(&a.durations)
		if ns, ok := a.estimateDurationNs().(int64); ok {
			estimated = units.EndOfRange(estimated, ns)
		}
	}
	var estimate any
	if sum.durations.Count+sum.open < sum.calls || sc.Weights != nil {
		estimate = estimated
	}
	totals := report.NewFacts(totalColumns, report.Values{
		"calls":              sum.calls,
		"timed_calls":        sum.durations.Count,
		"total_ns":           sum.durations.SumNs,
		"estimated_total_ns": estimate,
		"errors":             sum.errors,
		"open_calls":         sum.open,
	})
	if sc.Weights != nil {
		totals = append(totals, report.EstimateFact(report.EstimatedCallsColumn, "calls by estimate", sum.scaled))
	}
	return totals
}

// callColumns are the columns of scan.callTable without the group.
var callColumns = []report.Column{
	{
		Key: "time_pct", Title: "TIME%", Unit: report.UnitPercent,
		About: "share of ~TOTAL in the ~TOTAL of all rows, as in nsys; the time of nested calls counts for the outer " +
			"call too",
	},
	{
		Key: "total_ns", Title: "TOTAL TIME", Unit: report.UnitNs,
		About: "sum of the durations of TIMED calls over all threads: host time in which the thread works or waits, " +
			"not GPU time",
	},
	{
		Key: "estimated_total_ns", Title: "~TOTAL", Unit: report.UnitNs,
		About: "estimated duration of all returned calls: average duration of TIMED calls x number of returned " +
			"calls; equal to total_ns if all are timed",
	},
	{Key: "calls", Title: "NUM CALLS", Unit: report.UnitCount, About: "number of calls that began in the window"},
	{
		Key: "timed_calls", Title: "TIMED", Unit: report.UnitCount,
		About: "number of calls with a known duration, which all times except estimated_total_ns and open_ns cover. " +
			"At high rates the recorder probes only a part of the returns of kernel launches",
	},
	{Key: "avg_ns", Title: "AVG", Unit: report.UnitNs, About: "average duration of timed calls"},
	{
		Key: "med_ns", Title: "MED", Unit: report.UnitNs,
		About: "median duration of timed calls, from a histogram; the error is below 0.8%",
	},
	{Key: "min_ns", Title: "MIN", Unit: report.UnitNs, About: "shortest duration of a timed call"},
	{Key: "max_ns", Title: "MAX", Unit: report.UnitNs, About: "longest duration of a timed call"},
	{
		Key: "stddev_ns", Title: "STDDEV", Unit: report.UnitNs,
		About: "sample standard deviation of the duration of timed calls",
	},
	{
		Key: "p95_ns", Title: "P95", Unit: report.UnitNs,
		About: "95th percentile of the duration of timed calls; the error is below 0.8%",
	},
	{
		Key: "p99_ns", Title: "P99", Unit: report.UnitNs,
		About: "99th percentile of the duration of timed calls; the error is below 0.8%",
	},
	{
		Key: "errors", Title: "ERRORS", Unit: report.UnitCount,
		About: "calls that returned an error; excludes CUDA_ERROR_NOT_READY and CUDA_ERROR_DEINITIALIZED",
	},
	{
		Key: "open_calls", Title: "OPEN", Unit: report.UnitCount,
		About: "calls without a recorded return; all durations exclude them",
	},
	{
		Key: "open_ns", Title: "OPEN FOR", Unit: report.UnitNs,
		About: "total duration of calls that were open at the end of the recording",
	},
	{
		Key: "nested_calls", Title: "", Unit: report.UnitCount,
		About: "part of NUM CALLS inside another recorded call",
	},
	{
		Key: "kind", Title: "", Unit: report.UnitText,
		About: "kind of the calls: alloc, free, launch, memcpy, memset, sync, api and others",
	},
	{Key: "name", Title: "NAME", Unit: report.UnitText, About: "CUDA driver function"},
}

// groupColumns are the possible last columns of scan.callTable, one for each value of --group-by.
var groupColumns = []report.Column{
	{
		Key: "site", Title: "SITE", Unit: report.UnitText,
		About: "call site (--group-by site or stack): the frame of the program's own code that made the call; for " +
			"stacks with the stack id",
	},
	{Key: "thread", Title: "THREAD", Unit: report.UnitText, About: "id and name of the thread (--group-by thread)"},
	{
		Key: "stream", Title: "STREAM", Unit: report.UnitText,
		About: "process id and stream handle (--group-by stream); 0 is the default stream, and includes calls " +
			"without a stream",
	},
	{
		Key: "rank", Title: "RANK", Unit: report.UnitText,
		About: "rank of the process, and its job if there are several (--group-by rank)",
	},
	{Key: "job", Title: "JOB", Unit: report.UnitText, About: "job of the process (--group-by job)"},
	{
		Key: "container", Title: "CONTAINER", Unit: report.UnitText,
		About: "first 12 digits of the container id (--group-by container)",
	},
	{
		Key: "pod", Title: "POD", Unit: report.UnitText,
		About: "Kubernetes namespace and pod name, or the pod's UID (--group-by pod)",
	},
	{
		Key: "cgroup", Title: "CGROUP", Unit: report.UnitText,
		About: "longest cgroup path of the process (--group-by cgroup)",
	},
	{
		Key: "operator", Title: "OPERATOR", Unit: report.UnitText,
		About: "innermost operator of PyTorch in the stack, with its overload (--group-by operator)",
	},
	{
		Key: "autograd", Title: "AUTOGRAD NODE", Unit: report.UnitText,
		About: "innermost node of PyTorch's autograd graph in the stack (--group-by autograd)",
	},
	{
		Key: "module", Title: "MODULE", Unit: report.UnitText,
		About: "classes of the PyTorch modules in the stack, outermost first (--group-by module)",
	},
	{
		Key: "phase", Title: "PHASE", Unit: report.UnitText,
		About: "forward, backward, optimizer or other, by the functions of the stack (--group-by phase)",
	},
}

// callTable returns a table with one row per function and group, longest time first.
func (sc *scan) callTable(opt *query.Options) (report.Table, error) {
	table := report.Table{
		Name:    "api",
		Title:   "calls by time spent in them on the CPU",
		Columns: slices.Clone(callColumns),
		HideFirst: []string{
			"stddev_ns",
			"p95_ns",
			"open_ns",
			"min_ns",
			"med_ns",
			"avg_ns",
			"p99_ns",
			"open_calls",
			"timed_calls",
			"max_ns",
		},
	}
	order := []string{"estimated_total_ns", "calls", "name"}
	group, isGrouped := sc.groupColumn()
	if isGrouped {
		table.Columns = append(table.Columns, group)
		order = append(order, group.Key)
	}
	if sc.Weights != nil {
		table.Columns = report.InsertColumnAfter(table.Columns, "calls", report.EstimatedCallsColumn)
		order = append(order, report.EstimatedCallsColumn.Key)
	}
	var all int64
	for _, a := range sc.groups {
		if ns, ok := a.estimateDurationNs().(int64); ok {
			all = units.EndOfRange(all, ns)
		}
	}
	for key, a := range sc.groups {
		values := sc.callValues(key, a, all)
		if isGrouped {
			values[group.Key] = sc.groupLabel(key)
		}
		table.Add(values).StackID = a.stack
	}
	sc.hideEmptyColumns(table.Columns)
	byColumns := table.RowComparer(order...)
	slices.SortFunc(table.Rows, func(a, b report.Row) int {
		return cmp.Or(byColumns(a, b), cmp.Compare(a.StackID, b.StackID))
	})
	if err := table.SortAndCut(opt.Sort, opt.Top); err != nil {
		return table, err
	}
	if sc.groupBy == "stack" {
		frames.FillRowStacks(sc.T, &table, opt)
	}
	return table, nil
}

// hideEmptyColumns hides the columns about calls without a duration, and about open calls, if there
// are none.
func (sc *scan) hideEmptyColumns(columns []report.Column) {
	untimed, open := false, false
	for _, a := range sc.groups {
		untimed = untimed || a.durations.Count+a.open < a.calls
		open = open || a.open > 0
	}
	if !untimed {
		report.HideTitle(columns, "timed_calls")
		if sc.Weights == nil {
			report.HideTitle(columns, "estimated_total_ns")
		}
	}
	if !open {
		report.HideTitle(columns, "open_calls")
		report.HideTitle(columns, "open_ns")
	}
}

// callValues returns the values of a row except its group. all is the time of all rows, ns.
func (sc *scan) callValues(key groupKey, a *callGroup, all int64) report.Values {
	d := &a.durations
	var pct, openNs any
	if ns, ok := a.estimateDurationNs().(int64); ok && all > 0 {
		pct = units.Percent(ns, all)
	}
	if a.open > 0 {
		openNs = a.openNs
	}
	values := report.Values{
		"time_pct":           pct,
		"total_ns":           d.Total(),
		"estimated_total_ns": a.estimateDurationNs(),
		"calls":              a.calls,
		"timed_calls":        d.Count,
		"avg_ns":             d.Average(),
		"med_ns":             d.Quantile(0.5),
		"min_ns":             d.Shortest(),
		"max_ns":             d.Longest(),
		"stddev_ns":          d.Stddev(),
		"p95_ns":             d.Quantile(0.95),
		"p99_ns":             d.Quantile(0.99),
		"errors":             a.errors,
		"open_calls":         a.open,
		"open_ns":            openNs,
		"nested_calls":       a.nested,
		"kind":               a.kind,
		"name":               sc.names.List[key.name],
	}
	if sc.Weights != nil {
		values[report.EstimatedCallsColumn.Key] = sampling.RoundToLaunches(a.scaled)
	}
	return values
}

// groupLabel returns the cell of the group column for a key.
func (sc *scan) groupLabel(key groupKey) string {
	switch sc.groupBy {
	case "stack":
		if key.group == 0 {
			return timeline.NoStackSite
		}
		return fmt.Sprintf("%s #%d", sc.T.SiteOfStack(int32(key.group)), key.group)
	case "thread":
		return sc.T.ThreadLabel(origin.Thread{Pid: key.pid, Tid: int32(key.group)})
	case "stream":
		return fmt.Sprintf("%d: %s", key.pid, query.StreamName(key.group))
	}
	return sc.names.List[key.group] // call site, part of a PyTorch program, rank, job, container, pod or cgroup
}

// groupColumn returns the column with the groups. It returns false if calls are grouped only by
// function.
func (sc *scan) groupColumn() (report.Column, bool) {
	key := sc.groupBy
	if key == "stack" {
		key = "site"
	}
	i := slices.IndexFunc(groupColumns, func(c report.Column) bool { return c.Key == key })
	if i < 0 {
		return report.Column{}, false
	}
	return groupColumns[i], true
}
