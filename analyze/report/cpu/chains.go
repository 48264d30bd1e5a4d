package cpu

import (
	"fmt"

	"github.com/gpurec/gpurec/analyze/model/hosttime"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/hostcause"
)

// becauseColumn is the last column of the table of waits, if the recording says who ended waits.
var becauseColumn = report.Column{
	Key: "because", Title: "BECAUSE", Unit: report.UnitText,
	About: "what the thread at the end of the chain of wakers did for most of the time, and its share. Absent: the " +
		"wait has its own cause, or the thread is unknown",
}

// waitChains finds out why threads waited, by the rows of the table of waits.
type waitChains struct {
	history *hosttime.History
	sums    map[waitKey]*hosttime.Breakdown
}

// newWaitChains returns nil if the recording does not say who ended waits.
func newWaitChains(s *scan) (*waitChains, error) {
	if !hosttime.HasWakers(s.t) {
		return nil, nil
	}
	history, err := hosttime.Of(s.t)
	return &waitChains{history: history, sums: make(map[waitKey]*hosttime.Breakdown)}, err
}

// add adds a wait of a row.
func (c *waitChains) add(s *scan, key waitKey, w *hosttime.Wait) {
	if c == nil {
		return
	}
	sum := c.sums[key]
	if sum == nil {
		sum = hosttime.NewBreakdown(c.history, s.t.SiteOfStack)
		c.sums[key] = sum
	}
	sum.Add(nil, w.Thread, w.FromNs, w.ToNs, 1)
}

// values returns the cell of becauseColumn; nil if the table does not have it.
func (c *waitChains) values(s *scan, key waitKey) report.Values {
	if c == nil {
		return nil
	}
	sum := c.sums[key]
	list := sum.Finish()
	if len(list) == 0 || !list[0].Chain.IsOther() {
		return report.Values{"because": nil}
	}
	text, share := hostcause.EntryText(s.t, list[0]), min(100, 100*list[0].Ns/max(1, sum.TotalNs))
	return report.Values{"because": fmt.Sprintf("%s (%.0f%%)", text, share)}
}

// addColumn adds becauseColumn to the table of waits.
func (c *waitChains) addColumn(table *report.Table) {
	if c != nil {
		table.Columns = append(table.Columns, becauseColumn)
	}
}
