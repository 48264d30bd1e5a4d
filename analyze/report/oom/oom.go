package oom

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/survey"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/earlier"
	"github.com/gpurec/gpurec/analyze/report/frames"
	"github.com/gpurec/gpurec/analyze/report/quality"
	"github.com/gpurec/gpurec/analyze/units"
)

// Run reports the failed allocations, the reason of each failure, and the recovery of the program.
// It returns a *report.SortError for an unknown opt.Sort and a *quality.MissingClassError if the
// recording has no memory calls.
func Run(t *timeline.Timeline, opt query.Options) (*report.Report, error) {
	return report.RunSurvey(t, opt, Collect)
}

// Collect adds the observers of the report to a survey. Its errors are those of Run.
func Collect(sv *survey.Survey, opt query.Options) (report.FinishFunc, error) {
	t := sv.Timeline
	if err := quality.CheckClasses(t, "oom", NeededCallClasses); err != nil {
		return nil, err
	}
	s, before := ScanOf(sv), earlier.ScanOf(sv, &opt.Filter)
	return func() (*report.Report, error) {
		all, err := s.Finish()
		if err != nil {
			return nil, err
		}
		r, err := newReport(t, all, &sv.Memory, &opt)
		if err != nil {
			return nil, err
		}
		before.Append(r)
		return r, nil
	}, nil
}

// newReport returns the report of all failures of a recording. p is the program's memory at the end.
func newReport(
	t *timeline.Timeline,
	all []Failure,
	p *timeline.ProgramMemory,
	opt *query.Options,
) (*report.Report, error) {
	r := &report.Report{
		Command: "oom",
		Window:  opt.NarrowWindow(t.RecordingWindow()),
		Quality: quality.OfProgramReplay(t, p),
		Notes:   t.Facts.Notes,
	}
	chosen, rest, none := SelectFailures(t, all, &opt.Filter)
	r.NoMatch = none
	r.Facts = computeFacts(len(all), rest)
	var contexts []*FailureContext
	if len(chosen) > 0 {
		var err error
		if contexts, err = ExamineFailures(t, chosen); err != nil {
			return nil, err
		}
	}
	if n := countInGaps(t, contexts); n > 0 {
		r.Notes = append(
			slices.Clone(r.Notes),
			fmt.Sprintf("%s happened while allocator events were not recorded: the "+
				"blocks at that time are those of the last reading", units.CountWithNoun(n, "failed allocation")),
		)
	}
	verdicts := ClassifyFailures(contexts, p, &r.Quality)
	r.Totals = computeTotals(contexts, verdicts, rest)
	table := failureTable(t, contexts, verdicts)
	if err := table.SortAndCut(opt.Sort, opt.Top); err != nil {
		return nil, err
	}
	frames.FillRowStacks(t, &table, opt)
	r.Tables = []report.Table{table, cachedMemoryTable(t, contexts, opt.Top), holderTable(t, contexts, opt.Top)}
	return r, nil
}

// countInGaps returns the number of failures at times without allocator events.
func countInGaps(t *timeline.Timeline, contexts []*FailureContext) (n int64) {
	for _, c := range contexts {
		if c.hasAllocator && t.UnrecordedAllocatorNs(c.AtNs, c.AtNs+1) > 0 {
			n++
		}
	}
	return n
}

// SelectFailures returns the failures that pass the filter in order of time, at most
// MaxExaminedFailures. It leaves out failures with the least severe outcome first; rest is their
// number. none explains why no failure passes the filter, and is nil if one passes.
func SelectFailures(
	t *timeline.Timeline,
	all []Failure,
	filter *query.Filter,
) (chosen []*Failure, rest int, none *query.NoMatchError) {
	callers, window := query.NewSeenCallers(), filter.NarrowWindow(t.RecordingWindow())
	for i := range all {
		f := &all[i]
		o := &t.Origins.List[f.Origin]
		callers.AddCaller(o.Pid, o.Tid, o.Device, o.Stream)
		if f.AtNs >= window.FromNs && f.AtNs <= window.ToNs && f.Requested >= filter.MinBytes &&
			filter.PassesCaller(o.Pid, o.Tid, o.Device, o.Stream) {
			chosen = append(chosen, f)
		}
	}
	if len(chosen) == 0 && len(all) > 0 {
		none = callers.ExplainNoMatch(filter)
	}
	if rest = len(chosen) - MaxExaminedFailures; rest > 0 {
		slices.SortStableFunc(chosen, func(a, b *Failure) int { return cmp.Compare(a.Outcome, b.Outcome) })
		chosen = chosen[:MaxExaminedFailures]
		slices.SortStableFunc(chosen, func(a, b *Failure) int { return cmp.Compare(a.number, b.number) })
	}
	return chosen, max(0, rest), none
}
