package caching

import (
	"cmp"
	"maps"
	"slices"

	"github.com/gpurec/gpurec/analyze/units"
)

// PageBytes is the least that the driver maps and takes back.
const PageBytes = 2 << 20

// SpaceKind says how memory is handed out in parts.
type SpaceKind uint8

const (
	InSegments    SpaceKind = iota // segments of a caching allocator
	InStretches                    // its expandable segments, of which pages can go back
	InReservation                  // addresses of cuMemAddressReserve, of which parts are mapped
)

// Space is memory that one allocator hands out in parts, at a moment: of a kind and
// pool. Only inside of a space can memory be free and yet be of no use.
type Space struct {
	Kind SpaceKind
	Pool int64

	Reserved, Active, Requested int64
	Unused, Largest             int64 // bytes of holes, and of the largest
	Stranded                    int64 // bytes of holes that blocks keep from going back to the driver
	Split                       int64 // as AllocatorTotals.InactiveSplit
	// Of kept, whole pages: no more than that could go back if segments were expandable;
	// and what is whole in the steps of 20 MiB in which PyTorch maps for large blocks.
	Saved, SavedLeast int64
	Extents, Blocks   int64
	Strays            int64 // of blocks, those in segments from before the recording
	Holes             []SpaceHole
}

// SpaceHole is a gap, and whether it lies where only small blocks, or only others, go.
type SpaceHole struct {
	bytes int64
	class HoleClass
}

type HoleClass uint8

const (
	AnyBlocks HoleClass = iota
	SmallBlocks
	LargeBlocks
)

// takes reports whether a request can be served from the gap.
func (g SpaceHole) takes(request int64) bool {
	if g.bytes < request || g.class == SmallBlocks && request > SmallRequest {
		return false
	}
	return g.class != LargeBlocks || request > SmallRequest
}

// External is the external fragmentation index: the share of free bytes that lie outside
// of the largest gap. 0 if there is one gap or none.
func (s *Space) External() float64 {
	if s.Unused == 0 {
		return 0
	}
	return 1 - float64(s.Largest)/float64(s.Unused)
}

// BlowUp is reserved over active bytes; false if nothing is active.
func (s *Space) BlowUp() (float64, bool) {
	return float64(s.Reserved) / float64(max(1, s.Active)), s.Active > 0
}

// Unusable is the share of free bytes in holes that do not take a request.
func (s *Space) Unusable(request int64) float64 {
	var fits int64
	for _, g := range s.Holes {
		if g.takes(request) {
			fits += g.bytes
		}
	}
	return 1 - float64(fits)/float64(max(1, s.Unused))
}

func (s *Space) AddHole(bytes int64, class HoleClass) {
	s.Unused += bytes
	s.Largest = max(s.Largest, bytes)
	s.Holes = append(s.Holes, SpaceHole{bytes, class})
}

// WholeSteps returns how many bytes from an address on are whole steps, counted from base.
func WholeSteps(base, ptr, bytes, step int64) int64 {
	from, to := units.RoundUp(ptr-base, step), (ptr-base+bytes)/step*step
	return max(0, to-from)
}

// Step returns in which steps PyTorch maps the stretch of an expandable segment, or takes
// it back: small blocks and others are in different ones. Where there is no block, whole
// steps of the larger size tell.
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

// StrandedHole is what a walk through an allocator tells of a gap that cannot go back whole:
// its bytes that stay, and the blocks that keep them there.
type StrandedHole struct {
	Segment int64 // address of the segment or stretch
	Bytes   int64
	Blocks  []int32 // pieces; of an expandable segment the neighbours of the gap
}

// Survey measures an allocator as it is now: its spaces in order of kind and pool. Of
// blocks in segments from before the recording only they themselves are known: they are
// in active, what lies around them is in nothing. pin, if it is set, is told of all holes
// that blocks keep; it must not keep the slice.
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

// surveySegment adds a segment. It goes back whole or not at all.
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

// surveyStretch adds a stretch of an expandable segment. Of its holes whole steps can go
// back.
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

// Unseen returns the reserved bytes of which the segments are older than the recording.
func (a *Allocator) Unseen(spaces []*Space) int64 {
	rest := a.Totals().Reserved
	for _, s := range spaces {
		rest -= s.Reserved
	}
	return max(0, rest)
}

// PoolName says which pool of a caching allocator a number stands for.
func PoolName(pool int64) string {
	switch {
	case pool == 0:
		return "default"
	case pool > 0:
		return "private " + units.Count(pool)
	}
	return "graph " + units.Count(-pool)
}
