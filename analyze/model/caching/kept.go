package caching

// keptSegments are the segments of a model that a reading does not change. Most readings change few segments.
type keptSegments struct {
	segments map[int64]bool // by address
	pieces   []bool         // by number
}

// hasPiece reports whether a piece is in a kept segment.
func (k *keptSegments) hasPiece(i int) bool { return i < len(k.pieces) && k.pieces[i] }

// findEqualSegments returns the segments of the model that equal those of a reading. Their sizes are confirmed. It
// returns none for other states.
func (a *Allocator) findEqualSegments(state *EarlierState) *keptSegments {
	k := new(keptSegments)
	if !state.IsReading || a.Reports {
		return k
	}
	k.segments, k.pieces = make(map[int64]bool), make([]bool, len(a.Pieces))
	var numbers []int32
	for i := range state.Segments {
		s := &state.Segments[i]
		var isEqual bool
		if numbers, isEqual = a.compareSegment(s, numbers[:0]); !isEqual {
			continue
		}
		k.segments[s.Ptr] = true
		for j, n := range numbers {
			k.pieces[n] = true
			a.Pieces[n].agreed = a.Pieces[n].agreed || !s.Blocks[j].IsPredicted
		}
	}
	return k
}

// compareSegment reports whether the model has a segment of a reading. It appends the numbers of the segment's pieces
// to numbers.
func (a *Allocator) compareSegment(s *EarlierSegment, numbers []int32) ([]int32, bool) {
	n, ok := a.Began[s.Ptr]
	if !ok {
		return numbers, false
	}
	known := &a.Segments[n]
	if known.IsMappedRange() != s.IsExpandable || !s.IsExpandable && known.Size != s.Bytes || known.Pool != s.Pool {
		return numbers, false
	}
	for i, p := range a.PiecesWithin(known) {
		if len(numbers) == len(s.Blocks) || !p.equals(&s.Blocks[len(numbers)]) || p.Stream != s.Stream {
			return numbers, false
		}
		numbers = append(numbers, i)
	}
	return numbers, len(numbers) == len(s.Blocks)
}

// equals reports whether a piece equals one of a reading.
func (p *SegmentPiece) equals(b *EarlierBlock) bool {
	return p.Ptr == b.Ptr && p.Size == b.Bytes && p.State == b.State && p.Requested == b.Requested
}

// clearOtherPieces removes the pieces outside of kept segments, and the removed segments.
func (a *Allocator) clearOtherPieces(kept *keptSegments, removed map[int64]AllocatorSegment) {
	for end, n := range a.ends {
		if !kept.pieces[n] {
			delete(a.ends, end)
		}
	}
	isSpare := make([]bool, len(a.Pieces))
	for _, n := range a.spare {
		isSpare[n] = true
	}
	for i := range a.Pieces {
		if !kept.pieces[i] && !isSpare[i] {
			a.deletePiece(int32(i))
		}
	}
	for ptr := range removed {
		a.deleteSegment(a.Began[ptr])
	}
	a.holesSorted = false
	a.Check.pending = NoPiece
}
