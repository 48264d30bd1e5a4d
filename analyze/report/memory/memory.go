package memory

import (
	"github.com/gpurec/gpurec/analyze/model/livemem"
	"github.com/gpurec/gpurec/analyze/model/survey"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/earlier"
	"github.com/gpurec/gpurec/analyze/report/frames"
	"github.com/gpurec/gpurec/analyze/report/quality"
)

// Options configure the memory report.
type Options struct {
	query.Options
	// At selects the point in time whose holders the report shows.
	At query.ReportMoment
	// AtNs is the point in time for query.MomentGivenTime, Unix ns.
	AtNs int64
	// Reconcile compares the recorded memory with NVML's numbers for the processes and devices.
	Reconcile bool
}

// Run is RunWithOptions at the peak and without Reconcile.
func Run(t *timeline.Timeline, opt query.Options) (*report.Report, error) {
	return RunWithOptions(t, Options{Options: opt})
}

// RunWithOptions reports the call sites that hold memory at a point in time. With Reconcile it also
// compares their memory with NVML's numbers. It returns a *report.SortError for an unknown opt.Sort
// and a *quality.MissingClassError if the recording has no memory calls.
func RunWithOptions(t *timeline.Timeline, opt Options) (*report.Report, error) {
	return report.RunSurvey(t, opt.Options, func(sv *survey.Survey, _ query.Options) (report.FinishFunc, error) {
		return CollectWithOptions(sv, opt)
	})
}

// Collect is CollectWithOptions with the defaults of Run.
func Collect(sv *survey.Survey, opt query.Options) (report.FinishFunc, error) {
	return CollectWithOptions(sv, Options{Options: opt})
}

// CollectWithOptions adds the observers of the report to a survey. Its errors are those of RunWithOptions.
func CollectWithOptions(sv *survey.Survey, opt Options) (report.FinishFunc, error) {
	t := sv.Timeline
	if err := quality.CheckClasses(t, "memory", NeededCallClasses); err != nil {
		return nil, err
	}
	s := NewScan(t, &opt)
	s.before = earlier.ScanOf(sv, &opt.Filter)
	sv.Add(survey.Observer{Driver: s.OnDriverChange})
	return func() (*report.Report, error) {
		if opt.At == query.MomentPeak {
			if err := s.replayToPeak(); err != nil {
				return nil, err
			}
		}
		return s.report(sv.Counts)
	}, nil
}

// report returns the report after a replay. counts are the counters of the replay.
func (s *Scan) report(counts *livemem.ReplayCounts) (*report.Report, error) {
	t, opt := s.t, s.opt
	r := &report.Report{
		Command: "memory",
		Window:  s.window,
		Quality: quality.OfRecording(t, counts),
		Notes:   t.Facts.Notes,
	}
	if !s.matched && len(t.Memory) > 0 {
		r.NoMatch = s.callers.ExplainNoMatch(&opt.Filter)
	}
	r.Facts = s.computeFacts("")
	holders := s.holderTable()
	if err := holders.SortAndCut(opt.Sort, opt.Top); err != nil {
		return nil, err
	}
	frames.FillRowStacks(t, &holders, &opt.Options)
	levels := s.levelTable()
	r.Tables = []report.Table{levels, s.libraryTable(), secondaryPoolTable(t, s.window, &opt.Filter), holders}
	s.before.Append(r)
	r.Totals = report.NewFacts(totalColumns, report.Values{
		"held_bytes":    s.heldBytes(),
		"peak_bytes":    s.peak,
		"failed_allocs": s.levelScan.failedAllocations(),
	})
	if !opt.Reconcile {
		return r, nil
	}
	c, err := reconcileWithNVML(t, s.atNs, &opt.Filter)
	if err != nil {
		return nil, err
	}
	for i := range r.Tables { // with Reconcile, the comparison is the main table
		r.Tables[i].Secondary = true
	}
	if len(c.processes) == 0 {
		r.Facts = s.computeFacts("the recording has no NVML samples of the memory of the recorded processes, or " +
			"their devices could not be matched")
	}
	r.Tables = append([]report.Table{c.processTable(), c.deviceTable()}, r.Tables...)
	r.Totals = append(r.Totals, c.computeTotals()...)
	return r, nil
}

// secondaryPoolTable returns the table of memory pools as a secondary table.
func secondaryPoolTable(t *timeline.Timeline, w query.Window, f *query.Filter) report.Table {
	table := PoolTable(t, w, f)
	table.Secondary = true
	return table
}
