package allocator

import (
	"github.com/gpurec/gpurec/analyze/model/caching"
	"github.com/gpurec/gpurec/analyze/model/livemem"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/quality"
)

// DefaultMoments is the number of moments in the report if Options sets neither Times nor Moments.
const DefaultMoments = 20

// Options shape the report of caching allocators. The conditions of the filter on threads, streams
// and sizes have no effect.
type Options struct {
	query.Options
	// Times are the moments to report, Unix ns, in any order.
	Times []int64
	// Moments is the number of moments if Times is empty: they are at equal distances up to the end
	// of the window. 0 stands for DefaultMoments.
	Moments int
}

// Run reports as RunWith does, at DefaultMoments moments.
func Run(t *timeline.Timeline, opt query.Options) (*report.Report, error) {
	return RunWith(t, Options{Options: opt})
}

// RunWith reports the totals of PyTorch's caching allocators at moments, at their peaks and at the
// end, by pool and stream, and whether these agree with the totals that the allocators recorded
// themselves. It returns a *report.SortError for an unknown opt.Sort.
func RunWith(t *timeline.Timeline, opt Options) (*report.Report, error) {
	t = t.View()
	s := NewScan(t, &opt)
	l, all, err := t.ReplayAll(func(*livemem.Set, *livemem.Change) {}, s.Step)
	if err != nil {
		return nil, err
	}
	return s.Report(all, &l.Counts)
}

// Report returns the report after a replay: all are its allocators, counts its counters. It returns
// a *report.SortError for an unknown Options.Sort.
func (s *Scan) Report(all *caching.Set, counts *livemem.Counts) (*report.Report, error) {
	t, opt := s.t, s.opt
	s.finish(all)
	r := &report.Report{
		Command: "allocator",
		Window:  s.window,
		Quality: quality.OfRecording(t, counts),
		Notes:   t.Facts.Notes,
	}
	if len(s.list) == 0 && len(t.Allocations) > 0 {
		r.NoMatch = s.seen.Explain(&query.Filter{Pids: opt.Pids, Devices: opt.Devices, Choice: opt.Choice})
	}
	r.Facts = s.facts()
	moments := s.momentTable()
	if err := moments.Arrange(opt.Sort, opt.Top); err != nil {
		return nil, err
	}
	r.Tables = []report.Table{s.table(), s.peakTable(), s.eventTable(), s.poolTable(), moments}
	r.Totals = s.totals()
	return r, nil
}
