package copies

import (
	"github.com/gpurec/gpurec/analyze/model/activity"
	"github.com/gpurec/gpurec/analyze/model/survey"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/frames"
	"github.com/gpurec/gpurec/analyze/report/quality"
	"github.com/gpurec/gpurec/format"
)

// Run reports copies by direction, size, kind of host memory and mode of the call, and bursts of
// small copies. It returns a *quality.MissingClassError if the recording lacks necessary classes of
// calls, and a *report.SortError for an unknown opt.Sort.
func Run(t *timeline.Timeline, opt query.Options) (*report.Report, error) {
	return report.RunSurvey(t, opt, Collect)
}

// Collect adds the observers of the report to a survey. Its errors are those of Run.
func Collect(sv *survey.Survey, opt query.Options) (report.FinishFunc, error) {
	t := sv.Timeline
	if err := quality.CheckClasses(t, "copies", NeededCallClasses); err != nil {
		return nil, err
	}
	sc := NewScan(sv.Reader, sv.HostMemory)
	sv.Add(survey.Observer{
		Kinds: []string{format.KindMemcpy}, Call: sc.AddCopy, NeedsHostMemory: true,
		Alongside: func() (err error) {
			sc.times, err = activity.TimesOf(t, sc.Window)
			return err
		},
	})
	return func() (*report.Report, error) { return sc.report(sv, &opt) }, nil
}

// report returns the report after the survey.
func (sc *Scan) report(sv *survey.Survey, opt *query.Options) (*report.Report, error) {
	t := sv.Timeline
	r := &report.Report{
		Command: "copies",
		Window:  sc.Window,
		Quality: quality.OfRecording(t, sv.Counts),
		Notes:   t.Facts.Notes,
	}
	result := ""
	if len(sc.groups) == 0 {
		result = "no copies in the window"
		if len(sc.Seen.Pids) > 0 {
			r.NoMatch = sc.Seen.ExplainNoMatch(&opt.Filter)
		}
	}
	r.Facts, r.Totals = report.NewFacts(factColumns, report.Values{"result": result}), sc.computeTotals()
	sc.addGPUTotals(r)
	table := sc.groupTable()
	if err := table.SortAndCut(opt.Sort, opt.Top); err != nil {
		return nil, err
	}
	bursts, sites := sc.burstTable(), sc.siteTable()
	for _, aside := range []*report.Table{&bursts, &sites} {
		if err := aside.SortAndCut("", opt.Top); err != nil {
			return nil, err
		}
	}
	frames.FillRowStacks(t, &bursts, opt)
	r.Tables = []report.Table{bursts, table, sites}
	return r, nil
}
