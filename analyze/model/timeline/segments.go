package timeline

import (
	"slices"

	"github.com/gpurec/gpurec/analyze/model/caching"
	"github.com/gpurec/gpurec/analyze/model/livemem"
	"github.com/gpurec/gpurec/analyze/units"
)

// Addressed is the driver's memory of a process that can be a segment, by address.
type Addressed []addressedBlock

type addressedBlock struct {
	ptr, end int64
	number   int32
}

// Note follows a change of the driver's memory.
func (l *Addressed) Note(c *livemem.Change) {
	i, found := slices.BinarySearchFunc(
		*l,
		c.Ptr,
		func(b addressedBlock, ptr int64) int { return int(min(1, max(-1, b.ptr-ptr))) },
	)
	switch {
	case c.Kind == livemem.AllocFailed:
	case c.Kind != livemem.Allocated && found:
		*l = slices.Delete(*l, i, i+1)
	case c.Kind == livemem.Allocated && !found && c.Block.Bytes >= caching.SmallSegment:
		*l = slices.Insert(*l, i, addressedBlock{c.Ptr, units.EndOf(c.Ptr, c.Block.Bytes), c.Block.Number})
	}
}

// Around returns what holds an address.
func (l Addressed) Around(ptr int64) (number int32, ok bool) {
	i, found := slices.BinarySearchFunc(
		l,
		ptr,
		func(b addressedBlock, ptr int64) int { return int(min(1, max(-1, b.ptr-ptr))) },
	)
	if !found {
		i--
	}
	if i < 0 || ptr >= l[i].end {
		return 0, false
	}
	return l[i].number, true
}
