package analyze

import (
	"slices"
	"strings"
	"time"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/symbolize"
)

// A program that has a caching allocator knows nothing of the memory that the allocator
// has of the driver: its memory are the blocks that it was handed out. programMemory is
// memory as programs see it: blocks of caching allocators, and of the driver's memory
// what is not an allocator's segment.
type programMemory struct {
	t          *Timeline
	driver     *ledger
	allocators *allocators
	segments   numberSet // block.number of the driver's memory that is allocators' segments
	consume    func(*programMemory, *change)
	change     change // the one that is handed out
}

// numberSet is a set of small numbers.
type numberSet []uint64

func (s *numberSet) add(n int32) {
	for int(n)/64 >= len(*s) {
		*s = append(*s, 0)
	}
	(*s)[n/64] |= 1 << (n % 64)
}

func (s *numberSet) union(o numberSet) {
	for i, bits := range o {
		for len(*s) <= i {
			*s = append(*s, 0)
		}
		(*s)[i] |= bits
	}
}

func (s numberSet) has(n int32) bool { return int(n)/64 < len(s) && s[n/64]&(1<<(n%64)) != 0 }

// replayProgram is replay with the memory that programs see. Blocks end when the
// program gives them back, whether a stream still uses them or not, and are as large as
// the program asked for. also, if it is set, gets all changes of the driver's memory,
// and watch those of allocators.
func (t *Timeline) replayProgram(consume func(*programMemory, *change), also func(*change), watch allocatorConsumer) (*programMemory, error) {
	p := &programMemory{t: t, consume: consume}
	onDriver := func(l *ledger, c *change) {
		p.driver = l
		p.driverChange(c)
		if also != nil {
			also(c)
		}
	}
	var err error
	if len(t.allocations) == 0 {
		p.allocators = newAllocators(&t.allocators, t.facts.allocatorRules)
		p.driver, err = t.replay(onDriver)
		return p, err
	}
	if t.segments == nil {
		if err = t.findSegments(nil); err != nil {
			return nil, err
		}
	}
	p.segments = *t.segments
	p.driver, p.allocators, err = t.replayAll(onDriver, func(a *allocator, c *allocatorChange) {
		p.allocators = a.set
		p.allocatorChange(a, c)
		if watch != nil {
			watch(a, c)
		}
	})
	return p, err
}

// findSegments finds the driver's memory that allocators made segments of: what is at the
// address of a segment when the allocator tells of it, or around a block that it reports,
// what was allocated from inside of the allocator, and what it had before its events were
// recorded. also, if it is set, gets
// all changes of the driver's memory.
func (t *Timeline) findSegments(also func(*change)) error {
	s := segmentSearch{t: t, inside: make(map[int32]bool), looks: make(map[*allocator]int), addressed: make(map[int32]*addressed), byReports: t.facts.reported() > 0}
	_, _, err := t.replayTogether(true, func(l *ledger, c *change) {
		s.driverChange(l, c)
		if also != nil {
			also(c)
		}
	}, s.allocatorChange)
	if err == nil {
		s.told.union(s.inner)
		t.segments = &s.told
	}
	return err
}

// segmentSearch is the search for the driver's memory that is allocators' segments.
type segmentSearch struct {
	t      *Timeline
	driver *ledger
	told   numberSet          // that an allocator told of
	inner  numberSet          // that comes from inside of one
	inside map[int32]bool     // stack → it goes through an allocator
	looks  map[*allocator]int // how often older was asked; maxLooks: it is known
	// addressed is the memory of a process, if allocators are known by their reports.
	addressed map[int32]*addressed
	byReports bool
}

func (s *segmentSearch) driverChange(l *ledger, c *change) {
	s.driver = l
	if c.what == allocated && s.t.fromAllocator(s.t.origins.list[c.block.origin].stack, s.inside) {
		s.inner.add(c.block.number)
	}
	if s.byReports && s.t.origins.memory(c.block.origin) == format.MemoryDevice {
		s.addressedOf(s.t.origins.process[c.block.origin]).note(c)
	}
}

func (s *segmentSearch) addressedOf(process int32) *addressed {
	l := s.addressed[process]
	if l == nil {
		l = new(addressed)
		s.addressed[process] = l
	}
	return l
}

func (s *segmentSearch) allocatorChange(a *allocator, c *allocatorChange) {
	process, ok := s.t.origins.pids[a.pid]
	if s.driver == nil || !ok {
		return
	}
	h := s.driver.ofProcess(process)
	if a.reports {
		if number, ok := s.addressedOf(process).around(c.block.ptr); ok {
			s.told.add(number)
		} else if c.what == blockAllocated {
			s.mapped(h, c.block.ptr, c.block.size, s.told.add)
		}
		if s.looks[a] < maxLooks && a.check.known[allocatedTotal] && a.counts.events > 1 && s.older(h, a, a.totals().Reserved) {
			s.looks[a] = maxLooks
		}
		s.looks[a]++
		return
	}
	s.at(h, c, s.told.add)
	if s.looks[a] == 0 && a.check.known[reservedTotal] {
		s.looks[a] = maxLooks
		s.older(h, a, a.before.Reserved)
	}
}

// maxLooks is how often it is tried to find what an allocator that is known by its reports had
// at the first of them. One try fails where the driver was asked for more meanwhile.
const maxLooks = 256

// at calls yield for the driver's memory that a segment comes from.
func (s *segmentSearch) at(h *holdings, c *allocatorChange, yield func(number int32)) {
	switch c.what {
	case segmentAllocated:
		if b, ok := h.pointers.get(c.ptr); ok {
			yield(b.number)
		}
	case segmentMapped:
		s.mapped(h, c.ptr, c.bytes, yield)
	}
}

// mapped calls yield for the physical memory behind addresses.
func (s *segmentSearch) mapped(h *holdings, ptr, bytes int64, yield func(number int32)) {
	h.mappings.overlapping(ptr, endOf(ptr, bytes), func(m mapping) {
		if m.handle != nil && m.handle.borrows == 0 {
			yield(m.handle.block.number)
		}
	})
}

// older adds what must have been an allocator's before its first event, or report: memory of
// the process that comes from inside of it or from nowhere known, if that is exactly as much
// as the allocator had. Reports tell that with what came for them.
func (s *segmentSearch) older(h *holdings, a *allocator, reserved int64) bool {
	var before numberSet
	bytes := int64(0)
	h.each(func(_ int64, b block) {
		told := s.told.has(b.number)
		isCandidate := s.inner.has(b.number) || told || s.t.siteLabel(b.origin) == noStack
		if isCandidate && (a.reports || !told) && s.t.origins.list[b.origin].device == a.device && b.bytes%smallSegment == 0 && !s.t.onHost(b.origin) {
			before.add(b.number)
			bytes += b.bytes
		}
	})
	if bytes != reserved {
		return false
	}
	s.inner.union(before)
	return true
}

// fromAllocator reports whether a stack goes through PyTorch's caching allocator; known
// are the answers so far.
func (t *Timeline) fromAllocator(stack int32, known map[int32]bool) bool {
	answer, ok := known[stack]
	if !ok {
		answer = slices.ContainsFunc(t.stacks.stacks[stack], func(id int32) bool {
			return strings.HasPrefix(symbolize.ModuleName(t.stacks.frames[id].Module), "libc10_cuda")
		})
		known[stack] = answer
	}
	return answer
}

func (p *programMemory) driverChange(c *change) {
	if c.what == allocFailed || !p.segments.has(c.block.number) {
		p.consume(p, c)
	}
}

// allocatorChange hands out what a change of an allocator is to the program.
func (p *programMemory) allocatorChange(a *allocator, c *allocatorChange) {
	switch c.what {
	case blockAllocated:
		p.emit(allocated, c.atNs, &c.block)
	case blockFreeRequested:
		what := freed
		if p.t.tearsDown(a.pid, c.atNs) {
			what = freedByExit
		}
		p.emit(what, c.atNs, &c.block)
	case blockLost:
		if c.block.state == isBlock {
			p.emit(freeLost, c.atNs, &c.block)
		}
	case allocatorEnd:
		a.each(func(b *piece) {
			if b.state == isBlock {
				p.emit(freedByExit, c.atNs, b)
			}
		})
	}
}

// teardown is how long before the end of a process what it gives back, having asked for
// nothing more, is part of that end. Python frees what modules hold, and CUDA contexts
// with much memory take seconds to go.
const teardown = int64(10 * time.Second)

// tearsDown reports whether a process that gives a block back at a moment is ending. To
// the program, which did not free it before, it is all the same whether its interpreter
// frees it at the end or the driver.
func (t *Timeline) tearsDown(pid int32, atNs int64) bool {
	if t.teardowns == nil {
		t.teardowns = t.findTeardowns()
	}
	from, ok := t.teardowns[pid]
	return ok && atNs > from
}

// findTeardowns returns for processes of which the end was seen from when on they are
// ending.
func (t *Timeline) findTeardowns() map[int32]int64 {
	found := make(map[int32]int64)
	for _, e := range t.facts.exits {
		found[e.pid] = e.atNs - teardown
	}
	var c allocatorColumns
	for _, s := range t.allocations {
		if len(found) == 0 || !c.readNames(s.group, false) {
			continue
		}
		c.start, c.pid = s.group.Int64("start_ns", c.start), s.group.Int32("pid", c.pid)
		for i, start := range c.start {
			if name := c.name.Index[i]; !c.known[name] || !c.whats[name].isAlloc() {
				continue
			}
			if from, ok := found[c.pid[i]]; ok && start > from {
				found[c.pid[i]] = start
			}
		}
	}
	return found
}

// emit hands out a change to a block, unless it is from before the recording.
func (p *programMemory) emit(what changeWhat, atNs int64, b *piece) {
	if b.origin == noOrigin {
		return
	}
	c := &p.change
	c.what, c.atNs, c.ptr, c.by = what, atNs, b.ptr, b.origin
	c.block = b.block()
	p.consume(p, c)
}

// block is a block as the program sees it.
func (b *piece) block() block { return block{bytes: b.requested, sinceNs: b.sinceNs, origin: b.origin} }

// each calls yield for everything that is live, in no order.
func (p *programMemory) each(yield func(ptr int64, b block)) {
	if p.driver != nil {
		p.driver.each(func(ptr int64, b block) {
			if !p.segments.has(b.number) {
				yield(ptr, b)
			}
		})
	}
	if p.allocators == nil {
		return
	}
	for _, a := range p.allocators.list {
		if a == nil {
			continue
		}
		a.each(func(b *piece) {
			if b.state == isBlock && b.origin != noOrigin {
				yield(b.ptr, b.block())
			}
		})
	}
}

// counts are what the replay of the driver's calls could not account for.
func (p *programMemory) counts() *replayCounts { return &p.driver.counts }

// hasMemory reports whether the recording has any row about memory.
func (t *Timeline) hasMemory() bool { return len(t.memory)+len(t.allocations) > 0 }

// firstMemoryNs is when memory was first asked for or given back.
func (t *Timeline) firstMemoryNs() (ns int64, ok bool) {
	for i, s := range slices.Concat(t.memory, t.allocations) {
		if i == 0 || s.firstNs < ns {
			ns = s.firstNs
		}
	}
	return ns, t.hasMemory()
}
