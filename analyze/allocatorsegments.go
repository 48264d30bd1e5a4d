package analyze

import (
	"cmp"
	"slices"
)

// newSegment notes memory from the driver and returns its number.
func (a *allocator) newSegment(s segment) int32 {
	var n int32
	if k := len(a.idle); k > 0 {
		n = a.idle[k-1]
		a.idle = a.idle[:k-1]
		a.segments[n] = s
	} else {
		n = int32(len(a.segments))
		a.segments = append(a.segments, s)
	}
	a.began[s.ptr] = n
	return n
}

func (a *allocator) dropSegment(n int32) {
	if a.began[a.segments[n].ptr] == n {
		delete(a.began, a.segments[n].ptr)
	}
	a.segments[n] = segment{}
	a.idle = append(a.idle, n)
}

// addSegment adds a segment that is one gap.
func (a *allocator) addSegment(e *allocatorEvent, stream int64) {
	if e.bytes == 0 {
		return
	}
	a.seen.Segments++
	n := a.newSegment(segment{ptr: e.ptr, size: e.bytes, pool: e.pool, origin: e.origin, sinceNs: e.atNs})
	if i, ok := a.at.get(e.ptr); ok && a.pieces[i].segment == straySegment {
		a.drop(i) // its end was lost
	}
	a.newPiece(piece{ptr: e.ptr, size: e.bytes, pool: e.pool, stream: stream, origin: noOrigin, segment: n, prev: none, next: none})
}

// removeSegment takes a segment away; what is still live in it has ended unseen.
func (a *allocator) removeSegment(n int32) {
	a.seen.Segments--
	a.seen.InactiveSplit -= a.segments[n].unused()
	for i := range a.within(&a.segments[n]) {
		a.drop(i)
	}
	a.dropSegment(n)
}

// addMapping adds addresses to an expandable segment: a gap that joins what is mapped
// before and behind it.
func (a *allocator) addMapping(e *allocatorEvent, stream int64) {
	a.gapsSorted = false
	if _, ok := a.at.get(e.ptr); ok || e.bytes == 0 {
		return // its unmapping was lost
	}
	end := e.ptr + e.bytes
	p := piece{ptr: e.ptr, size: e.bytes, pool: e.pool, stream: stream, origin: noOrigin, segment: expandableSegment, prev: none, next: none}
	same := func(i int32) bool {
		return a.pieces[i].segment == expandableSegment && a.pieces[i].stream == stream && a.pieces[i].pool == e.pool
	}
	// That the pieces have no neighbours yet is doubtful only after events were lost.
	if before, ok := a.ends[e.ptr]; ok && same(before) && a.pieces[before].next == none {
		p.prev = before
		delete(a.ends, e.ptr)
	} else {
		a.newSegment(segment{ptr: e.ptr, pool: e.pool, origin: e.origin, sinceNs: e.atNs})
	}
	if n, ok := a.began[end]; ok && a.segments[n].isStretch() {
		if behind, ok := a.at.get(end); ok && same(behind) && a.pieces[behind].prev == none {
			p.next = behind
			a.dropSegment(n)
		}
	}
	i := a.newPiece(p)
	if p.prev != none {
		a.pieces[p.prev].next = i
	}
	if p.next != none {
		a.pieces[p.next].prev = i
	} else {
		a.ends[end] = i
	}
	a.join(i)
}

// removeMapping takes addresses out of a gap of an expandable segment. It reports
// whether they were seen to come.
func (a *allocator) removeMapping(e *allocatorEvent) bool {
	end := e.ptr + e.bytes
	if e.bytes == 0 {
		return false
	}
	i := a.gapAt(e.ptr)
	if i == none || a.pieces[i].ptr+a.pieces[i].size < end {
		a.removeParts(e.ptr, end) // mapped before the recording, or events were lost
		return false
	}
	a.cut(i, e.ptr, end)
	return true
}

// removeParts takes away as much of these addresses as was seen to come.
func (a *allocator) removeParts(from, to int64) {
	a.sortGaps()
	var parts []int32
	for _, g := range a.gaps {
		if p := &a.pieces[g.piece]; p.ptr < to && p.ptr+p.size > from {
			parts = append(parts, g.piece)
		}
	}
	a.gapsSorted = false
	for _, i := range parts {
		p := &a.pieces[i]
		if _, taken := a.at.get(to); taken && p.ptr+p.size > to {
			continue // events that contradict each other
		}
		a.cut(i, max(from, p.ptr), min(to, p.ptr+p.size))
	}
}

// cut takes addresses out of a gap of an expandable segment; what is left on both sides
// are stretches of their own.
func (a *allocator) cut(i int32, from, to int64) {
	p := a.pieces[i]
	var head segment
	if p.prev == none {
		if n, ok := a.began[p.ptr]; ok && a.segments[n].isStretch() {
			head = a.segments[n]
			a.dropSegment(n)
		}
	}
	if p.next == none {
		delete(a.ends, p.ptr+p.size)
	} else {
		a.pieces[p.next].prev = none
	}
	a.keepBefore(i, from, head)
	a.keepBehind(&p, to, head)
}

// keepBefore ends piece i, and the stretch that it is in, at an address.
func (a *allocator) keepBefore(i int32, end int64, head segment) {
	p := &a.pieces[i]
	if end > p.ptr {
		p.size, p.next = end-p.ptr, none
		a.ends[end] = i
		if p.prev == none {
			a.newSegment(head.from(p.ptr, p.pool))
		}
		return
	}
	if p.prev != none {
		a.pieces[p.prev].next = none
		a.ends[end] = p.prev
	}
	a.drop(i)
}

// keepBehind begins a stretch at an address inside of a piece that was, or right
// behind it.
func (a *allocator) keepBehind(p *piece, start int64, head segment) {
	if end := p.ptr + p.size; start < end {
		rest := *p
		rest.ptr, rest.size, rest.prev = start, end-start, none
		n := a.newPiece(rest)
		if rest.next != none {
			a.pieces[rest.next].prev = n
		} else {
			a.ends[end] = n
		}
	} else if p.next == none {
		return
	}
	a.newSegment(head.from(start, p.pool))
}

// from returns a stretch that begins at an address, cut from this one.
func (s segment) from(ptr, pool int64) segment {
	if s.ptr == 0 {
		s.origin = noOrigin
	}
	s.ptr, s.pool = ptr, pool
	return s
}

// gapAt returns the gap of an expandable segment that holds an address, or none. An
// allocator that gives memory back does so for all gaps one after the other, so that
// sorting them once serves many calls.
func (a *allocator) gapAt(ptr int64) int32 {
	if i, ok := a.at.get(ptr); ok {
		if p := &a.pieces[i]; p.state != isGap || p.segment != expandableSegment {
			return none
		}
		return i
	}
	if !a.gapsSorted {
		a.sortGaps()
	}
	n, found := slices.BinarySearchFunc(a.gaps, ptr, func(g gap, ptr int64) int { return cmp.Compare(g.ptr, ptr) })
	if !found {
		n--
	}
	if n < 0 {
		return none
	}
	if i, ok := a.at.get(a.gaps[n].ptr); !ok || i != a.gaps[n].piece {
		return none
	}
	return a.gaps[n].piece
}

// gap is a gap of an expandable segment.
type gap struct {
	ptr   int64
	piece int32
}

func (a *allocator) sortGaps() {
	a.gaps = a.gaps[:0]
	for i := range a.pieces {
		if p := &a.pieces[i]; p.state == isGap && p.segment == expandableSegment {
			a.gaps = append(a.gaps, gap{p.ptr, int32(i)})
		}
	}
	slices.SortFunc(a.gaps, func(a, b gap) int { return cmp.Compare(a.ptr, b.ptr) })
	a.gapsSorted = true
}
