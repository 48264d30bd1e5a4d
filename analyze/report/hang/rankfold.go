package hang

import (
	"fmt"
	"strings"

	"github.com/gpurec/gpurec/analyze/model/job"
	"github.com/gpurec/gpurec/analyze/model/rankstate"
	"github.com/gpurec/gpurec/analyze/units"
)

// rankSetText names ranks of a job, such as "0-5, 7", or "5-1021/8" for every eighth rank from 5 to 1021. Processes
// without a rank have their labels. indexes are indexes in State.Ranks.
func rankSetText(s *rankstate.State, indexes []int) string {
	var numbers, unknown []int
	for _, i := range indexes {
		if rank := s.Ranks[i].Member.Rank; rank == job.UnknownRank {
			unknown = append(unknown, i)
		} else {
			numbers = append(numbers, rank)
		}
	}
	var parts []string
	if len(numbers) > 0 {
		parts = append(parts, units.FormatNumberSet(numbers))
	}
	labels := s.LabelsOf(unknown)
	if more := len(labels) - maxLabels; more > 0 {
		labels = append(labels[:maxLabels], fmt.Sprintf("%d more", more))
	}
	return strings.Join(append(parts, labels...), ", ")
}
