package gaps

import (
	"cmp"

	"github.com/gpurec/gpurec/analyze/model/survey"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/frames"
	"github.com/gpurec/gpurec/analyze/report/quality"
	"github.com/gpurec/gpurec/format"
)

// DefaultMinGapNs is the default minimum length of a gap, ns. Preparing a training step usually
// takes less.
const DefaultMinGapNs = int64(1e6)

// Options configure the gaps report.
type Options struct {
	query.Options
	// MinGapNs is the minimum length of a gap, ns. 0 means DefaultMinGapNs.
	MinGapNs int64
}

// AllDevicesOfProcess is the Device of a Track that covers all devices of a process.
const AllDevicesOfProcess = int32(-2)

// DefaultMaxGaps is the maximum number of rows of the table of longest gaps without --top.
const DefaultMaxGaps = 1000

// Run is RunWithOptions with DefaultMinGapNs.
func Run(t *timeline.Timeline, opt query.Options) (*report.Report, error) {
	return RunWithOptions(t, Options{Options: opt})
}

// RunWithOptions reports the idle time of each GPU and its causes, from GPU times. Without GPU times, it
// reports intervals in which a process launched no work: their number and length, the activity of the
// launching thread in the longest ones, and whether the GPU was idle. It returns a
// *quality.MissingClassError if the recording lacks necessary classes of calls, and a *report.SortError
// for an unknown opt.Sort.
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
	if err := quality.CheckClasses(t, "gaps", NeededCallClasses); err != nil {
		return nil, err
	}
	opt.MinGapNs = cmp.Or(opt.MinGapNs, DefaultMinGapNs)
	if len(t.Facts.Channels) > 0 {
		return collectDevices(sv, opt), nil
	}
	return collectLaunches(sv, opt), nil
}

// collectLaunches adds the observer of launches for the report without GPU times.
func collectLaunches(sv *survey.Survey, opt Options) report.FinishFunc {
	isTimed := len(sv.Timeline.Facts.Channels) > 0
	sc := NewScan(sv.Reader, opt.MinGapNs, cmp.Or(opt.Top, DefaultMaxGaps))
	sv.Add(survey.Observer{Kinds: []string{format.KindLaunch}, Call: sc.AddLaunch})
	return func() (*report.Report, error) {
		if !isTimed && len(sv.Timeline.Facts.Channels) > 0 { // the recording has grown by GPU times
			return RunWithOptions(sv.Timeline, opt)
		}
		return sc.report(sv, &opt)
	}
}

// report returns the report without GPU times after the survey.
func (sc *Scan) report(sv *survey.Survey, opt *Options) (*report.Report, error) {
	t := sv.Timeline
	sc.SelectLongestGaps()
	sc.FindGPUActivity()
	if err := sc.FindCPUActivity(); err != nil {
		return nil, err
	}
	r := &report.Report{
		Command: "gaps",
		Window:  sc.Window,
		Quality: quality.OfRecording(t, sv.Counts),
		Notes:   t.Facts.Notes,
	}
	result := ""
	if len(sc.Tracks) == 0 {
		result = "no launches in the window"
		if len(sc.Seen.Pids) > 0 {
			r.NoMatch = sc.Seen.ExplainNoMatch(&opt.Filter)
		}
	}
	r.Facts = report.NewFacts(factColumns, report.Values{"result": result, "min_gap_ns": sc.minNs})
	r.Totals = sc.computeTotals()
	gaps := sc.gapTable()
	if err := gaps.SortAndCut(opt.Sort, opt.Top); err != nil {
		return nil, err
	}
	frames.FillRowStacks(t, &gaps, &opt.Options)
	r.Tables = []report.Table{sc.trackTable(), sc.lengthTable(), gaps}
	return r, sc.addHostTable(r, opt.Top)
}
