package livemem

import (
	"cmp"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/addrmap"
	"github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// MappedBlockAt returns the physical memory that is mapped at an address. The second result is
// false if nothing is mapped there.
func (p *ProcessMemory) MappedBlockAt(ptr int64) (b Block, ok bool) {
	b.Origin = origin.NoOrigin
	p.Mappings.EachOverlapping(ptr, units.EndOfRange(ptr, 1), func(m Mapping) {
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
	SinceNs int64 // when the allocation returned, Unix ns; 0: before the recording
	Origin  int32 // number of the allocating call's origin, or origin.NoOrigin
	// Number is the sequence number of the allocation, the same in every replay of a recording. It is EarlierNumber for
	// memory from before the recording.
	Number int32
}

// EarlierNumber is the Block.Number of driver memory from before the recording. It is always a segment of a caching
// allocator.
const EarlierNumber = -1

// IsEarlier reports whether the memory is known to be from before the recording.
func (b *Block) IsEarlier() bool { return b.SinceNs == 0 }

// ChangeKind is the kind of a replay step: an allocation, a failed allocation, or a way in which
// memory ends.
type ChangeKind uint8

const (
	// ChangeAllocated: an allocation succeeded. Memory from before the recording gets this change, too, before the
	// changes of recorded calls: see Block.IsEarlier.
	ChangeAllocated ChangeKind = iota
	ChangeFreed                // a call freed the memory
	// ChangeFreeLost: the free was not recorded, but the driver returned the same address or handle again.
	ChangeFreeLost
	// ChangeFreedWithContext: the block's context was destroyed, and the process allocated more afterwards.
	ChangeFreedWithContext
	ChangeFreedByExit // the process ended, or destroyed its last context
	ChangeAllocFailed // an allocation failed, and no memory became live
)

// Change is one step of the replay. The consumer gets it before the Set is updated, and must not
// keep the pointer. Blocks that end with a process or a context come in the order of their
// allocation.
type Change struct {
	Kind  ChangeKind
	AtNs  int64 // when the change takes effect, Unix ns
	Ptr   int64 // address or handle; for ChangeAllocFailed the CUDA result
	Block Block // the block that begins or ends; for ChangeAllocFailed the requested size
	By    int32 // origin of the call; for ChangeFreedWithContext and ChangeFreedByExit the origin of the block
	DurNs int64 // duration of the call, ns; 0 for ChangeFreedWithContext and ChangeFreedByExit
}

// ReplayCounts are totals of a replay: allocations, frees, and events that the replay could not
// match.
type ReplayCounts struct {
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
	origins   *origin.OriginTable
	endedWith func(originID int32, e *MemoryEvent) bool // reports whether the context's end frees the block
	Processes []ProcessMemory                           // by process number, as in origin.OriginTable.Pids
	Counts    ReplayCounts                              // totals of the replay so far
	borrowed  map[string]*BorrowCount                   // borrowed memory by memory kind
	// latest free of each thread, by thread number as in origin.OriginTable
	lastFree []threadFree
	// the change value is reused for every call, to save an allocation
	change Change
}

// New returns an empty Set for the processes in origins. endedWith reports whether the end of a
// context frees the memory of an origin.
func New(origins *origin.OriginTable, endedWith func(originID int32, e *MemoryEvent) bool) *Set {
	return &Set{origins: origins, endedWith: endedWith}
}

// ProcessMemory is the live memory of one process.
type ProcessMemory struct {
	Pointers addrmap.Map[Block]        // device and host memory: CUDA uses one address space for both
	Arrays   addrmap.Map[Block]        // memory of CUDA arrays, by handle
	Handles  map[int64]*PhysicalHandle // physical memory of cuMemCreate, by handle
	Mappings Mappings                  // address ranges with physical memory behind them
	Borrowed map[BorrowedKey]int64     // how often each imported piece of memory is open
	// Foreign holds pointers that cuMemFree accepts although no allocation returned them.
	Foreign map[int64]ForeignPointerKind
	// unmapped is the number of handles from before the recording that were unmapped and not released since.
	unmapped int64
}

// threadFree is the latest free of a thread. A nested free of the same pointer ends before endNs.
type threadFree struct{ ptr, endNs int64 }

// EachBlock calls yield for every live block of all processes, in no order.
func (s *Set) EachBlock(yield func(ptr int64, b Block)) {
	for i := range s.Processes {
		s.Processes[i].EachBlock(yield)
	}
}

// EachBlock calls yield for every live block of the process, in no order. Imported memory is left
// out.
func (p *ProcessMemory) EachBlock(yield func(ptr int64, b Block)) {
	p.Pointers.EachAddress(yield)
	p.Arrays.EachAddress(yield)
	for number, mem := range p.Handles {
		if mem.Borrows == 0 {
			yield(number, mem.Block)
		}
	}
}

// MemoryReplay applies memory calls and the events between them to a Set, in order of time.
type MemoryReplay struct {
	Live    *Set                        // live memory that the replay updates
	Events  []MemoryEvent               // events that are not applied yet, in order of time
	Consume func(*Set, *Change)         // called with every change, before it is applied
	Exit    func(pid int32, atNs int64) // called after a process has ended; may be nil
}

// ApplyCall applies all events before the call, then the call.
func (r *MemoryReplay) ApplyCall(m *MemoryCall) {
	r.ApplyEventsBefore(m.AtNs)
	r.Live.applyCall(m, r.Consume)
}

// ApplyEventsBefore applies the events before a time (Unix ns).
func (r *MemoryReplay) ApplyEventsBefore(ns int64) {
	for len(r.Events) > 0 && r.Events[0].AtNs < ns {
		r.applyNextEvent()
	}
}

// ApplyRemainingEvents applies all remaining events.
func (r *MemoryReplay) ApplyRemainingEvents() {
	for len(r.Events) > 0 {
		r.applyNextEvent()
	}
}

func (r *MemoryReplay) applyNextEvent() {
	e := &r.Events[0]
	r.Live.applyEvent(e, r.Consume)
	if e.Kind == EventProcessExit && r.Exit != nil {
		r.Exit(e.Pid, e.AtNs)
	}
	r.Events = r.Events[1:]
}

// memoryOfOrigin returns the memory of the process that an origin belongs to.
func (s *Set) memoryOfOrigin(originID int32) *ProcessMemory {
	return s.MemoryOfProcess(s.origins.Process[originID])
}

// MemoryOfProcess returns the memory of the process with this number in origin.OriginTable.Pids.
func (s *Set) MemoryOfProcess(number int32) *ProcessMemory {
	for len(s.Processes) <= int(number) {
		s.Processes = append(s.Processes, newProcessMemory())
	}
	return &s.Processes[number]
}

func newProcessMemory() ProcessMemory {
	return ProcessMemory{
		Handles: make(
			map[int64]*PhysicalHandle,
		),
		Borrowed: make(map[BorrowedKey]int64),
		Foreign:  make(map[int64]ForeignPointerKind),
	}
}

// emitChange passes a change that a call made to consume. All changes share one value, which saves an
// allocation per call.
func (s *Set) emitChange(consume func(*Set, *Change), kind ChangeKind, m *MemoryCall, ptr int64, b Block) {
	s.change = Change{kind, m.AtNs, ptr, b, m.Origin, m.DurNs}
	consume(s, &s.change)
}

func (s *Set) applyCall(m *MemoryCall, consume func(*Set, *Change)) {
	h := s.memoryOfOrigin(m.Origin)
	switch m.Op {
	case OpFree:
		switch m.Space {
		case SpacePhysical:
			s.releaseHandle(h, m, consume)
		case SpaceArray:
			s.freeBlock(h, &h.Arrays, m, consume)
		default:
			s.freeBlock(h, &h.Pointers, m, consume)
		}
	case OpAlloc:
		switch m.Space {
		case SpacePhysical:
			s.createHandle(h, m, consume)
		case SpaceArray:
			s.allocBlock(&h.Arrays, m, consume)
		default:
			s.allocBlock(&h.Pointers, m, consume)
		}
	case OpAllocFailed:
		s.Counts.Failed++
		s.emitChange(
			consume,
			ChangeAllocFailed,
			m,
			m.Handle,
			Block{Bytes: m.Bytes, SinceNs: m.AtNs, Origin: m.Origin},
		)
	case OpAllocUnknownAddress:
		s.Counts.UnknownAllocs++
	case OpGraphAlloc:
		s.countGraphAlloc(h, m.Ptr, m.Bytes)
	case OpRetainHandle:
		if mem := h.Handles[m.Ptr]; mem != nil {
			mem.Refs++
		}
	case OpMapHandle:
		s.mapMemory(h, m, consume)
	case OpUnmap:
		s.unmapAddresses(h, m, consume)
	case OpOpenBorrowed:
		s.openBorrowed(h, m)
	case OpCloseBorrowed:
		s.closeBorrowed(h, m)
	}
}

func (s *Set) allocBlock(blocks *addrmap.Map[Block], m *MemoryCall, consume func(*Set, *Change)) {
	if old, ok := blocks.Get(m.Ptr); ok {
		threads := s.origins.Thread
		if old.SinceNs >= m.startNs() && threads[old.Origin] == threads[m.Origin] {
			s.Counts.Nested++ // a call inside this one allocated the block, and was recorded too
			return
		}
		s.Counts.LostFrees++
		s.emitChange(consume, ChangeFreeLost, m, m.Ptr, old)
		blocks.Delete(m.Ptr)
	}
	b := Block{m.Bytes, m.AtNs, m.Origin, int32(s.Counts.Allocs)}
	s.Counts.Allocs++
	s.emitChange(consume, ChangeAllocated, m, m.Ptr, b)
	blocks.Set(m.Ptr, b)
}

func (s *Set) freeBlock(h *ProcessMemory, blocks *addrmap.Map[Block], m *MemoryCall, consume func(*Set, *Change)) {
	th := int(s.origins.Thread[m.Origin])
	for len(s.lastFree) <= th {
		s.lastFree = append(s.lastFree, threadFree{})
	}
	b, ok := blocks.Get(m.Ptr)
	if !ok {
		if last := &s.lastFree[th]; last.ptr == m.Ptr && m.AtNs <= last.endNs {
			s.Counts.Nested++ // a call around this one freed the block, and was recorded too
			return
		}
		if !h.forgetForeignPointer(m.Space, m.Ptr) && !s.freeImported(h, m) {
			s.Counts.UnmatchedFrees++
		}
	} else {
		s.Counts.Frees++
		s.emitChange(consume, ChangeFreed, m, m.Ptr, b)
		blocks.Delete(m.Ptr)
	}
	s.lastFree[th] = threadFree{m.Ptr, units.EndOfRange(m.AtNs, m.DurNs)}
}

// ForeignPointerKind is the source of a pointer that no recorded allocation returned, such as a
// graph.
type ForeignPointerKind uint8

const (
	foreignFromGraph  ForeignPointerKind = iota + 1 // memory of a graph: allocated again at each launch
	foreignFromBuffer                               // a buffer imported from another API
	foreignFromArray                                // an array imported from another API
)

// forgetForeignPointer reports whether the pointer is memory that this Set does not track. It
// forgets the pointer unless a graph allocates it again.
func (p *ProcessMemory) forgetForeignPointer(space NumberSpace, ptr int64) bool {
	kind, ok := p.Foreign[ptr]
	if !ok || (kind == foreignFromArray) != (space == SpaceArray) {
		return false
	}
	if kind != foreignFromGraph {
		delete(p.Foreign, ptr)
	}
	return true
}

// countGraphAlloc counts memory that a graph allocates when it runs. How often the graph allocates
// and frees it is not recorded.
func (s *Set) countGraphAlloc(h *ProcessMemory, ptr, bytes int64) {
	s.Counts.GraphAllocs++
	s.Counts.GraphBytes += min(max(0, bytes), MaxAllocBytes)
	if ptr != 0 {
		h.Foreign[ptr] = foreignFromGraph
	}
}

// applyEvent applies an event that is not a memory call, such as the end of a context.
func (s *Set) applyEvent(e *MemoryEvent, consume func(*Set, *Change)) {
	h := s.MemoryOfProcess(origin.NumberOfKey(s.origins.Pids, e.Pid))
	switch e.Kind {
	case EventProcessExit:
		s.endProcess(h, e, consume)
	case EventContextEnd:
		kind := ChangeFreedWithContext
		if e.Last {
			kind = ChangeFreedByExit
		}
		s.endContext(&h.Pointers, e, kind, consume)
		s.endContext(&h.Arrays, e, kind, consume)
	case EventGraphAlloc:
		s.countGraphAlloc(h, e.Ptr, e.Bytes)
	case EventMappedBuffer:
		h.Foreign[e.Ptr] = foreignFromBuffer
	case EventMappedArray:
		h.Foreign[e.Ptr] = foreignFromArray
	case EventEarlierSegment:
		s.addEarlierSegment(h, e, consume)
	}
}

// endedBlock is a block that ends with its process or context.
type endedBlock struct {
	ptr   int64
	block Block
}

// endProcess ends all live memory of a process.
func (s *Set) endProcess(h *ProcessMemory, e *MemoryEvent, consume func(*Set, *Change)) {
	var ended []endedBlock
	h.EachBlock(func(ptr int64, b Block) { ended = append(ended, endedBlock{ptr, b}) })
	s.endBlocks(ended, ChangeFreedByExit, e.AtNs, consume)
	*h = newProcessMemory()
}

// endContext ends the blocks that were allocated in a context.
func (s *Set) endContext(blocks *addrmap.Map[Block], e *MemoryEvent, kind ChangeKind, consume func(*Set, *Change)) {
	var ended []endedBlock
	blocks.EachAddress(func(ptr int64, b Block) {
		if s.endedWith(b.Origin, e) {
			ended = append(ended, endedBlock{ptr, b})
		}
	})
	s.endBlocks(ended, kind, e.AtNs, consume)
	for i := range ended {
		blocks.Delete(ended[i].ptr)
	}
}

// endBlocks emits the changes of blocks that end at the same time, in the order of their
// allocation. Charts drop some changes of one point in time, and must drop the same ones in every
// replay.
func (s *Set) endBlocks(ended []endedBlock, kind ChangeKind, atNs int64, consume func(*Set, *Change)) {
	slices.SortFunc(ended, func(a, b endedBlock) int {
		return cmp.Or(cmp.Compare(a.block.Number, b.block.Number), cmp.Compare(a.ptr, b.ptr))
	})
	for _, e := range ended {
		s.emitChange(consume, kind, &MemoryCall{AtNs: atNs, Origin: e.block.Origin}, e.ptr, e.block)
	}
}

// IsHostKind reports whether a memory kind is host memory: pinned or registered.
func IsHostKind(kind string) bool {
	return kind == format.MemoryHost || kind == format.MemoryRegistered
}
