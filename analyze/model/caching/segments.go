package caching

import (
	"cmp"
	"iter"
	"maps"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/origin"
)

// newSegment adds a segment and returns its number.
func (a *Allocator) newSegment(s AllocatorSegment) int32 {
	var n int32
	if k := len(a.idle); k > 0 {
		n = a.idle[k-1]
		a.idle = a.idle[:k-1]
		a.Segments[n] = s
	} else {
		n = int32(len(a.Segments))
		a.Segments = append(a.Segments, s)
	}
	a.Began[s.Ptr] = n
	return n
}

func (a *Allocator) deleteSegment(n int32) {
	if a.Began[a.Segments[n].Ptr] == n {
		delete(a.Began, a.Segments[n].Ptr)
	}
	a.Segments[n] = AllocatorSegment{}
	a.idle = append(a.idle, n)
}

// addSegment adds a segment that consists of one hole.
func (a *Allocator) addSegment(e *AllocatorEvent, stream int64) {
	if e.Bytes == 0 {
		return
	}
	a.Seen.Segments++
	n := a.newSegment(AllocatorSegment{Ptr: e.Ptr, Size: e.Bytes, Pool: e.Pool, Origin: e.Origin, SinceNs: e.AtNs})
	if i, ok := a.at.Get(e.Ptr); ok && a.Pieces[i].Segment == UnrecordedSegmentIndex {
		a.deletePiece(i) // the end of this block was not recorded
	}
	a.newPiece(
		SegmentPiece{
			Ptr:     e.Ptr,
			Size:    e.Bytes,
			Pool:    e.Pool,
			Stream:  stream,
			Origin:  origin.NoOrigin,
			Segment: n,
			prev:    NoPiece,
			next:    NoPiece,
		},
	)
}

// removeSegment removes a segment and all pieces in it.
func (a *Allocator) removeSegment(n int32) {
	a.Seen.Segments--
	a.Seen.InactiveSplit -= a.Segments[n].strandedBytes()
	for i := range a.PiecesWithin(&a.Segments[n]) {
		a.deletePiece(i)
	}
	a.deleteSegment(n)
}

// addMapping adds mapped addresses to an expandable segment, as a hole joined with the mapped
// memory before and after it.
func (a *Allocator) addMapping(e *AllocatorEvent, stream int64) {
	a.holesSorted = false
	if _, ok := a.at.Get(e.Ptr); ok || e.Bytes == 0 {
		return // the unmapping of this range was not recorded
	}
	end := e.Ptr + e.Bytes
	p := SegmentPiece{
		Ptr:     e.Ptr,
		Size:    e.Bytes,
		Pool:    e.Pool,
		Stream:  stream,
		Origin:  origin.NoOrigin,
		Segment: expandableSegmentIndex,
		prev:    NoPiece,
		next:    NoPiece,
	}
	same := func(i int32) bool {
		return a.Pieces[i].Segment == expandableSegmentIndex && a.Pieces[i].Stream == stream &&
			a.Pieces[i].Pool == e.Pool
	}
	// The neighbor may already have another neighbor if events were lost.
	if before, ok := a.ends[e.Ptr]; ok && same(before) && a.Pieces[before].next == NoPiece {
		p.prev = before
		delete(a.ends, e.Ptr)
	} else {
		a.newSegment(AllocatorSegment{Ptr: e.Ptr, Pool: e.Pool, Origin: e.Origin, SinceNs: e.AtNs})
	}
	if n, ok := a.Began[end]; ok && a.Segments[n].IsMappedRange() {
		if behind, ok := a.at.Get(end); ok && same(behind) && a.Pieces[behind].prev == NoPiece {
			p.next = behind
			a.deleteSegment(n)
		}
	}
	i := a.newPiece(p)
	if p.prev != NoPiece {
		a.Pieces[p.prev].next = i
	}
	if p.next != NoPiece {
		a.Pieces[p.next].prev = i
	} else {
		a.ends[end] = i
	}
	a.joinHoles(i)
}

// removeMapping removes addresses from a hole of an expandable segment. It returns false if the
// model did not know that they were mapped.
func (a *Allocator) removeMapping(e *AllocatorEvent) bool {
	end := e.Ptr + e.Bytes
	if e.Bytes == 0 {
		return false
	}
	i := a.HoleAt(e.Ptr)
	if i == NoPiece || a.Pieces[i].Ptr+a.Pieces[i].Size < end {
		a.removeHoleParts(e.Ptr, end) // mapped before the recording, or after lost events
		return false
	}
	a.cutHole(i, e.Ptr, end)
	return true
}

// removeHoleParts removes the known holes, or parts of them, between two addresses.
func (a *Allocator) removeHoleParts(from, to int64) {
	a.sortHoles()
	var parts []int32
	for _, g := range a.holes {
		if p := &a.Pieces[g.piece]; p.Ptr < to && p.Ptr+p.Size > from {
			parts = append(parts, g.piece)
		}
	}
	a.holesSorted = false
	for _, i := range parts {
		p := &a.Pieces[i]
		if _, taken := a.at.Get(to); taken && p.Ptr+p.Size > to {
			continue // allocator events contradict each other: skip this hole
		}
		a.cutHole(i, max(from, p.Ptr), min(to, p.Ptr+p.Size))
	}
}

// cutHole removes addresses from a hole of an expandable segment. The rest on each side becomes a
// mapped range of its own.
func (a *Allocator) cutHole(i int32, from, to int64) {
	p := a.Pieces[i]
	var head AllocatorSegment
	if p.prev == NoPiece {
		if n, ok := a.Began[p.Ptr]; ok && a.Segments[n].IsMappedRange() {
			head = a.Segments[n]
			a.deleteSegment(n)
		}
	}
	if p.next == NoPiece {
		delete(a.ends, p.Ptr+p.Size)
	} else {
		a.Pieces[p.next].prev = NoPiece
	}
	a.keepRangeBefore(i, from, head)
	a.keepRangeAfter(&p, to, head)
}

// keepRangeBefore ends piece i, and its mapped range, at an address.
func (a *Allocator) keepRangeBefore(i int32, end int64, head AllocatorSegment) {
	p := &a.Pieces[i]
	if end > p.Ptr {
		p.Size, p.next = end-p.Ptr, NoPiece
		a.ends[end] = i
		if p.prev == NoPiece {
			a.newSegment(head.rangeFrom(p.Ptr, p.Pool))
		}
		return
	}
	if p.prev != NoPiece {
		a.Pieces[p.prev].next = NoPiece
		a.ends[end] = p.prev
	}
	a.deletePiece(i)
}

// keepRangeAfter starts a mapped range at an address inside or right after a removed piece.
func (a *Allocator) keepRangeAfter(p *SegmentPiece, start int64, head AllocatorSegment) {
	if end := p.Ptr + p.Size; start < end {
		rest := *p
		rest.Ptr, rest.Size, rest.prev = start, end-start, NoPiece
		n := a.newPiece(rest)
		if rest.next != NoPiece {
			a.Pieces[rest.next].prev = n
		} else {
			a.ends[end] = n
		}
	} else if p.next == NoPiece {
		return
	}
	a.newSegment(head.rangeFrom(start, p.Pool))
}

// rangeFrom returns a mapped range that starts at an address, with the properties of s.
func (s AllocatorSegment) rangeFrom(ptr, pool int64) AllocatorSegment {
	if s.Ptr == 0 {
		s.Origin = origin.NoOrigin
	}
	s.Ptr, s.Pool = ptr, pool
	return s
}

// HoleAt returns the number of the expandable segment's hole that contains an address, or None. An
// allocator unmaps its holes one after another, so the holes are sorted once for many calls.
func (a *Allocator) HoleAt(ptr int64) int32 {
	if i, ok := a.at.Get(ptr); ok {
		if p := &a.Pieces[i]; p.State != PieceHole || p.Segment != expandableSegmentIndex {
			return NoPiece
		}
		return i
	}
	if !a.holesSorted {
		a.sortHoles()
	}
	n, found := slices.BinarySearchFunc(
		a.holes,
		ptr,
		func(g expandableHole, ptr int64) int { return cmp.Compare(g.ptr, ptr) },
	)
	if !found {
		n--
	}
	if n < 0 {
		return NoPiece
	}
	if i, ok := a.at.Get(a.holes[n].ptr); !ok || i != a.holes[n].piece {
		return NoPiece
	}
	return a.holes[n].piece
}

// expandableHole is a hole of an expandable segment.
type expandableHole struct {
	ptr   int64
	piece int32
}

func (a *Allocator) sortHoles() {
	a.holes = a.holes[:0]
	for i := range a.Pieces {
		if p := &a.Pieces[i]; p.State == PieceHole && p.Segment == expandableSegmentIndex {
			a.holes = append(a.holes, expandableHole{p.Ptr, int32(i)})
		}
	}
	slices.SortFunc(a.holes, func(a, b expandableHole) int { return cmp.Compare(a.ptr, b.ptr) })
	a.holesSorted = true
}

// SegmentsInOrder returns the segments and the mapped ranges of expandable segments, in order of
// address.
func (a *Allocator) SegmentsInOrder() iter.Seq[*AllocatorSegment] {
	return func(yield func(*AllocatorSegment) bool) {
		for _, ptr := range slices.Sorted(maps.Keys(a.Began)) {
			if !yield(&a.Segments[a.Began[ptr]]) {
				return
			}
		}
	}
}

// PiecesWithin returns the numbers and pieces of a segment or mapped range, in order of address.
// The loop may drop the current piece.
func (a *Allocator) PiecesWithin(s *AllocatorSegment) iter.Seq2[int32, *SegmentPiece] {
	return func(yield func(int32, *SegmentPiece) bool) {
		n := a.Began[s.Ptr]
		if s.IsMappedRange() {
			n = expandableSegmentIndex
		}
		i, ok := a.at.Get(s.Ptr)
		for ok && i != NoPiece && a.Pieces[i].Segment == n {
			number, p := i, &a.Pieces[i]
			if i = p.next; !yield(number, p) {
				return
			}
		}
	}
}
