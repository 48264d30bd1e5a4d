package xid

import (
	"github.com/gpurec/gpurec/analyze/model/calls"
	"github.com/gpurec/gpurec/analyze/model/fault"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/quality"
)

// Run reports the Xids of the recording with their meaning, and the launches and CUDA errors of the
// process around them.
func Run(t *timeline.Timeline, opt query.Options) (*report.Report, error) {
	t = t.NewView()
	counts, err := calls.CountReplayWhile(t, func() error { return nil }) // the quality block needs them
	if err != nil {
		return nil, err
	}
	faults, err := fault.FindFaults(t)
	if err != nil {
		return nil, err
	}
	r := &report.Report{
		Command: "xid",
		Window:  opt.NarrowWindow(t.RecordingWindow()),
		Quality: quality.OfRecording(t, counts),
		Notes:   t.Facts.Notes,
	}
	list := SelectXids(t, &opt.Filter, r.Window)
	if len(list) == 0 && len(t.Facts.Xids) > 0 {
		r.NoMatch = explainNoMatch(t, &opt.Filter)
	}
	table := newXidTable(t, list, faults)
	if err := table.SortAndCut("", opt.Top); err != nil {
		return nil, err
	}
	shown := list[:len(table.Rows)]
	launches, err := launchesBeforeXids(t, shown, &opt.Filter)
	if err != nil {
		return nil, err
	}
	r.Facts, r.Totals = xidFacts(list), computeTotals(list)
	r.Tables = []report.Table{table, launchTable(t, shown, launches, &opt)}
	return r, nil
}
