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
	{Key: "result", Title: "result", Unit: report.UnitText, About: "the verdict in one sentence: the worst state of a process"},
	{Key: "advice", Title: "what to do", Unit: report.UnitText, About: "where to look if no process made a call"},
	{Key: "look_at", Title: "look at", Unit: report.UnitText, About: "the process that is unlike the others of its group, and in what"},
	{Key: "moment_ns", Title: "looked at", Unit: report.UnitNs, About: "the moment that is told of, from the recording's start: the end of the recording, or --to"},
	{Key: "without_calls", Title: "without calls", Unit: report.UnitText, About: "recorded processes that run on and made no call: one that began before the recording, and has not returned, cannot be seen"},
}

var totalColumns = []report.Column{
	{Key: "hanging", Title: "hanging", Unit: report.UnitCount, About: "processes in state hanging"},
	{Key: "polling", Title: "polling", Unit: report.UnitCount, About: "processes in state polling"},
	{Key: "waiting", Title: "waiting", Unit: report.UnitCount, About: "processes in state waiting"},
	{Key: "idle", Title: "idle", Unit: report.UnitCount, About: "processes in state idle"},
	{Key: "alive", Title: "alive", Unit: report.UnitCount, About: "processes in state alive"},
	{Key: "ended", Title: "ended", Unit: report.UnitCount, About: "processes that had ended"},
	{Key: "silent", Title: "silent", Unit: report.UnitCount, About: "processes that run on and made no call at all, see without calls: they may hang since before the recording, or not use CUDA"},
	{Key: "odd_processes", Title: "unlike the others", Unit: report.UnitCount, About: "processes that are unlike the others of their group, see UNLIKE THE OTHERS"},
	{Key: "open_calls", Title: "open calls", Unit: report.UnitCount, About: "calls that had not returned at the moment, those inside of others left out"},
	{Key: "long_calls", Title: "long calls", Unit: report.UnitCount, About: "calls that took --long or longer and returned, at most 1,000"},
	{Key: "silent_max_ns", Title: "silent at most", Unit: report.UnitNs, About: "longest silence of a process that had not ended"},
}

func (s *Scan) totals(states []ProcessVerdict, without, long int) []report.Fact {
	var counts [numStates]int64
	var odd, open, silent int64
	for i := range states {
		p := &states[i]
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
	return report.Fill(totalColumns, counts[Hanging], counts[Polling], counts[Waiting], counts[Idle], counts[Alive], counts[Ended], int64(without), odd, open, int64(long), silent)
}

const stateAbout = "hanging: in a call for --long (1 s) or longer, and three times as long as any call of that function of the process before; " +
	"waiting: in a call that long, but such calls took long before, or other threads go on; " +
	"polling: 100 queries a second and more are counted, and nothing else; " +
	"idle: no call for --long or longer, three times as long as any pause before; alive; ended. Of a process: the worst of its threads; threads that are done do not count while others go on"

var processColumns = []report.Column{
	{Key: "verdict", Title: "VERDICT", Unit: report.UnitText, About: stateAbout},
	{Key: "silent_ns", Title: "SILENT", Unit: report.UnitNs, About: "since the last call of the process returned, or the call began that it is in"},
	{Key: "pid", Title: "PID", Unit: report.UnitID, About: "process"},
	{Key: "process", Title: "PROCESS", Unit: report.UnitText, About: "its name"},
	{Key: "confidence", Title: "CONFIDENCE", Unit: report.UnitText, About: "high, medium or low"},
	{Key: "confidence_reasons", Title: "", Unit: report.UnitText, About: "what lowers it: lost calls, a cut-off recording, a launch whose return was not recorded, queries that cannot be told apart"},
	{Key: "gpu_busy_pct", Title: "GPU%", Unit: report.UnitPercent, About: "average of gpu_utilization_percent of its GPU in the silent time, without the first second; absent without samples"},
	{Key: "sm_active_pct", Title: "SM%", Unit: report.UnitPercent, About: "the same of gpm_sm_active_percent: a kernel that spins keeps few SMs active"},
	{Key: "launch_ago_ns", Title: "LAST LAUNCH", Unit: report.UnitNs, About: "how long before the moment it launched its last kernel; absent without launches"},
	{Key: "launches", Title: "LAUNCHES", Unit: report.UnitCount, About: "kernel and graph launches in the window, captured ones left out"},
	{Key: "calls", Title: "", Unit: report.UnitCount, About: "calls in the window"},
	{Key: "errors", Title: "ERRORS", Unit: report.UnitCount, About: "calls that returned an error"},
	{Key: "trouble", Title: "", Unit: report.UnitText, About: "Xids and the last error from 10 s before the last progress on"},
	{Key: "group_processes", Title: "", Unit: report.UnitCount, About: "processes of the same program that launch kernels, such as ranks; absent if it is the only one, or none is stuck"},
	{Key: "odd", Title: "UNLIKE THE OTHERS", Unit: report.UnitText, About: "what tells it from all others of its group: it launched its last kernel --long or longer before them, it does not wait and they do, its last kernel is another one, they go on"},
	{Key: "last_kernel", Title: "LAST KERNEL", Unit: report.UnitText, About: "kernel that it launched last"},
}

func (s *Scan) processTable(states []ProcessVerdict) report.Table {
	table := report.Table{Name: "processes", Title: "processes", Columns: slices.Clone(processColumns), Aside: true, Keys: []string{"process"}, Verdicts: stateNames(),
		Spare: []string{"errors", "sm_active_pct", "launches", "confidence", "last_kernel"}}
	odd := false
	for i := range states {
		p := &states[i]
		trouble := s.trouble(p)
		odd = odd || len(p.Odd) > 0
		var launchAgo, group any
		if p.Life.Launches > 0 {
			launchAgo = s.EndNs - p.Life.LaunchedNs
		}
		if p.group > 1 {
			group = int64(p.group)
		}
		said := slices.Clone(p.Evidence)
		if p.gpu.meaning != "" {
			said = append(said, p.gpu.meaning)
		}
		if len(p.Odd) > 0 {
			said = append(said, fmt.Sprintf("unlike the others of its %d: %s", p.group, units.Enumerated(p.Odd)))
		}
		if len(trouble) > 0 {
			said = append(said, units.Enumerated(trouble))
		}
		table.Rows = append(table.Rows, report.Row{Brief: p.State >= Alive && len(p.Odd) == 0, Evidence: strings.Join(append(said, report.ConfidenceText(p.Level, p.Reasons)), "; "), Cells: []any{
			p.State.String(), p.SilentNs, int64(p.Life.Pid), s.T.Facts.Processes[p.Life.Pid].Name, p.Level, p.Reasons, p.gpu.busyPct, p.gpu.smPct,
			launchAgo, p.Life.Launches, p.Life.calls, p.Life.errors, trouble, group, units.Known(strings.Join(p.Odd, "; ")), units.Known(s.lastKernel(p.Life))}})
	}
	if !odd {
		report.Hide(table.Columns, "odd")
	}
	return table
}

var threadColumns = []report.Column{
	{Key: "verdict", Title: "VERDICT", Unit: report.UnitText, About: stateAbout},
	{Key: "since_ns", Title: "SINCE", Unit: report.UnitNs, About: "how long it has been in the call, or since its last call ended"},
	{Key: "confidence", Title: "", Unit: report.UnitText, About: "high, medium or low"},
	{Key: "confidence_reasons", Title: "", Unit: report.UnitText, About: "what lowers it"},
	{Key: "pid", Title: "PID", Unit: report.UnitID, About: "process"},
	{Key: "thread", Title: "THREAD", Unit: report.UnitText, About: "thread, and its name"},
	{Key: "open", Title: "OPEN", Unit: report.UnitText, About: "yes if the thread is in the call; maybe: a launch of which the return was not recorded"},
	{Key: "call", Title: "CALL", Unit: report.UnitText, About: "the call that it is in, or its last one"},
	{Key: "waits_for", Title: "WAITS FOR", Unit: report.UnitText, About: "what an open call waits for: a stream, all streams, an event and the stream on which it was recorded last"},
	{Key: "calls", Title: "CALLS", Unit: report.UnitCount, About: "its calls in the window"},
	{Key: "calls_per_second", Title: "BEFORE/s", Unit: report.UnitRatio, About: "calls a second between its first and its last one"},
	{Key: "pause_max_ns", Title: "PAUSE", Unit: report.UnitNs, About: "longest time without a call before, to within a 256th of the window"},
	{Key: "site", Title: "SITE", Unit: report.UnitText, About: "the frame of the program's own code that made the call"},
}

func (s *Scan) threadTable(states []ProcessVerdict) report.Table {
	table := report.Table{Name: "threads", Title: "threads", Columns: threadColumns, Keys: []string{"thread"}, Spare: []string{"pause_max_ns", "calls", "waits_for", "calls_per_second"}}
	for i := range states {
		for k := range states[i].Threads {
			j := &states[i].Threads[k]
			d := s.Details(j.Call)
			open, waits := "no", ""
			switch {
			case j.Call.isOpen():
				open, waits = "yes", s.waitsFor(j.Call)
			case j.Call.flags&format.FlagNoReturn != 0:
				open = "maybe"
			}
			table.Rows = append(table.Rows, report.Row{StackID: d.Stack, Brief: j.State >= Idle && states[i].State < Idle || j.State >= Alive,
				Evidence: strings.Join(append(slices.Clone(j.evidence), report.ConfidenceText(j.level, j.reasons)), "; "),
				Cells: []any{j.State.String(), j.silentNs, j.level, j.reasons, int64(j.life.Pid), s.nameOf(j.life.Thread), open, d.name, units.Known(waits),
					j.life.calls, j.perSec, j.pauseNs, s.T.SiteOfCall(d.Stack, d.Site)}})
		}
	}
	rank := func(r report.Row) int { return slices.Index(stateNames(), r.Cells[0].(string)) }
	slices.SortStableFunc(table.Rows, func(a, b report.Row) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), report.CompareCells(a.Cells[1], b.Cells[1]), -report.CompareCells(a.Cells[4], b.Cells[4]))
	})
	return table
}

var launchColumns = []report.Column{
	{Key: "pid", Title: "PID", Unit: report.UnitID, About: "process"},
	{Key: "stream", Title: "STREAM", Unit: report.UnitText, About: "stream"},
	{Key: "before_ns", Title: "BEFORE", Unit: report.UnitNs, About: "from the launch to the moment"},
	{Key: "kernel_short", Title: "KERNEL", Unit: report.UnitText, About: "kernel, template arguments folded; of a graph, the call"},
	{Key: "grid", Title: "GRID", Unit: report.UnitText, About: "blocks x threads of a block"},
	{Key: "returned", Title: "RETURNED", Unit: report.UnitText, About: "yes, no, or ? if that was not recorded"},
	{Key: "kernel", Title: "", Unit: report.UnitText, About: "demangled name; absent if not known"},
	{Key: "site", Title: "SITE", Unit: report.UnitText, About: "the frame of the program's own code that made the launch"},
}

// launchTable has the last launches of processes that are stuck, or unlike others, by stream: those used last first.
func (s *Scan) launchTable(states []ProcessVerdict) report.Table {
	table := report.Table{Name: "launches", Title: "last launches by stream, the last first", Columns: launchColumns, Aside: true, Keys: []string{}}
	for i := range states {
		p := &states[i]
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
			c := &launches[k]
			d := s.Details(c)
			returned := "yes"
			switch {
			case c.isOpen():
				returned = "no"
			case c.flags&(format.FlagNoReturn|format.FlagAbandoned) != 0:
				returned = "?"
			}
			table.Rows = append(table.Rows, report.Row{StackID: d.Stack, Brief: true, Cells: []any{int64(c.pid), query.StreamName(d.stream), s.EndNs - c.startNs, s.kernelOf(c), gridText(d),
				returned, units.Known(d.kernel), s.T.SiteOfCall(d.Stack, d.Site)}})
		}
	}
	return table
}

// gridText is a launch's blocks and threads; a graph has none of its own.
func gridText(d *callDetails) any {
	if d.grid == [3]int32{} {
		return nil
	}
	return fmt.Sprintf("%d,%d,%d x %d,%d,%d", d.grid[0], d.grid[1], d.grid[2], d.block[0], d.block[1], d.block[2])
}

var longCallColumns = []report.Column{
	{Key: "dur_ns", Title: "TOOK", Unit: report.UnitNs, About: "duration of the call"},
	{Key: "at_ns", Title: "AT", Unit: report.UnitNs, About: "its entry, from the recording's start"},
	{Key: "call", Title: "CALL", Unit: report.UnitText, About: "function of the CUDA driver; calls inside of another long one are left out"},
	{Key: "waits_for", Title: "WAITED FOR", Unit: report.UnitText, About: "what it waited for, as far as it tells"},
	{Key: "pid", Title: "PID", Unit: report.UnitID, About: "process"},
	{Key: "thread", Title: "THREAD", Unit: report.UnitText, About: "thread, and its name"},
	{Key: "site", Title: "SITE", Unit: report.UnitText, About: "the frame of the program's own code that made the call"},
}

// longTable has the long calls that returned, without those inside of others.
func (s *Scan) longTable() report.Table {
	table := report.Table{Name: "long_calls", Title: "calls that took long", Columns: longCallColumns, Aside: true, Keys: []string{}, Spare: []string{"pid"}}
	type entry struct {
		origin.Thread
		ns int64
	}
	met := make(map[entry]bool)
	for i := range s.Long {
		met[entry{origin.Thread{Pid: s.Long[i].pid, Tid: s.Long[i].tid}, s.Long[i].startNs}] = true
	}
	slices.SortFunc(s.Long, func(a, b callRef) int {
		return cmp.Or(cmp.Compare(b.endNs-b.startNs, a.endNs-a.startNs), cmp.Compare(a.startNs, b.startNs), cmp.Compare(a.tid, b.tid))
	})
	for i := range s.Long {
		c := &s.Long[i]
		d := s.Details(c)
		if d.parentNs != 0 && met[entry{origin.Thread{Pid: c.pid, Tid: c.tid}, d.parentNs}] {
			continue
		}
		table.Rows = append(table.Rows, report.Row{StackID: d.Stack, Brief: true, Cells: []any{c.endNs - c.startNs, c.startNs - s.T.Recording().FromNs, d.name, units.Known(s.waitsFor(c)),
			int64(c.pid), s.nameOf(origin.Thread{Pid: c.pid, Tid: c.tid}), s.T.SiteOfCall(d.Stack, d.Site)}})
	}
	return table
}

var pollColumns = []report.Column{
	{Key: "name", Title: "QUERY", Unit: report.UnitText, About: "function that is only counted, of all processes together"},
	{Key: "since_per_second", Title: "SILENT/s", Unit: report.UnitRatio, About: "calls a second in the later half of the silent time, which begins with the last call of any process"},
	{Key: "before_per_second", Title: "BEFORE/s", Unit: report.UnitRatio, About: "calls a second before that"},
	{Key: "calls", Title: "CALLS", Unit: report.UnitCount, About: "calls in the window"},
	{Key: "over_time", Title: "OVER TIME", Unit: report.UnitText, About: "calls in 40 equal parts of the window, each against the most"},
}

func (p *pollCounts) table() report.Table {
	table := report.Table{Name: "polling", Title: "queries that are only counted, of all processes together", Columns: pollColumns, Aside: true}
	for i := range p.rows {
		r := &p.rows[i]
		table.Rows = append(table.Rows, report.Row{Cells: []any{r.name, r.since, r.before, units.RoundInt(r.total), units.Sparkline(r.overTime[:])}})
	}
	return table
}
