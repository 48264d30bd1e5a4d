package gaps

import (
	"cmp"

	"github.com/gpurec/gpurec/analyze/model/calls"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/frames"
	"github.com/gpurec/gpurec/analyze/report/quality"
	"github.com/gpurec/gpurec/format"
)

// DefaultMinGapNs is the shortest interval without launches that counts as a gap if nothing else is said: what a step of training
// takes to be prepared is mostly less.
const DefaultMinGapNs = int64(1e6)

// Options shape the report of gaps.
type Options struct {
	query.Options
	// MinGapNs is the shortest interval that is a gap, ns; 0 is DefaultMinGapNs.
	MinGapNs int64
}

// AllDevices is the device of a gap in which a process launched nothing on any device.
const AllDevices = int32(-2)

// DefaultTop is how many gaps are told one by one if --top does not bound them.
const DefaultTop = 1000

// Run is RunWith without options of its own.
func Run(t *timeline.Timeline, opt query.Options) (*report.Report, error) {
	return RunWith(t, Options{Options: opt})
}

// RunWith reports intervals in which a process gave no work to the GPU: how many and how long, what the launching thread did in the
// longest ones, and whether the GPU was idle. It returns a *SortError for a column that there is not.
func RunWith(t *timeline.Timeline, opt Options) (*report.Report, error) {
	t = t.View()
	if err := quality.Needs(t, "gaps"); err != nil {
		return nil, err
	}
	sc := NewScan(calls.NewReader(t, &opt.Filter, format.KindLaunch), cmp.Or(opt.MinGapNs, DefaultMinGapNs), cmp.Or(opt.Top, DefaultTop))
	counts, err := calls.CountsWhile(t, func() error { return sc.Each(sc.Add) })
	if err != nil {
		return nil, err
	}
	sc.SelectLongest()
	sc.FindGPUActivity()
	if err := sc.FindCPUActivity(); err != nil {
		return nil, err
	}
	r := &report.Report{Command: "gaps", Window: sc.Window, Quality: quality.OfRecording(t, counts), Notes: t.Facts.Notes}
	result := ""
	if len(sc.Tracks) == 0 {
		result = "no launches in the window"
		if len(sc.Seen.Pids) > 0 {
			r.NoMatch = sc.Seen.Explain(&opt.Filter)
		}
	}
	r.Facts = report.Fill(factColumns, result, sc.minNs)
	r.Totals = sc.totals()
	gaps := sc.gapTable()
	if err := gaps.Arrange(opt.Sort, opt.Top); err != nil {
		return nil, err
	}
	frames.Fill(t, &gaps, &opt.Options)
	r.Tables = []report.Table{sc.trackTable(), sc.lengthTable(), gaps}
	return r, nil
}
