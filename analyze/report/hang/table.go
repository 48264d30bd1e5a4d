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

var factColumns = []report.Column{
	{
		Key: "result", Title: "result", Unit: report.UnitText,
		About: "the verdict in one sentence: the worst state of a process",
	},
	{Key: "advice", Title: "what to do", Unit: report.UnitText, About: "where to look if no process made a call"},
	{
		Key: "look_at", Title: "look at", Unit: report.UnitText,
		About: "the process that is unlike the others of its group, and in what",
	},
	{
		Key: "moment_ns", Title: "looked at", Unit: report.UnitNs,
		About: "the moment that is told of, from the recording's start: the end of the recording, or --to",
	},
	{
		Key: "without_calls", Title: "without calls", Unit: report.UnitText,
		About: "recorded processes that run on and made no call: one that began before the recording, and has not " +
			"returned, cannot be seen",
	},
}

var totalColumns = []report.Column{
	{Key: "hanging", Title: "hanging", Unit: report.UnitCount, About: "processes in state hanging"},
	{Key: "polling", Title: "polling", Unit: report.UnitCount, About: "processes in state polling"},
	{Key: "waiting", Title: "waiting", Unit: report.UnitCount, About: "processes in state waiting"},
	{Key: "idle", Title: "idle", Unit: report.UnitCount, About: "processes in state idle"},
	{Key: "alive", Title: "alive", Unit: report.UnitCount, About: "processes in state alive"},
	{Key: "ended", Title: "ended", Unit: report.UnitCount, About: "processes that had ended"},
	{
		Key: "silent", Title: "silent", Unit: report.UnitCount,
		About: "processes that run on and made no call at all, see without calls: they may hang since before the " +
			"recording, or not use CUDA",
	},
	{
		Key: "odd_processes", Title: "unlike the others", Unit: report.UnitCount,
		About: "processes that are unlike the others of their group, see UNLIKE THE OTHERS",
	},
	{
		Key: "open_calls", Title: "open calls", Unit: report.UnitCount,
		About: "calls that had not returned at the moment, those inside of others left out",
	},
	{
		Key: "long_calls", Title: "long calls", Unit: report.UnitCount,
		About: "calls that took --long or longer and returned, at most 1,000",
	},
	{
		Key: "silent_max_ns", Title: "silent at most", Unit: report.UnitNs,
		About: "longest silence of a process that had not ended",
	},
}

// facts returns the verdict in a sentence, the advice, and where to look.
func (s *Scan) facts(verdicts []ProcessVerdict, silent []int32, polls *pollCounts) []report.Fact {
	result, advice := s.silence(silent, polls)
	if len(verdicts) > 0 {
		result, advice = s.sentence(verdicts), ""
	}
	return report.Facts(factColumns, report.Values{
		"result":        result,
		"advice":        advice,
		"look_at":       lookAt(s.T, verdicts),
		"moment_ns":     s.EndNs - s.T.Recording().FromNs,
		"without_calls": s.pidLabels(silent),
	})
}

// totals counts the verdicts. without and long are the numbers of processes without calls and of
// long calls.
func (s *Scan) totals(verdicts []ProcessVerdict, without, long int) []report.Fact {
	var counts [numStates]int64
	var odd, open, silent int64
	for i := range verdicts {
		p := &verdicts[i]
		counts[p.State]++
		if len(p.Odd) > 0 {
			odd++
		}
		if p.State != Ended {
			silent = max(silent, p.SilentNs)
		}
		for k := range p.Threads {
			if p.Threads[k].State != Ended && p.Threads[k].Call.isOpen() {
				open++
			}
		}
	}
	return report.Facts(totalColumns, report.Values{
		"hanging":       counts[Hanging],
		"polling":       counts[Polling],
		"waiting":       counts[Waiting],
		"idle":          counts[Idle],
		"alive":         counts[Alive],
		"ended":         counts[Ended],
		"silent":        int64(without),
		"odd_processes": odd,
		"open_calls":    open,
		"long_calls":    int64(long),
		"silent_max_ns": silent,
	})
}

const stateAbout = "hanging: in a call for --long (1 s) or longer, and three times as long as any call of that " +
	"function of the process before; " +
	"waiting: in a call that long, but such calls took long before, or other threads go on; " +
	"polling: 100 queries a second and more are counted, and nothing else; " +
	"idle: no call for --long or longer, three times as long as any pause before; alive; ended. Of a process: the " +
	"worst of its threads; threads that are done do not count while others go on"

var processColumns = []report.Column{
	{Key: "verdict", Title: "VERDICT", Unit: report.UnitText, About: stateAbout},
	{
		Key: "silent_ns", Title: "SILENT", Unit: report.UnitNs,
		About: "since the last call of the process returned, or the call began that it is in",
	},
	{Key: "pid", Title: "PID", Unit: report.UnitID, About: "process"},
	{Key: "process", Title: "PROCESS", Unit: report.UnitText, About: "its name"},
	{Key: "confidence", Title: "CONFIDENCE", Unit: report.UnitText, About: "high, medium or low"},
	{
		Key: "confidence_reasons", Title: "", Unit: report.UnitText,
		About: "what lowers it: lost calls, a cut-off recording, a launch whose return was not recorded, queries " +
			"that cannot be told apart",
	},
	{
		Key: "gpu_busy_pct", Title: "GPU%", Unit: report.UnitPercent,
		About: "average of gpu_utilization_percent of its GPU in the silent time, without the first second; absent " +
			"without samples",
	},
	{
		Key: "sm_active_pct", Title: "SM%", Unit: report.UnitPercent,
		About: "the same of gpm_sm_active_percent: a kernel that spins keeps few SMs active",
	},
	{
		Key: "launch_ago_ns", Title: "LAST LAUNCH", Unit: report.UnitNs,
		About: "how long before the moment it launched its last kernel; absent without launches",
	},
	{
		Key: "launches", Title: "LAUNCHES", Unit: report.UnitCount,
		About: "kernel and graph launches in the window, captured ones left out",
	},
	{Key: "calls", Title: "", Unit: report.UnitCount, About: "calls in the window"},
	{Key: "errors", Title: "ERRORS", Unit: report.UnitCount, About: "calls that returned an error"},
	{
		Key: "trouble", Title: "", Unit: report.UnitText,
		About: "Xids and the last error from 10 s before the last progress on",
	},
	{
		Key: "group_processes", Title: "", Unit: report.UnitCount,
		About: "processes of the same program that launch kernels, such as ranks; absent if it is the only one, or " +
			"none is stuck",
	},
	{
		Key: "odd", Title: "UNLIKE THE OTHERS", Unit: report.UnitText,
		About: "what tells it from all others of its group: it launched its last kernel --long or longer before " +
			"them, it does not wait and they do, its last kernel is another one, they go on",
	},
	{Key: "last_kernel", Title: "LAST KERNEL", Unit: report.UnitText, About: "kernel that it launched last"},
}

// processTable has a row per process.
func (s *Scan) processTable(verdicts []ProcessVerdict) report.Table {
	table := report.Table{
		Name: "processes", Title: "processes", Columns: slices.Clone(processColumns), Secondary: true,
		Keys: []string{"process"}, Verdicts: stateNames(),
		HideFirst: []string{"errors", "sm_active_pct", "launches", "confidence", "last_kernel"},
	}
	odd := false
	for i := range verdicts {
		s.addProcess(&table, &verdicts[i])
		odd = odd || len(verdicts[i].Odd) > 0
	}
	if !odd {
		report.HideTitle(table.Columns, "odd")
	}
	return table
}

func (s *Scan) addProcess(table *report.Table, p *ProcessVerdict) {
	trouble := s.trouble(p)
	var launchAgo, group any
	if p.Life.Launches > 0 {
		launchAgo = s.EndNs - p.Life.LaunchedNs
	}
	if p.group > 1 {
		group = int64(p.group)
	}
	row := table.Add(report.Values{
		"verdict":            p.State.String(),
		"silent_ns":          p.SilentNs,
		"pid":                int64(p.Life.Pid),
		"process":            s.T.Facts.Processes[p.Life.Pid].Name,
		"confidence":         p.Level,
		"confidence_reasons": p.Reasons,
		"gpu_busy_pct":       p.gpu.busyPct,
		"sm_active_pct":      p.gpu.smPct,
		"launch_ago_ns":      launchAgo,
		"launches":           p.Life.Launches,
		"calls":              p.Life.calls,
		"errors":             p.Life.errors,
		"trouble":            trouble,
		"group_processes":    group,
		"odd":                units.Known(strings.Join(p.Odd, "; ")),
		"last_kernel":        units.Known(s.lastKernel(p.Life)),
	})
	row.Brief, row.Evidence = p.State >= Alive && len(p.Odd) == 0, processEvidence(p, trouble)
}

// processEvidence returns what speaks for a verdict: threads, GPU, the other processes of the
// group, and errors.
func processEvidence(p *ProcessVerdict, trouble []string) string {
	parts := slices.Clone(p.Evidence)
	if p.gpu.meaning != "" {
		parts = append(parts, p.gpu.meaning)
	}
	if len(p.Odd) > 0 {
		parts = append(parts, fmt.Sprintf("unlike the others of its %d: %s", p.group, units.Enumerated(p.Odd)))
	}
	if len(trouble) > 0 {
		parts = append(parts, units.Enumerated(trouble))
	}
	return strings.Join(append(parts, report.ConfidenceText(p.Level, p.Reasons)), "; ")
}

var threadColumns = []report.Column{
	{Key: "verdict", Title: "VERDICT", Unit: report.UnitText, About: stateAbout},
	{
		Key: "since_ns", Title: "SINCE", Unit: report.UnitNs,
		About: "how long it has been in the call, or since its last call ended",
	},
	{Key: "confidence", Title: "", Unit: report.UnitText, About: "high, medium or low"},
	{Key: "confidence_reasons", Title: "", Unit: report.UnitText, About: "what lowers it"},
	{Key: "pid", Title: "PID", Unit: report.UnitID, About: "process"},
	{Key: "thread", Title: "THREAD", Unit: report.UnitText, About: "thread, and its name"},
	{
		Key: "open", Title: "OPEN", Unit: report.UnitText,
		About: "yes if the thread is in the call; maybe: a launch of which the return was not recorded",
	},
	{Key: "call", Title: "CALL", Unit: report.UnitText, About: "the call that it is in, or its last one"},
	{
		Key: "waits_for", Title: "WAITS FOR", Unit: report.UnitText,
		About: "what an open call waits for: a stream, all streams, an event and the stream on which it was " +
			"recorded last",
	},
	{Key: "calls", Title: "CALLS", Unit: report.UnitCount, About: "its calls in the window"},
	{
		Key: "calls_per_second", Title: "BEFORE/s", Unit: report.UnitRatio,
		About: "calls a second between its first and its last one",
	},
	{
		Key: "pause_max_ns", Title: "PAUSE", Unit: report.UnitNs,
		About: "longest time without a call before, to within a 256th of the window",
	},
	{
		Key: "site", Title: "SITE", Unit: report.UnitText,
		About: "the frame of the program's own code that made the call",
	},
}

// threadTable has a row per thread, the worst first.
func (s *Scan) threadTable(verdicts []ProcessVerdict) report.Table {
	table := report.Table{
		Name: "threads", Title: "threads", Columns: threadColumns, Keys: []string{"thread"},
		HideFirst: []string{"pause_max_ns", "calls", "waits_for", "calls_per_second"},
	}
	for i := range verdicts {
		for k := range verdicts[i].Threads {
			s.addThread(&table, &verdicts[i].Threads[k], verdicts[i].State)
		}
	}
	rank := func(r report.Row) int {
		return slices.Index(stateNames(), table.Cell(&r, "verdict").(string))
	}
	byColumns := table.Compare("since_ns", "-pid")
	slices.SortStableFunc(table.Rows, func(a, b report.Row) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), byColumns(a, b))
	})
	return table
}

// addThread adds the row of a thread; process is the state of its process.
func (s *Scan) addThread(table *report.Table, j *threadVerdict, process State) {
	d := s.Details(j.Call)
	open, waits := "no", ""
	switch {
	case j.Call.isOpen():
		open, waits = "yes", s.waitsFor(j.Call)
	case j.Call.flags&format.FlagNoReturn != 0:
		open = "maybe"
	}
	row := table.Add(report.Values{
		"verdict":            j.State.String(),
		"since_ns":           j.silentNs,
		"confidence":         j.level,
		"confidence_reasons": j.reasons,
		"pid":                int64(j.life.Pid),
		"thread":             s.nameOf(j.life.Thread),
		"open":               open,
		"call":               d.name,
		"waits_for":          units.Known(waits),
		"calls":              j.life.calls,
		"calls_per_second":   j.perSec,
		"pause_max_ns":       j.pauseNs,
		"site":               s.T.SiteOfCall(d.Stack, d.Site),
	})
	row.StackID = d.Stack
	row.Brief = j.State >= Idle && process < Idle || j.State >= Alive
	row.Evidence = strings.Join(append(slices.Clone(j.evidence), report.ConfidenceText(j.level, j.reasons)), "; ")
}

var launchColumns = []report.Column{
	{Key: "pid", Title: "PID", Unit: report.UnitID, About: "process"},
	{Key: "stream", Title: "STREAM", Unit: report.UnitText, About: "stream"},
	{Key: "before_ns", Title: "BEFORE", Unit: report.UnitNs, About: "from the launch to the moment"},
	{
		Key: "kernel_short", Title: "KERNEL", Unit: report.UnitText,
		About: "kernel, template arguments folded; of a graph, the call",
	},
	{Key: "grid", Title: "GRID", Unit: report.UnitText, About: "blocks x threads of a block"},
	{Key: "returned", Title: "RETURNED", Unit: report.UnitText, About: "yes, no, or ? if that was not recorded"},
	{Key: "kernel", Title: "", Unit: report.UnitText, About: "demangled name; absent if not known"},
	{
		Key: "site", Title: "SITE", Unit: report.UnitText,
		About: "the frame of the program's own code that made the launch",
	},
}

// launchTable has the last launches of processes that are stuck, or unlike others, by stream. The
// last launch of a process is the first.
func (s *Scan) launchTable(verdicts []ProcessVerdict) report.Table {
	table := report.Table{
		Name: "launches", Title: "last launches by stream, the last first", Columns: launchColumns,
		Secondary: true, Keys: []string{},
	}
	for i := range verdicts {
		p := &verdicts[i]
		if p.State >= Alive && len(p.Odd) == 0 {
			continue
		}
		var launches []callRef
		for _, list := range p.Life.streams {
			launches = append(launches, list...)
		}
		slices.SortFunc(launches, func(a, b callRef) int {
			return cmp.Or(cmp.Compare(b.startNs, a.startNs), cmp.Compare(a.tid, b.tid), cmp.Compare(a.row, b.row))
		})
		for k := range launches {
			s.addLaunch(&table, &launches[k])
		}
	}
	return table
}

func (s *Scan) addLaunch(table *report.Table, c *callRef) {
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
		"kernel_short": s.kernelOf(c),
		"grid":         gridText(d),
		"returned":     returned,
		"kernel":       units.Known(d.kernel),
		"site":         s.T.SiteOfCall(d.Stack, d.Site),
	})
	row.StackID, row.Brief = d.Stack, true
}

// gridText returns the blocks and threads of a launch, nil for a graph.
func gridText(d *callDetails) any {
	if d.grid == [3]int32{} {
		return nil
	}
	return fmt.Sprintf("%d,%d,%d x %d,%d,%d", d.grid[0], d.grid[1], d.grid[2], d.block[0], d.block[1], d.block[2])
}

var longCallColumns = []report.Column{
	{Key: "dur_ns", Title: "TOOK", Unit: report.UnitNs, About: "duration of the call"},
	{Key: "at_ns", Title: "AT", Unit: report.UnitNs, About: "its entry, from the recording's start"},
	{
		Key: "call", Title: "CALL", Unit: report.UnitText,
		About: "function of the CUDA driver; calls inside of another long one are left out",
	},
	{Key: "waits_for", Title: "WAITED FOR", Unit: report.UnitText, About: "what it waited for, as far as it tells"},
	{Key: "pid", Title: "PID", Unit: report.UnitID, About: "process"},
	{Key: "thread", Title: "THREAD", Unit: report.UnitText, About: "thread, and its name"},
	{
		Key: "site", Title: "SITE", Unit: report.UnitText,
		About: "the frame of the program's own code that made the call",
	},
}

// longTable has the long calls that returned, without those inside of others.
func (s *Scan) longTable() report.Table {
	table := report.Table{
		Name: "long_calls", Title: "calls that took long", Columns: longCallColumns,
		Secondary: true, Keys: []string{}, HideFirst: []string{"pid"},
	}
	type entry struct {
		origin.Thread
		ns int64
	}
	met := make(map[entry]bool)
	for i := range s.Long {
		met[entry{origin.Thread{Pid: s.Long[i].pid, Tid: s.Long[i].tid}, s.Long[i].startNs}] = true
	}
	slices.SortFunc(s.Long, func(a, b callRef) int {
		return cmp.Or(cmp.Compare(b.endNs-b.startNs, a.endNs-a.startNs),
			cmp.Compare(a.startNs, b.startNs), cmp.Compare(a.tid, b.tid))
	})
	for i := range s.Long {
		c := &s.Long[i]
		d := s.Details(c)
		thread := origin.Thread{Pid: c.pid, Tid: c.tid}
		if d.parentNs != 0 && met[entry{thread, d.parentNs}] {
			continue
		}
		row := table.Add(report.Values{
			"dur_ns":    c.endNs - c.startNs,
			"at_ns":     c.startNs - s.T.Recording().FromNs,
			"call":      d.name,
			"waits_for": units.Known(s.waitsFor(c)),
			"pid":       int64(c.pid),
			"thread":    s.nameOf(thread),
			"site":      s.T.SiteOfCall(d.Stack, d.Site),
		})
		row.StackID, row.Brief = d.Stack, true
	}
	return table
}

var pollColumns = []report.Column{
	{
		Key: "name", Title: "QUERY", Unit: report.UnitText,
		About: "function that is only counted, of all processes together",
	},
	{
		Key: "since_per_second", Title: "SILENT/s", Unit: report.UnitRatio,
		About: "calls a second in the later half of the silent time, which begins with the last call of any process",
	},
	{Key: "before_per_second", Title: "BEFORE/s", Unit: report.UnitRatio, About: "calls a second before that"},
	{Key: "calls", Title: "CALLS", Unit: report.UnitCount, About: "calls in the window"},
	{
		Key: "over_time", Title: "OVER TIME", Unit: report.UnitText,
		About: "calls in 40 equal parts of the window, each against the most",
	},
}

// table has a row per function that is counted.
func (p *pollCounts) table() report.Table {
	table := report.Table{
		Name: "polling", Title: "queries that are only counted, of all processes together",
		Columns: pollColumns, Secondary: true,
	}
	for i := range p.rows {
		r := &p.rows[i]
		table.Add(report.Values{
			"name":              r.name,
			"since_per_second":  r.since,
			"before_per_second": r.before,
			"calls":             units.RoundInt(r.total),
			"over_time":         units.Sparkline(r.overTime[:]),
		})
	}
	return table
}
