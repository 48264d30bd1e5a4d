package allocator

import (
	"github.com/gpurec/gpurec/analyze/model/caching"
	"github.com/gpurec/gpurec/analyze/model/ledger"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/quality"
)

// DefaultMoments is how many moments AllocatorReport tells of if no times are named.
const DefaultMoments = 20

// Options shape the report of caching allocators. Of the filter's conditions
// only those on time, process and device count.
type Options struct {
	query.Options
	// Times are moments to tell of, Unix ns. Without any, there are Moments of them, at
	// equal distances up to the end of the window; 0: DefaultMoments.
	Times   []int64
	Moments int
}

// Run is RunWith without options of its own.
func Run(t *timeline.Timeline, opt query.Options) (*report.Report, error) {
	return RunWith(t, Options{Options: opt})
}

// RunWith reports the books of PyTorch's caching allocators, exactly: at moments, at
// the peaks and at the end, by pool and stream, and how far they agree with what the
// allocators count themselves.
func RunWith(t *timeline.Timeline, opt Options) (*report.Report, error) {
	t = t.View()
	s := NewScan(t, &opt)
	l, all, err := t.ReplayAll(func(*ledger.Ledger, *ledger.Change) {}, s.Step)
	if err != nil {
		return nil, err
	}
	return s.Report(all, &l.Counts)
}

// Report is the report of a scan that has seen a replay.
func (s *Scan) Report(all *caching.Set, counts *ledger.Counts) (*report.Report, error) {
	t, opt := s.t, s.opt
	s.finish(all)
	r := &report.Report{Command: "allocator", Window: s.window, Quality: quality.OfRecording(t, counts), Notes: t.Facts.Notes}
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
