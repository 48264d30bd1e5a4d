package analyze

import (
	"cmp"
	"maps"
	"slices"
)

// pageBytes is the least that the driver maps and takes back.
const pageBytes = 2 << 20

// spaceKind says how memory is handed out in parts.
type spaceKind uint8

const (
	inSegments    spaceKind = iota // segments of a caching allocator
	inStretches                    // its expandable segments, of which pages can go back
	inReservation                  // addresses of cuMemAddressReserve, of which parts are mapped
)

// space is memory that one allocator hands out in parts, at a moment: of a kind and
// pool. Only inside of a space can memory be free and yet be of no use.
type space struct {
	kind spaceKind
	pool int64

	reserved, active, requested int64
	unused, largest             int64 // bytes of gaps, and of the largest
	kept                        int64 // bytes of gaps that blocks keep from going back to the driver
	split                       int64 // as AllocatorTotals.InactiveSplit
	// Of kept, whole pages: no more than that could go back if segments were expandable;
	// and what is whole in the steps of 20 MiB in which PyTorch maps for large blocks.
	saved, savedLeast int64
	extents, blocks   int64
	strays            int64 // of blocks, those in segments from before the recording
	gaps              []spaceGap
}

// spaceGap is a gap, and whether it lies where only small blocks, or only others, go.
type spaceGap struct {
	bytes int64
	class gapClass
}

type gapClass uint8

const (
	anyBlocks gapClass = iota
	smallBlocks
	largeBlocks
)

// takes reports whether a request can be served from the gap.
func (g spaceGap) takes(request int64) bool {
	if g.bytes < request || g.class == smallBlocks && request > smallRequest {
		return false
	}
	return g.class != largeBlocks || request > smallRequest
}

// external is the external fragmentation index: the share of free bytes that lie outside
// of the largest gap. 0 if there is one gap or none.
func (s *space) external() float64 {
	if s.unused == 0 {
		return 0
	}
	return 1 - float64(s.largest)/float64(s.unused)
}

// blowUp is reserved over active bytes; false if nothing is active.
func (s *space) blowUp() (float64, bool) {
	return float64(s.reserved) / float64(max(1, s.active)), s.active > 0
}

// unusable is the share of free bytes in gaps that do not take a request.
func (s *space) unusable(request int64) float64 {
	var fits int64
	for _, g := range s.gaps {
		if g.takes(request) {
			fits += g.bytes
		}
	}
	return 1 - float64(fits)/float64(max(1, s.unused))
}

func (s *space) addGap(bytes int64, class gapClass) {
	s.unused += bytes
	s.largest = max(s.largest, bytes)
	s.gaps = append(s.gaps, spaceGap{bytes, class})
}

// wholeSteps returns how many bytes from an address on are whole steps, counted from base.
func wholeSteps(base, ptr, bytes, step int64) int64 {
	from, to := roundUp(ptr-base, step), (ptr-base+bytes)/step*step
	return max(0, to-from)
}

// step returns in which steps PyTorch maps the stretch of an expandable segment, or takes
// it back: small blocks and others are in different ones. Where there is no block, whole
// steps of the larger size tell.
func (a *allocator) step(seg *segment) int64 {
	var bytes int64
	for _, p := range a.within(seg) {
		if p.state != isGap {
			if p.size <= smallRequest {
				return smallSegment
			}
			return largeSegment
		}
		bytes += p.size
	}
	if bytes%largeSegment == 0 {
		return largeSegment
	}
	return smallSegment
}

// pinned is what a walk through an allocator tells of a gap that cannot go back whole:
// its bytes that stay, and the blocks that keep them there.
type pinned struct {
	segment int64 // address of the segment or stretch
	kept    int64
	blocks  []int32 // pieces; of an expandable segment the neighbours of the gap
}

// survey measures an allocator as it is now: its spaces in order of kind and pool. Of
// blocks in segments from before the recording only they themselves are known: they are
// in active, what lies around them is in nothing. pin, if it is set, is told of all gaps
// that blocks keep; it must not keep the slice.
func (a *allocator) survey(pin func(pinned)) []*space {
	found := make(map[[2]int64]*space)
	at := func(kind spaceKind, pool int64) *space {
		key := [2]int64{int64(kind), pool}
		if found[key] == nil {
			found[key] = &space{kind: kind, pool: pool}
		}
		return found[key]
	}
	var blocks []int32
	for seg := range a.ranges() {
		if seg.isStretch() {
			a.surveyStretch(seg, at(inStretches, seg.pool), pin)
		} else {
			blocks = a.surveySegment(seg, at(inSegments, seg.pool), blocks[:0], pin)
		}
	}
	kind := inSegments
	if a.rules.expandable {
		kind = inStretches
	}
	for i := range a.pieces {
		if p := &a.pieces[i]; p.segment == straySegment && p.state != isGap {
			s := at(kind, p.pool)
			s.addBlock(p)
			s.strays++
		}
	}
	return slices.SortedFunc(maps.Values(found), func(a, b *space) int {
		return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(a.pool, b.pool))
	})
}

func (s *space) addBlock(p *piece) {
	s.blocks++
	s.active += p.size
	s.requested += p.requested
}

// surveySegment adds a segment. It goes back whole or not at all.
func (a *allocator) surveySegment(seg *segment, s *space, blocks []int32, pin func(pinned)) []int32 {
	class := largeBlocks
	if seg.size == smallSegment {
		class = smallBlocks
	}
	s.extents++
	s.reserved += seg.size
	var gaps, whole, least int64
	for i, p := range a.within(seg) {
		if p.state == isGap {
			s.addGap(p.size, class)
			gaps += p.size
			whole += wholeSteps(0, p.ptr, p.size, pageBytes)
			least += wholeSteps(seg.ptr, p.ptr, p.size, largeSegment)
			continue
		}
		s.addBlock(p)
		blocks = append(blocks, i)
	}
	if len(blocks) == 0 || gaps == 0 {
		return blocks
	}
	s.kept += gaps
	s.split += gaps
	s.saved += whole
	s.savedLeast += least
	if pin != nil {
		pin(pinned{seg.ptr, gaps, blocks})
	}
	return blocks
}

// surveyStretch adds a stretch of an expandable segment. Of its gaps whole steps can go
// back.
func (a *allocator) surveyStretch(seg *segment, s *space, pin func(pinned)) {
	s.extents++
	step := a.step(seg)
	for _, p := range a.within(seg) {
		s.reserved += p.size
		if p.state != isGap {
			s.addBlock(p)
			continue
		}
		s.addGap(p.size, anyBlocks)
		kept := p.size - wholeSteps(seg.ptr, p.ptr, p.size, step)
		if kept == 0 {
			continue
		}
		s.kept += kept
		if pin == nil {
			continue
		}
		var around [2]int32
		n := 0
		for _, i := range []int32{p.prev, p.next} {
			if i != none && a.pieces[i].state != isGap {
				around[n] = i
				n++
			}
		}
		pin(pinned{seg.ptr, kept, around[:n]})
	}
}

// unseen returns the reserved bytes of which the segments are older than the recording.
func (a *allocator) unseen(spaces []*space) int64 {
	rest := a.totals().Reserved
	for _, s := range spaces {
		rest -= s.reserved
	}
	return max(0, rest)
}

// poolName says which pool of a caching allocator a number stands for.
func poolName(pool int64) string {
	switch {
	case pool == 0:
		return "default"
	case pool > 0:
		return "private " + thousands(pool)
	}
	return "graph " + thousands(-pool)
}
