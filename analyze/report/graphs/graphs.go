package graphs

import (
	"github.com/gpurec/gpurec/analyze/model/activity"
	"github.com/gpurec/gpurec/analyze/model/graph"
	"github.com/gpurec/gpurec/analyze/model/survey"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/gputime"
	"github.com/gpurec/gpurec/analyze/report/processes"
	"github.com/gpurec/gpurec/analyze/report/quality"
	"github.com/gpurec/gpurec/format"
)

// Run reports the executable graphs that are launched or instantiated in the window. It returns a
// *quality.MissingClassError if launches were not recorded, and a *report.SortError for an unknown opt.Sort.
func Run(t *timeline.Timeline, opt query.Options) (*report.Report, error) {
	return report.RunSurvey(t, opt, Collect)
}

// Collect adds the observers of the report to a survey. Its errors are those of Run.
func Collect(sv *survey.Survey, opt query.Options) (report.FinishFunc, error) {
	t := sv.Timeline
	if err := quality.CheckClasses(t, "graphs", neededCallClasses); err != nil {
		return nil, err
	}
	sc := &scan{CallReader: sv.Reader}
	sc.creation = creation{t: t, sites: &sc.Sites}
	if err := sc.read(); err != nil {
		return nil, err
	}
	var err error
	if sc.contents, err = graph.Read(t); err != nil {
		return nil, err
	}
	sv.Add(survey.Observer{
		Kinds: []string{format.KindLaunch}, Call: sc.addCall,
		Alongside: func() (err error) {
			sc.times, err = activity.TimesOf(t, sc.Window)
			return err
		},
	})
	return func() (*report.Report, error) { return sc.report(sv, &opt) }, nil
}

// report returns the report after the survey.
func (sc *scan) report(sv *survey.Survey, opt *query.Options) (*report.Report, error) {
	t := sv.Timeline
	list := sc.shown(&opt.Filter)
	gpu := sc.addGPUTimes(list)
	table := sc.graphTable(list, gpu.AllNs())
	if err := table.SortAndCut(opt.Sort, opt.Top); err != nil {
		return nil, err
	}
	processes.AddRankColumn(t, &table)
	r := &report.Report{
		Command: "graphs",
		Window:  sc.Window,
		Quality: quality.OfRecording(t, sv.Counts),
		Notes:   t.Facts.Notes,
		Facts:   newFacts(list),
		Totals:  newTotals(list),
		Tables:  []report.Table{table},
	}
	if sc.times != nil {
		r.Totals = append(r.Totals, report.NewFacts(gputime.TotalColumns, gputime.Totals(&gpu))...)
	}
	if len(list) == 0 && len(sc.Seen.Pids) > 0 && opt.Filter.SelectsCallers() {
		r.NoMatch = sc.Seen.ExplainNoMatch(&opt.Filter)
	}
	return r, nil
}
