package cpu

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/hosttime"
	"github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// maxPrintedStacks is the number of rows of a table whose stack text output prints.
const maxPrintedStacks = 3

// roundCell returns a measured number as a cell.
func roundCell(v float64) int64 { return units.RoundInt(v) }

// percentCell returns a share as a cell, or nil if the whole is 0.
func percentCell(part, whole float64) any {
	if whole <= 0 || math.IsInf(whole, 0) {
		return nil
	}
	return 100 * part / whole
}

// countCell returns a count, or nil for 0.
func countCell(n int64) any {
	if n == 0 {
		return nil
	}
	return n
}

// threadTable returns the times of each thread, the launching threads first.
func (s *scan) threadTable() report.Table {
	table := report.Table{
		Name: "threads", Title: "threads: where their time went (measured)", Columns: slices.Clone(threadColumns),
		HideFirst: []string{"switches", "covered_pct", "stack_pct", "samples", "uninterruptible_ns", "wait_ns"},
		Keys:      []string{"thread"},
	}
	for _, th := range slices.SortedFunc(maps.Keys(s.threads), compareThreads) {
		of, m := s.threads[th], s.metrics.threads[th]
		readings := s.metrics.processes[th.Pid].number(format.HostInterpreterReads)
		table.Add(report.Values{
			"on_cpu_ns":          m.count(format.HostRunning),
			"run_queue_ns":       m.count(format.HostRunnable),
			"sleeping_ns":        m.count(format.HostSleeping),
			"uninterruptible_ns": m.count(format.HostUninterruptible),
			"covered_pct":        s.coveredPct(m),
			"launches":           countCell(of.launches),
			"switches":           m.count(format.HostSwitches),
			"waits":              countCell(of.waits.count),
			"wait_ns":            countCell(of.waits.ns),
			"stack_pct":          percentCell(float64(of.waits.stackNs), float64(of.waits.ns)),
			"samples":            countCell(of.samples.count),
			"major_faults":       m.count(format.HostMajorFaults),
			"gil_held_pct":       gilPct(m, format.HostGILHeld, readings),
			"gil_waited_pct":     gilPct(m, format.HostGILWaited, readings),
			"thread":             s.t.ThreadLabel(th),
			"pid":                int64(th.Pid),
			"tid":                int64(th.Tid),
		})
	}
	table.Sort("launches", "wait_ns", "on_cpu_ns", "thread")
	hideEmptyColumns(&table, "gil_held_pct", "gil_waited_pct", "covered_pct", "switches", "samples")
	return table
}

// coveredPct returns the share of the window that the times of a thread cover.
func (s *scan) coveredPct(m *counters) any {
	if m == nil || s.window.DurNs() == 0 {
		return nil
	}
	return percentCell(m.stateNs(), float64(s.window.DurNs()))
}

// gilPct returns the share of the readings of an interpreter that found a thread in a state.
func gilPct(m *counters, name string, readings float64) any {
	if m.count(name) == nil {
		return nil
	}
	return percentCell(m.number(name), readings)
}

// hideEmptyColumns removes the titles of columns without values.
func hideEmptyColumns(table *report.Table, keys ...string) {
	for _, key := range keys {
		if !slices.ContainsFunc(table.Rows, func(r report.Row) bool { return table.Cell(&r, key) != nil }) {
			report.HideTitle(table.Columns, key)
		}
	}
}

func compareThreads(a, b origin.Thread) int {
	return cmp.Or(cmp.Compare(a.Pid, b.Pid), cmp.Compare(a.Tid, b.Tid))
}

// statisticValues returns the values of statisticColumns.
func (s *scan) statisticValues(reason string, sum *waitSum) report.Values {
	return report.Values{
		"wait_ns":           sum.ns,
		"wait_pct":          units.Percent(sum.ns, s.all.ns),
		"waits":             sum.count,
		"mean_ns":           sum.ns / sum.count,
		"longest_ns":        sum.longestNs,
		"wait_run_queue_ns": sum.queueNs,
		"open":              countCell(sum.open),
		"reason":            reason,
	}
}

// reasonTable returns the waits by reason.
func (s *scan) reasonTable() report.Table {
	table := report.Table{
		Name: "reasons", Title: "waits by reason (measured)", Columns: slices.Clone(reasonColumns),
		HideFirst: []string{"open", "mean_ns", "wait_run_queue_ns"}, Keys: []string{"reason"},
	}
	for _, reason := range slices.Sorted(maps.Keys(s.reasons)) {
		sum := s.reasons[reason]
		table.Add(report.JoinValues(s.statisticValues(reason, sum), report.Values{
			"stack_pct":           percentCell(float64(sum.stackNs), float64(sum.ns)),
			"uninterruptible_pct": percentCell(float64(sum.uninterruptibleNs), float64(sum.ns)),
		}))
	}
	table.Sort("wait_ns", "reason")
	hideEmptyColumns(&table, "open")
	return table
}

// waitTable returns the waits by reason, call and line.
func (s *scan) waitTable() report.Table {
	table := report.Table{
		Name: "waits", Title: "waits by reason and line (measured)", Columns: slices.Clone(waitColumns),
		HideFirst: []string{"open", "for", "wait_run_queue_ns", "mean_ns", "call"},
		Keys:      []string{"reason", "call", "site"},
	}
	s.chains.addColumn(&table)
	for _, key := range slices.SortedFunc(maps.Keys(s.waits), compareWaitKeys) {
		sum := s.waits[key]
		table.Add(report.JoinValues(s.statisticValues(key.reason, sum), report.Values{
			"call": units.TextOrNil(key.call),
			"for":  units.TextOrNil(s.objectOf(&sum.longest)),
			"site": key.site,
		}, s.chains.values(s, key))).StackID = sum.longestStack
	}
	table.Sort("wait_ns", "reason", "site", "call")
	hideEmptyColumns(&table, "open", "for", "call")
	return table
}

func compareWaitKeys(a, b waitKey) int {
	return cmp.Or(cmp.Compare(a.reason, b.reason), cmp.Compare(a.site, b.site), cmp.Compare(a.call, b.call))
}

// objectOf returns what a wait is for: a file or socket, or the thread that holds the lock.
func (s *scan) objectOf(w *hosttime.Wait) string {
	f := w.Fact
	switch {
	case f.Target != "":
		return f.Target
	case f.OwnerTid != 0:
		th := origin.Thread{Pid: cmp.Or(f.OwnerPid, w.Pid), Tid: f.OwnerTid}
		if s.t.Facts.Threads[th] == "" && f.Owner != "" {
			return fmt.Sprintf("thread %d %s", f.OwnerTid, f.Owner)
		}
		return "thread " + s.t.ThreadLabel(th)
	case f.OwnerPid != 0 && f.Owner != "":
		return fmt.Sprintf("process %d %s", f.OwnerPid, f.Owner)
	case f.OwnerPid != 0:
		return "process " + s.t.PidLabel(f.OwnerPid)
	}
	return f.Owner
}

// lineTable returns the CPU time by function and line.
func (s *scan) lineTable() report.Table {
	table := report.Table{
		Name: "lines", Title: "CPU time by function and line (estimated from samples)",
		Columns:   slices.Clone(lineColumns),
		HideFirst: []string{"samples", "function"},
		Keys:      []string{"function", "site"},
	}
	for _, key := range slices.SortedFunc(maps.Keys(s.lines), func(a, b lineKey) int {
		return cmp.Or(cmp.Compare(a.site, b.site), cmp.Compare(a.function, b.function))
	}) {
		sum := s.lines[key]
		table.Add(report.Values{
			"cpu_ns":   sum.ns,
			"error_ns": sum.errorNs(),
			"cpu_pct":  units.Percent(sum.ns, s.samples.ns),
			"samples":  sum.count,
			"function": units.TextOrNil(key.function),
			"site":     key.site,
		}).StackID = sum.mostFrequentStack()
	}
	table.Sort("cpu_ns", "site", "function")
	return table
}
