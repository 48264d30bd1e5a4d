package operations

import (
	"github.com/gpurec/gpurec/analyze/model/activity"
	"github.com/gpurec/gpurec/analyze/model/survey"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/processes"
	"github.com/gpurec/gpurec/analyze/report/quality"
)

// Run reports the operations of each channel and stream, the certainty of their times, and the bounds of
// the busy time. It returns a *quality.MissingClassError if the recording lacks necessary classes
// of calls, and a *report.SortError for an unknown opt.Sort.
func Run(t *timeline.Timeline, opt query.Options) (*report.Report, error) {
	return report.RunSurvey(t, opt, Collect)
}

// Collect adds the observers of the report to a survey. Its errors are those of Run.
func Collect(sv *survey.Survey, opt query.Options) (report.FinishFunc, error) {
	t := sv.Timeline
	if err := quality.CheckClasses(t, "operations", NeededCallClasses); err != nil {
		return nil, err
	}
	s := scan{t: t, filter: &opt.Filter, window: opt.Filter.NarrowWindow(t.RecordingWindow())}
	sv.Add(survey.Observer{Alongside: func() (err error) {
		s.activity, err = activity.Of(t, s.window)
		return err
	}})
	return func() (*report.Report, error) { return s.report(sv, &opt) }, nil
}

// report returns the report after the survey.
func (s *scan) report(sv *survey.Survey, opt *query.Options) (*report.Report, error) {
	t := s.t
	r := &report.Report{
		Command:   "operations",
		Window:    s.window,
		Quality:   quality.OfRecording(t, sv.Counts),
		Notes:     t.Facts.Notes,
		Sentences: []string{"result"},
	}
	r.Facts, r.Totals = s.facts(), s.totals()
	channels, streams, durations := s.channelTable(), s.streamTable(), s.durationTable()
	if err := channels.SortAndCut(opt.Sort, opt.Top); err != nil {
		return nil, err
	}
	for _, table := range []*report.Table{&streams, &durations} {
		if err := table.SortAndCut("", opt.Top); err != nil {
			return nil, err
		}
	}
	processes.AddRankColumn(t, &channels, &streams, &durations)
	r.Tables = []report.Table{channels, streams, durations}
	return r, nil
}
