package timeline

import (
	"maps"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/query"
)

// ListRanks lists the ranks of all processes, shortened if there are many.
func (t *Timeline) ListRanks() string {
	ranks := make(map[int32]bool)
	for pid := range t.Facts.Processes {
		if rank, ok := t.Facts.RankOfProcess(pid); ok {
			ranks[rank] = true
		}
	}
	var list []string
	for _, rank := range slices.Sorted(maps.Keys(ranks)) {
		list = append(list, query.FormatPid(rank))
	}
	return strings.Join(query.ShortenList(list), ", ")
}
