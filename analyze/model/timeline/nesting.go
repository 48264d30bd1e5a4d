package timeline

import (
	"slices"

	"github.com/gpurec/gpurec/format"
)

// addCollectives notes the starts of the calls of NCCL in a row group.
func (t *Timeline) addCollectives(g *format.Group) {
	t.collectives = append(t.collectives, g.Int64("start_ns", nil)...)
}

// DriverParents returns the column parent_start_ns with 0 for calls that were made by NCCL. They are nested
// in rows of class collective, but not in another call of the driver, so reports count them like calls of the
// program. It does not change parents, and returns it if there are no such calls.
func (t *Timeline) DriverParents(parents []int64) []int64 {
	if len(t.collectives) == 0 {
		return parents
	}
	isCopy := false
	for i, parent := range parents {
		if parent == 0 {
			continue
		}
		if _, found := slices.BinarySearch(t.collectives, parent); !found {
			continue
		}
		if !isCopy {
			parents, isCopy = slices.Clone(parents), true
		}
		parents[i] = 0
	}
	return parents
}
