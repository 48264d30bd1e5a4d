package timeline

import (
	"slices"

	"github.com/gpurec/gpurec/analyze/model/caching"
	"github.com/gpurec/gpurec/analyze/model/livemem"
	"github.com/gpurec/gpurec/analyze/units"
)

// SegmentCandidates is the driver memory of a process that can be a segment of a caching allocator,
// in order of address.
type SegmentCandidates []segmentCandidate

type segmentCandidate struct {
	ptr, end int64
	number   int32
}

// ApplyChange applies a change of driver memory.
func (s *SegmentCandidates) ApplyChange(c *livemem.Change) {
	i, found := slices.BinarySearchFunc(
		*s,
		c.Ptr,
		func(b segmentCandidate, ptr int64) int { return int(min(1, max(-1, b.ptr-ptr))) },
	)
	switch {
	case c.Kind == livemem.ChangeAllocFailed:
	case c.Kind != livemem.ChangeAllocated && found:
		*s = slices.Delete(*s, i, i+1)
	case c.Kind == livemem.ChangeAllocated && !found && c.Block.Bytes >= caching.SmallSegmentBytes:
		*s = slices.Insert(*s, i, segmentCandidate{c.Ptr, units.EndOfRange(c.Ptr, c.Block.Bytes), c.Block.Number})
	}
}

// BlockAround returns the number of the block that contains an address.
func (s SegmentCandidates) BlockAround(ptr int64) (number int32, ok bool) {
	i, found := slices.BinarySearchFunc(
		s,
		ptr,
		func(b segmentCandidate, ptr int64) int { return int(min(1, max(-1, b.ptr-ptr))) },
	)
	if !found {
		i--
	}
	if i < 0 || ptr >= s[i].end {
		return 0, false
	}
	return s[i].number, true
}
