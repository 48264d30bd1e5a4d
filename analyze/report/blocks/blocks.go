package blocks

import (
	"slices"

	"github.com/gpurec/gpurec/analyze/model/survey"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/processes"
	"github.com/gpurec/gpurec/analyze/report/quality"
)

// Run reports the sizes of the blocks of PyTorch's caching allocators over the readings of a recording, with a verdict.
// Conditions of the filter on threads, streams and sizes have no effect. It returns a *report.SortError for an unknown
// opt.Sort.
func Run(t *timeline.Timeline, opt query.Options) (*report.Report, error) {
	return report.RunSurvey(t, opt, Collect)
}

// Collect adds the observers of the report to a survey. It returns no error.
func Collect(sv *survey.Survey, opt query.Options) (report.FinishFunc, error) {
	s := newScan(sv.Timeline, &opt.Filter)
	sv.Add(survey.Observer{Alongside: s.read})
	return func() (*report.Report, error) { return s.report(sv, &opt) }, nil
}

// report returns the report after the survey.
func (s *scan) report(sv *survey.Survey, opt *query.Options) (*report.Report, error) {
	t := sv.Timeline
	r := &report.Report{
		Command:   "blocks",
		Window:    s.window,
		Quality:   quality.OfRecording(t, sv.Counts),
		Sentences: []string{"result", "next"},
		Notes:     append(slices.Clone(t.Facts.Notes), s.notes()...),
	}
	if len(s.allocators) == 0 && len(s.callers.Pids) > 0 {
		r.NoMatch = s.callers.ExplainNoMatch(&query.Filter{Pids: opt.Pids, Devices: opt.Devices, Choice: opt.Choice})
	}
	findings := s.classify()
	r.Facts, r.Totals = s.facts(findings), s.totals(findings)
	sizes := s.sizeTable(findings)
	if err := sizes.SortAndCut(opt.Sort, opt.Top); err != nil {
		return nil, err
	}
	r.Tables = []report.Table{s.allocatorTable(), sizes, s.momentTable()}
	for i := range r.Tables {
		processes.AddRankColumn(t, &r.Tables[i])
	}
	return r, nil
}
