package blockreadings

import (
	"iter"
	"maps"
	"slices"
)

// Key identifies a caching allocator: a process and the CUDA ordinal of a device. Device is -1 for readings that found
// no allocator.
type Key struct{ Pid, Device int32 }

// Size identifies the blocks with one requested size, bytes, in one pool and for one stream. Pool is the number of a
// private pool as in rows of kind allocator, 0: the default one.
type Size struct{ Requested, Pool, Stream int64 }

// Block is a block that the program or a stream uses.
type Block struct {
	Size
	Bytes        int64 // size with the allocator's rounding
	SinceNs      int64 // time of the first usable reading that had it, Unix ns
	AwaitsStream bool  // the program freed it, and a stream still uses it

	listed int64 // number of the last reading that listed it
}

// isSameAs reports whether two blocks at one address may be the same one. A block that was freed and given out again
// with the same size looks the same.
func (b *Block) isSameAs(o *Block) bool { return b.Size == o.Size && b.Bytes == o.Bytes }

// allocatedBytes returns the part of the block in the allocator's statistic of allocated bytes.
func (b *Block) allocatedBytes() int64 {
	if b.AwaitsStream {
		return 0
	}
	return b.Bytes
}

// Level is the number and the bytes of the blocks of one size.
type Level struct{ Blocks, Bytes int64 }

// Change counts the blocks of one size that are new or gone since the usable reading before. A block that was
// allocated and freed between two readings is not in it.
type Change struct{ New, Gone int64 }

// Counts are the numbers of an allocator's readings in a window.
type Counts struct {
	Used    int64 // equal the allocator's statistics
	Refused int64 // refused by the recorder
	Wrong   int64 // do not add up to the allocator's statistics
	// Skipped are the readings before the first one that lists all blocks, and those between a wrong one and the
	// next one that lists all.
	Skipped int64
	// Teardown are the last readings before the end of the process, in which blocks only went.
	Teardown int64
}

// Totals are the allocator's statistics at a reading.
type Totals struct {
	AtNs      int64 // Unix ns
	Allocated int64 // bytes of the blocks that the program uses
	Reserved  int64 // bytes of the segments
	Blocks    int64 // number of blocks that the program or a stream uses
}

// Allocator is a caching allocator. It has the blocks of the last usable reading.
type Allocator struct {
	Key
	Span
	Counts
	// Totals are those of the last usable reading.
	Totals
	// Refusals counts the refused readings by their reason. Only the first maxRefusals reasons have an entry.
	Refusals map[string]int64

	blocks   map[int64]Block   // by address
	segments map[int64]segment // by address
	levels   map[Size]Level    // of sizes with blocks
	changes  map[Size]Change   // by the last reading
	// Sums over blocks and segments, bytes. Totals must equal the last two.
	inUse, allocated, reserved int64

	present    Totals // of the present reading
	number     int64  // of the present reading
	isOpen     bool   // rows of the present reading may follow
	isComplete bool   // the present reading lists all blocks and segments
	isKnown    bool   // the blocks follow from a complete reading, and from all readings after it
	undo       []undoEntry
	last       *lastState // nil: no states are needed
}

// segment is a segment, or a mapped range of an expandable one. A segment of 0 bytes does not exist.
type segment struct {
	bytes, pool, stream   int64
	isSmall, isExpandable bool
	listed                int64 // number of the last reading that listed it
}

// undoEntry has the block or the segment that the present reading replaced at an address.
type undoEntry struct {
	ptr       int64
	isSegment bool
	segment   segment
	block     Block
	exists    bool // there was a block
}

// maxRefusals is the largest number of reasons that an Allocator keeps.
const maxRefusals = 16

func newAllocator(key Key, span Span) *Allocator {
	return &Allocator{
		Key: key, Span: span, Refusals: make(map[string]int64), blocks: make(map[int64]Block),
		segments: make(map[int64]segment), levels: make(map[Size]Level), changes: make(map[Size]Change),
	}
}

// EachBlock yields the blocks, in no order.
func (a *Allocator) EachBlock() iter.Seq[Block] { return maps.Values(a.blocks) }

// EachChange yields the sizes whose blocks the last usable reading changed, in no order. It is valid while a consumer
// of Read runs.
func (a *Allocator) EachChange() iter.Seq2[Size, Change] { return maps.All(a.changes) }

// EachLevel yields the sizes with blocks, in no order.
func (a *Allocator) EachLevel() iter.Seq2[Size, Level] { return maps.All(a.levels) }

// AllBlocks returns the blocks of all sizes.
func (a *Allocator) AllBlocks() Level { return Level{int64(len(a.blocks)), a.inUse} }

// LevelOf returns the blocks of a size.
func (a *Allocator) LevelOf(s Size) Level { return a.levels[s] }

// begin starts a reading. A complete one lists all blocks and segments.
func (a *Allocator) begin(totals Totals, isComplete bool) {
	a.present, a.isOpen, a.isComplete = totals, true, isComplete
	a.number++
	a.isKnown = a.isKnown || isComplete
}

// end ends the present reading, and reports whether it is usable. Otherwise it restores the blocks of the last usable
// reading.
func (a *Allocator) end() (isUsable bool) {
	a.isOpen = false
	if !a.isKnown {
		a.Skipped++
		return false
	}
	if !a.addsUp() {
		a.isKnown = false
		a.Wrong++
		a.restore()
		return false
	}
	a.Used++
	a.Totals = a.present
	a.undo = a.undo[:0]
	return true
}

// addsUp reports whether the blocks and segments equal the allocator's statistics at the present reading.
func (a *Allocator) addsUp() bool {
	if a.isComplete {
		a.removeUnlisted()
	}
	t := &a.present
	return int64(len(a.blocks)) == t.Blocks && a.allocated == t.Allocated && a.reserved == t.Reserved
}

// restore undoes the present reading.
func (a *Allocator) restore() {
	for _, u := range slices.Backward(a.undo) {
		if u.isSegment {
			a.replaceSegment(u.ptr, u.segment)
		} else {
			a.replaceBlock(u.ptr, u.block, u.exists)
		}
	}
	a.undo = a.undo[:0]
	clear(a.changes)
}

// removeUnlisted removes the blocks and segments that the present reading did not list.
func (a *Allocator) removeUnlisted() {
	for ptr, b := range a.blocks {
		if b.listed != a.number {
			a.removeBlock(ptr)
		}
	}
	for ptr, s := range a.segments {
		if s.listed != a.number {
			a.setSegment(ptr, segment{})
		}
	}
}

// refuse counts a refused reading.
func (a *Allocator) refuse(reason string) {
	a.Refused++
	if _, ok := a.Refusals[reason]; ok || len(a.Refusals) < maxRefusals {
		a.Refusals[reason]++
	}
}

// setBlock sets the block at an address.
func (a *Allocator) setBlock(ptr int64, b Block) {
	b.SinceNs, b.listed = a.present.AtNs, a.number
	old, exists := a.blocks[ptr]
	if exists && old.isSameAs(&b) {
		b.SinceNs = old.SinceNs
		if b.AwaitsStream == old.AwaitsStream {
			a.blocks[ptr] = b
			return
		}
	}
	a.undo = append(a.undo, undoEntry{ptr: ptr, block: old, exists: exists})
	a.replaceBlock(ptr, b, true)
}

// removeBlock removes the block at an address, if there is one.
func (a *Allocator) removeBlock(ptr int64) {
	if old, exists := a.blocks[ptr]; exists {
		a.undo = append(a.undo, undoEntry{ptr: ptr, block: old, exists: true})
		a.replaceBlock(ptr, Block{}, false)
	}
}

// replaceBlock replaces the block at an address by b, or removes it unless exists is set.
func (a *Allocator) replaceBlock(ptr int64, b Block, exists bool) {
	if a.last != nil {
		a.last.changed = append(a.last.changed, ptr)
	}
	old, existed := a.blocks[ptr]
	a.inUse, a.allocated = a.inUse-old.Bytes, a.allocated-old.allocatedBytes()
	delete(a.blocks, ptr)
	if exists {
		a.inUse, a.allocated = a.inUse+b.Bytes, a.allocated+b.allocatedBytes()
		a.blocks[ptr] = b
	}
	if existed && exists && old.isSameAs(&b) {
		return
	}
	if existed {
		a.count(&old, -1)
	}
	if exists {
		a.count(&b, 1)
	}
}

// count adds blocks to those of a size. by is 1 or -1.
func (a *Allocator) count(b *Block, by int64) {
	l, c := a.levels[b.Size], a.changes[b.Size]
	l.Blocks, l.Bytes = l.Blocks+by, l.Bytes+by*b.Bytes
	if by > 0 {
		c.New++
	} else {
		c.Gone++
	}
	a.changes[b.Size] = c
	if a.levels[b.Size] = l; l.Blocks == 0 {
		delete(a.levels, b.Size)
	}
}

// setSegment sets the segment at an address. One of 0 bytes removes it.
func (a *Allocator) setSegment(ptr int64, s segment) {
	old := a.segments[ptr]
	s.listed = old.listed
	if old != s {
		a.undo = append(a.undo, undoEntry{ptr: ptr, isSegment: true, segment: old})
	}
	s.listed = a.number
	a.replaceSegment(ptr, s)
}

func (a *Allocator) replaceSegment(ptr int64, s segment) {
	a.reserved += s.bytes - a.segments[ptr].bytes
	if a.segments[ptr] = s; s.bytes == 0 {
		delete(a.segments, ptr)
	}
}
