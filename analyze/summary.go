package analyze

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	callspkg "github.com/gpurec/gpurec/analyze/model/calls"
	"github.com/gpurec/gpurec/analyze/model/ledger"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/units"
)

var summaryFacts = []Column{
	{"processes", "processes", UnitText, "recorded processes"},
	{"devices", "devices", UnitText, "GPUs"},
	{"host", "host", UnitText, "machine that was recorded"},
	{"driver", "driver", UnitText, "NVIDIA driver and the CUDA version it supports"},
	{"recorded_by", "recorded by", UnitText, "version and command line of the recorder"},
	{"start_ns", "started", UnitTime, "start of the recording"},
	{"dur_ns", "duration", UnitNs, "length of the recording"},
	{"call_errors", "errors", UnitCount, "calls that returned an error, in the window"},
	{"unfinished_calls", "open calls", UnitCount, "calls that were not seen to return, in the window"},
	{"out_of_memory", "out of memory", UnitCount, "calls that returned CUDA_ERROR_OUT_OF_MEMORY, in the window"},
	{"xids", "Xid errors", UnitCount, "Xid errors of any device, in the window"},
	{"kernels", "kernels", UnitText, "kernels that ran and were captured, in the window; the numbers are below"},
	{"kernels_run", "", UnitCount, "kernels_launched + graph_kernels"},
	{"kernels_launched", "", UnitCount, "kernel launches that succeeded and were not captured"},
	{"captured_launches", "", UnitCount, "kernel launches that stream capture put into a graph instead of running them"},
	{"graph_launches", "", UnitCount, "graphs run"},
	{"graph_kernels", "", UnitCount, "kernels in those graphs, as far as their making was recorded"},
	{"borrowed", "borrowed", UnitText, "memory of other processes and APIs that was opened here, by kind (ipc, external, physical: an imported handle); it is in no other number"},
	{"borrowed_opened", "", UnitCount, "how often memory was borrowed"},
	{"borrowed_open", "", UnitCount, "of those, not given back before the end of the recording or of the process"},
	{"borrowed_bytes", "", UnitBytes, "bytes of borrowed_opened, where the call says how much"},
	{"graph_memory", "graph memory", UnitText, "memory that graphs allocate when they run; it is in no number of live bytes"},
	{"graph_allocs", "", UnitCount, "allocations in graphs"},
	{"graph_alloc_bytes", "", UnitBytes, "bytes of those, each counted once"},
	{"rules", "rules", UnitText, "set if no rule of analyze rules found anything"},
	{"problems", "", UnitCount, "hits of severity problem: see analyze rules"},
	{"notices", "", UnitCount, "hits of severity notice"},
}

var findingColumns = []Column{
	{"finding", "FINDING", UnitText, "what stands out; rows are ordered by weight"},
	{"next", "NEXT", UnitText, "the report that shows more"},
}

// summaryTop is how many rows the summary shows of a table that has its own report.
const summaryTop = 3

// Summary reports what a recording holds and what stands out in it.
func Summary(t *timeline.Timeline, opt query.Options) (*Report, error) {
	s, err := newSurvey(t, &opt)
	if err != nil {
		return nil, err
	}
	leaks, calls := s.leaks, s.calls
	use := newMemoryUse(t, &opt.Filter)
	allocators := newAllocatorUse(t, &opt.Filter, leaks.window)
	if err := s.run(func(c *ledger.Change) { use.consume(c) }, allocators.watch); err != nil {
		return nil, err
	}
	checked := checkable(t, rules())
	hits, err := s.check(checked)
	if err != nil {
		return nil, err
	}
	p, rows := s.program, s.verdicts
	r := &Report{Command: "summary", Window: calls.Window, Quality: s.quality}
	r.Notes = append(slices.Clone(t.Facts.Notes), r.Quality.notes()...)
	if len(calls.Calls) == 0 && t.Scan.Events > 0 {
		r.NoMatch = calls.Seen.Explain(&opt.Filter)
	}
	r.Facts = append(newSummaryFacts(t, calls, p.Driver, len(checked), hits), allocators.facts(p.Allocators)...)
	r.Totals = leaks.totals(rows)
	leakTable := newLeakTable(t, leaks, rows, &r.Quality, false)
	callTable, kernelTable := newCallTable(calls), newKernelTable(calls)
	for table, top := range map[*Table]int{&leakTable: summaryTop, &callTable: summaryRows(opt.Top), &kernelTable: summaryRows(opt.Top)} {
		if err := table.arrange("", top); err != nil {
			return nil, err
		}
	}
	r.Tables = []Table{shortHits(hits), findings(t, r, hits), use.table(), allocators.table(p.Allocators), poolTable(t, r.Window, &opt.Filter), leakTable, callTable, kernelTable}
	processes := newIdentityTable(t, &opt.Filter)
	if err := processes.arrange("", summaryRows(opt.Top)); err != nil {
		return nil, err
	}
	if len(processes.Rows) > 0 {
		r.Tables = append(r.Tables, processes)
	}
	if used := leaks.grouping.suppress.table(); len(used.Rows) > 0 {
		r.Tables = append(r.Tables, used)
	}
	return r, nil
}

// summaryRows is how many calls and kernels the summary shows.
func summaryRows(top int) int {
	if top == 0 {
		return 0
	}
	return min(top, 10)
}

func newSummaryFacts(t *timeline.Timeline, calls *callspkg.Counter, l *ledger.Ledger, rulesChecked int, hits []hit) []Fact {
	m := &t.Rec.Meta
	w := t.Recording()
	var processes, devices []string
	for _, pid := range slices.Sorted(maps.Keys(t.Facts.Processes)) {
		name := t.PidLabel(pid)
		for _, d := range t.Facts.Processes[pid].Devices {
			if m, index, ok := t.Facts.MIGOf(pid, d.Ordinal); ok {
				name += " on " + t.Facts.MIGLabel(m, index)
			}
		}
		processes = append(processes, name)
	}
	for _, d := range slices.Sorted(maps.Keys(t.Facts.Devices)) {
		label := t.DeviceLabel(d)
		if parts := t.Facts.MIGNames(d); parts != "" {
			label += " (MIG: " + parts + ")"
		}
		devices = append(devices, label)
	}
	driver := m.DriverVersion
	if m.CUDAVersion != "" {
		driver = strings.TrimSpace(driver + " (CUDA " + m.CUDAVersion + ")")
	}
	sum, work, borrowed := calls.Total(), &calls.Work, l.BorrowTotals()
	counted, checked := ruleTotals(hits), ""
	if len(hits) == 0 {
		checked = fmt.Sprintf("none of %d found anything", rulesChecked)
	}
	return fill(summaryFacts, strings.Join(processes, ", "), strings.Join(devices, ", "), m.Host, driver,
		strings.TrimSpace(m.GpurecVersion+" "+strings.Join(m.Command, " ")), w.FromNs, w.DurNs(),
		sum.Errors, sum.Open, calls.OutOfMemory, xidsIn(t, calls.Window),
		work.String(), work.Run(), work.Launched, work.Captured, work.GraphLaunches, work.GraphKernels,
		l.BorrowedText(), borrowed.Opened, borrowed.Opened-borrowed.Returned, borrowed.Bytes,
		graphText(&l.Counts), l.Counts.GraphAllocs, l.Counts.GraphBytes, checked, counted[1].Value, counted[2].Value)
}

func graphText(c *ledger.Counts) string {
	if c.GraphAllocs == 0 {
		return ""
	}
	return fmt.Sprintf("%s in graphs, %s; not in live bytes", units.Plural(c.GraphAllocs, "allocation"), units.Bytes(c.GraphBytes))
}

func xidsIn(t *timeline.Timeline, w query.Window) int64 {
	var n int64
	for _, x := range t.Facts.Xids {
		if x.AtNs >= w.FromNs && x.AtNs <= w.ToNs {
			n++
		}
	}
	return n
}

// findings lists what else a reader should know at first: what no rule has found.
func findings(t *timeline.Timeline, r *Report, hits []hit) Table {
	table := Table{Name: "findings", Title: "findings", Columns: findingColumns}
	found := func(r *rule) bool { return slices.ContainsFunc(hits, func(h hit) bool { return h.rule == r }) }
	add := func(next, format string, args ...any) {
		table.Rows = append(table.Rows, Row{Cells: []any{fmt.Sprintf(format, args...), next}})
	}
	number := func(name string) int64 {
		v, _, _ := r.Number(name)
		return int64(v)
	}
	if n := number("out_of_memory"); n > 0 && !found(&ruleOOM) {
		add("errors", "%s failed with CUDA_ERROR_OUT_OF_MEMORY", units.Plural(n, "call"))
	}
	if n := number("unfinished_calls"); n > 0 && !found(&ruleHang) {
		add("perfetto", "%s had not returned at the end", units.Plural(n, "call"))
	}
	if n := r.Quality.LostEvents; n > 0 {
		add("", "%s lost: numbers are too low by that", units.Plural(n, "call"))
	}
	if d := t.Rec.Meta.ClockStepNs; d > int64(time.Second) || d < -int64(time.Second) {
		add("", "the wall clock was set by %s during the recording", units.Duration(d))
	}
	return table
}
