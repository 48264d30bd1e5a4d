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

var factColumns = []report.Column{{Key: "result", Title: "result", Unit: report.UnitText, About: "set if there is " +
	"nothing to tell"}}

var totalColumns = []report.Column{
	{Key: "calls", Title: "calls", Unit: report.UnitCount, About: "calls that began in the window"},
	{Key: "timed_calls", Title: "timed", Unit: report.UnitCount, About: "of these, calls whose duration is known"},
	{Key: "total_ns", Title: "time", Unit: report.UnitNs, About: "sum of the durations of timed calls"},
	{
		Key: "estimated_total_ns", Title: "estimated for all", Unit: report.UnitNs,
		About: "estimate for all calls: the sum of this column; absent where all are timed",
	},
	{Key: "errors", Title: "errors", Unit: report.UnitCount, About: "calls that returned an error"},
	{Key: "open_calls", Title: "open", Unit: report.UnitCount, About: "calls that were not seen to return"},
}

func (sc *scan) totals() []report.Fact {
	var sum callGroup
	var estimated int64
	for _, a := range sc.groups {
		sum.calls += a.calls
		sum.scaled += a.scaled
		sum.errors += a.errors
		sum.open += a.open
		sum.returned.Merge(&a.returned)
		if ns, ok := a.estimatedNs().(int64); ok {
			estimated = units.EndOf(estimated, ns)
		}
	}
	var estimate any
	if sum.returned.Count+sum.open < sum.calls || sc.Weights != nil {
		estimate = estimated
	}
	totals := report.Facts(totalColumns, report.Values{
		"calls":              sum.calls,
		"timed_calls":        sum.returned.Count,
		"total_ns":           sum.returned.SumNs,
		"estimated_total_ns": estimate,
		"errors":             sum.errors,
		"open_calls":         sum.open,
	})
	if sc.Weights != nil {
		totals = append(totals, report.EstimateOf(report.EstimatedCalls, "calls by estimate", sum.scaled))
	}
	return totals
}

var callColumns = []report.Column{
	{
		Key: "time_pct", Title: "TIME%", Unit: report.UnitPercent,
		About: "share of estimated_total_ns in that of all rows, as in nsys; time of calls inside of other calls " +
			"counts for both",
	},
	{
		Key: "total_ns", Title: "TOTAL TIME", Unit: report.UnitNs,
		About: "sum of the time that threads spent in these calls, of TIMED calls only; CPU time, waiting or " +
			"working, not GPU time, and threads add up",
	},
	{
		Key: "estimated_total_ns", Title: "~TOTAL", Unit: report.UnitNs,
		About: "estimate: what total_ns would be if the calls that returned unseen had taken as long on average as " +
			"the timed ones; equal to total_ns where all are timed",
	},
	{Key: "calls", Title: "NUM CALLS", Unit: report.UnitCount, About: "calls that began in the window"},
	{
		Key: "timed_calls", Title: "TIMED", Unit: report.UnitCount,
		About: "of these, those whose duration is known: all times but estimated_total_ns and open_ns are of them. " +
			"At high rates the returns of kernel launches are probed for a share of the time only",
	},
	{Key: "avg_ns", Title: "AVG", Unit: report.UnitNs, About: "average duration"},
	{
		Key: "med_ns", Title: "MED", Unit: report.UnitNs,
		About: "half of the calls took no longer; read from a histogram, off by less than 0.8%",
	},
	{Key: "min_ns", Title: "MIN", Unit: report.UnitNs, About: "shortest"},
	{Key: "max_ns", Title: "MAX", Unit: report.UnitNs, About: "longest that returned"},
	{Key: "stddev_ns", Title: "STDDEV", Unit: report.UnitNs, About: "standard deviation of the duration, of a sample"},
	{Key: "p95_ns", Title: "P95", Unit: report.UnitNs, About: "95% of the calls took no longer; off by less than 0.8%"},
	{Key: "p99_ns", Title: "P99", Unit: report.UnitNs, About: "99% of the calls took no longer; off by less than 0.8%"},
	{
		Key: "errors", Title: "ERRORS", Unit: report.UnitCount,
		About: "calls that returned an error (not ready and shutting down are none)",
	},
	{
		Key: "open_calls", Title: "OPEN", Unit: report.UnitCount,
		About: "calls that were not seen to return; they are in none of the times",
	},
	{
		Key: "open_ns", Title: "OPEN FOR", Unit: report.UnitNs,
		About: "how long those of them had taken that were open at the end of the recording, together",
	},
	{
		Key: "nested_calls", Title: "", Unit: report.UnitCount,
		About: "of NUM CALLS, those inside of another recorded call",
	},
	{
		Key: "kind", Title: "", Unit: report.UnitText,
		About: "alloc, free, launch, memcpy, memset, sync, api and the like",
	},
	{Key: "name", Title: "NAME", Unit: report.UnitText, About: "function of the CUDA driver"},
}

// groupColumns are the last column of grouped tables, one for each way to group.
var groupColumns = []report.Column{
	{
		Key: "site", Title: "SITE", Unit: report.UnitText,
		About: "with --group-by site or stack: the frame of the program's own code that made the call, of stacks " +
			"with their number",
	},
	{Key: "thread", Title: "THREAD", Unit: report.UnitText, About: "with --group-by thread: thread and its name"},
	{
		Key: "stream", Title: "STREAM", Unit: report.UnitText,
		About: "with --group-by stream: process and stream handle; 0 is the default stream, and calls without a " +
			"stream are there too",
	},
	{
		Key: "rank", Title: "RANK", Unit: report.UnitText,
		About: "with --group-by rank: rank of the process, and its job if there are several",
	},
	{Key: "job", Title: "JOB", Unit: report.UnitText, About: "with --group-by job: job of the process"},
	{
		Key: "container", Title: "CONTAINER", Unit: report.UnitText,
		About: "with --group-by container: first 12 digits of the container's id",
	},
	{
		Key: "pod", Title: "POD", Unit: report.UnitText,
		About: "with --group-by pod: Kubernetes namespace and pod, or the pod's UID",
	},
	{
		Key: "cgroup", Title: "CGROUP", Unit: report.UnitText,
		About: "with --group-by cgroup: longest path in the process's cgroups",
	},
}

// table has a row per function and group, those with the most time first.
func (sc *scan) table(opt *query.Options) (report.Table, error) {
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
		table.Columns = report.InsertAfter(table.Columns, "calls", report.EstimatedCalls)
		order = append(order, report.EstimatedCalls.Key)
	}
	var all int64
	for _, a := range sc.groups {
		if ns, ok := a.estimatedNs().(int64); ok {
			all = units.EndOf(all, ns)
		}
	}
	for key, a := range sc.groups {
		values := sc.values(key, a, all)
		if isGrouped {
			values[group.Key] = sc.groupLabel(key)
		}
		table.Add(values).StackID = a.stack
	}
	sc.hideEmpty(table.Columns)
	byColumns := table.Compare(order...)
	slices.SortFunc(table.Rows, func(a, b report.Row) int {
		return cmp.Or(byColumns(a, b), cmp.Compare(a.StackID, b.StackID))
	})
	if err := table.Arrange(opt.Sort, opt.Top); err != nil {
		return table, err
	}
	if sc.by == "stack" {
		frames.Fill(sc.T, &table, opt)
	}
	return table, nil
}

// hideEmpty hides the columns on calls without a duration and on open calls if there are none.
func (sc *scan) hideEmpty(columns []report.Column) {
	untimed, open := false, false
	for _, a := range sc.groups {
		untimed = untimed || a.returned.Count+a.open < a.calls
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

// values returns the values of a row but its group. all is the time of all rows, ns.
func (sc *scan) values(key groupKey, a *callGroup, all int64) report.Values {
	d := &a.returned
	var pct, openNs any
	if ns, ok := a.estimatedNs().(int64); ok && all > 0 {
		pct = units.Percent(ns, all)
	}
	if a.open > 0 {
		openNs = a.openNs
	}
	values := report.Values{
		"time_pct":           pct,
		"total_ns":           d.Total(),
		"estimated_total_ns": a.estimatedNs(),
		"calls":              a.calls,
		"timed_calls":        d.Count,
		"avg_ns":             d.Avg(),
		"med_ns":             d.At(0.5),
		"min_ns":             d.Least(),
		"max_ns":             d.Most(),
		"stddev_ns":          d.Stddev(),
		"p95_ns":             d.At(0.95),
		"p99_ns":             d.At(0.99),
		"errors":             a.errors,
		"open_calls":         a.open,
		"open_ns":            openNs,
		"nested_calls":       a.nested,
		"kind":               a.kind,
		"name":               sc.names.List[key.name],
	}
	if sc.Weights != nil {
		values[report.EstimatedCalls.Key] = sampling.Whole(a.scaled)
	}
	return values
}

// groupLabel returns the cell of the group column.
func (sc *scan) groupLabel(key groupKey) string {
	switch sc.by {
	case "stack":
		if key.group == 0 {
			return timeline.NoStack
		}
		return fmt.Sprintf("%s #%d", sc.T.SiteOf(int32(key.group)), key.group)
	case "thread":
		return sc.T.ThreadLabel(origin.Thread{Pid: key.pid, Tid: int32(key.group)})
	case "stream":
		return fmt.Sprintf("%d: %s", key.pid, query.StreamName(key.group))
	}
	return sc.names.List[key.group] // of a site, rank, job, container, pod or cgroup
}

// groupColumn returns the column of the groups, false if calls are grouped by function alone.
func (sc *scan) groupColumn() (report.Column, bool) {
	key := sc.by
	if key == "stack" {
		key = "site"
	}
	i := slices.IndexFunc(groupColumns, func(c report.Column) bool { return c.Key == key })
	if i < 0 {
		return report.Column{}, false
	}
	return groupColumns[i], true
}
