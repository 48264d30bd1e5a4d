package api

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/calls"
	"github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/model/sampling"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/frames"
	"github.com/gpurec/gpurec/analyze/report/quality"
	"github.com/gpurec/gpurec/analyze/stats"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// GroupNames lists what Options.GroupBy may be for API, the default first.
func GroupNames() []string {
	return append([]string{"name", "site", "stack", "thread", "stream"}, timeline.IdentityGroups...)
}

// scan sums up calls by function and by what else they are grouped by.
type scan struct {
	*calls.Counter
	by     string
	groups map[groupKey]*callGroup
	names  origin.Names
	sites  calls.SiteReader
	// identities are the groups of processes, where calls are grouped by these.
	identities map[int32]int64
}

// groupKey is what calls have in common: the function, and a site, stack, thread or stream of a
// process, or a value of the identity of processes.
type groupKey struct {
	name, pid int32
	group     int64
}

// callGroup is what was counted of them.
type callGroup struct {
	calls, errors, open, nested int64
	scaled                      int64 // calls in thousandths, with what was not recorded
	openNs                      int64 // so far
	stack                       int32 // of the first one
	kind                        string
	returned                    stats.Durations
}

var callColumns = []report.Column{
	{Key: "time_pct", Title: "TIME%", Unit: report.UnitPercent, About: "share of estimated_total_ns in that of all rows, as in nsys; time of calls inside of other calls counts for both"},
	{Key: "total_ns", Title: "TOTAL TIME", Unit: report.UnitNs, About: "sum of the time that threads spent in these calls, of TIMED calls only; CPU time, waiting or working, not GPU time, and threads add up"},
	{Key: "estimated_total_ns", Title: "~TOTAL", Unit: report.UnitNs, About: "estimate: what total_ns would be if the calls that returned unseen had taken as long on average as the timed ones; equal to total_ns where all are timed"},
	{Key: "calls", Title: "NUM CALLS", Unit: report.UnitCount, About: "calls that began in the window"},
	{Key: "timed_calls", Title: "TIMED", Unit: report.UnitCount, About: "of these, those whose duration is known: all times but estimated_total_ns and open_ns are of them. At high rates the returns of kernel launches are probed for a share of the time only"},
	{Key: "avg_ns", Title: "AVG", Unit: report.UnitNs, About: "average duration"},
	{Key: "med_ns", Title: "MED", Unit: report.UnitNs, About: "half of the calls took no longer; read from a histogram, off by less than 0.8%"},
	{Key: "min_ns", Title: "MIN", Unit: report.UnitNs, About: "shortest"},
	{Key: "max_ns", Title: "MAX", Unit: report.UnitNs, About: "longest that returned"},
	{Key: "stddev_ns", Title: "STDDEV", Unit: report.UnitNs, About: "standard deviation of the duration, of a sample"},
	{Key: "p95_ns", Title: "P95", Unit: report.UnitNs, About: "95% of the calls took no longer; off by less than 0.8%"},
	{Key: "p99_ns", Title: "P99", Unit: report.UnitNs, About: "99% of the calls took no longer; off by less than 0.8%"},
	{Key: "errors", Title: "ERRORS", Unit: report.UnitCount, About: "calls that returned an error (not ready and shutting down are none)"},
	{Key: "open_calls", Title: "OPEN", Unit: report.UnitCount, About: "calls that were not seen to return; they are in none of the times"},
	{Key: "open_ns", Title: "OPEN FOR", Unit: report.UnitNs, About: "how long those of them had taken that were open at the end of the recording, together"},
	{Key: "nested_calls", Title: "", Unit: report.UnitCount, About: "of NUM CALLS, those inside of another recorded call"},
	{Key: "kind", Title: "", Unit: report.UnitText, About: "alloc, free, launch, memcpy, memset, sync, api and the like"},
	{Key: "name", Title: "NAME", Unit: report.UnitText, About: "function of the CUDA driver"},
}

// groupColumns are the last column of a table that is grouped.
var groupColumns = []report.Column{
	{Key: "site", Title: "SITE", Unit: report.UnitText, About: "with --group-by site or stack: the frame of the program's own code that made the call, of stacks with their number"},
	{Key: "thread", Title: "THREAD", Unit: report.UnitText, About: "with --group-by thread: thread and its name"},
	{Key: "stream", Title: "STREAM", Unit: report.UnitText, About: "with --group-by stream: process and stream handle; 0 is the default stream, and calls without a stream are there too"},
	{Key: "rank", Title: "RANK", Unit: report.UnitText, About: "with --group-by rank: rank of the process, and its job if there are several"},
	{Key: "job", Title: "JOB", Unit: report.UnitText, About: "with --group-by job: job of the process"},
	{Key: "container", Title: "CONTAINER", Unit: report.UnitText, About: "with --group-by container: first 12 digits of the container's id"},
	{Key: "pod", Title: "POD", Unit: report.UnitText, About: "with --group-by pod: Kubernetes namespace and pod, or the pod's UID"},
	{Key: "cgroup", Title: "CGROUP", Unit: report.UnitText, About: "with --group-by cgroup: longest path in the process's cgroups"},
}

var factColumns = []report.Column{{Key: "result", Title: "result", Unit: report.UnitText, About: "set if there is nothing to tell"}}

var totalColumns = []report.Column{
	{Key: "calls", Title: "calls", Unit: report.UnitCount, About: "calls that began in the window"},
	{Key: "timed_calls", Title: "timed", Unit: report.UnitCount, About: "of these, calls whose duration is known"},
	{Key: "total_ns", Title: "time", Unit: report.UnitNs, About: "sum of the durations of timed calls"},
	{Key: "estimated_total_ns", Title: "estimated for all", Unit: report.UnitNs, About: "estimate for all calls: the sum of this column; absent where all are timed"},
	{Key: "errors", Title: "errors", Unit: report.UnitCount, About: "calls that returned an error"},
	{Key: "open_calls", Title: "open", Unit: report.UnitCount, About: "calls that were not seen to return"},
}

// Run reports how often each function of the driver was called and how long that took, as nsys does. It returns a *GroupError or
// *SortError for options it cannot follow.
func Run(t *timeline.Timeline, opt query.Options) (*report.Report, error) {
	t = t.View()
	sc := &scan{Counter: calls.NewCounter(t, &opt.Filter), by: cmp.Or(opt.GroupBy, GroupNames()[0]),
		groups: make(map[groupKey]*callGroup), identities: make(map[int32]int64)}
	if !slices.Contains(GroupNames(), sc.by) {
		return nil, &report.GroupError{Name: opt.GroupBy, Known: GroupNames()}
	}
	sc.sites = calls.SiteReader{T: t, Names: &sc.names}
	counts, err := calls.CountsWhile(t, func() error { return sc.read(t.Calls) })
	if err == nil {
		err = sc.read(t.Memory)
	}
	if err != nil {
		return nil, err
	}
	r := &report.Report{Command: "api", Window: sc.Window, Quality: quality.OfRecording(t, counts), Notes: t.Facts.Notes}
	if r.Facts = report.Fill(factColumns, ""); len(sc.groups) == 0 {
		r.Facts[0].Value = "no calls in the window"
		if len(sc.Seen.Pids) > 0 {
			r.NoMatch = sc.Seen.Explain(&opt.Filter)
		}
	}
	table, err := sc.table(&opt)
	if err != nil {
		return nil, err
	}
	r.Totals, r.Tables = sc.totals(), []report.Table{table}
	return r, nil
}

func (sc *scan) read(spans []timeline.Span) error {
	for _, s := range spans {
		sc.addGroup(s.Group)
		if err := s.Group.Err(); err != nil {
			return sc.T.Wrap(err)
		}
	}
	return nil
}

func (sc *scan) addGroup(g *format.Group) {
	sc.Kind, sc.Name = g.StringsInto("kind", sc.Kind), g.StringsInto("name", sc.Name)
	sc.Kernel = format.Strings{}
	if sc.Filter.Kernel != nil {
		sc.Kernel = g.StringsInto("kernel", sc.Kernel)
	}
	sc.Start, sc.Dur = g.Int64("start_ns", sc.Start), g.Int64("dur_ns", sc.Dur)
	sc.Result, sc.Flags = g.Int32("result", sc.Result), g.Int32("flags", sc.Flags)
	parent := g.Int64("parent_start_ns", nil)
	keys := sc.keys(g)
	pass := sc.Passes(g, sc.Kind, sc.Kernel)
	names := sc.names.All(sc.Name.Dict)
	launch, graph := sc.Launches(g)
	var last groupKey
	var group *callGroup
	for i, start := range sc.Start {
		if start < sc.Window.FromNs || start > sc.Window.ToNs || !pass(i) {
			continue
		}
		key := keys(i)
		key.name = names[sc.Name.Index[i]]
		if group == nil || key != last {
			last = key
			if group = sc.groups[key]; group == nil {
				group = &callGroup{kind: sc.Kind.At(i)}
				if sc.by == "stack" {
					group.stack = sc.sites.Stack[i]
				}
				sc.groups[key] = group
			}
		}
		if parent[i] != 0 {
			group.nested++
		}
		group.add(sc.Dur[i], sc.Result[i], sc.Flags[i])
		if sc.Weights != nil && launch[sc.Kind.Index[i]] && !graph[sc.Name.Index[i]] && sc.Flags[i]&format.FlagCaptured == 0 {
			group.scaled += sc.Weights.At(start)
		} else {
			group.scaled += sampling.Thousandth
		}
	}
}

// keys returns what tells the group of a row apart from others, beside the function.
func (sc *scan) keys(g *format.Group) func(i int) groupKey {
	switch sc.by {
	case "site":
		sc.sites.Read(g)
		return func(i int) groupKey { return groupKey{group: int64(sc.sites.At(i))} }
	case "stack":
		sc.sites.Read(g)
		return func(i int) groupKey { return groupKey{group: int64(sc.sites.Stack[i])} }
	case "thread":
		sc.Pid, sc.Tid = g.Int32("pid", sc.Pid), g.Int32("tid", sc.Tid)
		return func(i int) groupKey { return groupKey{pid: sc.Pid[i], group: int64(sc.Tid[i])} }
	case "stream":
		sc.Pid, sc.Stream = g.Int32("pid", sc.Pid), g.Int64("stream", sc.Stream)
		return func(i int) groupKey { return groupKey{pid: sc.Pid[i], group: sc.Stream[i]} }
	}
	if slices.Contains(timeline.IdentityGroups, sc.by) {
		sc.Pid = g.Int32("pid", sc.Pid)
		return func(i int) groupKey { return groupKey{group: sc.identity(sc.Pid[i])} }
	}
	return func(int) groupKey { return groupKey{} }
}

// identity returns the number of the group of a process.
func (sc *scan) identity(pid int32) int64 {
	group, ok := sc.identities[pid]
	if !ok {
		group = int64(sc.names.ID(sc.T.IdentityLabel(pid, sc.by)))
		sc.identities[pid] = group
	}
	return group
}

func (a *callGroup) add(durNs int64, result, flags int32) {
	a.calls++
	switch {
	case flags&format.FlagAbandoned != 0:
		a.open++
	case flags&format.FlagOpen != 0:
		a.open++
		a.openNs = units.EndOf(a.openNs, durNs)
	case flags&format.FlagNoReturn != 0:
	default:
		a.returned.Add(durNs)
		if calls.IsError(result) {
			a.errors++
		}
	}
}

// estimatedNs is the time of all calls that returned, nil if that of none is known.
func (a *callGroup) estimatedNs() any { return a.returned.Estimated(sampling.Whole(a.scaled) - a.open) }

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
	totals := report.Fill(totalColumns, sum.calls, sum.returned.Count, sum.returned.SumNs, estimate, sum.errors, sum.open)
	if sc.Weights != nil {
		totals = append(totals, report.EstimateOf(report.EstimatedCalls, "calls by estimate", sum.scaled))
	}
	return totals
}

// table has a row per function and group, those with the most time first.
func (sc *scan) table(opt *query.Options) (report.Table, error) {
	table := report.Table{Name: "api", Title: "calls by time spent in them on the CPU", Columns: slices.Clone(callColumns),
		Spare: []string{"stddev_ns", "p95_ns", "open_ns", "min_ns", "med_ns", "avg_ns", "p99_ns", "open_calls", "timed_calls", "max_ns"}}
	if c, ok := sc.groupColumn(); ok {
		table.Columns = append(table.Columns, c)
	}
	var all int64
	for _, a := range sc.groups {
		if ns, ok := a.estimatedNs().(int64); ok {
			all = units.EndOf(all, ns)
		}
	}
	untimed, open := false, false
	for key, a := range sc.groups {
		table.Rows = append(table.Rows, sc.row(key, a, all))
		untimed = untimed || a.returned.Count+a.open < a.calls
		open = open || a.open > 0
	}
	if !untimed {
		report.Hide(table.Columns, "timed_calls")
		if sc.Weights == nil {
			report.Hide(table.Columns, "estimated_total_ns")
		}
	}
	if !open {
		report.Hide(table.Columns, "open_calls")
		report.Hide(table.Columns, "open_ns")
	}
	slices.SortFunc(table.Rows, func(a, b report.Row) int {
		order := cmp.Or(report.CompareCells(a.Cells[2], b.Cells[2]), report.CompareCells(a.Cells[3], b.Cells[3]))
		for i := len(callColumns) - 1; i < len(a.Cells); i++ {
			order = cmp.Or(order, report.CompareCells(a.Cells[i], b.Cells[i]))
		}
		return cmp.Or(order, cmp.Compare(a.StackID, b.StackID))
	})
	if sc.Weights != nil {
		table.MoveLast(report.EstimatedCalls, slices.IndexFunc(callColumns, func(c report.Column) bool { return c.Key == "calls" })+1)
	}
	if err := table.Arrange(opt.Sort, opt.Top); err != nil {
		return table, err
	}
	if sc.by == "stack" {
		frames.Fill(sc.T, &table, opt)
	}
	return table, nil
}

func (sc *scan) row(key groupKey, a *callGroup, all int64) report.Row {
	d := &a.returned
	var pct, openNs any
	if ns, ok := a.estimatedNs().(int64); ok && all > 0 {
		pct = units.Percent(ns, all)
	}
	if a.open > 0 {
		openNs = a.openNs
	}
	row := report.Row{StackID: a.stack, Cells: []any{pct, d.Total(), a.estimatedNs(), a.calls, d.Count, d.Avg(), d.At(0.5), d.Least(), d.Most(), d.Stddev(),
		d.At(0.95), d.At(0.99), a.errors, a.open, openNs, a.nested, a.kind, sc.names.List[key.name]}}
	switch sc.by {
	case "site", "rank", "job", "container", "pod", "cgroup":
		row.Cells = append(row.Cells, sc.names.List[key.group])
	case "stack":
		label := timeline.NoStack
		if key.group != 0 {
			label = fmt.Sprintf("%s #%d", sc.T.SiteOf(int32(key.group)), key.group)
		}
		row.Cells = append(row.Cells, label)
	case "thread":
		row.Cells = append(row.Cells, sc.T.ThreadLabel(origin.Thread{Pid: key.pid, Tid: int32(key.group)}))
	case "stream":
		row.Cells = append(row.Cells, fmt.Sprintf("%d: %s", key.pid, query.StreamName(key.group)))
	}
	if sc.Weights != nil {
		row.Cells = append(row.Cells, sampling.Whole(a.scaled))
	}
	return row
}

func (sc *scan) groupColumn() (report.Column, bool) {
	i := slices.IndexFunc(groupColumns, func(c report.Column) bool { return c.Key == sc.by || c.Key == "site" && sc.by == "stack" })
	if i < 0 {
		return report.Column{}, false
	}
	return groupColumns[i], true
}
