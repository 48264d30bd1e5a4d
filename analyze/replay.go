package analyze

import "github.com/gpurec/gpurec/format"

// block is a piece of live memory.
type block struct {
	bytes   int64
	sinceNs int64
	origin  int32 // of the call that allocated it
	number  int32 // how many were allocated before it, if it is the driver's: its name in all replays
}

// changeWhat says what a change did to the ledger.
type changeWhat uint8

const (
	allocated    changeWhat = iota
	freed                   // by a call
	freeLost                // ended unseen: its pointer was handed out again
	freedWithCtx            // its context ended, and the process went on allocating
	freedByExit             // its process, or the last context of that, ended
	allocFailed             // nothing became live
)

// change is one step of the replay. A consumer gets it before the ledger changes, and
// must not keep the pointer;
// what the end of a process or context frees comes in no order.
type change struct {
	what  changeWhat
	atNs  int64
	ptr   int64 // of allocFailed: the result
	block block // the memory that begins or ends; of allocFailed, what was asked for
	by    int32 // origin of the call; of freedWithCtx and freedByExit, the block's
}

// replayCounts are what the replay could not account for, and how often.
type replayCounts struct {
	// unmatchedFrees ended memory that was allocated before the recording began,
	// or whose allocation was lost.
	unmatchedFrees int64
	lostFrees      int64
	unknownAllocs  int64
	// nested calls did again what a call inside or around them did.
	nested int64
	allocs int64
	frees  int64
	failed int64
	// Memory that nodes of graphs allocate when the graph runs.
	graphAllocs, graphBytes int64
}

// ledger is the live memory at a moment of the replay, by process.
type ledger struct {
	origins   *originTable
	endedWith func(origin int32, e *memoryEvent) bool // whether memory goes with a context that ends
	processes []holdings                              // by originTable.pids
	counts    replayCounts
	borrowed  map[string]*borrowCount // by kind of memory
	lastFree  []freeCall              // by originTable.threads
	change    change                  // the one that is handed out
}

// newLedger returns an empty ledger of the processes that origins name. endedWith reports
// whether an origin's memory goes with a context that ends.
func newLedger(origins *originTable, endedWith func(origin int32, e *memoryEvent) bool) *ledger {
	return &ledger{origins: origins, endedWith: endedWith}
}

// holdings is what one process has.
type holdings struct {
	pointers ptrMap[block] // device and host share it: CUDA gives both out of one address space
	arrays   ptrMap[block]
	handles  map[int64]*handle
	mappings mappings
	borrowed map[borrowedName]int64
	// foreign are pointers that cuMemFree takes although no allocation returned them.
	foreign map[int64]foreignKind
}

// freeCall is a free of which the thread may not have returned yet.
type freeCall struct{ ptr, endNs int64 }

// each calls yield for every live block, in no order.
func (l *ledger) each(yield func(ptr int64, b block)) {
	for i := range l.processes {
		l.processes[i].each(yield)
	}
}

func (h *holdings) each(yield func(ptr int64, b block)) {
	h.pointers.each(yield)
	h.arrays.each(yield)
	for number, mem := range h.handles {
		if mem.borrows == 0 {
			yield(number, mem.block)
		}
	}
}

// replay runs all memory calls of the recording in order of effect and hands each
// change of the ledger to consume, before it is made. It returns the final ledger.
//
// The rules: failed, open and abandoned calls change nothing. A free of an unknown
// pointer ends memory from before the recording: it is counted and never makes bytes
// negative. An alloc that returns a live pointer proves that its free was lost. The
// end of a context frees what was allocated in it, the end of a process what it
// holds. Physical memory lives while it is referred to or mapped, whatever contexts
// there are. Where calls nest (a runtime call around the driver call that does the
// work) and both are recorded, the first of them to take effect counts and the other
// is the same memory.
func (t *Timeline) replay(consume func(*ledger, *change)) (*ledger, error) {
	r := memoryReplay{l: newLedger(&t.origins, t.endedWith), events: t.events, consume: consume}
	err := inOrder(t.memory, t.streamMemory(), func(m *memoryCall) error {
		r.call(m)
		return nil
	})
	r.finish()
	return r.l, t.wrap(err)
}

// memoryReplay runs memory calls, and what else changes memory in between.
type memoryReplay struct {
	l       *ledger
	events  []memoryEvent // that are still to come
	consume func(*ledger, *change)
	exit    func(pid int32, atNs int64) // told when a process has ended; may be nil
}

func (r *memoryReplay) call(m *memoryCall) {
	r.eventsBefore(m.atNs)
	r.l.apply(m, r.consume)
}

func (r *memoryReplay) eventsBefore(ns int64) {
	for len(r.events) > 0 && r.events[0].atNs < ns {
		r.event()
	}
}

func (r *memoryReplay) finish() {
	for len(r.events) > 0 {
		r.event()
	}
}

func (r *memoryReplay) event() {
	e := &r.events[0]
	r.l.event(e, r.consume)
	if e.what == eventExit && r.exit != nil {
		r.exit(e.pid, e.atNs)
	}
	r.events = r.events[1:]
}

// holdings returns what the process has that an origin belongs to.
func (l *ledger) holdings(origin int32) *holdings { return l.ofProcess(l.origins.process[origin]) }

func (l *ledger) ofProcess(number int32) *holdings {
	for len(l.processes) <= int(number) {
		l.processes = append(l.processes, newHoldings())
	}
	return &l.processes[number]
}

func newHoldings() holdings {
	return holdings{
		handles: make(map[int64]*handle), borrowed: make(map[borrowedName]int64), foreign: make(map[int64]foreignKind),
	}
}

// emit hands a change out; one is enough, and saves an allocation per call.
func (l *ledger) emit(consume func(*ledger, *change), what changeWhat, atNs, ptr int64, b block, by int32) {
	l.change = change{what, atNs, ptr, b, by}
	consume(l, &l.change)
}

func (l *ledger) apply(m *memoryCall, consume func(*ledger, *change)) {
	h := l.holdings(m.origin)
	switch m.what {
	case memFree:
		switch m.space {
		case spacePhysical:
			l.release(h, m, consume)
		case spaceArray:
			l.free(h, &h.arrays, m, consume)
		default:
			l.free(h, &h.pointers, m, consume)
		}
	case memAlloc:
		switch m.space {
		case spacePhysical:
			l.create(h, m, consume)
		case spaceArray:
			l.alloc(&h.arrays, m, consume)
		default:
			l.alloc(&h.pointers, m, consume)
		}
	case memAllocFailed:
		l.counts.failed++
		l.emit(consume, allocFailed, m.atNs, m.handle, block{bytes: m.bytes, sinceNs: m.atNs, origin: m.origin}, m.origin)
	case memAllocUnknown:
		l.counts.unknownAllocs++
	case memGraphAlloc:
		l.graphAlloc(h, m.ptr, m.bytes)
	case memRetain:
		if mem := h.handles[m.ptr]; mem != nil {
			mem.refs++
		}
	case memMap:
		l.mapMemory(h, m, consume)
	case memUnmap:
		l.unmap(h, m, consume)
	case memBorrow:
		l.borrow(h, m)
	case memReturn:
		l.giveBack(h, m)
	}
}

func (l *ledger) alloc(blocks *ptrMap[block], m *memoryCall, consume func(*ledger, *change)) {
	if old, ok := blocks.get(m.ptr); ok {
		threads := l.origins.thread
		if old.sinceNs >= m.startNs() && threads[old.origin] == threads[m.origin] {
			l.counts.nested++ // the call inside this one allocated it
			return
		}
		l.counts.lostFrees++
		l.emit(consume, freeLost, m.atNs, m.ptr, old, m.origin)
		blocks.delete(m.ptr)
	}
	b := block{m.bytes, m.atNs, m.origin, int32(l.counts.allocs)}
	l.counts.allocs++
	l.emit(consume, allocated, m.atNs, m.ptr, b, m.origin)
	blocks.set(m.ptr, b)
}

func (l *ledger) free(h *holdings, blocks *ptrMap[block], m *memoryCall, consume func(*ledger, *change)) {
	th := int(l.origins.thread[m.origin])
	for len(l.lastFree) <= th {
		l.lastFree = append(l.lastFree, freeCall{})
	}
	b, ok := blocks.get(m.ptr)
	if !ok {
		if last := &l.lastFree[th]; last.ptr == m.ptr && m.atNs <= last.endNs {
			l.counts.nested++ // the call around this one freed it
			return
		}
		if !h.freeForeign(m.space, m.ptr) && !l.freeImported(h, m) {
			l.counts.unmatchedFrees++
		}
	} else {
		l.counts.frees++
		l.emit(consume, freed, m.atNs, m.ptr, b, m.origin)
		blocks.delete(m.ptr)
	}
	l.lastFree[th] = freeCall{m.ptr, endOf(m.atNs, m.durNs)}
}

// foreignKind says where a pointer comes from that no allocation returned.
type foreignKind uint8

const (
	fromGraph         foreignKind = iota + 1 // comes back whenever the graph runs
	fromExternal                             // a buffer of another API
	fromExternalArray                        // an array of another API
)

// freeForeign reports whether the pointer is no memory of this ledger, and forgets it
// if it is freed for good.
func (h *holdings) freeForeign(space memorySpace, ptr int64) bool {
	kind, ok := h.foreign[ptr]
	if !ok || (kind == fromExternalArray) != (space == spaceArray) {
		return false
	}
	if kind != fromGraph {
		delete(h.foreign, ptr)
	}
	return true
}

// graphAlloc notes memory that a graph allocates when it runs: how often that is, and
// when it is free again, is not recorded.
func (l *ledger) graphAlloc(h *holdings, ptr, bytes int64) {
	l.counts.graphAllocs++
	l.counts.graphBytes += min(max(0, bytes), addressSpace)
	if ptr != 0 {
		h.foreign[ptr] = fromGraph
	}
}

// event applies what is told by other rows than those of memory calls.
func (l *ledger) event(e *memoryEvent, consume func(*ledger, *change)) {
	h := l.ofProcess(numbered(l.origins.pids, e.pid))
	switch e.what {
	case eventExit:
		h.each(func(ptr int64, b block) { l.emit(consume, freedByExit, e.atNs, ptr, b, b.origin) })
		*h = newHoldings()
	case eventContextEnd:
		what := freedWithCtx
		if e.last {
			what = freedByExit
		}
		l.endContext(&h.pointers, e, what, consume)
		l.endContext(&h.arrays, e, what, consume)
	case eventGraphAlloc:
		l.graphAlloc(h, e.ptr, e.bytes)
	case eventMappedBuffer:
		h.foreign[e.ptr] = fromExternal
	case eventMappedArray:
		h.foreign[e.ptr] = fromExternalArray
	}
}

// endContext ends what was allocated in a context.
func (l *ledger) endContext(blocks *ptrMap[block], e *memoryEvent, what changeWhat, consume func(*ledger, *change)) {
	var ended []int64
	blocks.each(func(ptr int64, b block) {
		if l.endedWith(b.origin, e) {
			ended = append(ended, ptr)
		}
	})
	for _, ptr := range ended {
		b, _ := blocks.get(ptr)
		l.emit(consume, what, e.atNs, ptr, b, b.origin)
		blocks.delete(ptr)
	}
}

// isHost reports whether memory of the kind is the host's.
func isHost(kind string) bool {
	return kind == format.MemoryHost || kind == format.MemoryRegistered
}
