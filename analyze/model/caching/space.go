package caching

import (
	"cmp"
	"maps"
	"slices"

	"github.com/gpurec/gpurec/analyze/units"
)

// PageBytes is the granularity in which the driver maps and unmaps memory.
const PageBytes = 2 << 20

// SpaceKind is the way in which an allocator manages a Space.
type SpaceKind uint8

const (
	InSegments  SpaceKind = iota // segments of a caching allocator that do not grow
	InStretches                  // expandable segments, whose pages can return to the driver
	// addresses of cuMemAddressReserve with memory mapped to parts of them
	InReservation
)

// Space is the memory of one kind and pool that an allocator divides into blocks, at one point in
// time. Sizes are in bytes. Free memory can be unusable only within a space.
type Space struct {
	Kind SpaceKind
	Pool int64

	Reserved, Active, Requested int64
	Unused, Largest             int64 // bytes of all holes, and of the largest hole
	// bytes of holes that blocks keep from returning to the driver
	Stranded int64
	Split    int64 // bytes of holes in segments with blocks, as Totals.InactiveSplit
	// Saved is the bytes of Stranded in whole pages: the most that expandable segments could
	// return. SavedLeast counts only whole steps of 20 MiB, in which PyTorch maps memory for large
	// blocks.
	Saved, SavedLeast int64
	Extents, Blocks   int64
	Strays            int64 // of Blocks, those in segments from before the recording
	Holes             []SpaceHole
}

// SpaceHole is a hole, and the class of blocks that may be placed in it.
type SpaceHole struct {
	bytes int64
	class HoleClass
}

// HoleClass is the class of blocks that a hole can take.
type HoleClass uint8

const (
	AnyBlocks   HoleClass = iota // the hole takes blocks of all sizes
	SmallBlocks                  // the hole takes blocks of at most SmallRequest bytes
	LargeBlocks                  // the hole takes blocks of more than SmallRequest bytes
)

// takes reports whether a request of the given bytes fits into the hole.
func (g SpaceHole) takes(request int64) bool {
	if g.bytes < request || g.class == SmallBlocks && request > SmallRequest {
		return false
	}
	return g.class != LargeBlocks || request > SmallRequest
}

// External returns the external fragmentation index, 0 to 1: the share of free bytes outside the
// largest hole. It is 0 for at most one hole.
func (s *Space) External() float64 {
	if s.Unused == 0 {
		return 0
	}
	return 1 - float64(s.Largest)/float64(s.Unused)
}

// BlowUp returns reserved bytes divided by active bytes. It returns false if nothing is active.
func (s *Space) BlowUp() (float64, bool) {
	return float64(s.Reserved) / float64(max(1, s.Active)), s.Active > 0
}

// Unusable returns the share of free bytes, 0 to 1, in holes that cannot take a request of the
// given bytes.
func (s *Space) Unusable(request int64) float64 {
	var fits int64
	for _, g := range s.Holes {
		if g.takes(request) {
			fits += g.bytes
		}
	}
	return 1 - float64(fits)/float64(max(1, s.Unused))
}

// AddHole adds a hole of the given bytes.
func (s *Space) AddHole(bytes int64, class HoleClass) {
	s.Unused += bytes
	s.Largest = max(s.Largest, bytes)
	s.Holes = append(s.Holes, SpaceHole{bytes, class})
}

// WholeSteps returns the bytes between ptr and ptr+bytes that form whole steps, counted from base.
func WholeSteps(base, ptr, bytes, step int64) int64 {
	from, to := units.RoundUp(ptr-base, step), (ptr-base+bytes)/step*step
	return max(0, to-from)
}

// Step returns the step in bytes in which PyTorch maps and unmaps a range of an expandable segment.
// Ranges for small blocks use smaller steps. For a range without blocks, its length decides.
func (a *Allocator) Step(seg *Segment) int64 {
	var bytes int64
	for _, p := range a.Within(seg) {
		if p.State != IsHole {
			if p.Size <= SmallRequest {
				return SmallSegment
			}
			return LargeSegment
		}
		bytes += p.Size
	}
	if bytes%LargeSegment == 0 {
		return LargeSegment
	}
	return SmallSegment
}

// StrandedHole is a hole that cannot fully return to the driver, and the blocks that prevent it.
type StrandedHole struct {
	Segment int64   // address of the segment or mapped range
	Bytes   int64   // bytes of the hole that cannot return to the driver
	Blocks  []int32 // piece numbers; for an expandable segment the neighbors of the hole
}

// Survey measures the allocator's current state: its spaces in order of kind and pool. In segments
// from before the recording, only the blocks are known. They count as active, and the memory around
// them is left out. The callback pin, if not nil, is called for every stranded hole; it must not
// keep the slice.
func (a *Allocator) Survey(pin func(StrandedHole)) []*Space {
	found := make(map[[2]int64]*Space)
	at := func(kind SpaceKind, pool int64) *Space {
		key := [2]int64{int64(kind), pool}
		if found[key] == nil {
			found[key] = &Space{Kind: kind, Pool: pool}
		}
		return found[key]
	}
	var blocks []int32
	for seg := range a.Ranges() {
		if seg.IsStretch() {
			a.surveyStretch(seg, at(InStretches, seg.Pool), pin)
		} else {
			blocks = a.surveySegment(seg, at(InSegments, seg.Pool), blocks[:0], pin)
		}
	}
	kind := InSegments
	if a.Rules.Expandable {
		kind = InStretches
	}
	for i := range a.Pieces {
		if p := &a.Pieces[i]; p.Segment == StraySegment && p.State != IsHole {
			s := at(kind, p.Pool)
			s.addBlock(p)
			s.Strays++
		}
	}
	return slices.SortedFunc(maps.Values(found), func(a, b *Space) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Pool, b.Pool))
	})
}

func (s *Space) addBlock(p *Piece) {
	s.Blocks++
	s.Active += p.Size
	s.Requested += p.Requested
}

// surveySegment adds a segment to its space. The driver gets a segment back whole or not at all.
func (a *Allocator) surveySegment(seg *Segment, s *Space, blocks []int32, pin func(StrandedHole)) []int32 {
	class := LargeBlocks
	if seg.Size == SmallSegment {
		class = SmallBlocks
	}
	s.Extents++
	s.Reserved += seg.Size
	var holes, whole, least int64
	for i, p := range a.Within(seg) {
		if p.State == IsHole {
			s.AddHole(p.Size, class)
			holes += p.Size
			whole += WholeSteps(0, p.Ptr, p.Size, PageBytes)
			least += WholeSteps(seg.Ptr, p.Ptr, p.Size, LargeSegment)
			continue
		}
		s.addBlock(p)
		blocks = append(blocks, i)
	}
	if len(blocks) == 0 || holes == 0 {
		return blocks
	}
	s.Stranded += holes
	s.Split += holes
	s.Saved += whole
	s.SavedLeast += least
	if pin != nil {
		pin(StrandedHole{seg.Ptr, holes, blocks})
	}
	return blocks
}

// surveyStretch adds a mapped range of an expandable segment to its space. Whole steps of its holes
// can return to the driver.
func (a *Allocator) surveyStretch(seg *Segment, s *Space, pin func(StrandedHole)) {
	s.Extents++
	step := a.Step(seg)
	for _, p := range a.Within(seg) {
		s.Reserved += p.Size
		if p.State != IsHole {
			s.addBlock(p)
			continue
		}
		s.AddHole(p.Size, AnyBlocks)
		kept := p.Size - WholeSteps(seg.Ptr, p.Ptr, p.Size, step)
		if kept == 0 {
			continue
		}
		s.Stranded += kept
		if pin == nil {
			continue
		}
		var around [2]int32
		n := 0
		for _, i := range []int32{p.prev, p.next} {
			if i != None && a.Pieces[i].State != IsHole {
				around[n] = i
				n++
			}
		}
		pin(StrandedHole{seg.Ptr, kept, around[:n]})
	}
}

// Unseen returns the reserved bytes in segments from before the recording.
func (a *Allocator) Unseen(spaces []*Space) int64 {
	rest := a.Totals().Reserved
	for _, s := range spaces {
		rest -= s.Reserved
	}
	return max(0, rest)
}

// PoolName returns the name of a caching allocator's pool for its number.
func PoolName(pool int64) string {
	switch {
	case pool == 0:
		return "default"
	case pool > 0:
		return "private " + units.Count(pool)
	}
	return "graph " + units.Count(-pool)
}
