package livemem

import (
	"cmp"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/addrmap"
	"github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// MappedAt returns the physical memory that is mapped at an address. The second result is false if
// nothing is mapped there.
func (h *ProcessMemory) MappedAt(ptr int64) (b Block, ok bool) {
	b.Origin = origin.None
	h.Mappings.Overlapping(ptr, units.EndOf(ptr, 1), func(m Mapping) {
		ok = true
		if m.Handle != nil {
			b = m.Handle.Block
		}
	})
	return b, ok
}

// Block is one piece of live memory: an allocation of the driver, or the memory of a physical
// handle.
type Block struct {
	Bytes   int64 // size of the block
	SinceNs int64 // when the allocation returned, Unix ns
	Origin  int32 // number of the allocating call's origin, or origin.None
	Number  int32 // sequence number of the allocation, the same in every replay of a recording
}

// ChangeKind is the kind of a replay step: an allocation, a failed allocation, or a way in which
// memory ends.
type ChangeKind uint8

const (
	Allocated ChangeKind = iota // an allocation succeeded
	Freed                       // a call freed the memory
	// the free was not recorded: the driver returned the same address or handle again
	FreeLost
	// the block's context was destroyed, and the process allocated more afterwards
	FreedWithCtx
	FreedByExit // the process ended, or destroyed its last context
	AllocFailed // an allocation failed, and no memory became live
)

// Change is one step of the replay. The consumer gets it before the Set is updated, and must not
// keep the pointer. Blocks that end with a process or a context come in the order of their
// allocation.
type Change struct {
	Kind  ChangeKind
	AtNs  int64 // when the change takes effect, Unix ns
	Ptr   int64 // address or handle; for AllocFailed the CUDA result
	Block Block // the block that begins or ends; for AllocFailed the requested size
	By    int32 // origin of the call; for FreedWithCtx and FreedByExit the origin of the block
}

// Counts are totals of a replay: allocations, frees, and events that the replay could not match.
type Counts struct {
	// UnmatchedFrees counts frees of memory that was allocated before the recording, or whose
	// allocation record was lost.
	UnmatchedFrees int64
	LostFrees      int64 // frees that must have happened, but were not recorded
	UnknownAllocs  int64 // allocations whose address is unknown
	// Nested counts calls that repeat a call inside them or around them, as cudaMalloc inside a
	// wrapper.
	Nested int64
	Allocs int64 // successful allocations
	Frees  int64 // successful frees
	Failed int64 // failed allocations
	// GraphAllocs and GraphBytes count the memory that nodes of CUDA graphs allocate when the graph
	// runs.
	GraphAllocs, GraphBytes int64
}

// Set holds the live driver memory of all processes at one point of a replay. It is not safe for
// concurrent use.
type Set struct {
	origins   *origin.Table
	endedWith func(originID int32, e *Event) bool // reports whether the context's end frees the block
	Processes []ProcessMemory                     // by process number, as in origin.Table.Pids
	Counts    Counts                              // totals of the replay so far
	borrowed  map[string]*BorrowCount             // borrowed memory by memory kind
	// latest free of each thread, by thread number as in origin.Table
	lastFree []freeCall
	// reused for every step, to save an allocation per call
	change Change
}

// New returns an empty Set for the processes in origins. endedWith reports whether the end of a
// context frees the memory of an origin.
func New(origins *origin.Table, endedWith func(originID int32, e *Event) bool) *Set {
	return &Set{origins: origins, endedWith: endedWith}
}

// ProcessMemory is the live memory of one process.
type ProcessMemory struct {
	Pointers addrmap.Map[Block]     // device and host memory: CUDA uses one address space for both
	Arrays   addrmap.Map[Block]     // memory of CUDA arrays, by handle
	Handles  map[int64]*Handle      // physical memory of cuMemCreate, by handle
	Mappings Mappings               // address ranges with physical memory behind them
	Borrowed map[BorrowedName]int64 // how often each imported piece of memory is open
	// Foreign holds pointers that cuMemFree accepts although no allocation returned them.
	Foreign map[int64]ForeignKind
}

// freeCall is the latest free of a thread. A nested free of the same pointer ends before endNs.
type freeCall struct{ ptr, endNs int64 }

// Each calls yield for every live block of all processes, in no order.
func (s *Set) Each(yield func(ptr int64, b Block)) {
	for i := range s.Processes {
		s.Processes[i].Each(yield)
	}
}

// Each calls yield for every live block of the process, in no order. Imported memory is left out.
func (h *ProcessMemory) Each(yield func(ptr int64, b Block)) {
	h.Pointers.Each(yield)
	h.Arrays.Each(yield)
	for number, mem := range h.Handles {
		if mem.Borrows == 0 {
			yield(number, mem.Block)
		}
	}
}

// Replay applies memory calls and the events between them to a Set, in order of time.
type Replay struct {
	Live    *Set                        // live memory that the replay updates
	Events  []Event                     // events that are not applied yet, in order of time
	Consume func(*Set, *Change)         // called with every change, before it is applied
	Exit    func(pid int32, atNs int64) // called after a process has ended; may be nil
}

// Call applies all events before the call, then the call.
func (r *Replay) Call(m *Call) {
	r.EventsBefore(m.AtNs)
	r.Live.apply(m, r.Consume)
}

// EventsBefore applies the events before a time (Unix ns).
func (r *Replay) EventsBefore(ns int64) {
	for len(r.Events) > 0 && r.Events[0].AtNs < ns {
		r.event()
	}
}

// Finish applies all remaining events.
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

// processMemory returns the memory of the process that an origin belongs to.
func (s *Set) processMemory(originID int32) *ProcessMemory {
	return s.OfProcess(s.origins.Process[originID])
}

// OfProcess returns the memory of the process with this number in origin.Table.Pids.
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

// emit passes a change to consume. All changes share one value, which saves an allocation per call.
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
			s.Counts.Nested++ // a call inside this one allocated the block, and was recorded too
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
			s.Counts.Nested++ // a call around this one freed the block, and was recorded too
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

// ForeignKind is the source of a pointer that no recorded allocation returned, such as a graph.
type ForeignKind uint8

const (
	fromGraph         ForeignKind = iota + 1 // memory of a graph: allocated again at each launch
	fromExternal                             // a buffer imported from another API
	fromExternalArray                        // an array imported from another API
)

// freeForeign reports whether the pointer is memory that this Set does not track. It forgets the
// pointer unless a graph allocates it again.
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

// graphAlloc counts memory that a graph allocates when it runs. How often the graph allocates and
// frees it is not recorded.
func (s *Set) graphAlloc(h *ProcessMemory, ptr, bytes int64) {
	s.Counts.GraphAllocs++
	s.Counts.GraphBytes += min(max(0, bytes), AddressSpace)
	if ptr != 0 {
		h.Foreign[ptr] = fromGraph
	}
}

// event applies an event that is not a memory call, such as the end of a context.
func (s *Set) event(e *Event, consume func(*Set, *Change)) {
	h := s.OfProcess(origin.Numbered(s.origins.Pids, e.Pid))
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

// ending is a block that ends with its process or context.
type ending struct {
	ptr   int64
	block Block
}

// endProcess ends all live memory of a process.
func (s *Set) endProcess(h *ProcessMemory, e *Event, consume func(*Set, *Change)) {
	var ended []ending
	h.Each(func(ptr int64, b Block) { ended = append(ended, ending{ptr, b}) })
	s.end(ended, FreedByExit, e.AtNs, consume)
	*h = newProcessMemory()
}

// endContext ends the blocks that were allocated in a context.
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

// end emits the changes of blocks that end at the same time, in the order of their allocation.
// Charts drop some changes of one point in time, and must drop the same ones in every replay.
func (s *Set) end(ended []ending, kind ChangeKind, atNs int64, consume func(*Set, *Change)) {
	slices.SortFunc(ended, func(a, b ending) int {
		return cmp.Or(cmp.Compare(a.block.Number, b.block.Number), cmp.Compare(a.ptr, b.ptr))
	})
	for _, m := range ended {
		s.emit(consume, kind, atNs, m.ptr, m.block, m.block.Origin)
	}
}

// IsHost reports whether a memory kind is host memory: pinned or registered.
func IsHost(kind string) bool {
	return kind == format.MemoryHost || kind == format.MemoryRegistered
}
