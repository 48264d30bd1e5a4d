package analyze

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gpurec/gpurec/analyze/model/calls"
	"github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// HangOptions shape the report on hangs.
type HangOptions struct {
	query.Options
	// LongNs is from when on a call, or a silence, is long, ns; 0 is DefaultLongNs.
	LongNs int64
}

// DefaultLongNs is what HangOptions.LongNs is if it is not set.
const DefaultLongNs = int64(time.Second)

var hangFacts = []Column{
	{"result", "result", UnitText, "the verdict in one sentence: the worst state of a process"},
	{"advice", "what to do", UnitText, "where to look if no process made a call"},
	{"look_at", "look at", UnitText, "the process that is unlike the others of its group, and in what"},
	{"moment_ns", "looked at", UnitNs, "the moment that is told of, from the recording's start: the end of the recording, or --to"},
	{"without_calls", "without calls", UnitText, "recorded processes that run on and made no call: one that began before the recording, and has not returned, cannot be seen"},
}

var hangTotals = []Column{
	{"hanging", "hanging", UnitCount, "processes in state hanging"},
	{"polling", "polling", UnitCount, "processes in state polling"},
	{"waiting", "waiting", UnitCount, "processes in state waiting"},
	{"idle", "idle", UnitCount, "processes in state idle"},
	{"alive", "alive", UnitCount, "processes in state alive"},
	{"ended", "ended", UnitCount, "processes that had ended"},
	{"silent", "silent", UnitCount, "processes that run on and made no call at all, see without calls: they may hang since before the recording, or not use CUDA"},
	{"odd_processes", "unlike the others", UnitCount, "processes that are unlike the others of their group, see UNLIKE THE OTHERS"},
	{"open_calls", "open calls", UnitCount, "calls that had not returned at the moment, those inside of others left out"},
	{"long_calls", "long calls", UnitCount, "calls that took --long or longer and returned, at most 1,000"},
	{"silent_max_ns", "silent at most", UnitNs, "longest silence of a process that had not ended"},
}

const stateAbout = "hanging: in a call for --long (1 s) or longer, and three times as long as any call of that function of the process before; " +
	"waiting: in a call that long, but such calls took long before, or other threads go on; " +
	"polling: 100 queries a second and more are counted, and nothing else; " +
	"idle: no call for --long or longer, three times as long as any pause before; alive; ended. Of a process: the worst of its threads; threads that are done do not count while others go on"

var hangProcessColumns = []Column{
	{"verdict", "VERDICT", UnitText, stateAbout},
	{"silent_ns", "SILENT", UnitNs, "since the last call of the process returned, or the call began that it is in"},
	{"pid", "PID", UnitID, "process"},
	{"process", "PROCESS", UnitText, "its name"},
	{"confidence", "CONFIDENCE", UnitText, "high, medium or low"},
	{"confidence_reasons", "", UnitText, "what lowers it: lost calls, a cut-off recording, a launch whose return was not recorded, queries that cannot be told apart"},
	{"gpu_busy_pct", "GPU%", UnitPercent, "average of gpu_utilization_percent of its GPU in the silent time, without the first second; absent without samples"},
	{"sm_active_pct", "SM%", UnitPercent, "the same of gpm_sm_active_percent: a kernel that spins keeps few SMs active"},
	{"launch_ago_ns", "LAST LAUNCH", UnitNs, "how long before the moment it launched its last kernel; absent without launches"},
	{"launches", "LAUNCHES", UnitCount, "kernel and graph launches in the window, captured ones left out"},
	{"calls", "", UnitCount, "calls in the window"},
	{"errors", "ERRORS", UnitCount, "calls that returned an error"},
	{"trouble", "", UnitText, "Xids and the last error from 10 s before the last progress on"},
	{"group_processes", "", UnitCount, "processes of the same program that launch kernels, such as ranks; absent if it is the only one, or none is stuck"},
	{"odd", "UNLIKE THE OTHERS", UnitText, "what tells it from all others of its group: it launched its last kernel --long or longer before them, it does not wait and they do, its last kernel is another one, they go on"},
	{"last_kernel", "LAST KERNEL", UnitText, "kernel that it launched last"},
}

var hangThreadColumns = []Column{
	{"verdict", "VERDICT", UnitText, stateAbout},
	{"since_ns", "SINCE", UnitNs, "how long it has been in the call, or since its last call ended"},
	{"confidence", "", UnitText, "high, medium or low"},
	{"confidence_reasons", "", UnitText, "what lowers it"},
	{"pid", "PID", UnitID, "process"},
	{"thread", "THREAD", UnitText, "thread, and its name"},
	{"open", "OPEN", UnitText, "yes if the thread is in the call; maybe: a launch of which the return was not recorded"},
	{"call", "CALL", UnitText, "the call that it is in, or its last one"},
	{"waits_for", "WAITS FOR", UnitText, "what an open call waits for: a stream, all streams, an event and the stream on which it was recorded last"},
	{"calls", "CALLS", UnitCount, "its calls in the window"},
	{"calls_per_second", "BEFORE/s", UnitRatio, "calls a second between its first and its last one"},
	{"pause_max_ns", "PAUSE", UnitNs, "longest time without a call before, to within a 256th of the window"},
	{"site", "SITE", UnitText, "the frame of the program's own code that made the call"},
}

var longCallColumns = []Column{
	{"dur_ns", "TOOK", UnitNs, "duration of the call"},
	{"at_ns", "AT", UnitNs, "its entry, from the recording's start"},
	{"call", "CALL", UnitText, "function of the CUDA driver; calls inside of another long one are left out"},
	{"waits_for", "WAITED FOR", UnitText, "what it waited for, as far as it tells"},
	{"pid", "PID", UnitID, "process"},
	{"thread", "THREAD", UnitText, "thread, and its name"},
	{"site", "SITE", UnitText, "the frame of the program's own code that made the call"},
}

var lastLaunchColumns = []Column{
	{"pid", "PID", UnitID, "process"},
	{"stream", "STREAM", UnitText, "stream"},
	{"before_ns", "BEFORE", UnitNs, "from the launch to the moment"},
	{"kernel_short", "KERNEL", UnitText, "kernel, template arguments folded; of a graph, the call"},
	{"grid", "GRID", UnitText, "blocks x threads of a block"},
	{"returned", "RETURNED", UnitText, "yes, no, or ? if that was not recorded"},
	{"kernel", "", UnitText, "demangled name; absent if not known"},
	{"site", "SITE", UnitText, "the frame of the program's own code that made the launch"},
}

var pollColumns = []Column{
	{"name", "QUERY", UnitText, "function that is only counted, of all processes together"},
	{"since_per_second", "SILENT/s", UnitRatio, "calls a second in the later half of the silent time, which begins with the last call of any process"},
	{"before_per_second", "BEFORE/s", UnitRatio, "calls a second before that"},
	{"calls", "CALLS", UnitCount, "calls in the window"},
	{"over_time", "OVER TIME", UnitText, "calls in 40 equal parts of the window, each against the most"},
}

// Hang reports what processes and threads were doing at the end of the window: whether they hang, in what, and what led to it. It
// returns a *SortError for a column that there is not.
func Hang(t *timeline.Timeline, opt HangOptions) (*Report, error) {
	if err := needClasses(t, "hang"); err != nil {
		return nil, err
	}
	if opt.LongNs <= 0 {
		opt.LongNs = DefaultLongNs
	}
	counts, err := calls.CountsWhile(t, func() error { return nil }) // for the quality block
	if err != nil {
		return nil, err
	}
	s := newHangScan(t, &opt)
	if err := s.scan(); err != nil {
		return nil, err
	}
	s.wantAll()
	if err := s.readDetails(); err != nil {
		return nil, err
	}
	polls, err := s.polls()
	if err != nil {
		return nil, err
	}
	states := s.states(polls)
	r := &Report{Command: "hang", Window: s.Window, Quality: qualityOf(t, counts), Notes: t.Facts.Notes, Sentences: []string{"result", "advice", "look_at"}}
	silent := s.withoutCalls()
	if len(s.processes)+len(silent) == 0 && t.Scan.Events > 0 {
		r.NoMatch = s.Seen.Explain(&opt.Filter)
	}
	long := s.longTable()
	result, advice := s.silence(silent, polls)
	if len(states) > 0 {
		result, advice = s.sentence(states), ""
	}
	r.Facts = fill(hangFacts, result, advice, lookAt(t, states), s.endNs-t.Recording().FromNs, s.pidLabels(silent))
	r.Totals = s.totals(states, len(silent), len(long.Rows))
	processes, threads := s.processTable(states), s.threadTable(states)
	launches := s.launchTable(states)
	identities := newIdentityTable(t, &opt.Filter)
	identities.Name, identities.Title = "identities", "identities of processes"
	r.Tables = []Table{processes, threads, launches, long, polls.table()}
	if len(identities.Rows) > 0 {
		r.Tables = append(r.Tables, identities)
	}
	for i := range r.Tables {
		table, sort := &r.Tables[i], ""
		if table.Name == "threads" {
			sort = opt.Sort
		}
		addRanks(t, table)
		if err := table.arrange(sort, opt.Top); err != nil {
			return nil, err
		}
		addStacks(t, table, &opt.Options)
	}
	return r, nil
}

// wantAll asks for the details of everything that may be told.
func (s *hangScan) wantAll() {
	s.want(s.long...)
	for _, l := range s.threads {
		s.want(l.last)
		s.want(l.open...)
	}
	for _, p := range s.processes {
		if p.errors > 0 {
			s.want(p.lastError)
		}
		for _, launches := range p.streams {
			s.want(launches...)
		}
	}
}

// sentence is the verdict on processes that made calls.
func (s *hangScan) sentence(states []processState) string {
	worst := &states[0]
	if worst.state >= alive {
		return fmt.Sprintf("nothing hangs: %s", units.Plural(int64(len(states)), "process")+", all alive or ended")
	}
	same := 0
	for i := range states {
		if states[i].state == worst.state {
			same++
		}
	}
	text := fmt.Sprintf("%s: process %s", worst.state, s.T.PidLabel(worst.life.pid))
	if same > 1 {
		text = fmt.Sprintf("%s: %d processes, such as %s", worst.state, same, s.T.PidLabel(worst.life.pid))
	}
	return text + ", " + worst.evidence[0]
}

// lookAt names the process that is unlike its likes.
func lookAt(t *timeline.Timeline, states []processState) string {
	for i := range states {
		if p := &states[i]; len(p.odd) > 0 {
			return t.PidLabel(p.life.pid) + ": " + p.odd[0]
		}
	}
	return ""
}

func (s *hangScan) totals(states []processState, without, long int) []Fact {
	var counts [numHangStates]int64
	var odd, open, silent int64
	for i := range states {
		p := &states[i]
		counts[p.state]++
		if len(p.odd) > 0 {
			odd++
		}
		if p.state != ended {
			silent = max(silent, p.silentNs)
		}
		for k := range p.threads {
			if p.threads[k].state != ended && p.threads[k].call.isOpen() {
				open++
			}
		}
	}
	return fill(hangTotals, counts[hanging], counts[polling], counts[waiting], counts[idle], counts[alive], counts[ended], int64(without), odd, open, int64(long), silent)
}

func (s *hangScan) processTable(states []processState) Table {
	table := Table{Name: "processes", Title: "processes", Columns: slices.Clone(hangProcessColumns), Aside: true, Keys: []string{"process"}, Verdicts: hangStates(),
		Spare: []string{"errors", "sm_active_pct", "launches", "confidence", "last_kernel"}}
	odd := false
	for i := range states {
		p := &states[i]
		trouble := s.trouble(p)
		odd = odd || len(p.odd) > 0
		var launchAgo, group any
		if p.life.launches > 0 {
			launchAgo = s.endNs - p.life.launchedNs
		}
		if p.group > 1 {
			group = int64(p.group)
		}
		said := slices.Clone(p.evidence)
		if p.gpu.meaning != "" {
			said = append(said, p.gpu.meaning)
		}
		if len(p.odd) > 0 {
			said = append(said, fmt.Sprintf("unlike the others of its %d: %s", p.group, units.Enumerated(p.odd)))
		}
		if len(trouble) > 0 {
			said = append(said, units.Enumerated(trouble))
		}
		table.Rows = append(table.Rows, Row{Brief: p.state >= alive && len(p.odd) == 0, Evidence: strings.Join(append(said, confidenceText(p.level, p.reasons)), "; "), Cells: []any{
			p.state.String(), p.silentNs, int64(p.life.pid), s.T.Facts.Processes[p.life.pid].Name, p.level, p.reasons, p.gpu.busyPct, p.gpu.smPct,
			launchAgo, p.life.launches, p.life.calls, p.life.errors, trouble, group, units.Known(strings.Join(p.odd, "; ")), units.Known(s.lastKernel(p.life))}})
	}
	if !odd {
		hide(table.Columns, "odd")
	}
	return table
}

func confidenceText(level string, reasons []string) string {
	if len(reasons) == 0 {
		return "confidence " + level
	}
	return "confidence " + level + ": " + strings.Join(reasons, ", ")
}

func (s *hangScan) threadTable(states []processState) Table {
	table := Table{Name: "threads", Title: "threads", Columns: hangThreadColumns, Keys: []string{"thread"}, Spare: []string{"pause_max_ns", "calls", "waits_for", "calls_per_second"}}
	for i := range states {
		for k := range states[i].threads {
			j := &states[i].threads[k]
			d := s.of(j.call)
			open, waits := "no", ""
			switch {
			case j.call.isOpen():
				open, waits = "yes", s.waitsFor(j.call)
			case j.call.flags&format.FlagNoReturn != 0:
				open = "maybe"
			}
			table.Rows = append(table.Rows, Row{stack: d.stack, Brief: j.state >= idle && states[i].state < idle || j.state >= alive,
				Evidence: strings.Join(append(slices.Clone(j.evidence), confidenceText(j.level, j.reasons)), "; "),
				Cells: []any{j.state.String(), j.silentNs, j.level, j.reasons, int64(j.life.Pid), s.nameOf(j.life.Thread), open, d.name, units.Known(waits),
					j.life.calls, j.perSec, j.pauseNs, s.T.SiteOfCall(d.stack, d.site)}})
		}
	}
	rank := func(r Row) int { return slices.Index(hangStates(), r.Cells[0].(string)) }
	slices.SortStableFunc(table.Rows, func(a, b Row) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), compareCells(a.Cells[1], b.Cells[1]), -compareCells(a.Cells[4], b.Cells[4]))
	})
	return table
}

// launchTable has the last launches of processes that are stuck, or unlike others, by stream: those used last first.
func (s *hangScan) launchTable(states []processState) Table {
	table := Table{Name: "launches", Title: "last launches by stream, the last first", Columns: lastLaunchColumns, Aside: true, Keys: []string{}}
	for i := range states {
		p := &states[i]
		if p.state >= alive && len(p.odd) == 0 {
			continue
		}
		var launches []callRef
		for _, list := range p.life.streams {
			launches = append(launches, list...)
		}
		slices.SortFunc(launches, func(a, b callRef) int {
			return cmp.Or(cmp.Compare(b.startNs, a.startNs), cmp.Compare(a.tid, b.tid), cmp.Compare(a.row, b.row))
		})
		for k := range launches {
			c := &launches[k]
			d := s.of(c)
			returned := "yes"
			switch {
			case c.isOpen():
				returned = "no"
			case c.flags&(format.FlagNoReturn|format.FlagAbandoned) != 0:
				returned = "?"
			}
			table.Rows = append(table.Rows, Row{stack: d.stack, Brief: true, Cells: []any{int64(c.pid), query.StreamName(d.stream), s.endNs - c.startNs, s.kernelOf(c), gridText(d),
				returned, units.Known(d.kernel), s.T.SiteOfCall(d.stack, d.site)}})
		}
	}
	return table
}

// gridText is a launch's blocks and threads; a graph has none of its own.
func gridText(d *callDetail) any {
	if d.grid == [3]int32{} {
		return nil
	}
	return fmt.Sprintf("%d,%d,%d x %d,%d,%d", d.grid[0], d.grid[1], d.grid[2], d.block[0], d.block[1], d.block[2])
}

// longTable has the long calls that returned, without those inside of others.
func (s *hangScan) longTable() Table {
	table := Table{Name: "long_calls", Title: "calls that took long", Columns: longCallColumns, Aside: true, Keys: []string{}, Spare: []string{"pid"}}
	type entry struct {
		origin.Thread
		ns int64
	}
	met := make(map[entry]bool)
	for i := range s.long {
		met[entry{origin.Thread{Pid: s.long[i].pid, Tid: s.long[i].tid}, s.long[i].startNs}] = true
	}
	slices.SortFunc(s.long, func(a, b callRef) int {
		return cmp.Or(cmp.Compare(b.endNs-b.startNs, a.endNs-a.startNs), cmp.Compare(a.startNs, b.startNs), cmp.Compare(a.tid, b.tid))
	})
	for i := range s.long {
		c := &s.long[i]
		d := s.of(c)
		if d.parentNs != 0 && met[entry{origin.Thread{Pid: c.pid, Tid: c.tid}, d.parentNs}] {
			continue
		}
		table.Rows = append(table.Rows, Row{stack: d.stack, Brief: true, Cells: []any{c.endNs - c.startNs, c.startNs - s.T.Recording().FromNs, d.name, units.Known(s.waitsFor(c)),
			int64(c.pid), s.nameOf(origin.Thread{Pid: c.pid, Tid: c.tid}), s.T.SiteOfCall(d.stack, d.site)}})
	}
	return table
}

func (p *pollUse) table() Table {
	table := Table{Name: "polling", Title: "queries that are only counted, of all processes together", Columns: pollColumns, Aside: true}
	for i := range p.rows {
		r := &p.rows[i]
		table.Rows = append(table.Rows, Row{Cells: []any{r.name, r.since, r.before, units.RoundInt(r.total), units.Sparkline(r.overTime[:])}})
	}
	return table
}
