package leaks

import (
	"math/bits"

	"github.com/gpurec/gpurec/analyze/model/caching"
	"github.com/gpurec/gpurec/analyze/model/livemem"
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

// sizeSum is the number and the size of blocks. late is the number of those from the second half of the window.
type sizeSum struct{ blocks, bytes, late int64 }

func (n sizeSum) plus(o sizeSum) sizeSum {
	return sizeSum{n.blocks + o.blocks, n.bytes + o.bytes, n.late + o.late}
}

// unfreedSizes are the unfreed blocks of a group by size.
type unfreedSizes map[blockSize]sizeSum

// maxComparedSizes is the number of sizes above which a group is compared by classes of sizes.
const maxComparedSizes = 8

const (
	// replacedSlackBlocks and replacedSlackShare bound the difference between the blocks that were freed and those that
	// were allocated: some are live only at the moment.
	replacedSlackBlocks, replacedSlackShare = 2, 0.05
	// minLateShare is the share of the blocks of the second half that must replace others. A program that frees many
	// blocks at once, and leaks later, replaces none.
	minLateShare = 0.5
)

// newSizeSum returns the sum of one block at a time, Unix ns.
func (s *Scan) newSizeSum(bytes, atNs int64) sizeSum {
	sum := sizeSum{blocks: 1, bytes: bytes}
	if atNs > s.checkpointTimeNs(CheckpointCount/2) {
		sum.late = 1
	}
	return sum
}

// noteEarlierFree counts the free of a block from before the recording.
func (s *Scan) noteEarlierFree(a *caching.Allocator, c *caching.AllocatorChange) {
	if s.earlierFrees == nil {
		s.earlierFrees = make(map[blockSize]sizeSum)
	}
	size := blockSize{pid: a.Pid, device: a.Device, bytes: c.Block.Requested}
	sum := s.newSizeSum(c.Block.Requested, c.AtNs)
	s.earlierFrees[size] = s.earlierFrees[size].plus(sum)
	s.earlierFrees[size.class()] = s.earlierFrees[size.class()].plus(sum)
}

// addUnfreedSize counts a block that the program had not freed, by size.
func (s *Scan) addUnfreedSize(g *groupStats, b *livemem.Block) {
	if len(s.t.EarlierStates()) == 0 || b.Bytes <= 0 {
		return
	}
	if g.sizes == nil {
		g.sizes = make(unfreedSizes)
	}
	o := &s.t.Origins.List[b.Origin]
	size := blockSize{pid: o.Pid, device: o.Device, bytes: b.Bytes}
	g.sizes[size] = g.sizes[size].plus(s.newSizeSum(b.Bytes, b.SinceNs))
}

// addSizes adds the unfreed sizes of a part to its group.
func (g *groupStats) addSizes(p *groupStats) {
	for size, sum := range p.sizes {
		if g.sizes == nil {
			g.sizes = make(unfreedSizes)
		}
		g.sizes[size] = g.sizes[size].plus(sum)
	}
}

// total returns the sum of the blocks of some sizes, or classes of sizes.
func (u unfreedSizes) total(of map[blockSize]bool) (sum sizeSum) {
	for size, n := range u {
		if of[size] || of[size.class()] {
			sum = sum.plus(n)
		}
	}
	return sum
}

// comparedSizes returns the sizes of the blocks, or classes of sizes if there are many.
func (u unfreedSizes) comparedSizes() map[blockSize]bool {
	list := make(map[blockSize]bool)
	for size := range u {
		if len(u) > maxComparedSizes {
			size = size.class()
		}
		list[size] = true
	}
	return list
}

// earlierFreesOf returns the blocks from before the recording with some sizes that the program freed.
func (s *Scan) earlierFreesOf(sizes map[blockSize]bool) (freed sizeSum) {
	for size := range sizes {
		freed = freed.plus(s.earlierFrees[size])
	}
	return freed
}

// replacesEarlier reports whether the unfreed blocks of a group took the place of blocks from before the recording: the
// program freed as many of their sizes. Either all groups together allocated no more of these sizes, or only this group
// allocated as much.
func (s *Scan) replacesEarlier(g *groupStats) bool {
	sizes := g.sizes.comparedSizes()
	freed := s.earlierFreesOf(sizes)
	if freed.blocks == 0 {
		return false
	}
	var all sizeSum
	matches := 0
	for i := range s.groups {
		other := &s.groups[i]
		same := other.sizes.total(sizes)
		all = all.plus(same)
		if same.blocks > 0 && other.sizes.matches(s.earlierFreesOf(other.sizes.comparedSizes())) {
			matches++
		}
	}
	return all.isReplacedBy(freed) || matches == 1 && g.sizes.matches(freed)
}

// matches reports whether as many blocks were freed as are unfreed.
func (u unfreedSizes) matches(freed sizeSum) bool {
	own := u.total(u.comparedSizes())
	return own.isReplacedBy(freed) && freed.isWithin(own)
}

// isReplacedBy reports whether at least as many blocks were freed, also in the second half.
func (n sizeSum) isReplacedBy(freed sizeSum) bool {
	return n.isWithin(freed) && float64(freed.late) >= minLateShare*float64(n.late)
}

// isWithin reports whether a sum is at most as large as another one, within the tolerance.
func (n sizeSum) isWithin(most sizeSum) bool {
	slack := max(replacedSlackBlocks, replacedSlackShare*float64(most.blocks))
	isFew := float64(n.blocks) <= float64(most.blocks)+slack
	return isFew && float64(n.bytes) <= float64(most.bytes)*(1+slack/float64(max(1, most.blocks)))
}

// earlierDoubt returns a reason to doubt that a growing group leaks, or "": the program freed many blocks of its sizes
// from before the recording, and no group is known to replace them.
func (s *Scan) earlierDoubt(g *groupStats) string {
	sizes := g.sizes.comparedSizes()
	freed, own := s.earlierFreesOf(sizes).blocks, g.sizes.total(sizes).blocks
	for i := range s.groups {
		other := &s.groups[i]
		if same := other.sizes.total(sizes).blocks; same > 0 && s.replacesEarlier(other) {
			freed -= same
		}
	}
	if freed <= 0 || 2*freed < own {
		return ""
	}
	return "blocks of these sizes from before the recording were freed, which this line or another one may replace"
}
