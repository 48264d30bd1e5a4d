package timeline

import (
	"maps"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/query"
)

// RanksText lists the ranks of all processes, shortened if there are many.
func (t *Timeline) RanksText() string {
	ranks := make(map[int32]bool)
	for pid := range t.Facts.Processes {
		if rank, ok := t.Facts.Rank(pid); ok {
			ranks[rank] = true
		}
	}
	var list []string
	for _, rank := range slices.Sorted(maps.Keys(ranks)) {
		list = append(list, query.PidText(rank))
	}
	return strings.Join(query.AtMostNamed(list), ", ")
}
