package leaks

import (
	"math/bits"
	"slices"
	"sort"

	"github.com/gpurec/gpurec/analyze/model/caching"
	"github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/stats"
)

// A recording with --max-overhead may have the events of PyTorch's allocator only in windows. Then the live bytes of a
// call site are unknown: most of its blocks were allocated and freed unseen. The live bytes of all blocks of one size are
// exact at each reading. So a windowScan finds the sizes whose bytes grow, and shares their growth among the sites whose
// blocks lived on: see windowshares.go.

// sizeClass identifies blocks of one size: of one requested size, or with isRange, of the sizes above half of bytes and up
// to it.
type sizeClass struct {
	pid, device  int32
	pool, stream int64
	bytes        int64
	isRange      bool
}

// sizeRange returns the class of the sizes around the size of a class.
func (c sizeClass) sizeRange() sizeClass {
	c.bytes, c.isRange = 1<<bits.Len64(uint64(max(0, c.bytes-1))), true
	return c
}

// anywhere returns the class without its pool and stream.
func (c sizeClass) anywhere() sizeClass {
	c.pool, c.stream = 0, 0
	return c
}

// classOf returns the class of a block.
func classOf(a *caching.Allocator, b *caching.SegmentPiece) sizeClass {
	return sizeClass{pid: a.Pid, device: a.Device, pool: b.Pool, stream: b.Stream, bytes: b.Requested}
}

// windowScan follows the live bytes of each size over readings and windows. It is not safe for concurrent use.
type windowScan struct {
	t           *timeline.Timeline
	window      query.Window
	checkpoints stats.Checkpoints
	recorded    recordedWindows
	// floors are those of the bytes of old blocks, of each size and each range of sizes. A block is old after the time
	// between two checkpoints: temporary blocks of steps would hide a slow growth.
	floors map[sizeClass]*stats.Floor
	levels map[caching.AllocatorKey]*allocatorLevels
	exitNs map[int32]int64 // end of a process, Unix ns
	allocs map[caching.AllocatorKey]*allocCounts
	// sizesToRemove is the number of classes at which those without blocks are removed.
	sizesToRemove int
}

// minSizesToRemove is the number of classes at which those are removed first whose blocks came and went.
const minSizesToRemove = 1 << 14

// newWindowScan returns the scan of a recording with sampled allocator events, or nil for all others.
func newWindowScan(t *timeline.Timeline, w query.Window) *windowScan {
	if !t.IsAllocatorSampled() {
		return nil
	}
	return &windowScan{
		t:             t,
		window:        w,
		checkpoints:   stats.NewCheckpoints(w.FromNs, w.ToNs),
		recorded:      newRecordedWindows(t.Facts.Sampling.NoAllocator, w),
		floors:        make(map[sizeClass]*stats.Floor),
		levels:        make(map[caching.AllocatorKey]*allocatorLevels),
		exitNs:        make(map[int32]int64),
		allocs:        make(map[caching.AllocatorKey]*allocCounts),
		sizesToRemove: minSizesToRemove,
	}
}

// allocatorLevels are the blocks of an allocator, and the changes of their bytes that are not in the floors yet.
type allocatorLevels struct {
	blocks    map[int64]levelBlock // live blocks by address
	young     []youngBlock         // blocks that are not old yet, in the order in which they became known
	changes   map[sizeClass]int64  // of old blocks, bytes
	isReading bool                 // the changes of a reading follow
	readingNs int64                // time of the last reading, Unix ns
	exactNs   int64                // last time at which the live bytes were exact, Unix ns
}

// levelBlock is a live block.
type levelBlock struct {
	class   sizeClass
	sinceNs int64 // when it became known, Unix ns
	isOld   bool
}

// youngBlock is a block that was live at sinceNs, Unix ns.
type youngBlock struct{ ptr, sinceNs int64 }

// onChange processes the next change of an allocator.
func (w *windowScan) onChange(a *caching.Allocator, c *caching.AllocatorChange) {
	key := caching.AllocatorKey{Pid: a.Pid, Device: a.Device}
	l := w.levels[key]
	if l == nil {
		l = &allocatorLevels{blocks: make(map[int64]levelBlock), changes: make(map[sizeClass]int64)}
		w.levels[key], w.allocs[key] = l, new(allocCounts)
	}
	w.countAllocs(w.allocs[key], c)
	if l.isReading && !l.isOfReading(c) {
		l.isReading = false
		w.flush(l, l.readingNs)
	}
	switch c.Op {
	case caching.OpStateRead:
		l.isReading, l.readingNs = true, c.AtNs
		return
	case caching.OpBlockAllocated, caching.OpBlockFound:
		if c.Op == caching.OpBlockAllocated || c.Block.State == caching.PieceBlock {
			l.add(c.Block.Ptr, levelBlock{class: classOf(a, &c.Block), sinceNs: c.AtNs})
		}
	case caching.OpBlockFreeRequested, caching.OpBlockLost:
		if c.Block.State == caching.PieceBlock && !w.t.IsInTeardown(a.Pid, c.AtNs) {
			l.remove(c.Block.Ptr)
		}
	case caching.OpAllocatorEnd:
		w.exitNs[a.Pid] = c.AtNs
	default:
		return
	}
	if !l.isReading && !a.IsStale() {
		w.flush(l, c.AtNs)
	}
}

// add adds a block that became known.
func (l *allocatorLevels) add(ptr int64, b levelBlock) {
	l.remove(ptr)
	l.blocks[ptr] = b
	l.young = append(l.young, youngBlock{ptr, b.sinceNs})
}

// remove removes the block at an address, if there is one.
func (l *allocatorLevels) remove(ptr int64) {
	if b := l.blocks[ptr]; b.isOld {
		l.changes[b.class] -= b.class.bytes
	}
	delete(l.blocks, ptr)
}

// age adds the blocks that became known before a time, Unix ns, and are still live.
func (l *allocatorLevels) age(beforeNs int64) {
	n := 0
	for ; n < len(l.young) && l.young[n].sinceNs < beforeNs; n++ {
		young := l.young[n]
		if b, ok := l.blocks[young.ptr]; ok && b.sinceNs == young.sinceNs && !b.isOld {
			b.isOld = true
			l.blocks[young.ptr] = b
			l.changes[b.class] += b.class.bytes
		}
	}
	l.young = l.young[n:]
}

// isOfReading reports whether a change is one of the last reading.
func (l *allocatorLevels) isOfReading(c *caching.AllocatorChange) bool {
	switch c.Op {
	case caching.OpBlockResized:
		return true
	case caching.OpBlockFound, caching.OpBlockLost, caching.OpBlockFreeRequested:
		return c.AtNs == l.readingNs
	}
	return false
}

// maxOldAgeNs is the largest age from which on a block is old, ns.
const maxOldAgeNs = int64(10e9)

// flush adds the changes of an allocator to the floors at a time at which its live bytes are exact, Unix ns.
func (w *windowScan) flush(l *allocatorLevels, atNs int64) {
	l.exactNs = atNs
	l.age(atNs - min(maxOldAgeNs, int64(w.checkpoints.StepNs())))
	if len(l.changes) == 0 {
		return
	}
	passed := w.checkpoints.CountBefore(atNs)
	ranges := make(map[sizeClass]int64, 1)
	for class, change := range l.changes {
		w.addChange(class, change, passed)
		ranges[class.sizeRange()] += change
	}
	for class, change := range ranges {
		w.addChange(class, change, passed)
	}
	clear(l.changes)
	if len(w.floors) >= w.sizesToRemove {
		w.removeEmpty(passed)
	}
}

// addChange changes the live bytes of a class after a number of checkpoints.
func (w *windowScan) addChange(class sizeClass, change int64, passed int) {
	f := w.floors[class]
	if f == nil {
		f = new(stats.Floor)
		w.floors[class] = f
	}
	f.PassCheckpoints(passed)
	f.Add(change)
}

// removeEmpty removes the classes that have no blocks, and had none for the whole time between two checkpoints.
func (w *windowScan) removeEmpty(passed int) {
	for class, f := range w.floors {
		if f.PassCheckpoints(passed); f.Level == 0 && f.Floors == nil {
			delete(w.floors, class)
		}
	}
	w.sizesToRemove = max(minSizesToRemove, 2*len(w.floors))
}

// finish ends all intervals.
func (w *windowScan) finish() {
	for _, l := range w.levels {
		if l.isReading {
			w.flush(l, l.readingNs)
		}
	}
	for _, f := range w.floors {
		f.PassCheckpoints(stats.CheckpointCount + 1)
	}
}

// endOf returns the end of the window, or of a process before it, Unix ns.
func (w *windowScan) endOf(pid int32) int64 {
	if ns, ok := w.exitNs[pid]; ok {
		return min(ns, w.window.ToNs)
	}
	return w.window.ToNs
}

// floorsOf returns the floors of a class up to the end of its process.
func (w *windowScan) floorsOf(class sizeClass) []int64 {
	f := w.floors[class]
	if f == nil {
		return nil
	}
	if endNs := w.endOf(class.pid); endNs < w.window.ToNs {
		return f.Floors[:min(len(f.Floors), max(0, w.checkpoints.CountBefore(endNs)-1))]
	}
	return f.Floors
}

// sightings are the blocks of a group whose allocation a window saw and that reached minAge in it, by size.
type sightings map[sizeClass][]sightingCount

// sightingCount counts the sightings of one slice of the time.
type sightingCount struct {
	slice       int32
	kept, ended int64 // blocks not known to have ended, and those known to have ended later
}

// add adds a block that was allocated in a slice. Slices must not increase by much, as blocks end late.
func (s sightings) add(class sizeClass, slice int32, kept, ended int64) {
	list := s[class]
	i := sort.Search(len(list), func(i int) bool { return list[i].slice >= slice })
	if i == len(list) || list[i].slice != slice {
		list = slices.Insert(list, i, sightingCount{slice: slice})
	}
	list[i].kept += kept
	list[i].ended += ended
	s[class] = list
}

// clone returns a copy that shares no memory.
func (s sightings) clone() sightings {
	if s == nil {
		return nil
	}
	c := make(sightings, len(s))
	for class, list := range s {
		c[class] = slices.Clone(list)
	}
	return c
}

// addSightings adds the sightings of a part to its group.
func (g *groupStats) addSightings(p *groupStats) {
	for class, list := range p.sightings {
		for _, n := range list {
			g.addSighting(class, n.slice, n.kept, n.ended)
		}
	}
}

// noteEnd counts the end of a block at atNs, Unix ns, or that it lives on, with isKept.
func (s *Scan) noteEnd(a *caching.Allocator, b *caching.SegmentPiece, atNs int64, isKept bool) {
	if b.Origin == origin.NoOrigin || b.SinceNs < s.Window.FromNs || b.State != caching.PieceBlock {
		return
	}
	w, ok := s.windows.recorded.windowOf(b.SinceNs)
	if !ok || atNs-b.SinceNs < s.windows.recorded.minAge {
		return
	}
	i, ok := s.Grouping.GroupOf(b.Origin, b.Requested)
	if !ok || int(i) >= len(s.groups) {
		return
	}
	var kept, ended int64 = 0, 1
	if isKept {
		kept, ended = 1, 0
	}
	slice, class := int32(s.windows.recorded.sliceOf(w.FromNs)), classOf(a, b)
	g := &s.groups[i]
	g.addSighting(class, slice, kept, ended)
	if part := s.stacks.partOf(i, g, b.Origin); part != nil {
		part.addSighting(class, slice, kept, ended)
	}
}

func (g *groupStats) addSighting(class sizeClass, slice int32, kept, ended int64) {
	if g.sightings == nil {
		g.sightings = make(sightings)
	}
	g.sightings.add(class, slice, kept, ended)
}

// onWindowChange passes a change to the windowScan, and counts the ends of blocks.
func (s *Scan) onWindowChange(a *caching.Allocator, c *caching.AllocatorChange) {
	if s.windows == nil || s.done || c.AtNs > s.Window.ToNs || !s.filter.PassesAllocator(a.Pid, a.Device) {
		return
	}
	s.windows.onChange(a, c)
	switch c.Op {
	case caching.OpBlockFreeRequested, caching.OpBlockLost:
		s.noteEnd(a, &c.Block, c.AtNs, s.t.IsInTeardown(a.Pid, c.AtNs))
	case caching.OpAllocatorEnd:
		s.noteKept(a, c.AtNs)
	}
}

// noteKept counts the blocks of an allocator that live on at atNs, Unix ns.
func (s *Scan) noteKept(a *caching.Allocator, atNs int64) {
	a.EachLiveBlock(func(b *caching.SegmentPiece) { s.noteEnd(a, b, atNs, true) })
}

// finishWindows ends the window for allocators.
func (s *Scan) finishWindows(p *timeline.ProgramMemory) {
	if s.windows == nil {
		return
	}
	for _, a := range p.Allocators.List {
		if a != nil {
			s.noteKept(a, s.Window.ToNs)
		}
	}
	s.windows.finish()
}
