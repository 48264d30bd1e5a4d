package hang

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/model/threadstate"
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
		About: "advice on other tools to run if no process made a CUDA call and the recording has no stacks of " +
			"threads",
	},
	{
		Key: "gpu_operation", OldKey: "gpu_work", Title: "GPU", Unit: report.UnitText,
		About: "operation that the GPU began and is not known to have finished, in the process with the worst state; " +
			"absent without GPU times",
	},
	{
		Key:   "look_at",
		Title: "look at",
		Unit:  report.UnitText,
		About: "process that differs from the others of its group, and the difference: in its calls, or in the " +
			"stack of its thread",
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
	{
		Key: "hanging", Title: "hanging", Unit: report.UnitCount,
		About: "processes in state hanging, and processes without calls that hang. A thread of these has waited for " +
			"at least --long in CUDA, in NCCL, in a reduction of several ranks, or for a lock. Or other ranks " +
			"wait so for the process",
	},
	{Key: "polling", Title: "polling", Unit: report.UnitCount, About: "processes in state polling"},
	{
		Key: "waiting", Title: "waiting", Unit: report.UnitCount,
		About: "processes in state waiting, and ranks without calls that wait for another rank outside of CUDA",
	},
	{Key: "idle", Title: "idle", Unit: report.UnitCount, About: "processes in state idle"},
	{Key: "alive", Title: "alive", Unit: report.UnitCount, About: "processes in state alive"},
	{Key: "ended", Title: "ended", Unit: report.UnitCount, About: "processes that had ended"},
	{
		Key: "silent", Title: "silent", Unit: report.UnitCount,
		About: "processes that had not ended and made no call, see without calls. Those that hang or wait for other " +
			"ranks count in these totals, too",
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
func (s *Scan) computeFacts(
	verdicts []ProcessVerdict, silent []int32, withoutCalls []SilentVerdict, polls *pollCounts,
	groups []threadstate.Group,
) []report.Fact {
	result, advice := s.silentResult(silent, withoutCalls, polls, groups)
	var stuck any
	if len(verdicts) > 0 {
		if verdicts[0].State == StateHanging || len(OfState(withoutCalls, StateHanging)) == 0 {
			result, advice = s.resultText(verdicts), ""
		}
		stuck = units.TextOrNil(verdicts[0].gpu.operations)
	}
	return report.NewFacts(factColumns, report.Values{
		"result":        result,
		"advice":        advice,
		"gpu_operation": stuck,
		"look_at":       cmp.Or(firstOutlierText(s.T, verdicts), s.outlierText(groups)),
		"moment_ns":     s.EndNs - s.T.RecordingWindow().FromNs,
		"without_calls": s.pidLabels(silent),
	})
}

// computeTotals returns the number of processes by state, and more. withoutCalls has the states of processes without
// calls, without is their number, long the number of long calls.
func (s *Scan) computeTotals(
	verdicts []ProcessVerdict, withoutCalls []SilentVerdict, without, long int,
) []report.Fact {
	var counts [stateCount]int64
	for i := range withoutCalls {
		if s.Processes[withoutCalls[i].Snapshot.Pid] == nil { // otherwise verdicts have it
			counts[withoutCalls[i].State]++
		}
	}
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
	switch {
	case p.gpu.operations != "" && p.gpu.meaning != "":
		parts = append(parts, p.gpu.operations, p.gpu.meaning)
	case p.gpu.operations+p.gpu.meaning != "":
		parts = append(parts, p.gpu.operations+p.gpu.meaning+p.gpu.explanation)
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
