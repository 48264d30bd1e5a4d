package blockreadings

import (
	"cmp"
	"maps"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/caching"
)

// addressMask selects the bits of an address that the tables of the models keep, as in facts.
const addressMask = 1<<56 - 1

// lastState is the result of the last call of State, and what changed since. A segment without changes keeps its
// pieces: most readings change few segments.
type lastState struct {
	segments []caching.EarlierSegment // in order of address
	changed  []int64                  // addresses of blocks, in no order
}

// State returns the segments and blocks of the last usable reading for the model of a caching allocator. The caller
// must not change them. It returns nil if blocks overlap, or lie outside of the segments, as only in a damaged
// recording.
func (a *Allocator) State() *caching.EarlierState {
	s := &caching.EarlierState{
		Pid: a.Pid, Device: a.Device, AtNs: a.AtNs, Allocated: a.Allocated, Reserved: a.Reserved, IsReading: true,
	}
	changed := a.last.changed
	slices.Sort(changed)
	changed = slices.Compact(changed)
	end, blocks := int64(0), int64(0)
	for _, ptr := range slices.Sorted(maps.Keys(a.segments)) {
		g := a.segments[ptr]
		if ptr&addressMask != ptr || ptr < end {
			return a.forgetState()
		}
		end = ptr + g.bytes
		segment := caching.EarlierSegment{
			Ptr: ptr, Bytes: g.bytes, Pool: g.pool, Stream: g.stream, IsSmall: g.isSmall, IsExpandable: g.isExpandable,
		}
		from, _ := slices.BinarySearch(changed, ptr)
		to, _ := slices.BinarySearch(changed, end)
		if !a.fillSegment(&segment, changed[from:to]) {
			return a.forgetState()
		}
		for i := range segment.Blocks {
			if segment.Blocks[i].State != caching.PieceHole {
				blocks++
			}
		}
		s.Segments = append(s.Segments, segment)
	}
	if blocks != int64(len(a.blocks)) {
		return a.forgetState()
	}
	a.last.segments, a.last.changed = s.Segments, a.last.changed[:0]
	return s
}

// forgetState makes the next call of State look at all blocks. It returns nil.
func (a *Allocator) forgetState() *caching.EarlierState {
	a.last.segments = nil
	a.last.changed = slices.AppendSeq(a.last.changed[:0], maps.Keys(a.blocks))
	return nil
}

// fillSegment sets the pieces of a segment. changed has the addresses in it at which blocks changed. It reports whether
// the blocks fit.
func (a *Allocator) fillSegment(s *caching.EarlierSegment, changed []int64) bool {
	end := s.Ptr + s.Bytes
	first, _ := slices.BinarySearchFunc(a.last.segments, s.Ptr, func(o caching.EarlierSegment, ptr int64) int {
		return cmp.Compare(o.Ptr+o.Bytes-1, ptr)
	})
	old := a.last.segments[first:]
	if len(changed) == 0 && len(old) > 0 && old[0].Ptr == s.Ptr && old[0].Bytes == s.Bytes {
		s.Blocks = old[0].Blocks
		return true
	}
	list := slices.Clone(changed)
	for i := 0; i < len(old) && old[i].Ptr < end; i++ {
		for _, b := range old[i].Blocks {
			if b.State != caching.PieceHole && b.Ptr >= s.Ptr && b.Ptr < end {
				list = append(list, b.Ptr)
			}
		}
	}
	list = slices.DeleteFunc(list, func(ptr int64) bool {
		_, exists := a.blocks[ptr]
		return !exists
	})
	slices.Sort(list)
	list = slices.Compact(list)
	pieces, ok := a.appendPieces(make([]caching.EarlierBlock, 0, 2*len(list)+1), s.Ptr, end, list)
	s.Blocks = pieces
	return ok
}

// appendPieces appends the blocks at addresses between two addresses, and the holes between them. It reports whether
// the blocks fit.
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
