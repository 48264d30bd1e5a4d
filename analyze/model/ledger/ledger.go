package ledger

import (
	"cmp"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/addrmap"
	originpkg "github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// MappedAt returns the physical memory that is mapped around an address.
func (h *Holdings) MappedAt(ptr int64) (b Block, ok bool) {
	b.Origin = originpkg.None
	h.Mappings.Overlapping(ptr, units.EndOf(ptr, 1), func(m Mapping) {
		ok = true
		if m.Handle != nil {
			b = m.Handle.Block
		}
	})
	return b, ok
}

// Block is a piece of live memory.
type Block struct {
	Bytes   int64
	SinceNs int64
	Origin  int32 // of the call that allocated it
	Number  int32 // how many were allocated before it, if it is the driver's: its name in all replays
}

// ChangeKind says what a change did to the ledger.
type ChangeKind uint8

const (
	Allocated    ChangeKind = iota
	Freed                   // by a call
	FreeLost                // ended unseen: its pointer was handed out again
	FreedWithCtx            // its context ended, and the process went on allocating
	FreedByExit             // its process, or the last context of that, ended
	AllocFailed             // nothing became live
)

// Change is one step of the replay. A consumer gets it before the ledger changes, and
// must not keep the pointer;
// what the end of a process or context frees comes in no order.
type Change struct {
	Kind  ChangeKind
	AtNs  int64
	Ptr   int64 // of AllocFailed: the result
	Block Block // the memory that begins or ends; of AllocFailed, what was asked for
	By    int32 // origin of the call; of FreedWithCtx and FreedByExit, the block's
}

// Counts are what the replay could not account for, and how often.
type Counts struct {
	// UnmatchedFrees ended memory that was allocated before the recording began,
	// or whose allocation was lost.
	UnmatchedFrees int64
	LostFrees      int64
	UnknownAllocs  int64
	// Nested calls did again what a call inside or around them did.
	Nested int64
	Allocs int64
	Frees  int64
	Failed int64
	// Memory that nodes of graphs allocate when the graph runs.
	GraphAllocs, GraphBytes int64
}

// Ledger is the live memory at a moment of the replay, by process.
type Ledger struct {
	origins   *originpkg.Table
	endedWith func(origin int32, e *Event) bool // whether memory goes with a context that ends
	Processes []Holdings                        // by origin.Table.Pids
	Counts    Counts
	borrowed  map[string]*BorrowCount // by kind of memory
	lastFree  []freeCall              // by origin.Table.threads
	change    Change                  // the one that is handed out
}

// New returns an empty ledger of the processes that origins name. endedWith reports
// whether an origin's memory goes with a context that ends.
func New(origins *originpkg.Table, endedWith func(origin int32, e *Event) bool) *Ledger {
	return &Ledger{origins: origins, endedWith: endedWith}
}

// Holdings is what one process has.
type Holdings struct {
	Pointers addrmap.Map[Block] // device and host share it: CUDA gives both out of one address space
	Arrays   addrmap.Map[Block]
	Handles  map[int64]*Handle
	Mappings Mappings
	Borrowed map[BorrowedName]int64
	// Foreign are pointers that cuMemFree takes although no allocation returned them.
	Foreign map[int64]ForeignKind
}

// freeCall is a free of which the thread may not have returned yet.
type freeCall struct{ ptr, endNs int64 }

// Each calls yield for every live block, in no order.
func (l *Ledger) Each(yield func(ptr int64, b Block)) {
	for i := range l.Processes {
		l.Processes[i].Each(yield)
	}
}

// Each calls yield for every live block, in no order.
func (h *Holdings) Each(yield func(ptr int64, b Block)) {
	h.Pointers.Each(yield)
	h.Arrays.Each(yield)
	for number, mem := range h.Handles {
		if mem.Borrows == 0 {
			yield(number, mem.Block)
		}
	}
}

// Replay runs memory calls, and what else changes memory in between.
type Replay struct {
	Ledger  *Ledger
	Events  []Event // that are still to come
	Consume func(*Ledger, *Change)
	Exit    func(pid int32, atNs int64) // told when a process has ended; may be nil
}

// Call applies a call and the events before it.
func (r *Replay) Call(m *Call) {
	r.EventsBefore(m.AtNs)
	r.Ledger.apply(m, r.Consume)
}

// EventsBefore applies the events before a moment.
func (r *Replay) EventsBefore(ns int64) {
	for len(r.Events) > 0 && r.Events[0].AtNs < ns {
		r.event()
	}
}

// Finish applies the events that are left.
func (r *Replay) Finish() {
	for len(r.Events) > 0 {
		r.event()
	}
}

func (r *Replay) event() {
	e := &r.Events[0]
	r.Ledger.event(e, r.Consume)
	if e.Kind == EventExit && r.Exit != nil {
		r.Exit(e.Pid, e.AtNs)
	}
	r.Events = r.Events[1:]
}

// holdings returns what the process has that an origin belongs to.
func (l *Ledger) holdings(origin int32) *Holdings { return l.OfProcess(l.origins.Process[origin]) }

// OfProcess returns the memory of a process by its number in origin.Table.Pids.
func (l *Ledger) OfProcess(number int32) *Holdings {
	for len(l.Processes) <= int(number) {
		l.Processes = append(l.Processes, newHoldings())
	}
	return &l.Processes[number]
}

func newHoldings() Holdings {
	return Holdings{
		Handles: make(map[int64]*Handle), Borrowed: make(map[BorrowedName]int64), Foreign: make(map[int64]ForeignKind),
	}
}

// emit hands a change out; one is enough, and saves an allocation per call.
func (l *Ledger) emit(consume func(*Ledger, *Change), what ChangeKind, atNs, ptr int64, b Block, by int32) {
	l.change = Change{what, atNs, ptr, b, by}
	consume(l, &l.change)
}

func (l *Ledger) apply(m *Call, consume func(*Ledger, *Change)) {
	h := l.holdings(m.Origin)
	switch m.Op {
	case OpFree:
		switch m.Space {
		case SpacePhysical:
			l.release(h, m, consume)
		case SpaceArray:
			l.free(h, &h.Arrays, m, consume)
		default:
			l.free(h, &h.Pointers, m, consume)
		}
	case OpAlloc:
		switch m.Space {
		case SpacePhysical:
			l.create(h, m, consume)
		case SpaceArray:
			l.alloc(&h.Arrays, m, consume)
		default:
			l.alloc(&h.Pointers, m, consume)
		}
	case OpAllocFailed:
		l.Counts.Failed++
		l.emit(
			consume,
			AllocFailed,
			m.AtNs,
			m.Handle,
			Block{Bytes: m.Bytes, SinceNs: m.AtNs, Origin: m.Origin},
			m.Origin,
		)
	case OpAllocUnknown:
		l.Counts.UnknownAllocs++
	case OpGraphAlloc:
		l.graphAlloc(h, m.Ptr, m.Bytes)
	case OpRetain:
		if mem := h.Handles[m.Ptr]; mem != nil {
			mem.Refs++
		}
	case OpMap:
		l.mapMemory(h, m, consume)
	case OpUnmap:
		l.unmap(h, m, consume)
	case OpBorrow:
		l.borrow(h, m)
	case OpReturn:
		l.giveBack(h, m)
	}
}

func (l *Ledger) alloc(blocks *addrmap.Map[Block], m *Call, consume func(*Ledger, *Change)) {
	if old, ok := blocks.Get(m.Ptr); ok {
		threads := l.origins.Thread
		if old.SinceNs >= m.startNs() && threads[old.Origin] == threads[m.Origin] {
			l.Counts.Nested++ // the call inside this one allocated it
			return
		}
		l.Counts.LostFrees++
		l.emit(consume, FreeLost, m.AtNs, m.Ptr, old, m.Origin)
		blocks.Delete(m.Ptr)
	}
	b := Block{m.Bytes, m.AtNs, m.Origin, int32(l.Counts.Allocs)}
	l.Counts.Allocs++
	l.emit(consume, Allocated, m.AtNs, m.Ptr, b, m.Origin)
	blocks.Set(m.Ptr, b)
}

func (l *Ledger) free(h *Holdings, blocks *addrmap.Map[Block], m *Call, consume func(*Ledger, *Change)) {
	th := int(l.origins.Thread[m.Origin])
	for len(l.lastFree) <= th {
		l.lastFree = append(l.lastFree, freeCall{})
	}
	b, ok := blocks.Get(m.Ptr)
	if !ok {
		if last := &l.lastFree[th]; last.ptr == m.Ptr && m.AtNs <= last.endNs {
			l.Counts.Nested++ // the call around this one freed it
			return
		}
		if !h.freeForeign(m.Space, m.Ptr) && !l.freeImported(h, m) {
			l.Counts.UnmatchedFrees++
		}
	} else {
		l.Counts.Frees++
		l.emit(consume, Freed, m.AtNs, m.Ptr, b, m.Origin)
		blocks.Delete(m.Ptr)
	}
	l.lastFree[th] = freeCall{m.Ptr, units.EndOf(m.AtNs, m.DurNs)}
}

// ForeignKind says where a pointer comes from that no allocation returned.
type ForeignKind uint8

const (
	fromGraph         ForeignKind = iota + 1 // comes back whenever the graph runs
	fromExternal                             // a buffer of another API
	fromExternalArray                        // an array of another API
)

// freeForeign reports whether the pointer is no memory of this ledger, and forgets it
// if it is freed for good.
func (h *Holdings) freeForeign(space Space, ptr int64) bool {
	kind, ok := h.Foreign[ptr]
	if !ok || (kind == fromExternalArray) != (space == SpaceArray) {
		return false
	}
	if kind != fromGraph {
		delete(h.Foreign, ptr)
	}
	return true
}

// graphAlloc notes memory that a graph allocates when it runs: how often that is, and
// when it is free again, is not recorded.
func (l *Ledger) graphAlloc(h *Holdings, ptr, bytes int64) {
	l.Counts.GraphAllocs++
	l.Counts.GraphBytes += min(max(0, bytes), AddressSpace)
	if ptr != 0 {
		h.Foreign[ptr] = fromGraph
	}
}

// event applies what is told by other rows than those of memory calls.
func (l *Ledger) event(e *Event, consume func(*Ledger, *Change)) {
	h := l.OfProcess(originpkg.Numbered(l.origins.Pids, e.Pid))
	switch e.Kind {
	case EventExit:
		l.endProcess(h, e, consume)
	case EventContextEnd:
		what := FreedWithCtx
		if e.Last {
			what = FreedByExit
		}
		l.endContext(&h.Pointers, e, what, consume)
		l.endContext(&h.Arrays, e, what, consume)
	case EventGraphAlloc:
		l.graphAlloc(h, e.Ptr, e.Bytes)
	case EventMappedBuffer:
		h.Foreign[e.Ptr] = fromExternal
	case EventMappedArray:
		h.Foreign[e.Ptr] = fromExternalArray
	}
}

// ending is a block that a process or a context takes with it when it ends.
type ending struct {
	ptr   int64
	block Block
}

// endProcess ends all that a process has.
func (l *Ledger) endProcess(h *Holdings, e *Event, consume func(*Ledger, *Change)) {
	var ended []ending
	h.Each(func(ptr int64, b Block) { ended = append(ended, ending{ptr, b}) })
	l.end(ended, FreedByExit, e.AtNs, consume)
	*h = newHoldings()
}

// endContext ends what was allocated in a context.
func (l *Ledger) endContext(blocks *addrmap.Map[Block], e *Event, what ChangeKind, consume func(*Ledger, *Change)) {
	var ended []ending
	blocks.Each(func(ptr int64, b Block) {
		if l.endedWith(b.Origin, e) {
			ended = append(ended, ending{ptr, b})
		}
	})
	l.end(ended, what, e.AtNs, consume)
	for i := range ended {
		blocks.Delete(ended[i].ptr)
	}
}

// end emits the changes of blocks that end at the same moment, in the order in which they were allocated:
// charts leave out some changes of a moment, and must leave out the same ones every time.
func (l *Ledger) end(ended []ending, what ChangeKind, atNs int64, consume func(*Ledger, *Change)) {
	slices.SortFunc(ended, func(a, b ending) int {
		return cmp.Or(cmp.Compare(a.block.Number, b.block.Number), cmp.Compare(a.ptr, b.ptr))
	})
	for _, m := range ended {
		l.emit(consume, what, atNs, m.ptr, m.block, m.block.Origin)
	}
}

// IsHost reports whether memory of the kind is the host's.
func IsHost(kind string) bool {
	return kind == format.MemoryHost || kind == format.MemoryRegistered
}
