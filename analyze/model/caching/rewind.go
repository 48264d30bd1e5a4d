package caching

import (
	"cmp"
	"maps"
	"slices"
)

// Rewind computes the state that an allocator had when the recording began, from the state that was read some
// milliseconds later and the events between both. It is not safe for concurrent use.
//
// What was allocated between both was not there at the start, and what was freed without a recorded allocation was.
type Rewind struct {
	state *EarlierState
	rules AllocatorRules

	newBlocks   map[int64]bool         // blocks that were allocated and are live, by address
	oldBlocks   map[int64]EarlierBlock // blocks from before that were freed, by address
	newSegments map[int64]bool
	oldSegments map[int64]EarlierSegment
	newPages    map[int64]bool           // pages of expandable segments that were mapped, by address
	oldPages    map[int64]EarlierSegment // properties of pages from before that were unmapped, by address
	failed      bool                     // events contradict each other, or are too large

	// allocated are the allocator's allocated bytes after the last event; negative: unknown. An event of an allocation
	// does not have the size of its block, which is predicted then.
	allocated int64
	// read has the blocks of the state by address. It is used for readings only.
	read map[int64]placedBlock
}

// maxRewindPages bounds the pages of expandable segments, so that a damaged recording does not need much memory.
const maxRewindPages = 1 << 20

// NewRewind returns a Rewind without events. state must not be refused.
func NewRewind(state *EarlierState, rules AllocatorRules) *Rewind {
	var read map[int64]placedBlock
	if state.IsReading {
		read = state.blocksInUse(new(keptSegments))
	}
	return &Rewind{
		state: state, rules: rules, read: read,
		newBlocks: make(map[int64]bool), oldBlocks: make(map[int64]EarlierBlock),
		newSegments: make(map[int64]bool), oldSegments: make(map[int64]EarlierSegment),
		newPages: make(map[int64]bool), oldPages: make(map[int64]EarlierSegment),
		allocated: -1,
	}
}

// AddEvent adds the next event of the allocator. It ignores those after the state was read.
func (w *Rewind) AddEvent(e *AllocatorEvent) {
	if e.AtNs >= w.state.AtNs || e.Op == OpSnapshotTaken { // snapshots may have the totals of another device
		return
	}
	defer w.noteAllocated(e)
	switch e.Op {
	case OpBlockAllocated, OpReportedAlloc:
		w.newBlocks[e.Ptr] = true
	case OpBlockFreeRequested:
		w.addFree(e, PieceBlock)
	case OpBlockFreeCompleted, OpReportedFree:
		w.addFree(e, PieceAwaitsStream)
		delete(w.newBlocks, e.Ptr)
	case OpSegmentAllocated:
		w.newSegments[e.Ptr] = true
	case OpSegmentFreed:
		if _, known := w.oldSegments[e.Ptr]; !known && !w.newSegments[e.Ptr] {
			w.oldSegments[e.Ptr] = EarlierSegment{
				Ptr: e.Ptr, Bytes: e.Bytes, Pool: e.Pool, Stream: e.Stream, IsSmall: e.Bytes == SmallSegmentBytes,
			}
		}
		delete(w.newSegments, e.Ptr)
	case OpSegmentMapped:
		w.eachPage(e.Ptr, e.Bytes, func(page int64) { w.newPages[page] = true })
	case OpSegmentUnmapped:
		s := EarlierSegment{Pool: e.Pool, Stream: e.Stream, IsExpandable: true, IsSmall: e.Bytes%LargeSegmentBytes != 0}
		w.eachPage(e.Ptr, e.Bytes, func(page int64) {
			if _, known := w.oldPages[page]; !known && !w.newPages[page] {
				w.oldPages[page] = s
			}
			delete(w.newPages, page)
		})
	}
}

// addFree adds the free of a block that was in a state before.
func (w *Rewind) addFree(e *AllocatorEvent, before PieceState) {
	if _, known := w.oldBlocks[e.Ptr]; known || w.newBlocks[e.Ptr] {
		return
	}
	b := EarlierBlock{Ptr: e.Ptr, Requested: e.Bytes, State: before, IsPredicted: true}
	switch {
	case e.Op == OpReportedFree:
		b.State, b.Bytes, b.IsPredicted = PieceBlock, e.Bytes, false
	case e.Op == OpBlockFreeRequested && w.allocated >= 0 && e.Allocated >= 0:
		if size := w.allocated - e.Allocated; size >= e.Bytes && size%BlockUnitBytes == 0 {
			b.Bytes = size
		}
	}
	w.oldBlocks[e.Ptr] = b
}

// noteAllocated sets the allocated bytes after an event.
func (w *Rewind) noteAllocated(e *AllocatorEvent) {
	w.allocated = e.Allocated
	if e.Op == OpBlockAllocated && e.Allocated >= 0 {
		if b, isRead := w.read[e.Ptr]; isRead && b.Requested == e.Bytes {
			w.allocated += b.Bytes // it may be a later block, which has the same size then
			return
		}
		w.allocated += w.rules.RoundBlockSize(e.Bytes)
	}
}

// eachPage calls yield for the pages of a range.
func (w *Rewind) eachPage(ptr, bytes int64, yield func(page int64)) {
	isWhole := ptr%DriverPageBytes == 0 && bytes%DriverPageBytes == 0
	if !isWhole || bytes/DriverPageBytes+int64(len(w.newPages)+len(w.oldPages)) > maxRewindPages {
		w.failed = true
		return
	}
	for page := ptr; page < ptr+bytes; page += DriverPageBytes {
		yield(page)
	}
}

// StateAt returns the state at the start of the recording, atNs (Unix ns). It returns nil if the events contradict the
// state, for example because some were lost.
func (w *Rewind) StateAt(atNs int64) *EarlierState {
	s := &EarlierState{
		Pid: w.state.Pid, Device: w.state.Device, AtNs: atNs, IsReported: w.state.IsReported, IsRewound: true,
		IsReading: w.state.IsReading,
	}
	s.Segments = w.segments()
	if w.failed || !w.addBlocks(s) {
		return nil
	}
	for i := range s.Segments {
		totals := s.Segments[i].totals()
		s.Allocated, s.Reserved = s.Allocated+totals.Allocated, s.Reserved+totals.Reserved
	}
	return s
}

// segments returns the segments at the start, without blocks, in order of address.
func (w *Rewind) segments() (list []EarlierSegment) {
	pages := maps.Clone(w.oldPages)
	for i := range w.state.Segments {
		s := w.state.Segments[i]
		s.Blocks = nil
		switch {
		case s.IsExpandable:
			w.eachPage(s.Ptr, s.Bytes, func(page int64) {
				if _, known := pages[page]; !known && !w.newPages[page] {
					pages[page] = s
				}
			})
		case !w.newSegments[s.Ptr]:
			list = append(list, s)
		}
	}
	list = slices.AppendSeq(list, maps.Values(w.oldSegments))
	list = append(list, joinPages(pages)...)
	slices.SortFunc(list, func(a, b EarlierSegment) int { return cmp.Compare(a.Ptr, b.Ptr) })
	return list
}

// joinPages returns the contiguous ranges of pages with the same pool and stream.
func joinPages(pages map[int64]EarlierSegment) (list []EarlierSegment) {
	for _, page := range slices.Sorted(maps.Keys(pages)) {
		s := pages[page]
		if n := len(list); n > 0 {
			if last := &list[n-1]; last.Ptr+last.Bytes == page && last.Pool == s.Pool && last.Stream == s.Stream {
				last.Bytes += DriverPageBytes
				last.IsSmall = last.IsSmall || s.IsSmall
				continue
			}
		}
		list = append(list, EarlierSegment{
			Ptr: page, Bytes: DriverPageBytes, Pool: s.Pool, Stream: s.Stream, IsSmall: s.IsSmall, IsExpandable: true,
		})
	}
	return list
}

// addBlocks adds the blocks at the start to their segments. It reports whether they fit.
func (w *Rewind) addBlocks(s *EarlierState) bool {
	blocks := w.blocks()
	if s.IsReported { // events have no segments: each block gets one
		s.Segments = nil
		for _, b := range blocks {
			s.Segments = append(s.Segments, EarlierSegment{Ptr: b.Ptr, Bytes: b.Bytes})
		}
	}
	end := int64(0)
	for i := range s.Segments {
		segment := &s.Segments[i]
		if segment.Ptr < end {
			return false
		}
		end = segment.Ptr + segment.Bytes
		n, _ := slices.BinarySearchFunc(blocks, segment.Ptr+segment.Bytes, func(b EarlierBlock, end int64) int {
			return cmp.Compare(b.Ptr, end)
		})
		if !w.fillSegment(segment, blocks[:n]) {
			return false
		}
		blocks = blocks[n:]
	}
	return len(blocks) == 0
}

// blocks returns the blocks at the start, in order of address. Bytes is 0 if neither the state nor the events have the
// size.
func (w *Rewind) blocks() (list []EarlierBlock) {
	old := maps.Clone(w.oldBlocks)
	for i := range w.state.Segments {
		for _, b := range w.state.Segments[i].Blocks {
			if b.State == PieceHole || w.newBlocks[b.Ptr] {
				continue
			}
			if freed, known := old[b.Ptr]; known { // its free was requested, and a stream still uses it
				b.State = freed.State
				delete(old, b.Ptr)
			}
			list = append(list, b)
		}
	}
	list = slices.AppendSeq(list, maps.Values(old))
	slices.SortFunc(list, func(a, b EarlierBlock) int { return cmp.Compare(a.Ptr, b.Ptr) })
	return list
}

// fillSegment adds blocks to a segment, and the holes between them. It reports whether they fit. The allocator's rules
// predict unknown sizes.
func (w *Rewind) fillSegment(s *EarlierSegment, blocks []EarlierBlock) bool {
	at, end := s.Ptr, s.Ptr+s.Bytes
	for i, b := range blocks {
		next := end
		if i+1 < len(blocks) {
			next = blocks[i+1].Ptr
		}
		if b.IsPredicted && (b.Bytes == 0 || b.Bytes > next-b.Ptr) {
			b.Bytes = min(w.rules.RoundBlockSize(b.Requested), next-b.Ptr)
			if !w.rules.splitsHole(next-b.Ptr, b.Bytes, s.IsSmall || s.IsExpandable) {
				b.Bytes = next - b.Ptr
			}
		}
		if b.Ptr < at || b.Bytes <= 0 || b.Bytes > next-b.Ptr {
			return false
		}
		if b.Ptr > at {
			s.Blocks = append(s.Blocks, EarlierBlock{Ptr: at, Bytes: b.Ptr - at})
		}
		b.Requested = min(b.Requested, b.Bytes)
		s.Blocks = append(s.Blocks, b)
		at = b.Ptr + b.Bytes
	}
	if at < end {
		s.Blocks = append(s.Blocks, EarlierBlock{Ptr: at, Bytes: end - at})
	}
	return true
}
