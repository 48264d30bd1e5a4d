package leaks

import (
	"math/bits"

	"github.com/gpurec/gpurec/analyze/model/caching"
)

// If gpurec attaches to a program that keeps the last N tensors, such as a cache of inputs, the site of the tensors has
// no live memory at first. It grows while each new tensor takes the place of one from before the recording. That is no
// leak. So the blocks from before that were freed are compared with the blocks that were allocated and not freed, by
// size. This needs the blocks from before: see caching.EarlierState.

// blockSize is a size of blocks in a process and on a device: the requested size, or with isClass, a power of two that
// is the class of sizes down to half of it.
type blockSize struct {
	pid, device int32
	bytes       int64
	isClass     bool
}

// class returns the class of a size.
func (b blockSize) class() blockSize {
	b.bytes, b.isClass = 1<<bits.Len64(uint64(max(0, b.bytes-1))), true
	return b
}

// sizeSum is the number and the size of blocks.
type sizeSum struct{ blocks, bytes int64 }

// maxSizesOfGroup is the number of sizes above which a group is compared by classes of sizes.
const maxSizesOfGroup = 8

// Tolerance of the comparison: blocks that are live only at the moment.
const (
	replacedSlackBlocks = 2
	replacedSlackShare  = 0.05
	minReplacedShare    = 0.8 // share of the unfreed bytes of a group that must be replacements
)

// noteEarlierFree counts the free of a block from before the recording.
func (s *Scan) noteEarlierFree(a *caching.Allocator, b *caching.SegmentPiece) {
	if s.earlierFrees == nil {
		s.earlierFrees = make(map[blockSize]sizeSum)
	}
	size := blockSize{pid: a.Pid, device: a.Device, bytes: b.Requested}
	for _, key := range []blockSize{size, size.class()} {
		sum := s.earlierFrees[key]
		s.earlierFrees[key] = sizeSum{sum.blocks + 1, sum.bytes + b.Requested}
	}
}

// addUnfreedSize counts a block that the program had not freed, by size.
func (s *Scan) addUnfreedSize(g *groupStats, origin int32, bytes int64) {
	if len(s.t.EarlierStates()) == 0 || bytes <= 0 {
		return
	}
	if g.sizes == nil {
		g.sizes = make(map[blockSize]sizeSum)
	}
	o := &s.t.Origins.List[origin]
	key := blockSize{pid: o.Pid, device: o.Device, bytes: bytes}
	sum := g.sizes[key]
	g.sizes[key] = sizeSum{sum.blocks + 1, sum.bytes + bytes}
}

// addSizes adds the unfreed sizes of a part to its group.
func (g *groupStats) addSizes(p *groupStats) {
	for size, sum := range p.sizes {
		if g.sizes == nil {
			g.sizes = make(map[blockSize]sizeSum)
		}
		n := g.sizes[size]
		g.sizes[size] = sizeSum{n.blocks + sum.blocks, n.bytes + sum.bytes}
	}
}

// comparedSizes returns the unfreed sizes of a group: classes if it has many sizes.
func (g *groupStats) comparedSizes() map[blockSize]sizeSum {
	if len(g.sizes) <= maxSizesOfGroup {
		return g.sizes
	}
	return g.classes()
}

// classes returns the unfreed sizes of a group by class.
func (g *groupStats) classes() map[blockSize]sizeSum {
	list := make(map[blockSize]sizeSum)
	for size, sum := range g.sizes {
		n := list[size.class()]
		list[size.class()] = sizeSum{n.blocks + sum.blocks, n.bytes + sum.bytes}
	}
	return list
}

// replacesEarlier reports whether the unfreed blocks of a group took the place of blocks from before the recording: the
// program freed as many of their sizes. Either all groups together allocated no more of a size than was freed, or this
// group alone allocated as much.
func (s *Scan) replacesEarlier(g *groupStats) bool {
	if len(s.earlierFrees) == 0 {
		return false
	}
	var replaced, unfreed int64
	for size, own := range g.comparedSizes() {
		unfreed += own.bytes
		freed, all, equals := s.earlierFrees[size], sizeSum{}, 0
		for i := range s.groups {
			other := s.groups[i].sizes[size]
			if size.isClass {
				other = s.groups[i].classes()[size]
			}
			all = sizeSum{all.blocks + other.blocks, all.bytes + other.bytes}
			if other.isWithin(freed) && freed.isWithin(other) {
				equals++
			}
		}
		if freed.blocks > 0 && (all.isWithin(freed) || equals == 1 && own.isWithin(freed) && freed.isWithin(own)) {
			replaced += own.bytes
		}
	}
	return float64(replaced) >= minReplacedShare*float64(unfreed)
}

// isWithin reports whether a sum is at most as large as another one, within the tolerance.
func (n sizeSum) isWithin(most sizeSum) bool {
	slack := max(replacedSlackBlocks, int64(replacedSlackShare*float64(most.blocks)))
	return n.blocks <= most.blocks+slack &&
		float64(n.bytes) <= float64(most.bytes)*(1+float64(slack)/float64(max(1, most.blocks)))
}
