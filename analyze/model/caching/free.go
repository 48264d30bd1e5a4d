package caching

// FreeMemory describes the holes that an allocator had when a request needed a new segment. It
// tells why no hole served the request. Sizes are in bytes.
type FreeMemory struct {
	// Own is the sum of the holes in which the allocator may place the block: those of its pool,
	// stream and size class. OwnLargest is the largest of them, and OwnStranded the part in segments
	// with live blocks.
	Own, OwnLargest, OwnStranded int64
	// OtherStreams is the largest hole that belongs to another stream of the same pool.
	OtherStreams int64
	// OtherPools is the largest hole in another pool.
	OtherPools int64
}

// FreeMemoryFor returns the holes at the allocation of block b. It leaves out the hole at the
// block's address, which is the new segment. The consumer of changes may call it for OpBlockAllocated.
func (a *Allocator) FreeMemoryFor(b *SegmentPiece) (f FreeMemory) {
	small := b.Requested <= MaxSmallRequestBytes
	for i := range a.Pieces {
		p := &a.Pieces[i]
		if p.State != PieceHole || p.Size == 0 || p.Ptr == b.Ptr || !a.takesSizeClass(p, small) {
			continue
		}
		switch {
		case p.Pool != b.Pool:
			f.OtherPools = max(f.OtherPools, p.Size)
		case p.Stream != b.Stream:
			f.OtherStreams = max(f.OtherStreams, p.Size)
		default:
			f.Own += p.Size
			f.OwnLargest = max(f.OwnLargest, p.Size)
			if p.prev != NoPiece || p.next != NoPiece {
				f.OwnStranded += p.Size
			}
		}
	}
	return f
}

// takesSizeClass reports whether a hole may take small blocks, or other blocks. The holes of
// expandable segments take both.
func (a *Allocator) takesSizeClass(p *SegmentPiece, small bool) bool {
	return p.Segment < 0 || small == (a.Segments[p.Segment].Size == SmallSegmentBytes)
}
