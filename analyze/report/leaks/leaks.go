package leaks

import (
	"github.com/gpurec/gpurec/analyze/model/survey"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/allocator"
	"github.com/gpurec/gpurec/analyze/report/earlier"
	"github.com/gpurec/gpurec/analyze/report/frames"
	"github.com/gpurec/gpurec/analyze/report/group"
	"github.com/gpurec/gpurec/analyze/report/quality"
)

// Run reports the memory that each call site, or each group of opt.GroupBy, allocated and did not
// free, with a verdict. It returns a *report.GroupError for an unknown opt.GroupBy, a
// *report.SortError for an unknown opt.Sort, and a *quality.MissingClassError without memory calls.
func Run(t *timeline.Timeline, opt query.Options) (*report.Report, error) {
	return report.RunSurvey(t, opt, Collect)
}

// Collect adds the observers of the report to a survey. Its errors are those of Run.
func Collect(sv *survey.Survey, opt query.Options) (report.FinishFunc, error) {
	t := sv.Timeline
	if err := quality.CheckClasses(t, "leaks", NeededCallClasses); err != nil {
		return nil, err
	}
	s, err := ScanOf(sv, &opt)
	if err != nil {
		return nil, err
	}
	use := allocator.NewTotalsScan(t, &opt.Filter, s.Window)
	before := earlier.ScanOf(sv, &opt.Filter)
	sv.Add(survey.Observer{Allocator: use.OnAllocatorChange})
	return func() (*report.Report, error) { return s.report(&sv.Memory, use, before, &opt) }, nil
}

// report returns the report after a replay. p is the program's memory at the end of the replay; use has the allocator
// totals of the same replay.
func (s *Scan) report(
	p *timeline.ProgramMemory,
	use *allocator.TotalsScan,
	before *earlier.Scan,
	opt *query.Options,
) (*report.Report, error) {
	t := s.t
	s.Finish(p)
	r := &report.Report{Command: "leaks", Window: s.Window, Quality: quality.OfProgramReplay(t, p)}
	r.Facts = append(use.Facts(p.Allocators), s.Caches.Facts(s.Caches.Finish())...)
	r.Notes = group.AddModuleNote(r.Quality.Notes(), t, opt.GroupBy)
	if !s.matched && t.HasMemory() {
		r.NoMatch = s.Grouping.Callers.ExplainNoMatch(&opt.Filter)
	}
	findings := s.ClassifyGroups(&r.Quality)
	r.Totals = s.Totals(findings)
	table := s.Table(findings, &r.Quality, TableOptions{AllStacks: opt.AllStacks || opt.AllFrames, FloorSeries: true})
	if err := table.SortAndCut(opt.Sort, opt.Top); err != nil {
		return nil, err
	}
	r.Tables = []report.Table{table}
	frames.FillRowStacks(t, &r.Tables[0], opt)
	if used := s.Grouping.Suppress.Table(); len(used.Rows) > 0 {
		r.Tables = append(r.Tables, used)
	}
	before.Append(r)
	return r, nil
}
