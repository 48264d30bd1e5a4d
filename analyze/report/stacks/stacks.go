package stacks

import (
	"github.com/gpurec/gpurec/analyze/model/calls"
	"github.com/gpurec/gpurec/analyze/model/sampling"
	"github.com/gpurec/gpurec/analyze/model/survey"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/quality"
	"github.com/gpurec/gpurec/format"
)

// Run reports the stacks of calls, the number of calls from each, and how complete the stacks are.
// It returns a *report.SortError for an unknown opt.Sort.
func Run(t *timeline.Timeline, opt query.Options) (*report.Report, error) {
	return report.RunSurvey(t, opt, Collect)
}

// Collect adds the observers of the report to a survey. Its errors are those of Run.
func Collect(sv *survey.Survey, opt query.Options) (report.FinishFunc, error) {
	t := sv.Timeline
	sc := &scan{CallCounter: calls.NewCallCounter(t, &opt.Filter), counts: make(map[stackWithStatus]int64)}
	read := func(_ timeline.Span, g *format.Group) { sc.readRowGroup(g) }
	sv.Add(survey.Observer{CallGroup: read, MemoryGroup: read})
	return func() (*report.Report, error) { return sc.report(sv, &opt) }, nil
}

// report returns the report after the survey.
func (sc *scan) report(sv *survey.Survey, opt *query.Options) (*report.Report, error) {
	t := sv.Timeline
	r := &report.Report{
		Command: "stacks",
		Window:  sc.Window,
		Quality: quality.OfRecording(t, sv.Counts),
		Notes:   t.Facts.Notes,
	}
	if sc.all == 0 && t.Scan.Events > 0 {
		r.NoMatch = sc.Seen.ExplainNoMatch(&opt.Filter)
	}
	table, err := sc.stackTable(opt)
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
