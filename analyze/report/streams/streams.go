package streams

import (
	"github.com/gpurec/gpurec/analyze/model/survey"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/quality"
	"github.com/gpurec/gpurec/format"
)

// Run reports the launches, copies and memsets of each stream, the threads that use it, and streams
// that keep work from overlapping. It returns a *quality.MissingClassError if the recording lacks
// necessary classes of calls, and a *report.SortError for an unknown opt.Sort.
func Run(t *timeline.Timeline, opt query.Options) (*report.Report, error) {
	return report.RunSurvey(t, opt, Collect)
}

// Collect adds the observers of the report to a survey. Its errors are those of Run.
func Collect(sv *survey.Survey, opt query.Options) (report.FinishFunc, error) {
	if err := quality.CheckClasses(sv.Timeline, "streams", NeededCallClasses); err != nil {
		return nil, err
	}
	sc := newScan(sv.Reader)
	sv.Add(survey.Observer{Kinds: scannedCallKinds, Call: sc.addCall})
	return func() (*report.Report, error) { return sc.report(sv, &opt) }, nil
}

// report returns the report after the survey.
func (sc *scan) report(sv *survey.Survey, opt *query.Options) (*report.Report, error) {
	t := sv.Timeline
	r := &report.Report{
		Command: "streams",
		Window:  sc.Window,
		Quality: quality.OfRecording(t, sv.Counts),
		Notes:   t.Facts.Notes,
		// The result is longer than a line.
		Sentences: []string{"result"},
	}
	if len(sc.streams) == 0 && len(sc.Seen.Pids) > 0 {
		r.NoMatch = sc.Seen.ExplainNoMatch(&opt.Filter)
	}
	findings := sc.findOverlapLimits()
	r.Facts, r.Totals = computeFacts(findings), sc.computeTotals(findings)
	table := sc.streamTable(findings)
	if err := table.SortAndCut(opt.Sort, opt.Top); err != nil {
		return nil, err
	}
	r.Tables = []report.Table{table}
	return r, nil
}

// scannedCallKinds are the call kinds that the scan reads. The first three are stream work.
var scannedCallKinds = []string{format.KindLaunch, format.KindMemcpy, format.KindMemset, format.KindSync}
