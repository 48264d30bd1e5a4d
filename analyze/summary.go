package analyze

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/gpurec/gpurec/analyze/model/ledger"
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
func (t *Timeline) Summary(opt query.Options) (*Report, error) {
	s, err := t.newSurvey(&opt)
	if err != nil {
		return nil, err
	}
	leaks, calls := s.leaks, s.calls
	use := t.newMemoryUse(&opt.Filter)
	allocators := t.newAllocatorUse(&opt.Filter, leaks.window)
	if err := s.run(func(c *ledger.Change) { use.consume(c) }, allocators.watch); err != nil {
		return nil, err
	}
	checked := t.checkable(rules())
	hits, err := s.check(checked)
	if err != nil {
		return nil, err
	}
	p, rows := s.program, s.verdicts
	r := &Report{Command: "summary", Window: calls.window, Quality: s.quality}
	r.Notes = append(slices.Clone(t.facts.notes), r.Quality.notes()...)
	if len(calls.calls) == 0 && t.scan.events > 0 {
		r.NoMatch = calls.seen.Explain(&opt.Filter)
	}
	r.Facts = append(t.summaryFacts(calls, p.driver, len(checked), hits), allocators.facts(p.allocators)...)
	r.Totals = leaks.totals(rows)
	leakTable := t.leakTable(leaks, rows, &r.Quality, false)
	callTable, kernelTable := calls.callTable(), calls.kernelTable()
	for table, top := range map[*Table]int{&leakTable: summaryTop, &callTable: summaryRows(opt.Top), &kernelTable: summaryRows(opt.Top)} {
		if err := table.arrange("", top); err != nil {
			return nil, err
		}
	}
	r.Tables = []Table{shortHits(hits), t.findings(r, hits), use.table(), allocators.table(p.allocators), t.poolTable(r.Window, &opt.Filter), leakTable, callTable, kernelTable}
	processes := t.processTable(&opt.Filter)
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

func (t *Timeline) summaryFacts(calls *callUse, l *ledger.Ledger, rulesChecked int, hits []hit) []Fact {
	m := &t.rec.Meta
	w := t.Recording()
	var processes, devices []string
	for _, pid := range slices.Sorted(maps.Keys(t.facts.processes)) {
		name := t.pidLabel(pid)
		for _, d := range t.facts.processes[pid].Devices {
			if m, index, ok := t.facts.migOf(pid, d.Ordinal); ok {
				name += " on " + t.facts.migLabel(m, index)
			}
		}
		processes = append(processes, name)
	}
	for _, d := range slices.Sorted(maps.Keys(t.facts.devices)) {
		label := t.deviceLabel(d)
		if parts := t.facts.migNames(d); parts != "" {
			label += " (MIG: " + parts + ")"
		}
		devices = append(devices, label)
	}
	driver := m.DriverVersion
	if m.CUDAVersion != "" {
		driver = strings.TrimSpace(driver + " (CUDA " + m.CUDAVersion + ")")
	}
	sum, work, borrowed := calls.total(), &calls.work, l.BorrowTotals()
	counted, checked := ruleTotals(hits), ""
	if len(hits) == 0 {
		checked = fmt.Sprintf("none of %d found anything", rulesChecked)
	}
	return fill(summaryFacts, strings.Join(processes, ", "), strings.Join(devices, ", "), m.Host, driver,
		strings.TrimSpace(m.GpurecVersion+" "+strings.Join(m.Command, " ")), w.FromNs, w.DurNs(),
		sum.errors, sum.open, calls.outOfMemory, t.xidsIn(calls.window),
		work.String(), work.run(), work.launched, work.captured, work.graphLaunches, work.graphKernels,
		l.BorrowedText(), borrowed.Opened, borrowed.Opened-borrowed.Returned, borrowed.Bytes,
		graphText(&l.Counts), l.Counts.GraphAllocs, l.Counts.GraphBytes, checked, counted[1].Value, counted[2].Value)
}

func graphText(c *ledger.Counts) string {
	if c.GraphAllocs == 0 {
		return ""
	}
	return fmt.Sprintf("%s in graphs, %s; not in live bytes", units.Plural(c.GraphAllocs, "allocation"), units.Bytes(c.GraphBytes))
}

func (t *Timeline) xidsIn(w query.Window) int64 {
	var n int64
	for _, x := range t.facts.xids {
		if x.atNs >= w.FromNs && x.atNs <= w.ToNs {
			n++
		}
	}
	return n
}

// findings lists what else a reader should know at first: what no rule has found.
func (t *Timeline) findings(r *Report, hits []hit) Table {
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
	if d := t.rec.Meta.ClockStepNs; d > int64(time.Second) || d < -int64(time.Second) {
		add("", "the wall clock was set by %s during the recording", units.Duration(d))
	}
	return table
}
