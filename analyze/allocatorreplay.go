package analyze

import (
	"errors"
	"slices"
)

// allocatorChange is one step of an allocator. A consumer gets it before the model
// changes, and must not keep the pointer: until then, and since the step before, the
// model was what it is now. Only blockResized comes when it is done, because it was so
// all the time since the block began: how large a block is may become known with the
// next event of its allocator. So the books of one allocator are exact when a change of
// the same allocator is handed out, or at the end.
type allocatorChange struct {
	what allocatorWhat
	atNs int64
	// block is the block that begins, is given back, becomes a gap or is lost, for
	// outOfMemory one of the size that could not be had (requested and size), for
	// blockResized the block with its new size. A block from before the recording has
	// origin noOrigin.
	block piece
	// oldSize of blockResized is what the block's size was taken for.
	oldSize int64
	// deviceFree of outOfMemory is what the device had free, bytes.
	deviceFree int64
	// ptr, bytes and origin of a segment that comes or goes, or of a stretch of one.
	ptr, bytes int64
	origin     int32
}

// allocatorConsumer is told what an allocator does. It may read the allocator:
//
//	a.totals()   the books
//	a.each       the blocks, live or awaiting
//	a.ranges()   the segments, and with a.within what is in one, gaps too
//
// At allocatorEnd all of that is what the process held when it ended.
type allocatorConsumer func(a *allocator, c *allocatorChange)

// allocators are the allocators of a recording, by Timeline.allocators.
type allocators struct {
	numbers *allocatorNumbers
	rules   map[int32]allocatorRules // by process
	list    []*allocator
	// ended are those whose process ended; a number may be used again.
	ended []*allocator
}

// newAllocators returns no allocators yet: they come with their first events.
func newAllocators(numbers *allocatorNumbers, rules map[int32]allocatorRules) *allocators {
	return &allocators{numbers: numbers, rules: rules}
}

// of returns the allocator with a number.
func (s *allocators) of(n int32) *allocator {
	for len(s.list) <= int(n) {
		s.list = append(s.list, nil)
	}
	if s.list[n] == nil {
		key := s.numbers.keys[n]
		s.list[n] = newAllocator(s, key, s.rules[key.pid])
	}
	return s.list[n]
}

// exit ends the allocators of a process.
func (s *allocators) exit(pid int32, atNs int64, consume allocatorConsumer) {
	for n, a := range s.list {
		if a != nil && a.pid == pid {
			a.change = allocatorChange{what: allocatorEnd, atNs: atNs, origin: noOrigin}
			consume(a, &a.change)
			s.ended = append(s.ended, a)
			s.list[n] = nil
		}
	}
}

// all calls yield for every allocator, those that ended first.
func (s *allocators) all(yield func(*allocator)) {
	for _, a := range s.ended {
		yield(a)
	}
	for _, a := range s.list {
		if a != nil {
			yield(a)
		}
	}
}

// apply makes one step.
//
// The rules: a free of an unknown pointer ends a block from before the recording, of
// which the size shows in the allocator's totals; it is counted and makes no bytes
// negative. An alloc at a live pointer, and the end of a segment with live blocks,
// prove that frees were lost. Where model and totals differ, the totals are believed.
func (s *allocators) apply(e *allocatorEvent, consume allocatorConsumer) {
	a := s.of(e.allocator)
	a.counts.events++
	if a.counts.events == 1 {
		a.reports = e.what.isReport()
	}
	if a.reports != e.what.isReport() {
		return // the recorder never writes both of one process
	}
	switch e.what {
	case blockAllocated:
		a.alloc(e, e.stream, consume)
	case blockFreeRequested:
		a.freeRequested(e, consume)
	case blockFreeCompleted:
		a.freeCompleted(e, consume)
	case outOfMemory:
		a.compare(e, none, consume)
		a.counts.outOfMemory++
		a.emit(consume, e, &piece{requested: e.bytes, size: e.bytes, pool: e.pool, stream: e.stream, origin: e.origin, sinceNs: e.atNs, segment: straySegment, prev: none, next: none})
	case reportedAlloc:
		a.reportedAlloc(e, consume)
	case reportedFree:
		a.reportedFree(e, consume)
	case lookedAt: // torch tells it of device 0 whichever it is about
	default:
		a.segmentChange(e, e.stream, consume)
	}
}

// compare learns from the allocator's totals; it returns the size of the block that an
// unmatched free ends.
func (a *allocator) compare(e *allocatorEvent, freed int32, consume allocatorConsumer) int64 {
	sizes := [2]int64{}
	blocks := [2]int32{a.check.pending, freed}
	for k, i := range blocks {
		if i != none {
			sizes[k] = a.pieces[i].size
		}
	}
	size, corrected := a.compareAllocated(e, freed)
	a.compareReserved(e)
	if corrected != none {
		b := a.pieces[corrected]
		a.change = allocatorChange{what: blockResized, atNs: b.sinceNs, block: b, oldSize: sizes[slices.Index(blocks[:], corrected)], origin: noOrigin}
		consume(a, &a.change)
	}
	return size
}

// emit hands out a change to a block. It copies the block once: this is done for nearly every event.
func (a *allocator) emit(consume allocatorConsumer, e *allocatorEvent, b *piece) {
	c := &a.change
	c.what, c.atNs, c.origin = e.what, e.atNs, noOrigin
	c.block = *b
	c.oldSize, c.deviceFree, c.ptr, c.bytes = 0, 0, 0, 0
	if e.what == outOfMemory {
		c.deviceFree = e.ptr
	}
	consume(a, c)
}

func (a *allocator) alloc(e *allocatorEvent, stream int64, consume allocatorConsumer) {
	a.compare(e, none, consume)
	gap := a.gapFor(e, consume)
	size := a.sizeOf(e, gap)
	b := piece{ptr: e.ptr, size: size, requested: e.bytes, sinceNs: e.atNs, pool: e.pool, stream: stream, origin: e.origin, segment: straySegment, prev: none, next: none, state: isBlock}
	a.emit(consume, e, &b)
	a.counts.allocs++
	a.seen.Allocated += size
	a.seen.Active += size
	a.seen.Requested += e.bytes
	a.seen.Allocations++
	a.check.pending = a.take(e, gap, size, stream)
}

// gapFor returns the gap in which a new block begins, or none if nothing is known there. A
// block there has ended unseen. A gap of an expandable segment that is too small for the
// block is forgotten: what was mapped before the recording goes on behind it.
func (a *allocator) gapFor(e *allocatorEvent, consume allocatorConsumer) int32 {
	i, ok := a.at.get(e.ptr)
	if !ok {
		return none
	}
	if a.pieces[i].state != isGap {
		a.lose(&a.pieces[i], e.atNs, consume)
		a.pieces[i].state = isGap // not joined: the new block begins where it did
		a.use(i, -a.pieces[i].size)
		if a.pieces[i].segment == straySegment {
			a.drop(i)
			return none
		}
	}
	if a.pieces[i].segment == expandableSegment && a.room(i) < a.rules.round(e.bytes) {
		a.cut(i, e.ptr, e.ptr+a.pieces[i].size)
		return a.found(e.ptr)
	}
	return i
}

// lose ends a block of which the free was not recorded. If the allocator's totals are
// known, they have told that already.
func (a *allocator) lose(p *piece, atNs int64, consume allocatorConsumer) {
	b := *p
	a.change = allocatorChange{what: blockLost, atNs: atNs, block: b, origin: noOrigin}
	consume(a, &a.change)
	a.counts.lostFrees++
	if b.state == isBlock {
		a.seen.Allocations--
	}
	a.seen.Requested -= b.requested
	if !a.check.known[allocatedTotal] {
		a.seen.Active -= b.size
		if b.state == isBlock {
			a.seen.Allocated -= b.size
		}
	}
}

func (a *allocator) freeRequested(e *allocatorEvent, consume allocatorConsumer) {
	i, ok := a.at.get(e.ptr)
	if ok && a.pieces[i].state == isAwaiting { // it has ended, and its address was handed out again
		a.lose(&a.pieces[i], e.atNs, consume)
		a.release(i)
	}
	if !ok || a.pieces[i].state != isBlock {
		i = none
	}
	size := a.compare(e, i, consume)
	if i == none {
		a.counts.unmatchedFrees++
		i = a.older(e, size)
		a.before.Allocations++
		if !a.check.known[allocatedTotal] {
			a.before.Allocated += size
			a.before.Active += size
		}
	} else {
		a.counts.frees++
	}
	a.emit(consume, e, &a.pieces[i])
	a.pieces[i].state = isAwaiting
	a.seen.Allocated -= a.pieces[i].size
	a.seen.Allocations--
}

// older adds a block from before the recording, so that the end of its freeing finds it.
func (a *allocator) older(e *allocatorEvent, size int64) int32 {
	a.before.Requested += e.bytes
	return a.newPiece(piece{ptr: e.ptr, size: size, requested: e.bytes, pool: e.pool, stream: e.stream, origin: noOrigin, segment: straySegment, prev: none, next: none, state: isBlock})
}

func (a *allocator) freeCompleted(e *allocatorEvent, consume allocatorConsumer) {
	a.compare(e, none, consume)
	i, ok := a.at.get(e.ptr)
	switch {
	case !ok || a.pieces[i].state == isGap: // given back before the recording
		i = a.older(e, a.rules.round(e.bytes))
		a.before.Active += a.pieces[i].size
	case a.pieces[i].state == isBlock: // the request was lost
		a.counts.lostFrees++
		a.seen.Allocations--
		if !a.check.known[allocatedTotal] {
			a.seen.Allocated -= a.pieces[i].size
		}
	}
	a.emit(consume, e, &a.pieces[i])
	a.seen.Active -= a.pieces[i].size
	a.seen.Requested -= a.pieces[i].requested
	a.release(i)
}

func (a *allocator) segmentChange(e *allocatorEvent, stream int64, consume allocatorConsumer) {
	a.compare(e, none, consume)
	n, known := a.began[e.ptr]
	known = known && !a.segments[n].isStretch()
	if known && (e.what == segmentAllocated || e.what == segmentFreed) {
		for _, p := range a.within(&a.segments[n]) {
			if p.state != isGap {
				a.lose(p, e.atNs, consume)
			}
		}
	}
	a.change = allocatorChange{what: e.what, atNs: e.atNs, ptr: e.ptr, bytes: e.bytes, origin: e.origin}
	consume(a, &a.change)
	switch e.what {
	case segmentAllocated:
		if known {
			a.counts.lostFrees++
			a.removeSegment(n)
		}
		a.addSegment(e, stream)
		a.seen.Reserved += e.bytes
	case segmentFreed:
		if known {
			a.removeSegment(n)
		} else {
			a.before.Segments++
			a.seen.Segments--
			a.forgetReserved(e)
		}
		a.seen.Reserved -= e.bytes
	case segmentMapped:
		a.addMapping(e, stream)
		a.seen.Reserved += e.bytes
	case segmentUnmapped:
		if !a.removeMapping(e) {
			a.forgetReserved(e)
		}
		a.seen.Reserved -= e.bytes
	}
}

// forgetReserved accounts for the end of memory that was there before the recording.
func (a *allocator) forgetReserved(e *allocatorEvent) {
	if !a.check.known[reservedTotal] {
		a.before.Reserved += e.bytes
	}
}

// replayAll runs memory calls and allocators' events together in order of time, and
// hands the changes of both to their consumers.
func (t *Timeline) replayAll(consume func(*ledger, *change), consumeAllocator allocatorConsumer) (*ledger, *allocators, error) {
	return t.replayTogether(false, consume, consumeAllocator)
}

// replayTogether is replayAll with all events of allocators, or only those that tell of segments.
func (t *Timeline) replayTogether(onlySegments bool, consume func(*ledger, *change), consumeAllocator allocatorConsumer) (*ledger, *allocators, error) {
	s := newAllocators(&t.allocators, t.facts.allocatorRules)
	r := memoryReplay{l: newLedger(&t.origins, t.endedWith), events: t.events, consume: consume}
	r.exit = func(pid int32, atNs int64) { s.exit(pid, atNs, consumeAllocator) }
	allCalls, allEvents := newOrdered(t.memory, t.streamMemory()), newOrdered(t.allocations, t.streamAllocators(onlySegments))
	defer allCalls.close()
	defer allEvents.close()
	var calls []memoryCall
	var events []allocatorEvent
	var callErr, err error
	for {
		if len(calls) == 0 && callErr == nil {
			calls, callErr = allCalls.next()
		}
		if len(events) == 0 && err == nil {
			events, err = allEvents.next()
		}
		switch {
		case len(calls) > 0 && (len(events) == 0 || calls[0].atNs <= events[0].atNs):
			r.call(&calls[0])
			calls = calls[1:]
		case len(events) > 0:
			r.eventsBefore(events[0].atNs)
			s.apply(&events[0], consumeAllocator)
			events = events[1:]
		default:
			r.finish()
			return r.l, s, t.wrap(errors.Join(err, callErr))
		}
	}
}
