package copies

import (
	"github.com/gpurec/gpurec/analyze/model/calls"
	"github.com/gpurec/gpurec/analyze/model/hostmem"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/frames"
	"github.com/gpurec/gpurec/analyze/report/quality"
	"github.com/gpurec/gpurec/format"
)

// Run reports copies by direction, size, kind of host memory and way of calling, and bursts of small ones. It returns a
// *SortError for a column that there is not.
func Run(t *timeline.Timeline, opt query.Options) (*report.Report, error) {
	t = t.View()
	if err := quality.Needs(t, "copies"); err != nil {
		return nil, err
	}
	host, counts, err := hostmem.Read(t)
	if err != nil {
		return nil, err
	}
	sc := NewScan(calls.NewReader(t, &opt.Filter, format.KindMemcpy), host)
	if err := sc.Each(sc.Add); err != nil {
		return nil, err
	}
	r := &report.Report{Command: "copies", Window: sc.Window, Quality: quality.OfRecording(t, counts), Notes: t.Facts.Notes}
	if r.Facts = report.Fill(factColumns, ""); len(sc.groups) == 0 {
		r.Facts[0].Value = "no copies in the window"
		if len(sc.Seen.Pids) > 0 {
			r.NoMatch = sc.Seen.Explain(&opt.Filter)
		}
	}
	r.Totals = sc.totals()
	table := sc.table()
	if err := table.Arrange(opt.Sort, opt.Top); err != nil {
		return nil, err
	}
	bursts, places := sc.burstTable(), sc.siteTable()
	for _, aside := range []*report.Table{&bursts, &places} {
		if err := aside.Arrange("", opt.Top); err != nil {
			return nil, err
		}
	}
	frames.Fill(t, &bursts, &opt)
	r.Tables = []report.Table{bursts, table, places}
	return r, nil
}
