package hang

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// factColumns are the columns of Scan.computeFacts.
var factColumns = []report.Column{
	{
		Key: "result", Title: "result", Unit: report.UnitText,
		About: "worst state of a process, as one sentence",
	},
	{
		Key: "advice", Title: "what to do", Unit: report.UnitText,
		About: "advice on other tools to run if no process made a CUDA call",
	},
	{
		Key: "look_at", Title: "look at", Unit: report.UnitText,
		About: "process that differs from the others of its group, and the difference",
	},
	{
		Key: "moment_ns", Title: "looked at", Unit: report.UnitNs,
		About: "reported point in time, from the start of the recording: its end, or --to",
	},
	{
		Key: "without_calls", Title: "without calls", Unit: report.UnitText,
		About: "recorded processes that had not ended and made no call; a call that began before the recording and " +
			"has not returned is invisible",
	},
}

// totalColumns are the columns of Scan.computeTotals.
var totalColumns = []report.Column{
	{Key: "hanging", Title: "hanging", Unit: report.UnitCount, About: "processes in state hanging"},
	{Key: "polling", Title: "polling", Unit: report.UnitCount, About: "processes in state polling"},
	{Key: "waiting", Title: "waiting", Unit: report.UnitCount, About: "processes in state waiting"},
	{Key: "idle", Title: "idle", Unit: report.UnitCount, About: "processes in state idle"},
	{Key: "alive", Title: "alive", Unit: report.UnitCount, About: "processes in state alive"},
	{Key: "ended", Title: "ended", Unit: report.UnitCount, About: "processes that had ended"},
	{
		Key: "silent", Title: "silent", Unit: report.UnitCount,
		About: "processes that had not ended and made no call, see without calls; they may have hung before the " +
			"recording, or not use CUDA",
	},
	{
		Key: "odd_processes", Title: "unlike the others", Unit: report.UnitCount,
		About: "processes that differ from the others of their group, see UNLIKE THE OTHERS",
	},
	{
		Key: "open_calls", Title: "open calls", Unit: report.UnitCount,
		About: "calls that had not returned at the reported time, without nested calls",
	},
	{
		Key: "long_calls", Title: "long calls", Unit: report.UnitCount,
		About: "number of returned calls that took at least --long, at most 1,000",
	},
	{
		Key: "silent_max_ns", Title: "silent at most", Unit: report.UnitNs,
		About: "longest time without a call of a process that had not ended",
	},
}

// computeFacts returns the facts of the report: result, advice, and the first outlier.
func (s *Scan) computeFacts(verdicts []ProcessVerdict, silent []int32, polls *pollCounts) []report.Fact {
	result, advice := s.silentResult(silent, polls)
	if len(verdicts) > 0 {
		result, advice = s.resultText(verdicts), ""
	}
	return report.NewFacts(factColumns, report.Values{
		"result":        result,
		"advice":        advice,
		"look_at":       firstOutlierText(s.T, verdicts),
		"moment_ns":     s.EndNs - s.T.RecordingWindow().FromNs,
		"without_calls": s.pidLabels(silent),
	})
}

// computeTotals returns the number of processes by state, and more. without is the number of
// processes without calls, long the number of long calls.
func (s *Scan) computeTotals(verdicts []ProcessVerdict, without, long int) []report.Fact {
	var counts [stateCount]int64
	var odd, open, silent int64
	for i := range verdicts {
		p := &verdicts[i]
		counts[p.State]++
		if len(p.Differences) > 0 {
			odd++
		}
		if p.State != StateEnded {
			silent = max(silent, p.SilentNs)
		}
		for k := range p.Threads {
			if p.Threads[k].State != StateEnded && p.Threads[k].Call.isOpen() {
				open++
			}
		}
	}
	return report.NewFacts(totalColumns, report.Values{
		"hanging":       counts[StateHanging],
		"polling":       counts[StatePolling],
		"waiting":       counts[StateWaiting],
		"idle":          counts[StateIdle],
		"alive":         counts[StateAlive],
		"ended":         counts[StateEnded],
		"silent":        int64(without),
		"odd_processes": odd,
		"open_calls":    open,
		"long_calls":    int64(long),
		"silent_max_ns": silent,
	})
}

// stateDescription defines the states of threads and processes.
const stateDescription = "state. Hanging: in a call for at least --long (1 s), and three times as long as any " +
	"earlier call of that function in the process. Waiting: in a call for at least --long, but earlier " +
	"calls took as long, " +
	"or other threads make progress. Polling: at least 100 queries per second, and no other call. Idle: no call for " +
	"at least --long, and three times the longest earlier pause. Alive: makes progress. Ended: the process ended. " +
	"The state of a process is its worst thread state; finished threads do not count while others make progress"

// processColumns are the columns of Scan.processTable.
var processColumns = []report.Column{
	{Key: "verdict", Title: "VERDICT", Unit: report.UnitText, About: stateDescription},
	{
		Key: "silent_ns", Title: "SILENT", Unit: report.UnitNs,
		About: "time since the last return of a call of the process, or since the start of its open call",
	},
	{Key: "pid", Title: "PID", Unit: report.UnitID, About: "process id"},
	{Key: "process", Title: "PROCESS", Unit: report.UnitText, About: "name of the process"},
	{
		Key: "confidence", Title: "CONFIDENCE", Unit: report.UnitText,
		About: "confidence in the verdict: high, medium or low",
	},
	{
		Key: "confidence_reasons", Title: "", Unit: report.UnitText,
		About: "reasons that lower the confidence: lost calls, a missing end of the recording, a launch without a " +
			"recorded return, queries of several processes counted together",
	},
	{
		Key: "gpu_busy_pct", Title: "GPU%", Unit: report.UnitPercent,
		About: "average of gpu_utilization_percent of the process's GPU in the silent time, without the first " +
			"second; absent without samples",
	},
	{
		Key: "sm_active_pct", Title: "SM%", Unit: report.UnitPercent,
		About: "average of gpm_sm_active_percent in the silent time; a spinning kernel keeps few SMs active",
	},
	{
		Key: "launch_ago_ns", Title: "LAST LAUNCH", Unit: report.UnitNs,
		About: "time since the last kernel launch of the process; absent without launches",
	},
	{
		Key: "launches", Title: "LAUNCHES", Unit: report.UnitCount,
		About: "kernel and graph launches in the window, without launches captured into a graph",
	},
	{Key: "calls", Title: "", Unit: report.UnitCount, About: "number of calls in the window"},
	{Key: "errors", Title: "ERRORS", Unit: report.UnitCount, About: "number of calls that returned an error"},
	{
		Key: "trouble", Title: "", Unit: report.UnitText,
		About: "Xids and the last CUDA error since 10 s before the last progress",
	},
	{
		Key: "group_processes", Title: "", Unit: report.UnitCount,
		About: "number of processes of the same program that launch kernels, such as ranks; absent if there is only " +
			"one, or if all make progress",
	},
	{
		Key: "odd", Title: "UNLIKE THE OTHERS", Unit: report.UnitText,
		About: "differences from all other processes of the group. Its last kernel launch was at least --long " +
			"earlier, it does not wait and they do, its last kernel is another one, or they make progress",
	},
	{
		Key: "last_kernel", Title: "LAST KERNEL", Unit: report.UnitText,
		About: "name of the last kernel that the process launched",
	},
}

// processTable returns a table with one row per process.
func (s *Scan) processTable(verdicts []ProcessVerdict) report.Table {
	table := report.Table{
		Name: "processes", Title: "processes", Columns: slices.Clone(processColumns), Secondary: true,
		Keys: []string{"process"}, Verdicts: stateNames(),
		HideFirst: []string{"errors", "sm_active_pct", "launches", "confidence", "last_kernel"},
	}
	odd := false
	for i := range verdicts {
		s.addProcessRow(&table, &verdicts[i])
		odd = odd || len(verdicts[i].Differences) > 0
	}
	if !odd {
		report.HideTitle(table.Columns, "odd")
	}
	return table
}

// addProcessRow adds the row of one process.
func (s *Scan) addProcessRow(table *report.Table, p *ProcessVerdict) {
	trouble := s.recentErrors(p)
	var launchAgo, group any
	if p.History.Launches > 0 {
		launchAgo = s.EndNs - p.History.LaunchedNs
	}
	if p.group > 1 {
		group = int64(p.group)
	}
	row := table.Add(report.Values{
		"verdict":            p.State.String(),
		"silent_ns":          p.SilentNs,
		"pid":                int64(p.History.Pid),
		"process":            s.T.Facts.Processes[p.History.Pid].Name,
		"confidence":         p.Level,
		"confidence_reasons": p.Reasons,
		"gpu_busy_pct":       p.gpu.busyPct,
		"sm_active_pct":      p.gpu.smPct,
		"launch_ago_ns":      launchAgo,
		"launches":           p.History.Launches,
		"calls":              p.History.calls,
		"errors":             p.History.errors,
		"trouble":            trouble,
		"group_processes":    group,
		"odd":                units.TextOrNil(strings.Join(p.Differences, "; ")),
		"last_kernel":        units.TextOrNil(s.lastKernelName(p.History)),
	})
	row.Brief, row.Evidence = p.State >= StateAlive && len(p.Differences) == 0, processEvidence(p, trouble)
}

// processEvidence returns the evidence for a verdict: threads, GPU, differences from the group, and
// errors.
func processEvidence(p *ProcessVerdict, trouble []string) string {
	parts := slices.Clone(p.Evidence)
	if p.gpu.meaning != "" {
		parts = append(parts, p.gpu.meaning)
	}
	if len(p.Differences) > 0 {
		differences := units.JoinWithAnd(p.Differences)
		parts = append(parts, fmt.Sprintf("differs from the others of its group of %d: %s", p.group, differences))
	}
	if len(trouble) > 0 {
		parts = append(parts, units.JoinWithAnd(trouble))
	}
	return strings.Join(append(parts, report.ConfidenceText(p.Level, p.Reasons)), "; ")
}

// threadColumns are the columns of Scan.threadTable.
var threadColumns = []report.Column{
	{Key: "verdict", Title: "VERDICT", Unit: report.UnitText, About: stateDescription},
	{
		Key: "since_ns", Title: "SINCE", Unit: report.UnitNs,
		About: "time since the start of the thread's open call, or since the end of its last call",
	},
	{Key: "confidence", Title: "", Unit: report.UnitText, About: "confidence in the verdict: high, medium or low"},
	{Key: "confidence_reasons", Title: "", Unit: report.UnitText, About: "reasons that lower the confidence"},
	{Key: "pid", Title: "PID", Unit: report.UnitID, About: "process id"},
	{Key: "thread", Title: "THREAD", Unit: report.UnitText, About: "id and name of the thread"},
	{
		Key: "open", Title: "OPEN", Unit: report.UnitText,
		About: "yes if the thread is in the call; maybe for a launch without a recorded return",
	},
	{Key: "call", Title: "CALL", Unit: report.UnitText, About: "the open call of the thread, or its last call"},
	{
		Key: "waits_for", Title: "WAITS FOR", Unit: report.UnitText,
		About: "object that the open call waits for: a stream, all streams, or an event with the stream of its last " +
			"cuEventRecord",
	},
	{Key: "calls", Title: "CALLS", Unit: report.UnitCount, About: "number of calls of the thread in the window"},
	{
		Key: "calls_per_second", Title: "BEFORE/s", Unit: report.UnitRatio,
		About: "calls per second between the thread's first and last call",
	},
	{
		Key: "pause_max_ns", Title: "PAUSE", Unit: report.UnitNs,
		About: "longest earlier time without a call, accurate to 1/256 of the window",
	},
	{
		Key: "site", Title: "SITE", Unit: report.UnitText,
		About: "call site: the frame of the program's own code that made the call",
	},
}

// threadTable returns a table with one row per thread, worst state first.
func (s *Scan) threadTable(verdicts []ProcessVerdict) report.Table {
	table := report.Table{
		Name: "threads", Title: "threads", Columns: threadColumns, Keys: []string{"thread"},
		HideFirst: []string{"pause_max_ns", "calls", "waits_for", "calls_per_second"},
	}
	for i := range verdicts {
		for k := range verdicts[i].Threads {
			s.addThreadRow(&table, &verdicts[i].Threads[k], verdicts[i].State)
		}
	}
	rank := func(r report.Row) int {
		return slices.Index(stateNames(), table.Cell(&r, "verdict").(string))
	}
	byColumns := table.RowComparer("since_ns", "-pid")
	slices.SortStableFunc(table.Rows, func(a, b report.Row) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), byColumns(a, b))
	})
	return table
}

// addThreadRow adds the row of one thread. process is the state of its process.
func (s *Scan) addThreadRow(table *report.Table, j *threadVerdict, process HangState) {
	d := s.Details(j.Call)
	open, waits := "no", ""
	switch {
	case j.Call.isOpen():
		open, waits = "yes", s.awaitedObject(j.Call)
	case j.Call.flags&format.FlagNoReturn != 0:
		open = "maybe"
	}
	row := table.Add(report.Values{
		"verdict":            j.State.String(),
		"since_ns":           j.silentNs,
		"confidence":         j.level,
		"confidence_reasons": j.reasons,
		"pid":                int64(j.history.Pid),
		"thread":             s.threadLabel(j.history.Thread),
		"open":               open,
		"call":               d.name,
		"waits_for":          units.TextOrNil(waits),
		"calls":              j.history.calls,
		"calls_per_second":   j.perSec,
		"pause_max_ns":       j.pauseNs,
		"site":               s.T.SiteOfCall(d.Stack, d.Site),
	})
	row.StackID = d.Stack
	row.Brief = j.State >= StateIdle && process < StateIdle || j.State >= StateAlive
	row.Evidence = strings.Join(append(slices.Clone(j.evidence), report.ConfidenceText(j.level, j.reasons)), "; ")
}

// launchColumns are the columns of Scan.launchTable.
var launchColumns = []report.Column{
	{Key: "pid", Title: "PID", Unit: report.UnitID, About: "process id"},
	{Key: "stream", Title: "STREAM", Unit: report.UnitText, About: "CUDA stream of the launch"},
	{Key: "before_ns", Title: "BEFORE", Unit: report.UnitNs, About: "time from the launch to the reported time"},
	{
		Key: "kernel_short", Title: "KERNEL", Unit: report.UnitText,
		About: "kernel name with folded template arguments; for a CUDA graph, the driver function",
	},
	{Key: "grid", Title: "GRID", Unit: report.UnitText, About: "grid size x block size of the launch"},
	{
		Key: "returned", Title: "RETURNED", Unit: report.UnitText,
		About: "whether the launch call returned: yes, no, or ? if it was not recorded",
	},
	{Key: "kernel", Title: "", Unit: report.UnitText, About: "demangled name of the kernel; absent if unknown"},
	{
		Key: "site", Title: "SITE", Unit: report.UnitText,
		About: "call site: the frame of the program's own code that made the launch",
	},
}

// launchTable returns a table with the last launches by stream, of processes that hang or differ
// from their group. The latest launch of each process comes first.
func (s *Scan) launchTable(verdicts []ProcessVerdict) report.Table {
	table := report.Table{
		Name: "launches", Title: "last launches by stream, the last first", Columns: launchColumns,
		Secondary: true, Keys: []string{},
	}
	for i := range verdicts {
		p := &verdicts[i]
		if p.State >= StateAlive && len(p.Differences) == 0 {
			continue
		}
		var launches []callRef
		for _, list := range p.History.streams {
			launches = append(launches, list...)
		}
		slices.SortFunc(launches, func(a, b callRef) int {
			return cmp.Or(cmp.Compare(b.startNs, a.startNs), cmp.Compare(a.tid, b.tid), cmp.Compare(a.row, b.row))
		})
		for k := range launches {
			s.addLaunchRow(&table, &launches[k])
		}
	}
	return table
}

// addLaunchRow adds the row of one launch.
func (s *Scan) addLaunchRow(table *report.Table, c *callRef) {
	d := s.Details(c)
	returned := "yes"
	switch {
	case c.isOpen():
		returned = "no"
	case c.flags&(format.FlagNoReturn|format.FlagAbandoned) != 0:
		returned = "?"
	}
	row := table.Add(report.Values{
		"pid":          int64(c.pid),
		"stream":       query.StreamName(d.stream),
		"before_ns":    s.EndNs - c.startNs,
		"kernel_short": s.kernelOfLaunch(c),
		"grid":         gridSizeText(d),
		"returned":     returned,
		"kernel":       units.TextOrNil(d.kernel),
		"site":         s.T.SiteOfCall(d.Stack, d.Site),
	})
	row.StackID, row.Brief = d.Stack, true
}

// gridSizeText returns the grid and block sizes of a launch, or nil for a graph launch.
func gridSizeText(d *callDetails) any {
	if d.grid == [3]int32{} {
		return nil
	}
	return fmt.Sprintf("%d,%d,%d x %d,%d,%d", d.grid[0], d.grid[1], d.grid[2], d.block[0], d.block[1], d.block[2])
}

// longCallColumns are the columns of Scan.longCallTable.
var longCallColumns = []report.Column{
	{Key: "dur_ns", Title: "TOOK", Unit: report.UnitNs, About: "duration of the call"},
	{Key: "at_ns", Title: "AT", Unit: report.UnitNs, About: "start of the call, from the start of the recording"},
	{
		Key: "call", Title: "CALL", Unit: report.UnitText,
		About: "CUDA driver function; excludes calls nested in another long call",
	},
	{
		Key: "waits_for", Title: "WAITED FOR", Unit: report.UnitText,
		About: "object that the call waited for; absent if unknown",
	},
	{Key: "pid", Title: "PID", Unit: report.UnitID, About: "process id"},
	{Key: "thread", Title: "THREAD", Unit: report.UnitText, About: "id and name of the thread"},
	{
		Key: "site", Title: "SITE", Unit: report.UnitText,
		About: "call site: the frame of the program's own code that made the call",
	},
}

// longCallTable returns a table with the long calls that returned, without nested ones.
func (s *Scan) longCallTable() report.Table {
	table := report.Table{
		Name: "long_calls", Title: "calls that took long", Columns: longCallColumns,
		Secondary: true, Keys: []string{}, HideFirst: []string{"pid"},
	}
	type entry struct {
		origin.Thread
		ns int64
	}
	entries := make(map[entry]bool)
	for i := range s.Long {
		entries[entry{origin.Thread{Pid: s.Long[i].pid, Tid: s.Long[i].tid}, s.Long[i].startNs}] = true
	}
	slices.SortFunc(s.Long, func(a, b callRef) int {
		return cmp.Or(cmp.Compare(b.endNs-b.startNs, a.endNs-a.startNs),
			cmp.Compare(a.startNs, b.startNs), cmp.Compare(a.tid, b.tid))
	})
	for i := range s.Long {
		c := &s.Long[i]
		d := s.Details(c)
		thread := origin.Thread{Pid: c.pid, Tid: c.tid}
		if d.parentNs != 0 && entries[entry{thread, d.parentNs}] {
			continue
		}
		row := table.Add(report.Values{
			"dur_ns":    c.endNs - c.startNs,
			"at_ns":     c.startNs - s.T.RecordingWindow().FromNs,
			"call":      d.name,
			"waits_for": units.TextOrNil(s.awaitedObject(c)),
			"pid":       int64(c.pid),
			"thread":    s.threadLabel(thread),
			"site":      s.T.SiteOfCall(d.Stack, d.Site),
		})
		row.StackID, row.Brief = d.Stack, true
	}
	return table
}

// pollColumns are the columns of pollCounts.pollTable.
var pollColumns = []report.Column{
	{
		Key: "name", Title: "QUERY", Unit: report.UnitText,
		About: "query function, which the recorder counts for all processes together",
	},
	{
		Key: "since_per_second", Title: "SILENT/s", Unit: report.UnitRatio,
		About: "queries per second in the later half of the silent time, which begins at the last call of any process",
	},
	{
		Key: "before_per_second", Title: "BEFORE/s", Unit: report.UnitRatio,
		About: "queries per second before the silent time",
	},
	{Key: "calls", Title: "CALLS", Unit: report.UnitCount, About: "number of queries in the window"},
	{
		Key: "over_time", Title: "OVER TIME", Unit: report.UnitText,
		About: "queries in 40 equal parts of the window, relative to the highest part",
	},
}

// pollTable returns a table with one row per query function.
func (p *pollCounts) pollTable() report.Table {
	table := report.Table{
		Name: "polling", Title: "queries of all processes together (counted, not recorded)",
		Columns: pollColumns, Secondary: true,
	}
	for i := range p.rows {
		r := &p.rows[i]
		table.Add(report.Values{
			"name":              r.name,
			"since_per_second":  r.silentRate,
			"before_per_second": r.beforeRate,
			"calls":             units.RoundInt(r.total),
			"over_time":         units.Sparkline(r.overTime[:]),
		})
	}
	return table
}
