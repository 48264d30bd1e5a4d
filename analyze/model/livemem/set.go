package livemem

import (
	"cmp"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/addrmap"
	originpkg "github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// MappedAt returns the physical memory that is mapped around an address.
func (h *ProcessMemory) MappedAt(ptr int64) (b Block, ok bool) {
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
type Set struct {
	origins   *originpkg.Table
	endedWith func(origin int32, e *Event) bool // whether memory goes with a context that ends
	Processes []ProcessMemory                   // by origin.Table.Pids
	Counts    Counts
	borrowed  map[string]*BorrowCount // by kind of memory
	lastFree  []freeCall              // by origin.Table.threads
	change    Change                  // the one that is handed out
}

// New returns an empty ledger of the processes that origins name. endedWith reports
// whether an origin's memory goes with a context that ends.
func New(origins *originpkg.Table, endedWith func(origin int32, e *Event) bool) *Set {
	return &Set{origins: origins, endedWith: endedWith}
}

// ProcessMemory is what one process has.
type ProcessMemory struct {
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
func (s *Set) Each(yield func(ptr int64, b Block)) {
	for i := range s.Processes {
		s.Processes[i].Each(yield)
	}
}

// Each calls yield for every live block, in no order.
func (h *ProcessMemory) Each(yield func(ptr int64, b Block)) {
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
	Live    *Set
	Events  []Event // that are still to come
	Consume func(*Set, *Change)
	Exit    func(pid int32, atNs int64) // told when a process has ended; may be nil
}

// Call applies a call and the events before it.
func (r *Replay) Call(m *Call) {
	r.EventsBefore(m.AtNs)
	r.Live.apply(m, r.Consume)
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
	r.Live.event(e, r.Consume)
	if e.Kind == EventExit && r.Exit != nil {
		r.Exit(e.Pid, e.AtNs)
	}
	r.Events = r.Events[1:]
}

// holdings returns what the process has that an origin belongs to.
func (s *Set) processMemory(origin int32) *ProcessMemory {
	return s.OfProcess(s.origins.Process[origin])
}

// OfProcess returns the memory of a process by its number in origin.Table.Pids.
func (s *Set) OfProcess(number int32) *ProcessMemory {
	for len(s.Processes) <= int(number) {
		s.Processes = append(s.Processes, newProcessMemory())
	}
	return &s.Processes[number]
}

func newProcessMemory() ProcessMemory {
	return ProcessMemory{
		Handles: make(map[int64]*Handle), Borrowed: make(map[BorrowedName]int64), Foreign: make(map[int64]ForeignKind),
	}
}

// emit hands a change out; one is enough, and saves an allocation per call.
func (s *Set) emit(consume func(*Set, *Change), kind ChangeKind, atNs, ptr int64, b Block, by int32) {
	s.change = Change{kind, atNs, ptr, b, by}
	consume(s, &s.change)
}

func (s *Set) apply(m *Call, consume func(*Set, *Change)) {
	h := s.processMemory(m.Origin)
	switch m.Op {
	case OpFree:
		switch m.Space {
		case SpacePhysical:
			s.release(h, m, consume)
		case SpaceArray:
			s.free(h, &h.Arrays, m, consume)
		default:
			s.free(h, &h.Pointers, m, consume)
		}
	case OpAlloc:
		switch m.Space {
		case SpacePhysical:
			s.create(h, m, consume)
		case SpaceArray:
			s.alloc(&h.Arrays, m, consume)
		default:
			s.alloc(&h.Pointers, m, consume)
		}
	case OpAllocFailed:
		s.Counts.Failed++
		s.emit(
			consume,
			AllocFailed,
			m.AtNs,
			m.Handle,
			Block{Bytes: m.Bytes, SinceNs: m.AtNs, Origin: m.Origin},
			m.Origin,
		)
	case OpAllocUnknown:
		s.Counts.UnknownAllocs++
	case OpGraphAlloc:
		s.graphAlloc(h, m.Ptr, m.Bytes)
	case OpRetain:
		if mem := h.Handles[m.Ptr]; mem != nil {
			mem.Refs++
		}
	case OpMap:
		s.mapMemory(h, m, consume)
	case OpUnmap:
		s.unmap(h, m, consume)
	case OpBorrow:
		s.borrow(h, m)
	case OpReturn:
		s.giveBack(h, m)
	}
}

func (s *Set) alloc(blocks *addrmap.Map[Block], m *Call, consume func(*Set, *Change)) {
	if old, ok := blocks.Get(m.Ptr); ok {
		threads := s.origins.Thread
		if old.SinceNs >= m.startNs() && threads[old.Origin] == threads[m.Origin] {
			s.Counts.Nested++ // the call inside this one allocated it
			return
		}
		s.Counts.LostFrees++
		s.emit(consume, FreeLost, m.AtNs, m.Ptr, old, m.Origin)
		blocks.Delete(m.Ptr)
	}
	b := Block{m.Bytes, m.AtNs, m.Origin, int32(s.Counts.Allocs)}
	s.Counts.Allocs++
	s.emit(consume, Allocated, m.AtNs, m.Ptr, b, m.Origin)
	blocks.Set(m.Ptr, b)
}

func (s *Set) free(h *ProcessMemory, blocks *addrmap.Map[Block], m *Call, consume func(*Set, *Change)) {
	th := int(s.origins.Thread[m.Origin])
	for len(s.lastFree) <= th {
		s.lastFree = append(s.lastFree, freeCall{})
	}
	b, ok := blocks.Get(m.Ptr)
	if !ok {
		if last := &s.lastFree[th]; last.ptr == m.Ptr && m.AtNs <= last.endNs {
			s.Counts.Nested++ // the call around this one freed it
			return
		}
		if !h.freeForeign(m.Space, m.Ptr) && !s.freeImported(h, m) {
			s.Counts.UnmatchedFrees++
		}
	} else {
		s.Counts.Frees++
		s.emit(consume, Freed, m.AtNs, m.Ptr, b, m.Origin)
		blocks.Delete(m.Ptr)
	}
	s.lastFree[th] = freeCall{m.Ptr, units.EndOf(m.AtNs, m.DurNs)}
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
func (h *ProcessMemory) freeForeign(space Space, ptr int64) bool {
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
func (s *Set) graphAlloc(h *ProcessMemory, ptr, bytes int64) {
	s.Counts.GraphAllocs++
	s.Counts.GraphBytes += min(max(0, bytes), AddressSpace)
	if ptr != 0 {
		h.Foreign[ptr] = fromGraph
	}
}

// event applies what is told by other rows than those of memory calls.
func (s *Set) event(e *Event, consume func(*Set, *Change)) {
	h := s.OfProcess(originpkg.Numbered(s.origins.Pids, e.Pid))
	switch e.Kind {
	case EventExit:
		s.endProcess(h, e, consume)
	case EventContextEnd:
		kind := FreedWithCtx
		if e.Last {
			kind = FreedByExit
		}
		s.endContext(&h.Pointers, e, kind, consume)
		s.endContext(&h.Arrays, e, kind, consume)
	case EventGraphAlloc:
		s.graphAlloc(h, e.Ptr, e.Bytes)
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
func (s *Set) endProcess(h *ProcessMemory, e *Event, consume func(*Set, *Change)) {
	var ended []ending
	h.Each(func(ptr int64, b Block) { ended = append(ended, ending{ptr, b}) })
	s.end(ended, FreedByExit, e.AtNs, consume)
	*h = newProcessMemory()
}

// endContext ends what was allocated in a context.
func (s *Set) endContext(blocks *addrmap.Map[Block], e *Event, kind ChangeKind, consume func(*Set, *Change)) {
	var ended []ending
	blocks.Each(func(ptr int64, b Block) {
		if s.endedWith(b.Origin, e) {
			ended = append(ended, ending{ptr, b})
		}
	})
	s.end(ended, kind, e.AtNs, consume)
	for i := range ended {
		blocks.Delete(ended[i].ptr)
	}
}

// end emits the changes of blocks that end at the same moment, in the order in which they were allocated:
// charts leave out some changes of a moment, and must leave out the same ones every time.
func (s *Set) end(ended []ending, kind ChangeKind, atNs int64, consume func(*Set, *Change)) {
	slices.SortFunc(ended, func(a, b ending) int {
		return cmp.Or(cmp.Compare(a.block.Number, b.block.Number), cmp.Compare(a.ptr, b.ptr))
	})
	for _, m := range ended {
		s.emit(consume, kind, atNs, m.ptr, m.block, m.block.Origin)
	}
}

// IsHost reports whether memory of the kind is the host's.
func IsHost(kind string) bool {
	return kind == format.MemoryHost || kind == format.MemoryRegistered
}
