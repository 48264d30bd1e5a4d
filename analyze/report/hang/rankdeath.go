package hang

import (
	"fmt"

	"github.com/gpurec/gpurec/analyze/model/rankstate"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/units"
)

// DescribeFirstDeath says which rank ended first, and why it is the reason of the other ends. s must have a FirstDeath.
// confidence is one of the report.Confidence names, and reasons say what lowers it.
func DescribeFirstDeath(s *rankstate.State) (what, why, confidence string, reasons []string) {
	d := s.FirstDeath
	r := &s.Ranks[d.Rank]
	what = fmt.Sprintf(
		"%s (%s pid %d) died first: %s; the next of %s ended %s later",
		ranksText(s, []int{d.Rank}),
		r.Host,
		r.Member.Pid,
		r.Fate,
		units.CountWithNoun(int64(len(d.Others)), "other rank"),
		units.FormatDuration(d.LeadNs),
	)
	why = "the other ranks ended after it, as a launcher ends them"
	if d.Communicator >= 0 {
		why = fmt.Sprintf("it had called %s operations of %s, another rank %s: the others waited for it",
			units.FormatCount(d.Called), communicatorText(s, d.Communicator), units.FormatCount(d.Furthest))
	}
	if d.IsKnown {
		return what, why, report.ConfidenceHigh, nil
	}
	return what, why, report.ConfidenceMedium, []string{"how the rank ended is not known"}
}
