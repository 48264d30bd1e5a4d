package allocator

import (
	"github.com/gpurec/gpurec/analyze/model/caching"
	"github.com/gpurec/gpurec/analyze/model/livemem"
	"github.com/gpurec/gpurec/analyze/model/survey"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/earlier"
	"github.com/gpurec/gpurec/analyze/report/quality"
)

// DefaultMomentCount is the number of reported points in time if Options sets neither Times nor
// Moments.
const DefaultMomentCount = 20

// Options configure the allocator report. Conditions of the filter on threads, streams and sizes
// have no effect.
type Options struct {
	query.Options
	// Times are the points in time to report, Unix ns, in any order.
	Times []int64
	// Moments is the number of reported points in time if Times is empty. They are equally spaced
	// and end at the end of the window. 0 means DefaultMomentCount.
	Moments int
}

// Run is RunWithOptions with DefaultMomentCount points in time.
func Run(t *timeline.Timeline, opt query.Options) (*report.Report, error) {
	return RunWithOptions(t, Options{Options: opt})
}

// RunWithOptions reports the totals of PyTorch's caching allocators over time, at their peaks and
// at the end, by pool and stream. It also reports whether the totals agree with the allocators' own
// statistics. It returns a *report.SortError for an unknown opt.Sort.
func RunWithOptions(t *timeline.Timeline, opt Options) (*report.Report, error) {
	return report.RunSurvey(t, opt.Options, func(sv *survey.Survey, _ query.Options) (report.FinishFunc, error) {
		return CollectWithOptions(sv, opt)
	})
}

// Collect is CollectWithOptions with the defaults of Run.
func Collect(sv *survey.Survey, opt query.Options) (report.FinishFunc, error) {
	return CollectWithOptions(sv, Options{Options: opt})
}

// CollectWithOptions adds the observers of the report to a survey. It returns no error.
func CollectWithOptions(sv *survey.Survey, opt Options) (report.FinishFunc, error) {
	t := sv.Timeline
	s := NewScan(t, &opt)
	before := earlier.ScanOf(sv, &opt.Filter)
	sv.Add(survey.Observer{Allocator: s.OnAllocatorChange})
	return func() (*report.Report, error) { return s.report(sv.Memory.Allocators, sv.Counts, before) }, nil
}

// report returns the report after a replay. all are the allocators of the replay, counts its counters.
func (s *Scan) report(
	all *caching.AllocatorSet,
	counts *livemem.ReplayCounts,
	before *earlier.Scan,
) (*report.Report, error) {
	t, opt := s.t, s.opt
	s.finishReplay(all)
	r := &report.Report{
		Command: "allocator",
		Window:  s.window,
		Quality: quality.OfRecording(t, counts),
		Notes:   t.Facts.Notes,
	}
	quality.AddAllocators(&r.Quality, all)
	if len(s.list) == 0 && len(t.Allocations) > 0 {
		r.NoMatch = s.callers.ExplainNoMatch(&query.Filter{Pids: opt.Pids, Devices: opt.Devices, Choice: opt.Choice})
	}
	r.Facts = s.computeFacts()
	moments := s.momentTable()
	if err := moments.SortAndCut(opt.Sort, opt.Top); err != nil {
		return nil, err
	}
	r.Tables = []report.Table{s.allocatorTable(), s.peakTable(), s.eventTable(), s.poolTable(), moments}
	before.Append(r)
	r.Totals = s.computeTotals()
	return r, nil
}
