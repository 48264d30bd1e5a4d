package cudaerrors

import (
	"github.com/gpurec/gpurec/analyze/model/survey"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/quality"
)

// Run reports the CUDA calls that returned an error: asynchronous errors with the launches before
// them, invalid frees with earlier calls for the same memory, and all other errors by call site. It
// returns a *report.SortError for an unknown opt.Sort.
func Run(t *timeline.Timeline, opt query.Options) (*report.Report, error) {
	return report.RunSurvey(t, opt, Collect)
}

// Collect adds the observers of the report to a survey. It returns no error.
func Collect(sv *survey.Survey, opt query.Options) (report.FinishFunc, error) {
	s := ScanOf(sv)
	return func() (*report.Report, error) { return s.report(sv, &opt) }, nil
}

// report returns the report after the survey.
func (s *Scan) report(sv *survey.Survey, opt *query.Options) (*report.Report, error) {
	t := sv.Timeline
	faults, err := s.findFaults()
	if err != nil {
		return nil, err
	}
	r := &report.Report{
		Command: "errors",
		Window:  s.Window,
		Quality: quality.OfRecording(t, sv.Counts),
		Notes:   t.Facts.Notes,
	}
	if len(s.Seen.Pids) > 0 && !s.hasMatchingCall() {
		r.NoMatch = s.Seen.ExplainNoMatch(&opt.Filter)
	}
	frees, err := FindInvalidFrees(t, s, &r.Quality)
	if err != nil {
		return nil, err
	}
	r.Totals = s.computeTotals(len(faults), frees)
	r.Facts = s.computeFacts()
	table, err := s.errorTable(opt)
	if err != nil {
		return nil, err
	}
	faultsTable := faultTable(t, faults, opt.Top)
	faults = faults[:len(faultsTable.Rows)]
	launches, err := launchesBeforeFaults(t, faults, &opt.Filter)
	if err != nil {
		return nil, err
	}
	r.Tables = []report.Table{
		faultsTable,
		suspectLaunchTable(t, faults, launches, opt),
		NewInvalidFreeTable(t, s, frees, opt),
		table,
		s.nonErrorTable(),
	}
	return r, nil
}
