package summary

import (
	"slices"

	"github.com/gpurec/gpurec/analyze/model/livemem"
	"github.com/gpurec/gpurec/analyze/model/survey"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/allocator"
	"github.com/gpurec/gpurec/analyze/report/earlier"
	"github.com/gpurec/gpurec/analyze/report/leaks"
	"github.com/gpurec/gpurec/analyze/report/memory"
	"github.com/gpurec/gpurec/analyze/report/processes"
	"github.com/gpurec/gpurec/analyze/report/rules"
)

// Run returns the summary of a recording: its contents, the hits of all rules, and the top rows of
// the tables of other reports. Its errors are those of reading the recording.
func Run(t *timeline.Timeline, opt query.Options) (*report.Report, error) {
	t = t.NewView()
	opt.MaxTimedCalls = query.QuickTimedCalls
	sv := survey.New(t, &opt.Filter)
	s, err := rules.NewScan(sv, &opt)
	if err != nil {
		return nil, err
	}
	levels := memory.NewLevelScan(t, &opt.Filter)
	allocators := allocator.NewTotalsScan(t, &opt.Filter, s.Leaks.Window)
	before := earlier.ScanOf(sv, &opt.Filter)
	sv.Add(survey.Observer{
		Driver:    func(c *livemem.Change) { levels.OnDriverChange(c) },
		Allocator: allocators.OnAllocatorChange,
	})
	if err := sv.Read(); err != nil {
		return nil, err
	}
	checked := rules.SelectCheckable(t, rules.AllRules())
	hits, err := s.Check(checked)
	if err != nil {
		return nil, err
	}
	counts, p := s.Calls, &sv.Memory
	r := &report.Report{Command: "summary", Window: counts.Window, Quality: s.Quality}
	r.Notes = append(slices.Clone(t.Facts.Notes), r.Quality.Notes()...)
	if len(counts.Calls) == 0 && t.Scan.Events > 0 {
		r.NoMatch = counts.Seen.ExplainNoMatch(&opt.Filter)
	}
	r.Facts = append(newRecordingFacts(t, counts, p.Driver, len(checked), hits), allocators.Facts(p.Allocators)...)
	if before.HasRead() {
		r.Facts = append(r.Facts, before.Facts()...)
	}
	gpu, err := newGPUFacts(t, &opt.Filter, r.Window)
	if err != nil {
		return nil, err
	}
	r.Facts = append(r.Facts, gpu...)
	r.Totals = s.Leaks.Totals(s.LeakFindings)
	leakTable := s.Leaks.Table(s.LeakFindings, &r.Quality, leaks.TableOptions{})
	functions, kernels := newCallTable(counts), newKernelTable(counts)
	for table, top := range map[*report.Table]int{
		&leakTable: maxLeakRows,
		&functions: limitTableRows(opt.Top),
		&kernels:   limitTableRows(opt.Top),
	} {
		if err := table.SortAndCut("", top); err != nil {
			return nil, err
		}
	}
	r.Tables = []report.Table{
		rules.NewShortHitTable(t, hits),
		newFindingTable(t, r, hits),
		levels.Table(),
		allocators.Table(p.Allocators),
		memory.PoolTable(t, r.Window, &opt.Filter),
		leakTable,
		functions,
		kernels,
	}
	processTable := processes.NewProcessTable(t, &opt.Filter)
	if err := processTable.SortAndCut("", limitTableRows(opt.Top)); err != nil {
		return nil, err
	}
	if len(processTable.Rows) > 0 {
		r.Tables = append(r.Tables, processTable)
	}
	if used := s.Leaks.Grouping.Suppress.Table(); len(used.Rows) > 0 {
		r.Tables = append(r.Tables, used)
	}
	return r, nil
}

// maxLeakRows is the number of rows of the table of leaks: analyze leaks shows the others.
const maxLeakRows = 3

// limitTableRows returns the number of rows of the tables of calls, kernels and processes. top is
// query.Options.Top; 0 means all rows, both as argument and as result.
func limitTableRows(top int) int {
	if top == 0 {
		return 0
	}
	return min(top, 10)
}
