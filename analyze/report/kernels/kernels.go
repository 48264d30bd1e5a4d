package kernels

import (
	"github.com/gpurec/gpurec/analyze/model/calls"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/quality"
)

// Run reports the launched kernels, the number and size of their launches, and their call sites.
// The recording has no GPU times. Run returns a *quality.MissingClassError if the recording lacks
// necessary classes of calls, and a *report.SortError for an unknown opt.Sort.
func Run(t *timeline.Timeline, opt query.Options) (*report.Report, error) {
	t = t.NewView()
	if err := quality.CheckClasses(t, "kernels", NeededCallClasses); err != nil {
		return nil, err
	}
	sc := NewScan(t, &opt.Filter)
	counts, err := calls.CountReplayWhile(t, func() error {
		for _, s := range t.Calls {
			sc.ReadRowGroup(s.Group)
			if err := s.Group.Err(); err != nil {
				return t.WrapReadError(err)
			}
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	r := &report.Report{
		Command: "kernels",
		Window:  sc.Window,
		Quality: quality.OfRecording(t, counts),
		Notes:   t.Facts.Notes,
	}
	result := ""
	if len(sc.Counts)+len(sc.graphs) == 0 {
		result = "no launches in the window"
		if len(sc.Seen.Pids) > 0 {
			r.NoMatch = sc.Seen.ExplainNoMatch(&opt.Filter)
		}
	}
	r.Facts = report.NewFacts(factColumns, report.Values{"result": result, "kernels_text": sc.Work.String()})
	table := sc.kernelTable()
	if err := table.SortAndCut(opt.Sort, opt.Top); err != nil {
		return nil, err
	}
	shapes, streams, graphs := sc.shapeTable(opt.Top), sc.streamTable(), sc.graphTable()
	for _, aside := range []*report.Table{&shapes, &streams, &graphs} {
		if err := aside.SortAndCut("", opt.Top); err != nil {
			return nil, err
		}
	}
	r.Totals = sc.computeTotals()
	r.Tables = []report.Table{table, shapes, streams, graphs}
	return r, nil
}
