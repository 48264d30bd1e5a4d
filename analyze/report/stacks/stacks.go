package stacks

import (
	"github.com/gpurec/gpurec/analyze/model/calls"
	"github.com/gpurec/gpurec/analyze/model/sampling"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/quality"
	"github.com/gpurec/gpurec/format"
)

// Run reports the stacks of calls, the number of calls from each, and how complete the stacks are.
// It returns a *report.SortError for an unknown opt.Sort.
func Run(t *timeline.Timeline, opt query.Options) (*report.Report, error) {
	t = t.NewView()
	counts, err := calls.CountReplayWhile(t, func() error { return nil }) // the quality block needs them
	if err != nil {
		return nil, err
	}
	sc := &scan{CallCounter: calls.NewCallCounter(t, &opt.Filter), counts: make(map[stackWithStatus]int64)}
	if err := sc.readCalls(); err != nil {
		return nil, err
	}
	r := &report.Report{
		Command: "stacks",
		Window:  sc.Window,
		Quality: quality.OfRecording(t, counts),
		Notes:   t.Facts.Notes,
	}
	if sc.all == 0 && t.Scan.Events > 0 {
		r.NoMatch = sc.Seen.ExplainNoMatch(&opt.Filter)
	}
	table, err := sc.stackTable(&opt)
	if err != nil {
		return nil, err
	}
	r.Totals = sc.computeTotals()
	sum := t.Facts.SumStackInferences()
	r.Facts = report.NewFacts(factColumns, report.Values{
		"inference": sampling.FormatInferenceError(&sum, sc.countCallsWithStatus(format.StackInferred) > 0),
	})
	r.Tables = []report.Table{sc.statusTable(), inferenceTable(&t.Facts), sc.truncationTable(), table}
	return r, nil
}
