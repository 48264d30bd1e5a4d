package changes

import (
	"github.com/gpurec/gpurec/analyze/model/change"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/frames"
	"github.com/gpurec/gpurec/analyze/report/processes"
	"github.com/gpurec/gpurec/analyze/report/quality"
)

// Mark is an event for the charts.
type Mark struct {
	AtNs int64 // Unix ns
	Text string
}

// Run reports the times at which values moved to another level, and what else happened then. It returns a
// *report.SortError for an unknown opt.Sort.
func Run(t *timeline.Timeline, opt query.Options) (*report.Report, error) {
	r, _, err := RunForCharts(t, opt, Shared{})
	return r, err
}

// RunForCharts is Run with what the caller has read already. It also returns a mark for each event.
func RunForCharts(t *timeline.Timeline, opt query.Options, shared Shared) (*report.Report, []Mark, error) {
	t = t.NewView()
	sc, err := newScan(t, &opt.Filter, shared)
	if err != nil {
		return nil, nil, err
	}
	r := &report.Report{
		Command: "changes", Window: sc.window, Quality: quality.OfProgramReplay(t, sc.program), Notes: t.Facts.Notes,
		Sentences: []string{"result"},
	}
	if len(sc.calls.Threads) == 0 && len(sc.calls.Seen.Pids) > 0 {
		r.NoMatch = sc.calls.Seen.ExplainNoMatch(&opt.Filter)
	}
	r.Facts, r.Totals = sc.facts(), sc.totals()
	tables := []report.Table{
		sc.changeTable(), sc.aroundTable(), sc.driftTable(), sc.outlierTable(), sc.seriesTable(),
	}
	for i := range tables {
		by := ""
		if i == 0 {
			by = opt.Sort
		}
		if err := tables[i].SortAndCut(by, opt.Top); err != nil {
			return nil, nil, err
		}
	}
	frames.FillRowStacks(t, &tables[1], &opt)
	for i := range tables {
		processes.AddRankColumn(t, &tables[i])
	}
	r.Tables = tables
	return r, sc.marks(), nil
}

// marks returns a mark for each event.
func (sc *scan) marks() (list []Mark) {
	for _, e := range sc.events {
		list = append(list, Mark{e.AfterNs, markText(e)})
	}
	return list
}

// markText returns the first changes of an event, briefly.
func markText(e *change.Event) string {
	text := DescribeBriefly(&e.Changes[0])
	if len(e.Changes) > 1 {
		text += ", " + DescribeBriefly(&e.Changes[1])
	}
	if len(e.Changes) > 2 {
		text += " …"
	}
	return text
}
