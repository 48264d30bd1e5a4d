package streams

import (
	"github.com/gpurec/gpurec/analyze/model/calls"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/quality"
	"github.com/gpurec/gpurec/format"
)

// Run reports the launches, copies and memsets of each stream, the threads that use it, and streams
// that keep work from overlapping. It returns a *quality.MissingClassError if the recording lacks
// necessary classes of calls, and a *report.SortError for an unknown opt.Sort.
func Run(t *timeline.Timeline, opt query.Options) (*report.Report, error) {
	t = t.NewView()
	if err := quality.CheckClasses(t, "streams", NeededCallClasses); err != nil {
		return nil, err
	}
	sc := newScan(calls.NewCallReader(t, &opt.Filter, scannedCallKinds...))
	counts, err := calls.CountReplayWhile(t, func() error { return sc.EachCall(sc.addCall) })
	if err != nil {
		return nil, err
	}
	r := &report.Report{
		Command: "streams",
		Window:  sc.Window,
		Quality: quality.OfRecording(t, counts),
		Notes:   t.Facts.Notes,
		// The result is longer than a line.
		Sentences: []string{"result"},
	}
	if len(sc.streams) == 0 && len(sc.Seen.Pids) > 0 {
		r.NoMatch = sc.Seen.ExplainNoMatch(&opt.Filter)
	}
	findings := sc.findOverlapLimits()
	r.Facts, r.Totals = computeFacts(findings), sc.computeTotals(findings)
	table := sc.streamTable(findings)
	if err := table.SortAndCut(opt.Sort, opt.Top); err != nil {
		return nil, err
	}
	r.Tables = []report.Table{table}
	return r, nil
}

// scannedCallKinds are the call kinds that the scan reads. The first three are stream work.
var scannedCallKinds = []string{format.KindLaunch, format.KindMemcpy, format.KindMemset, format.KindSync}
