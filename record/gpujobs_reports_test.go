//go:build linux && cgo

package record

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze"
	analysis "github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/record/simtest"
)

// reportCheck has the checks of a report. They run if the report has the section.
type reportCheck struct {
	report, section string
	checks          []jobCheck
}

// reportChecks are the checks of all reports.
var reportChecks = []reportCheck{
	{"hang", "gpu_operations", []jobCheck{
		{"unfinished operation", []string{"stuck"}, (*jobRun).checkUnfinishedOperation},
	}},
	{"steps", "slow_operations", []jobCheck{
		{"number of steps", nil, (*jobRun).checkStepCount},
		{"outlier steps", []string{"outliers"}, (*jobRun).checkOutlierSteps},
		{"slow kernel in steps", []string{"slow-kernel"}, (*jobRun).checkSlowKernel},
	}},
	{
		"gaps",
		"with GPU times: causes",
		[]jobCheck{
			{"idle share", []string{
				"gpu-bound", "host-bound", "alternating", "late-host", "copy-wait", "stream-wait", "slow-kernel",
			}, (*jobRun).checkIdleShare},
			{
				"cause of idle time",
				[]string{"host-bound", "late-host", "copy-wait", "stream-wait"},
				(*jobRun).checkIdleCause,
			},
			{"limit", []string{"gpu-bound", "host-bound", "alternating"}, (*jobRun).checkLimit},
		},
	},
}

// isPresent reports whether the report has the section.
func (c *reportCheck) isPresent() bool {
	r := analyze.FindReport(c.report)
	return r != nil && slices.ContainsFunc(r.Sections, func(s analysis.Section) bool { return s.Title == c.section })
}

// cellText returns a cell as text, "" for an unknown value.
func cellText(t *analysis.Table, r *analysis.Row, key string) string {
	text, _ := t.Cell(r, key).(string)
	return text
}

// checkStepCount compares the number of steps. The window may cut the first and the last one.
func (r *jobRun) checkStepCount() []string {
	table, truth := tableOf(r.report("steps"), "steps"), len(r.truth.EventsOf("step"))
	if table == nil || len(table.Rows) != 1 {
		return []string{fmt.Sprintf("no steps, truth %d", truth)}
	}
	row := &table.Rows[0]
	complete, cut := table.Cell(row, "steps").(int64), table.Cell(row, "cut_steps").(int64)
	if off := complete + cut - int64(truth); off < -1 || off > 1 {
		return []string{fmt.Sprintf("%d complete steps, %d cut, truth %d", complete, cut, truth)}
	}
	return nil
}

// outlierDelay is in how many steps after its cause the host can wait for the GPU.
const outlierDelay = 2

// checkOutlierSteps checks that each outlier of the truth is named with its cause and place. Other
// outliers must be long steps, too: the machine is busy.
func (r *jobRun) checkOutlierSteps() (wrong []string) {
	out := r.report("steps")
	table, steps := tableOf(out, "outliers"), r.truth.EventsOf("step")
	if table == nil {
		return []string{"no table"}
	}
	var rows []string
	for i := range table.Rows {
		rows = append(rows, fmt.Sprint(table.Rows[i].Cells))
	}
	for _, s := range steps {
		if s.Outlier != "" &&
			!slices.ContainsFunc(table.Rows, func(row analysis.Row) bool { return r.explains(table, &row, &s) }) {
			wrong = append(wrong, fmt.Sprintf("step %d with %q is not named; outliers %s", s.Step+1, s.Outlier,
				strings.Join(rows, "\n")))
		}
	}
	return wrong
}

// stepAt returns the step of the truth that a row is in: most of the row's time belongs to it.
func (r *jobRun) stepAt(table *analysis.Table, row *analysis.Row) (best int) {
	fromNs := table.Cell(row, "at_ns").(int64) + r.timeline.RecordingWindow().FromNs - r.result.Meta.ClockOffsetNs
	toNs, most := fromNs+table.Cell(row, "duration_ns").(int64), int64(0)
	for _, s := range r.truth.EventsOf("step") {
		if ns := min(s.EndNs, toNs) - max(s.StartNs, fromNs); ns > most {
			best, most = s.Step, ns
		}
	}
	return best
}

// explains reports whether an outlier of the report is the one of the truth.
func (r *jobRun) explains(table *analysis.Table, row *analysis.Row, s *simtest.JobEvent) bool {
	late := r.stepAt(table, row) - s.Step
	cause, site, kernel := cellText(table, row, "cause"), cellText(table, row, "site"), cellText(table, row, "kernel")
	for _, e := range r.truth.Events {
		if e.Step != s.Step {
			continue
		}
		switch {
		case s.Outlier == "host" && e.Event == "delay":
			return late == 0 && cause == "outside CUDA" && site == siteOf(e.Function, e.Line)
		case s.Outlier == "kernel" && e.Event == "slow":
			return late >= 0 && late <= outlierDelay && cause == "slow kernel" && kernel == shortName(e.Kernel)
		}
	}
	return s.Outlier == "launches" && late >= 0 && late <= outlierDelay && cause == "more launches"
}

// checkSlowKernel checks that the report names no other slow kernel, and finds the slow one if one of
// its launches is certainly slow.
func (r *jobRun) checkSlowKernel() (wrong []string) {
	table := tableOf(r.report("steps"), "slow_operations")
	if table == nil || len(table.Rows) == 0 {
		return []string{"no slow kernel"}
	}
	truth := r.truth.EventsOf("slow")[0]
	for i := range table.Rows {
		row := &table.Rows[i]
		if cellText(table, row, "kernel") != shortName(truth.Kernel) ||
			cellText(table, row, "site") != siteOf(truth.Function, truth.Line) {
			wrong = append(wrong, fmt.Sprintf("%v, truth %+v", row.Cells, truth))
		}
	}
	return wrong
}

// checkIdleShare compares the bounds of the idle time with the ledger.
func (r *jobRun) checkIdleShare() []string {
	table := tableOf(r.report("gaps"), "devices")
	if table == nil || len(table.Rows) != 1 {
		return []string{"no device"}
	}
	all := r.spansOf(func(*simtest.Operation) bool { return true })
	until, idleNs := all[0].to, int64(0)
	for _, s := range all {
		idleNs += max(0, s.from-until)
		until = max(until, s.to)
	}
	idlePct := 100 * float64(idleNs) / float64(until-all[0].from)
	low, high := table.Cell(&table.Rows[0], "idle_min_pct").(float64), table.Cell(&table.Rows[0], "idle_max_pct").(float64)
	r.t.Logf("idle %.1f to %.1f %%, %v, truth %.1f %%", low, high, table.Cell(&table.Rows[0], "idle_pct"), idlePct)
	const roundingPct = 0.5 // the window begins at the first step, not at its first operation
	if idlePct < low-roundingPct || idlePct > high+roundingPct {
		return []string{fmt.Sprintf("idle %.1f to %.1f %%, truth %.1f %%", low, high, idlePct)}
	}
	return nil
}

// checkIdleCause checks the cause with the longest time.
func (r *jobRun) checkIdleCause() []string {
	table := tableOf(r.report("gaps"), "causes")
	if table == nil || len(table.Rows) == 0 {
		return []string{"no cause"}
	}
	row := &table.Rows[0]
	cause, line, after := cellText(table, row, "cause"), cellText(table, row, "line"), cellText(table, row, "after")
	right := false
	switch r.truth.Scenario {
	case "host-bound":
		right = cause == "host was outside CUDA"
	case "late-host":
		right = cause == "host was outside CUDA" &&
			slices.ContainsFunc(r.truth.EventsOf("delay"), func(e simtest.JobEvent) bool {
				return line == siteOf(e.Function, e.Line) && after == siteOf(e.FromFunction, e.FromLine)
			})
	case "copy-wait":
		e := r.truth.EventsOf("copy")[0]
		right = cause == "only copies ran" && line == siteOf(e.Function, e.Line)
	case "stream-wait":
		e := r.truth.EventsOf("stream")[0]
		right = strings.HasPrefix(cause, "stream waited for") && after == siteOf(e.Function, e.Line)
	}
	if right {
		return nil
	}
	var rows []string
	for i := range table.Rows[:min(3, len(table.Rows))] {
		rows = append(rows, fmt.Sprint(table.Rows[i].Cells))
	}
	return []string{strings.Join(rows, "\n")}
}

// checkLimit compares what limits the program with the truth, phase by phase.
func (r *jobRun) checkLimit() (wrong []string) {
	table := tableOf(r.report("gaps"), "phases")
	if table == nil || len(table.Rows) == 0 {
		return []string{"no phases"}
	}
	want, rightNs, allNs := map[string]string{"host": "CPU", "gpu": "GPU"}, int64(0), int64(0)
	startNs := r.timeline.RecordingWindow().FromNs - r.result.Meta.ClockOffsetNs
	for _, s := range r.truth.EventsOf("step") {
		allNs += s.EndNs - s.StartNs
		for i := range table.Rows {
			row := &table.Rows[i]
			fromNs := startNs + table.Cell(row, "at_ns").(int64)
			toNs := fromNs + table.Cell(row, "dur_ns").(int64)
			if cellText(table, row, "bound") == want[s.Bound] {
				rightNs += max(0, min(s.EndNs, toNs)-max(s.StartNs, fromNs))
			}
		}
	}
	var rows []string
	for i := range table.Rows {
		rows = append(rows, fmt.Sprint(table.Rows[i].Cells))
	}
	if rightNs*10 < allNs*8 {
		return []string{fmt.Sprintf("right in %d %% of the time: %s", 100*rightNs/allNs, strings.Join(rows, "\n"))}
	}
	return nil
}

// checkUnfinishedOperation compares the first operation that report hang names with the operation that never ends.
// Further rows are last operations of other streams, whose end nothing shows.
func (r *jobRun) checkUnfinishedOperation() []string {
	slow, stuck := r.truth.EventsOf("slow"), r.truth.EventsOf("stuck")
	table := tableOf(r.report("hang"), "gpu_operations")
	if table == nil || len(table.Rows) == 0 || len(slow) != 1 || len(stuck) != 1 {
		return []string{fmt.Sprintf("no operation, truth %+v, %+v", slow, stuck)}
	}
	var truth *simtest.Operation
	for i := range r.slowOperations() {
		truth = &r.ledger.Operations[i]
	}
	row, e := &table.Rows[0], slow[0]
	startNs := truth.StartNs + r.result.Meta.ClockOffsetNs - r.ledger.Clocks[0].RealMinusMonotonicNs
	offNs := table.Cell(row, "running_ns").(int64) - (r.result.Meta.EndNs - startNs)
	const lateNs = 5_000_000 // the start is estimated: no later operation confirms the number
	r.t.Logf("running time off by %d ns, printed error %v ns", offNs, table.Cell(row, "running_error_ns"))
	right := table.Cell(row, "operation") == shortName(e.Kernel) && table.Cell(row, "number") == truth.Counter &&
		table.Cell(row, "site") == siteOf(e.Function, e.Line) &&
		table.Cell(row, "behind") == stuck[0].Launches-e.Launches &&
		offNs >= -lateNs && offNs <= table.Cell(row, "running_error_ns").(int64)+lateNs
	if right {
		return nil
	}
	var rows []string
	for i := range table.Rows {
		rows = append(rows, fmt.Sprint(table.Rows[i].Cells))
	}
	return []string{
		fmt.Sprintf("off by %d ns, truth %+v, %+v, %+v\n%s", offNs, truth, e, stuck[0], strings.Join(rows, "\n")),
	}
}
