package kernels

import (
	"slices"

	"github.com/gpurec/gpurec/analyze/model/activity"
	"github.com/gpurec/gpurec/analyze/model/graph"
	"github.com/gpurec/gpurec/analyze/model/survey"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/group"
	"github.com/gpurec/gpurec/analyze/report/quality"
	"github.com/gpurec/gpurec/format"
)

// Run reports the launched kernels, the number and size of their launches, and their call sites.
// With GPU times it reports how long they ran. Run returns a *quality.MissingClassError if the recording lacks
// necessary classes of calls, a *report.GroupError for an unknown opt.GroupBy, and a *report.SortError for an unknown
// opt.Sort. With opt.GroupBy, a table of launches by that group is the first table, and the only one.
func Run(t *timeline.Timeline, opt query.Options) (*report.Report, error) {
	return report.RunSurvey(t, opt, Collect)
}

// Collect adds the observers of the report to a survey. Its errors are those of Run.
func Collect(sv *survey.Survey, opt query.Options) (report.FinishFunc, error) {
	t := sv.Timeline
	if err := quality.CheckClasses(t, "kernels", NeededCallClasses); err != nil {
		return nil, err
	}
	if opt.GroupBy != "" && !slices.Contains(GroupNames(), opt.GroupBy) {
		return nil, &report.GroupError{Name: opt.GroupBy, Known: GroupNames()}
	}
	sc := NewScan(t, &opt.Filter)
	sc.groupBy = opt.GroupBy
	if sc.groupBy != "" {
		var err error
		if sc.built, err = graph.Read(t); err != nil {
			return nil, err
		}
	}
	sv.Add(survey.Observer{
		CallGroup: func(_ timeline.Span, g *format.Group) { sc.ReadRowGroup(g) },
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
		Command: "kernels",
		Window:  sc.Window,
		Quality: quality.OfRecording(t, sv.Counts),
		Notes:   group.AddModuleNote(t.Facts.Notes, t, opt.GroupBy),
	}
	result := ""
	if len(sc.Counts)+len(sc.graphs) == 0 {
		result = "no launches in the window"
		if len(sc.Seen.Pids) > 0 {
			r.NoMatch = sc.Seen.ExplainNoMatch(&opt.Filter)
		}
	}
	r.Facts = report.NewFacts(factColumns, report.Values{"result": result, "kernels_text": sc.Work.String()})
	if sc.times != nil {
		r.Facts = append(r.Facts, sc.gpuFacts()...)
		r.Sentences = []string{"gpu_text"}
	}
	r.Totals = sc.computeTotals()
	if sc.groupBy != "" {
		r.Tables = []report.Table{sc.partTable()}
		return r, r.Tables[0].SortAndCut(opt.Sort, opt.Top)
	}
	table := sc.kernelTable()
	if err := table.SortAndCut(opt.Sort, opt.Top); err != nil {
		return nil, err
	}
	r.Tables = []report.Table{table}
	if sc.times != nil {
		r.Tables = append(r.Tables, sc.lineTable())
	}
	r.Tables = append(r.Tables, sc.shapeTable(opt.Top), sc.streamTable(), sc.graphTable())
	for i := range r.Tables[1:] {
		if err := r.Tables[i+1].SortAndCut("", opt.Top); err != nil {
			return nil, err
		}
	}
	return r, nil
}
