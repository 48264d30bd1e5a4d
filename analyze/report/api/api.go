package api

import (
	"cmp"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/calls"
	"github.com/gpurec/gpurec/analyze/model/stack"
	"github.com/gpurec/gpurec/analyze/model/survey"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/group"
	"github.com/gpurec/gpurec/analyze/report/quality"
	"github.com/gpurec/gpurec/format"
)

// GroupNames returns the values of Options.GroupBy that this report accepts, the default first.
func GroupNames() []string {
	return slices.Concat(
		[]string{"name", "site", "stack", "thread", "stream"},
		stack.OperatorGroups,
		timeline.IdentityGroups,
	)
}

// Run reports the number and duration of calls of each CUDA driver function, as nsys does. It
// returns a *report.GroupError for an unknown opt.GroupBy and a *report.SortError for an unknown
// opt.Sort.
func Run(t *timeline.Timeline, opt query.Options) (*report.Report, error) {
	return report.RunSurvey(t, opt, Collect)
}

// Collect adds the observers of the report to a survey. Its errors are those of Run.
func Collect(sv *survey.Survey, opt query.Options) (report.FinishFunc, error) {
	t := sv.Timeline
	sc := &scan{
		CallCounter: calls.NewCallCounter(t, &opt.Filter), groupBy: cmp.Or(opt.GroupBy, GroupNames()[0]),
		groups: make(map[groupKey]*callGroup), identities: make(map[int32]int64),
	}
	if !slices.Contains(GroupNames(), sc.groupBy) {
		return nil, &report.GroupError{Name: opt.GroupBy, Known: GroupNames()}
	}
	sc.sites = calls.CallSiteReader{T: t, Names: &sc.names}
	read := func(_ timeline.Span, g *format.Group) { sc.readRowGroup(g) }
	sv.Add(survey.Observer{CallGroup: read, MemoryGroup: read})
	return func() (*report.Report, error) { return sc.report(sv, &opt) }, nil
}

// report returns the report after the survey.
func (sc *scan) report(sv *survey.Survey, opt *query.Options) (*report.Report, error) {
	t := sv.Timeline
	r := &report.Report{
		Command: "api",
		Window:  sc.Window,
		Quality: quality.OfRecording(t, sv.Counts),
		Notes:   group.AddModuleNote(t.Facts.Notes, t, opt.GroupBy),
	}
	result := ""
	if len(sc.groups) == 0 {
		result = "no calls in the window"
		if len(sc.Seen.Pids) > 0 {
			r.NoMatch = sc.Seen.ExplainNoMatch(&opt.Filter)
		}
	}
	table, err := sc.callTable(opt)
	if err != nil {
		return nil, err
	}
	r.Facts, r.Totals = report.NewFacts(factColumns, report.Values{"result": result}), sc.computeTotals()
	r.Tables = []report.Table{table}
	return r, nil
}
