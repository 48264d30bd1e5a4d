package blockreadings

import (
	"cmp"
	"maps"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/caching"
)

// addressMask selects the bits of an address that the tables of the models keep, as in facts.
const addressMask = 1<<56 - 1

// State returns the segments and blocks of the last usable reading for the model of a caching allocator. It returns nil
// if blocks overlap, or lie outside of the segments, as only in a damaged recording.
func (a *Allocator) State() *caching.EarlierState {
	s := &caching.EarlierState{
		Pid: a.Pid, Device: a.Device, AtNs: a.AtNs, Allocated: a.Allocated, Reserved: a.Reserved, IsReading: true,
	}
	blocks := slices.Sorted(maps.Keys(a.blocks))
	// One array has the pieces of all segments: blocks, and at most one hole before each and one at each end.
	pieces := make([]caching.EarlierBlock, 0, 2*len(blocks)+len(a.segments))
	end := int64(0)
	for _, ptr := range slices.Sorted(maps.Keys(a.segments)) {
		g := a.segments[ptr]
		if ptr&addressMask != ptr || ptr < end {
			return nil
		}
		end = ptr + g.bytes
		first := len(pieces)
		n, _ := slices.BinarySearch(blocks, end)
		ok := false
		if pieces, ok = a.appendPieces(pieces, ptr, end, blocks[:n]); !ok {
			return nil
		}
		blocks = blocks[n:]
		s.Segments = append(s.Segments, caching.EarlierSegment{
			Ptr: ptr, Bytes: g.bytes, Pool: g.pool, Stream: g.stream, IsSmall: g.isSmall, IsExpandable: g.isExpandable,
			Blocks: pieces[first:len(pieces):len(pieces)],
		})
	}
	if len(blocks) > 0 {
		return nil
	}
	return s
}

// appendPieces appends the blocks at addresses between two addresses, and the holes between them. It reports whether the
// blocks fit.
func (a *Allocator) appendPieces(
	list []caching.EarlierBlock,
	at, end int64,
	blocks []int64,
) ([]caching.EarlierBlock, bool) {
	for _, ptr := range blocks {
		b := a.blocks[ptr]
		if ptr < at || b.Bytes <= 0 || b.Bytes > end-ptr {
			return list, false
		}
		if ptr > at {
			list = append(list, caching.EarlierBlock{Ptr: at, Bytes: ptr - at})
		}
		state := caching.PieceBlock
		if b.AwaitsStream {
			state = caching.PieceAwaitsStream
		}
		list = append(list, caching.EarlierBlock{
			Ptr: ptr, Bytes: b.Bytes, Requested: min(max(0, b.Requested), b.Bytes), State: state,
		})
		at = ptr + b.Bytes
	}
	if at < end {
		list = append(list, caching.EarlierBlock{Ptr: at, Bytes: end - at})
	}
	return list, true
}

// compareReadings orders readings by time. Those of one allocator stay in the order of their rows.
func compareReadings(a, b *indexedReading) int { return cmp.Compare(a.atNs, b.atNs) }
