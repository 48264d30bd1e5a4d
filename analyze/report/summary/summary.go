package summary

import (
	"slices"

	"github.com/gpurec/gpurec/analyze/model/livemem"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/allocator"
	leakspkg "github.com/gpurec/gpurec/analyze/report/leaks"
	"github.com/gpurec/gpurec/analyze/report/memory"
	processespkg "github.com/gpurec/gpurec/analyze/report/processes"
	"github.com/gpurec/gpurec/analyze/report/rules"
)

// Run reports what the recording contains, the hits of all rules, and the top rows of the tables of
// other reports.
func Run(t *timeline.Timeline, opt query.Options) (*report.Report, error) {
	t = t.View()
	s, err := rules.NewSurvey(t, &opt)
	if err != nil {
		return nil, err
	}
	leaks, calls := s.Leaks, s.Calls
	use := memory.NewLevelScan(t, &opt.Filter)
	allocators := allocator.NewTotalsScan(t, &opt.Filter, leaks.Window)
	if err := s.Run(func(c *livemem.Change) { use.Consume(c) }, allocators.Watch); err != nil {
		return nil, err
	}
	checked := rules.Checkable(t, rules.All())
	hits, err := s.Check(checked)
	if err != nil {
		return nil, err
	}
	p, rows := s.Program, s.Findings
	r := &report.Report{Command: "summary", Window: calls.Window, Quality: s.Quality}
	r.Notes = append(slices.Clone(t.Facts.Notes), r.Quality.Notes()...)
	if len(calls.Calls) == 0 && t.Scan.Events > 0 {
		r.NoMatch = calls.Seen.Explain(&opt.Filter)
	}
	r.Facts = append(facts(t, calls, p.Driver, len(checked), hits), allocators.Facts(p.Allocators)...)
	r.Totals = leaks.Totals(rows)
	leakTable := leaks.Table(rows, &r.Quality, leakspkg.TableOptions{})
	functions, kernels := callTable(calls), kernelTable(calls)
	for table, top := range map[*report.Table]int{
		&leakTable: summaryTop,
		&functions: summaryRows(opt.Top),
		&kernels:   summaryRows(opt.Top),
	} {
		if err := table.Arrange("", top); err != nil {
			return nil, err
		}
	}
	r.Tables = []report.Table{
		rules.ShortHits(hits),
		findings(t, r, hits),
		use.Table(),
		allocators.Table(p.Allocators),
		memory.PoolTable(t, r.Window, &opt.Filter),
		leakTable,
		functions,
		kernels,
	}
	processes := processespkg.NewTable(t, &opt.Filter)
	if err := processes.Arrange("", summaryRows(opt.Top)); err != nil {
		return nil, err
	}
	if len(processes.Rows) > 0 {
		r.Tables = append(r.Tables, processes)
	}
	if used := leaks.Grouping.Suppress.Table(); len(used.Rows) > 0 {
		r.Tables = append(r.Tables, used)
	}
	return r, nil
}

// summaryTop is the number of rows of a table that has its own report.
const summaryTop = 3

// summaryRows returns the number of calls, kernels and processes in the summary; 0: all.
func summaryRows(top int) int {
	if top == 0 {
		return 0
	}
	return min(top, 10)
}
