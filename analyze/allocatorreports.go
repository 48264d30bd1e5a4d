package analyze

import (
	"slices"

	"github.com/gpurec/gpurec/analyze/model/caching"
	"github.com/gpurec/gpurec/analyze/model/ledger"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// An allocator that is known by its reports only (format.SourceReports) has blocks and totals,
// but no segments, pools and streams: all its blocks are strays, as those in segments from
// before the recording are. Of a block the size is told and not what was asked for. A free
// ends it at once. Reports come when the totals have changed already.

// limitsText says what all of that means to a reader.
const limitsText = "bytes are sizes of blocks, what was asked for rounded up; segments and what is unused in them, streams, pools and requests that failed are not known"

// reported returns how many processes have allocators that are known by reports only.
func (f *facts) reported() (n int64) {
	pids := make(map[int32]bool)
	for _, a := range f.allocators {
		if a.Source == format.SourceReports {
			pids[a.pid] = true
		}
	}
	return int64(len(pids))
}

// addressed is the driver's memory of a process that can be a segment, by address.
type addressed []addressedBlock

type addressedBlock struct {
	ptr, end int64
	number   int32
}

// note follows a change of the driver's memory.
func (l *addressed) note(c *ledger.Change) {
	i, found := slices.BinarySearchFunc(*l, c.Ptr, func(b addressedBlock, ptr int64) int { return int(min(1, max(-1, b.ptr-ptr))) })
	switch {
	case c.Kind == ledger.AllocFailed:
	case c.Kind != ledger.Allocated && found:
		*l = slices.Delete(*l, i, i+1)
	case c.Kind == ledger.Allocated && !found && c.Block.Bytes >= caching.SmallSegment:
		*l = slices.Insert(*l, i, addressedBlock{c.Ptr, units.EndOf(c.Ptr, c.Block.Bytes), c.Block.Number})
	}
}

// around returns what holds an address.
func (l addressed) around(ptr int64) (number int32, ok bool) {
	i, found := slices.BinarySearchFunc(l, ptr, func(b addressedBlock, ptr int64) int { return int(min(1, max(-1, b.ptr-ptr))) })
	if !found {
		i--
	}
	if i < 0 || ptr >= l[i].end {
		return 0, false
	}
	return l[i].number, true
}
