package caching

import (
	"cmp"
	"maps"
	"slices"

	"github.com/gpurec/gpurec/analyze/units"
)

// DriverPageBytes is the granularity in which the driver maps and unmaps memory.
const DriverPageBytes = 2 << 20

// SpaceKind is the way in which an allocator manages a Space.
type SpaceKind uint8

const (
	SpaceSegments   SpaceKind = iota // segments of a caching allocator that do not grow
	SpaceExpandable                  // expandable segments, whose pages can return to the driver
	// SpaceReservation is a range of cuMemAddressReserve with memory mapped to parts of it.
	SpaceReservation
)

// MemorySpace is the memory of one kind and pool that an allocator divides into blocks, at one
// point in time. Sizes are in bytes. Free memory can be unusable only within a space.
type MemorySpace struct {
	Kind SpaceKind
	Pool int64

	Reserved, Active, Requested int64
	Unused, Largest             int64 // bytes of all holes, and of the largest hole
	// bytes of holes that blocks keep from returning to the driver
	Stranded int64
	Split    int64 // bytes of holes in segments with blocks, as AllocatorTotals.InactiveSplit
	// Saved is the bytes of Stranded in whole pages: the most that expandable segments could
	// return. SavedLeast counts only whole steps of 20 MiB, in which PyTorch maps memory for large
	// blocks.
	Saved, SavedLeast int64
	Extents, Blocks   int64
	Strays            int64 // blocks in segments from before the recording
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
	HoleForAnyBlocks   HoleClass = iota // the hole takes blocks of all sizes
	HoleForSmallBlocks                  // the hole takes blocks of at most MaxSmallRequestBytes bytes
	HoleForLargeBlocks                  // the hole takes blocks of more than MaxSmallRequestBytes bytes
)

// fitsRequest reports whether a request of the given bytes fits into the hole.
func (h SpaceHole) fitsRequest(request int64) bool {
	if h.bytes < request || h.class == HoleForSmallBlocks && request > MaxSmallRequestBytes {
		return false
	}
	return h.class != HoleForLargeBlocks || request > MaxSmallRequestBytes
}

// ExternalFragmentation returns the external fragmentation index, 0 to 1: the share of free bytes
// outside the largest hole. It is 0 for at most one hole.
func (s *MemorySpace) ExternalFragmentation() float64 {
	if s.Unused == 0 {
		return 0
	}
	return 1 - float64(s.Largest)/float64(s.Unused)
}

// ReservedPerActive returns reserved bytes divided by active bytes. It returns false if nothing is
// active.
func (s *MemorySpace) ReservedPerActive() (float64, bool) {
	return float64(s.Reserved) / float64(max(1, s.Active)), s.Active > 0
}

// UnusableShare returns the share of free bytes, 0 to 1, in holes that cannot take a request of the
// given bytes.
func (s *MemorySpace) UnusableShare(request int64) float64 {
	var fits int64
	for _, g := range s.Holes {
		if g.fitsRequest(request) {
			fits += g.bytes
		}
	}
	return 1 - float64(fits)/float64(max(1, s.Unused))
}

// AddHole adds a hole of the given bytes.
func (s *MemorySpace) AddHole(bytes int64, class HoleClass) {
	s.Unused += bytes
	s.Largest = max(s.Largest, bytes)
	s.Holes = append(s.Holes, SpaceHole{bytes, class})
}

// WholeStepBytes returns the bytes between ptr and ptr+bytes that form whole steps, counted from
// base.
func WholeStepBytes(base, ptr, bytes, step int64) int64 {
	from, to := units.RoundUp(ptr-base, step), (ptr-base+bytes)/step*step
	return max(0, to-from)
}

// MappingStepBytes returns the step in bytes in which PyTorch maps and unmaps a range of an
// expandable segment. Ranges for small blocks use smaller steps. For a range without blocks, its
// length decides.
func (a *Allocator) MappingStepBytes(seg *AllocatorSegment) int64 {
	var bytes int64
	for _, p := range a.PiecesWithin(seg) {
		if p.State != PieceHole {
			if p.Size <= MaxSmallRequestBytes {
				return SmallSegmentBytes
			}
			return LargeSegmentBytes
		}
		bytes += p.Size
	}
	if bytes%LargeSegmentBytes == 0 {
		return LargeSegmentBytes
	}
	return SmallSegmentBytes
}

// StrandedHole is a hole that cannot fully return to the driver, and the blocks that prevent it.
type StrandedHole struct {
	Segment int64   // address of the segment or mapped range
	Bytes   int64   // bytes of the hole that cannot return to the driver
	Blocks  []int32 // piece numbers; for an expandable segment the neighbors of the hole
}

// MeasureSpaces measures the allocator's current state: its spaces in order of kind and pool. In
// segments from before the recording, only the blocks are known. They count as active, and the
// memory around them is left out. The callback pin, if not nil, is called for every stranded hole;
// it must not keep the slice.
func (a *Allocator) MeasureSpaces(pin func(StrandedHole)) []*MemorySpace {
	found := make(map[[2]int64]*MemorySpace)
	at := func(kind SpaceKind, pool int64) *MemorySpace {
		key := [2]int64{int64(kind), pool}
		if found[key] == nil {
			found[key] = &MemorySpace{Kind: kind, Pool: pool}
		}
		return found[key]
	}
	var blocks []int32
	for seg := range a.SegmentsInOrder() {
		if seg.IsMappedRange() {
			a.measureMappedRange(seg, at(SpaceExpandable, seg.Pool), pin)
		} else {
			blocks = a.measureSegment(seg, at(SpaceSegments, seg.Pool), blocks[:0], pin)
		}
	}
	kind := SpaceSegments
	if a.Rules.Expandable {
		kind = SpaceExpandable
	}
	for i := range a.Pieces {
		if p := &a.Pieces[i]; p.Segment == UnrecordedSegmentIndex && p.State != PieceHole {
			s := at(kind, p.Pool)
			s.addBlock(p)
			s.Strays++
		}
	}
	return slices.SortedFunc(maps.Values(found), func(a, b *MemorySpace) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Pool, b.Pool))
	})
}

func (s *MemorySpace) addBlock(p *SegmentPiece) {
	s.Blocks++
	s.Active += p.Size
	s.Requested += p.Requested
}

// measureSegment adds a segment to its space. The driver gets a segment back whole or not at all.
func (a *Allocator) measureSegment(
	seg *AllocatorSegment,
	s *MemorySpace,
	blocks []int32,
	pin func(StrandedHole),
) []int32 {
	class := HoleForLargeBlocks
	if seg.Size == SmallSegmentBytes {
		class = HoleForSmallBlocks
	}
	s.Extents++
	s.Reserved += seg.Size
	var holes, whole, least int64
	for i, p := range a.PiecesWithin(seg) {
		if p.State == PieceHole {
			s.AddHole(p.Size, class)
			holes += p.Size
			whole += WholeStepBytes(0, p.Ptr, p.Size, DriverPageBytes)
			least += WholeStepBytes(seg.Ptr, p.Ptr, p.Size, LargeSegmentBytes)
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

// measureMappedRange adds a mapped range of an expandable segment to its space. Whole steps of its
// holes can return to the driver.
func (a *Allocator) measureMappedRange(seg *AllocatorSegment, s *MemorySpace, pin func(StrandedHole)) {
	s.Extents++
	step := a.MappingStepBytes(seg)
	for _, p := range a.PiecesWithin(seg) {
		s.Reserved += p.Size
		if p.State != PieceHole {
			s.addBlock(p)
			continue
		}
		s.AddHole(p.Size, HoleForAnyBlocks)
		kept := p.Size - WholeStepBytes(seg.Ptr, p.Ptr, p.Size, step)
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
			if i != NoPiece && a.Pieces[i].State != PieceHole {
				around[n] = i
				n++
			}
		}
		pin(StrandedHole{seg.Ptr, kept, around[:n]})
	}
}

// UnseenReservedBytes returns the reserved bytes in segments from before the recording.
func (a *Allocator) UnseenReservedBytes(spaces []*MemorySpace) int64 {
	rest := a.Totals().Reserved
	for _, s := range spaces {
		rest -= s.Reserved
	}
	return max(0, rest)
}

// FormatPool returns the name of a caching allocator's pool for its number.
func FormatPool(pool int64) string {
	switch {
	case pool == 0:
		return "default"
	case pool > 0:
		return "private " + units.FormatCount(pool)
	}
	return "graph " + units.FormatCount(-pool)
}
