package cudaerrors

import (
	"slices"

	callspkg "github.com/gpurec/gpurec/analyze/model/calls"
	"github.com/gpurec/gpurec/analyze/model/fault"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/quality"
)

// Run reports which calls failed, what that means, and of errors that come from earlier work what was launched before. It
// returns a *SortError for a column that there is not.
func Run(t *timeline.Timeline, opt query.Options) (*report.Report, error) {
	t = t.View()
	counts, err := callspkg.CountsWhile(t, func() error { return nil }) // for the quality block
	if err != nil {
		return nil, err
	}
	u := NewScan(t, &opt.Filter)
	if err := u.scan(); err != nil {
		return nil, err
	}
	faults, err := fault.Find(t)
	if err != nil {
		return nil, err
	}
	faults = slices.DeleteFunc(faults, func(f fault.Fault) bool {
		return f.StartNs < u.Window.FromNs || f.StartNs > u.Window.ToNs || !opt.PassesCaller(f.Pid, f.Tid, f.Device, f.Stream)
	})
	r := &report.Report{Command: "errors", Window: u.Window, Quality: quality.OfRecording(t, counts), Notes: t.Facts.Notes}
	if len(u.Seen.Pids) > 0 && !u.matched() {
		r.NoMatch = u.Seen.Explain(&opt.Filter)
	}
	frees, err := InvalidFrees(t, u, &r.Quality)
	if err != nil {
		return nil, err
	}
	r.Totals = u.totals(len(faults), frees)
	r.Facts = u.facts()
	table, err := u.table(&opt)
	if err != nil {
		return nil, err
	}
	broken := faultTable(t, faults, opt.Top)
	suspects, err := suspectTable(t, faults[:len(broken.Rows)], &opt)
	if err != nil {
		return nil, err
	}
	r.Tables = []report.Table{broken, suspects, invalidFreeTable(t, u, frees, &opt), table, u.quietTable()}
	return r, nil
}
