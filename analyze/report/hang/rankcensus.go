package hang

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/model/census"
	"github.com/gpurec/gpurec/analyze/model/rankstate"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/units"
)

// censusColumn is the column of censusFacts.
var censusColumn = report.Column{
	Key: "census", Title: "census", Unit: report.UnitText,
	About: "collectives that each rank launched, by NCCL's counters; only of communicators without a recorded call",
}

// censusTexts is the number of communicators that the fact census names.
const censusTexts = 3

// censusFacts compares the counters of NCCL, if the recordings have calls of no rank of a communicator.
func censusFacts(s *rankstate.State) []report.Fact {
	if len(s.Census) == 0 {
		return nil
	}
	list := censusByDifference(s)
	var parts []string
	for _, c := range list[:min(len(list), censusTexts)] {
		parts = append(parts, censusText(s, c))
	}
	if more := len(list) - censusTexts; more > 0 {
		parts = append(parts, fmt.Sprintf("%d more communicators", more))
	}
	text := strings.Join(parts, "; ") + ". Counts are of launches, without Send, Recv and operations of CUDA graphs"
	return []report.Fact{{Column: censusColumn, Value: text}}
}

// censusByDifference returns the communicators with different counts before those with equal ones.
func censusByDifference(s *rankstate.State) (list []*rankstate.Census) {
	for i := range s.Census {
		list = append(list, &s.Census[i])
	}
	slices.SortStableFunc(list, func(a, b *rankstate.Census) int { return rankOfKind(a.Kind) - rankOfKind(b.Kind) })
	return list
}

// rankOfKind orders the kinds of comparisons by how much they say.
func rankOfKind(k census.Kind) int {
	return slices.Index([]census.Kind{census.Different, census.Behind, census.Equal}, k)
}

// censusText compares the ranks of a communicator.
func censusText(s *rankstate.State, c *rankstate.Census) string {
	var ranks []int
	for i := range c.Sides {
		ranks = append(ranks, c.Sides[i].Rank)
	}
	text := fmt.Sprintf(
		"%s (%s): %s, unchanged for %s",
		communicatorName(s, c.Communicator),
		units.FormatNumberSet(ranks),
		c.Text(),
		units.FormatDuration(max(0, s.EndNs-c.SinceNs)),
	)
	if missing := s.Communicators[c.Communicator].Size - len(c.Sides); missing > 0 {
		text += fmt.Sprintf(", without %s that %s not read", units.CountWithNoun(int64(missing), "rank"),
			map[bool]string{true: "was", false: "were"}[missing == 1])
	}
	return text
}
