package html

import (
	"fmt"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/ranks"
	"github.com/gpurec/gpurec/analyze/report/rules"
	"github.com/gpurec/gpurec/analyze/units"
)

// rankData is the lateness of a rank over time: V[i] is that of the steps from T[i] on, ns.
type rankData struct {
	lineData

	IsLate bool `json:"late"` // the other ranks wait for it
}

// Limits of the chart of ranks.
const (
	maxChartRanks  = 8
	maxRankPoints  = 400
	minChartPoints = 2
)

// hasRanks reports whether the recording has ranks to compare: rules check them, too.
func (b *pageBuilder) hasRanks() bool {
	return slices.ContainsFunc(rules.SelectCheckable(b.t, rules.AllRules()), func(r *rules.Rule) bool {
		return r.Report == ranks.Definition.Name
	})
}

// runRanks runs the report ranks, and keeps the lateness of ranks for the chart.
func (b *pageBuilder) runRanks(t *timeline.Timeline, opt query.Options) (*report.Report, error) {
	s, err := ranks.FindIn(t, opt)
	if err != nil {
		return nil, err
	}
	b.ranks = slices.DeleteFunc(s.Lateness(maxChartRanks, maxRankPoints), func(l ranks.Lateness) bool {
		return len(l.Points) < minChartPoints
	})
	b.comparedRanks = s.ComparedRanks()
	return ranks.Run(t, opt)
}

// newRanksData returns the lines of the chart of ranks.
func (b *pageBuilder) newRanksData() (list []rankData) {
	for i := range b.ranks {
		l := &b.ranks[i]
		d := rankData{lineData{Name: shortenText(l.Name)}, l.IsLate}
		for _, p := range l.Points {
			d.T, d.V = append(d.T, secondsSinceStart(b.t, p.AtNs)), append(d.V, chartNumber(p.LateNs))
		}
		list = append(list, d)
	}
	return list
}

// newRanksNotes returns sentences about what the chart of ranks lacks.
func (b *pageBuilder) newRanksNotes() (list []string) {
	if len(b.ranks) == 0 {
		return nil
	}
	if n := b.ranks[0].StepsPerPoint; n > 1 {
		list = append(list, fmt.Sprintf("Each point of the chart is the median of %s.",
			units.CountWithNoun(int64(n), "step")))
	}
	if more := b.comparedRanks - len(b.ranks); more > 0 {
		list = append(list, fmt.Sprintf("The chart has the late ranks, and those that differ most. It leaves out %s.",
			units.CountWithNoun(int64(more), "rank")))
	}
	return list
}
