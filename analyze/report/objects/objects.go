package objects

import (
	"fmt"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/objects"
	"github.com/gpurec/gpurec/analyze/model/survey"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/frames"
	"github.com/gpurec/gpurec/analyze/report/memory"
	"github.com/gpurec/gpurec/analyze/report/quality"
	"github.com/gpurec/gpurec/analyze/units"
)

// Run reports the objects of the driver that each call site, or each group of opt.GroupBy, created and
// did not destroy, with a verdict. It returns a *report.GroupError for an unknown opt.GroupBy, and a
// *report.SortError for an unknown opt.Sort.
func Run(t *timeline.Timeline, opt query.Options) (*report.Report, error) {
	return report.RunSurvey(t, opt, Collect)
}

// Collect adds the observers of the report to a survey. Its errors are those of Run.
func Collect(sv *survey.Survey, opt query.Options) (report.FinishFunc, error) {
	t := sv.Timeline
	s, err := NewScan(t.NewView(), &opt) // the replay of memory numbers origins in t
	if err != nil {
		return nil, err
	}
	sv.Add(survey.Observer{CallGroup: s.AddGroup, MemoryGroup: s.AddGroup})
	return func() (*report.Report, error) { return s.report(sv, &opt) }, nil
}

// report returns the report after the survey.
func (s *Scan) report(sv *survey.Survey, opt *query.Options) (*report.Report, error) {
	t := sv.Timeline
	s.Finish()
	r := &report.Report{
		Command:   "objects",
		Window:    s.Window,
		Quality:   quality.OfRecording(t, sv.Counts),
		Sentences: []string{"result"},
	}
	r.Notes = append(slices.Clone(t.Facts.Notes), s.notes()...)
	if !s.matched && len(s.Grouping.Callers.Pids) > 0 {
		r.NoMatch = s.Grouping.Callers.ExplainNoMatch(&opt.Filter)
	}
	costs, err := memory.EstimateObjectCosts(t, &opt.Filter)
	if err != nil {
		return nil, err
	}
	findings := s.Classify()
	r.Facts, r.Totals = s.facts(findings), s.totals(findings)
	sites, kinds := s.siteTable(findings, &r.Quality, opt.AllStacks || opt.AllFrames), s.kindTable(findings, costs)
	if err := sites.SortAndCut(opt.Sort, opt.Top); err != nil {
		return nil, err
	}
	frames.FillRowStacks(t, &sites, opt)
	r.Tables = []report.Table{sites, kinds}
	if used := s.Grouping.Suppress.Table(); len(used.Rows) > 0 {
		r.Tables = append(r.Tables, used)
	}
	return r, nil
}

// notes returns sentences about objects that the report lacks.
func (s *Scan) notes() (list []string) {
	for kind, c := range s.Counts {
		name := objects.Kind(kind).Plural()
		if c.Unknown > 0 {
			list = append(list, fmt.Sprintf("identity unknown: %s, created by calls whose handle is not in the "+
				"recording, not counted", units.CountWithTitle(c.Unknown, name)))
		}
		if c.Older > 0 {
			list = append(list, fmt.Sprintf("%s, older than the recording or created by a lost call",
				units.CountWithTitle(c.Older, "destroyed "+name)))
		}
	}
	if missing := quality.MissingClasses(s.t, usedClasses); len(missing) > 0 {
		list = append(list, fmt.Sprintf("calls of class %s were not recorded (--record), so objects of these classes "+
			"are unknown", units.JoinWithAnd(missing)))
	}
	return list
}
