package pointers

import (
	"github.com/gpurec/gpurec/analyze/model/survey"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/cudaerrors"
	"github.com/gpurec/gpurec/analyze/report/processes"
	"github.com/gpurec/gpurec/analyze/report/quality"
)

// Run reports frees that failed because of their pointer, and, for each failure of GPU work, the arguments of the
// launches before it that do not point into live memory. It returns errors of reading the recording.
func Run(t *timeline.Timeline, opt query.Options) (*report.Report, error) {
	return report.RunSurvey(t, opt, Collect)
}

// Collect adds the observers of the report to a survey. Its errors are those of Run.
func Collect(sv *survey.Survey, opt query.Options) (report.FinishFunc, error) {
	t := sv.Timeline
	if err := quality.CheckClasses(t, "pointers", NeededCallClasses); err != nil {
		return nil, err
	}
	failed := cudaerrors.ScanOf(sv)
	return func() (*report.Report, error) { return newReport(sv, failed, &opt) }, nil
}

// newReport returns the report after the survey. failed has the calls that failed.
func newReport(sv *survey.Survey, failed *cudaerrors.Scan, opt *query.Options) (*report.Report, error) {
	t := sv.Timeline
	r := &report.Report{
		Command: "pointers",
		Window:  failed.Window,
		Quality: quality.OfRecording(t, sv.Counts),
		Notes:   t.Facts.Notes,
	}
	frees, err := cudaerrors.FindInvalidFrees(t, failed, &r.Quality)
	if err != nil {
		return nil, err
	}
	s, err := NewScan(t, &opt.Filter)
	if err != nil {
		return nil, err
	}
	s.Judge(&r.Quality)
	r.Facts, r.Totals = s.computeFacts(frees, &r.Quality), s.computeTotals(frees)
	r.Tables = []report.Table{
		s.faultTable(),
		s.argumentTable(opt),
		s.launchTable(),
		cudaerrors.NewInvalidFreeTable(t, failed, frees, opt),
	}
	for i := range r.Tables {
		processes.AddRankColumn(t, &r.Tables[i])
	}
	return r, nil
}
