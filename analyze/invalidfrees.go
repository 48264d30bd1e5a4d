package analyze

import (
	"cmp"
	"math"
	"slices"

	"github.com/gpurec/gpurec/format"
)

// freeVerdict says why the driver refused to free something.
type freeVerdict uint8

const (
	freeRefused   freeVerdict = iota // the call was right: the driver refused for another reason
	doubleFree                       // it was freed before, and not allocated again since
	insideBlock                      // the address lies inside a live block
	wrongFunction                    // the memory is live, and another function frees it
	contextEnded                     // it ended with its context
	unknownPointer
	numFreeVerdicts
)

func (v freeVerdict) String() string {
	return [...]string{"refused", "double free", "inside a block", "wrong function",
		"freed with its context", "unknown pointer"}[v]
}

// freedMemory is what a failed free is about.
type freedMemory struct {
	verdict freeVerdict
	// The memory, and whether its allocation is in the recording. Of an address range, bytes is 0.
	block     block
	allocated bool
	// doubleFree: the origin and entry of the call that freed it first. contextEnded: noOrigin and
	// the end of the context.
	by   int32
	atNs int64
	// wrongFunction: the right one.
	right string
	// insideBlock: bytes from the block's start.
	offset int64
}

// freeName names what a process can free.
type freeName struct {
	ptr    int64
	pid    int32
	target freeTarget
}

// freeScan replays memory to classify failed frees. It follows only the addresses that they name,
// so that its memory is bounded by maxFailedFrees however long the recording is.
type freeScan struct {
	t    *Timeline
	r    memoryReplay
	list []failedFree // in order of their ends, without those that are classified
	next int          // index of list[0] in found
	// found is parallel to the list.
	found []freedMemory

	wanted    map[freeName]bool // target is 0
	addresses map[int32][]int64 // of wanted, in order, by process
	// ended is how wanted things ended last, reserved are live reservations of them.
	ended    map[freeName]freedMemory
	reserved map[freeName]block
	// around are the live blocks that hold a wanted address behind their start, by process.
	around map[int32]*mappings
	last   map[thread]failedFree // the last failed free of a thread
}

// classifyFrees sorts failed frees by the time of their return, and says of each why it failed.
func (t *Timeline) classifyFrees(list []failedFree) ([]freedMemory, error) {
	if len(list) == 0 {
		return nil, nil
	}
	slices.SortStableFunc(list, func(a, b failedFree) int {
		return cmp.Or(cmp.Compare(a.endNs, b.endNs), -cmp.Compare(a.startNs, b.startNs))
	})
	s := &freeScan{
		t: t, list: list, found: make([]freedMemory, len(list)),
		wanted: make(map[freeName]bool), addresses: make(map[int32][]int64),
		ended: make(map[freeName]freedMemory), reserved: make(map[freeName]block),
		around: make(map[int32]*mappings), last: make(map[thread]failedFree),
	}
	for i := range list {
		f := &list[i]
		if name := (freeName{ptr: f.ptr, pid: f.pid}); !s.wanted[name] {
			s.wanted[name] = true
			s.addresses[f.pid] = append(s.addresses[f.pid], f.ptr)
		}
	}
	for pid, addresses := range s.addresses {
		slices.Sort(addresses)
		s.around[pid] = new(mappings)
	}
	s.r = memoryReplay{l: newLedger(&t.origins, t.endedWith), events: t.events, consume: s.consume, exit: s.exit}
	err := inOrder(t.memory, t.streamMemory(), func(m *memoryCall) error {
		s.classifyBefore(m.atNs)
		s.call(m)
		return nil
	})
	s.classifyBefore(math.MaxInt64)
	return s.found, t.wrap(err)
}

// classifyBefore classifies the frees that returned before a moment. A call that succeeded while
// a free failed took effect before the failure was known, so a failure counts from its return.
func (s *freeScan) classifyBefore(ns int64) {
	for len(s.list) > 0 && s.list[0].endNs < ns {
		f := &s.list[0]
		s.r.eventsBefore(f.endNs)
		s.found[s.next] = s.classify(f)
		s.list, s.next = s.list[1:], s.next+1
	}
}

// call applies a call, and notes what it frees or reserves if a failed free names it.
func (s *freeScan) call(m *memoryCall) {
	o := &s.t.origins.list[m.origin]
	name := freeName{ptr: m.ptr, pid: o.pid}
	if m.what > memUnreserve && m.what != memReserve || !s.wanted[name] {
		s.r.call(m)
		return
	}
	name.target = m.freeTarget()
	s.r.eventsBefore(m.atNs)
	if m.what == memReserve {
		s.reserved[name] = block{sinceNs: m.atNs, origin: m.origin}
		return
	}
	end := freedMemory{verdict: doubleFree, by: m.origin, atNs: m.atNs}
	b, ok := s.live(name)
	end.block, end.allocated = b, ok && b.origin != noOrigin
	nested := s.r.l.counts.nested
	s.r.call(m)
	if s.r.l.counts.nested == nested { // else the call around this one ended it
		s.ended[name] = end
		delete(s.reserved, name)
	}
}

// freeTarget returns the target of a call that frees or reserves something.
func (m *memoryCall) freeTarget() freeTarget {
	switch {
	case m.what == memUnmap:
		return freesMapping
	case m.what == memReserve || m.what == memUnreserve:
		return freesAddresses
	case m.space == spaceArray:
		return freesArray
	case m.space == spacePhysical:
		return freesPhysical
	case m.space == spaceIPC:
		return freesIPC
	case m.space == spaceExternal:
		return freesExternal
	}
	return freesPointer
}

// consume follows blocks that hold wanted addresses, and notes what ends with a context.
func (s *freeScan) consume(_ *ledger, c *change) {
	if c.what == allocFailed {
		return
	}
	o := &s.t.origins.list[c.block.origin]
	name := freeName{ptr: c.ptr, pid: o.pid}
	if c.what >= freedWithCtx && s.wanted[name] {
		name.target = s.targetOfBlock(&c.block)
		s.ended[name] = freedMemory{verdict: contextEnded, block: c.block, allocated: true,
			by: noOrigin, atNs: c.atNs}
	}
	addresses := s.addresses[o.pid]
	if len(addresses) == 0 || s.targetOfBlock(&c.block) != freesPointer {
		return
	}
	end := endOf(c.ptr, c.block.bytes)
	// The first wanted address behind the block's start.
	if i, _ := slices.BinarySearch(addresses, c.ptr+1); i == len(addresses) || addresses[i] >= end {
		return
	}
	blocks := s.around[o.pid]
	blocks.cut(c.ptr, end, func(mapping) {})
	if c.what == allocated {
		blocks.insert(mapping{start: c.ptr, end: end, number: c.ptr})
	}
}

// targetOfBlock returns the target of calls that free a block of the replay.
func (s *freeScan) targetOfBlock(b *block) freeTarget {
	target, _ := targetOf(format.KindFree, s.t.origins.memory(b.origin))
	return target
}

// exit forgets a process: another one may get its number.
func (s *freeScan) exit(pid int32, _ int64) {
	for name := range s.ended {
		if name.pid == pid {
			delete(s.ended, name)
		}
	}
	for name := range s.reserved {
		if name.pid == pid {
			delete(s.reserved, name)
		}
	}
	if s.around[pid] != nil {
		s.around[pid] = new(mappings)
	}
}

// holdingsOf returns what a process has, nil if no memory call of it is recorded.
func (s *freeScan) holdingsOf(pid int32) *holdings {
	number, ok := s.t.origins.pids[pid]
	if !ok {
		return nil
	}
	return s.r.l.ofProcess(number)
}

// live returns what a call with that target and number would free now.
func (s *freeScan) live(name freeName) (block, bool) {
	h := s.holdingsOf(name.pid)
	if h == nil {
		return block{}, false
	}
	switch name.target {
	case freesPointer:
		return h.pointers.get(name.ptr)
	case freesArray:
		return h.arrays.get(name.ptr)
	case freesPhysical:
		if mem := h.handles[name.ptr]; mem != nil && mem.refs > 0 {
			return mem.block, true
		}
	case freesMapping:
		return h.mappedAt(name.ptr)
	case freesAddresses:
		b, ok := s.reserved[name]
		return b, ok
	case freesIPC:
		return block{origin: noOrigin}, h.borrowed[borrowedName{spaceIPC, name.ptr}] > 0
	case freesExternal:
		return block{origin: noOrigin}, h.borrowed[borrowedName{spaceExternal, name.ptr}] > 0
	}
	return block{}, false
}

// mappedAt returns the physical memory that is mapped around an address.
func (h *holdings) mappedAt(ptr int64) (b block, ok bool) {
	b.origin = noOrigin
	h.mappings.overlapping(ptr, endOf(ptr, 1), func(m mapping) {
		ok = true
		if m.handle != nil {
			b = m.handle.block
		}
	})
	return b, ok
}

// blockAround returns the live block that has an address behind its start.
func (s *freeScan) blockAround(f *failedFree) (b block, start int64, ok bool) {
	h := s.holdingsOf(f.pid)
	if h == nil || f.target > freesMapping {
		return b, 0, false
	}
	s.around[f.pid].overlapping(f.ptr, endOf(f.ptr, 1), func(m mapping) {
		start = m.start
		b, ok = h.pointers.get(start)
	})
	return b, start, ok && f.ptr > start
}

// classify says why a free failed. In this order:
//
//	refused         memory that is live, and the right function for it
//	wrong function  memory that is live at that address, and another function frees it
//	double free     freed before by a call, or ended with its context
//	wrong function  addresses or a handle that are live, and another function frees them
//	double free     freed before by another function
//	inside a block  behind the start of a live block
//	unknown pointer the rest
func (s *freeScan) classify(f *failedFree) freedMemory {
	th := thread{f.pid, f.tid}
	inner := s.last[th]
	s.last[th] = *f
	if inner.ptr == f.ptr && f.startNs <= inner.startNs && inner.endNs <= f.endNs {
		return freedMemory{} // the call inside this one failed, and says the same
	}
	found := s.lookUp(f)
	if blamesContext(f.result) && found.verdict != contextEnded {
		return freedMemory{}
	}
	return found
}

func (s *freeScan) lookUp(f *failedFree) freedMemory {
	own := freeName{f.ptr, f.pid, f.target}
	ended, wasFreed := s.ended[own]
	// The driver can hand the address out while the failed call returns.
	if b, ok := s.live(own); ok && !(wasFreed && b.sinceNs > f.startNs) {
		if f.target == freesPointer && !freesKind(f.memory, s.t.origins.memory(b.origin)) {
			return s.belongsTo(freesPointer, b)
		}
		return freedMemory{}
	}
	if found, ok := s.liveElsewhere(f, freesPointer, freesMapping, freesIPC); ok {
		return found
	}
	if wasFreed {
		return ended
	}
	if found, ok := s.liveElsewhere(f, freesAddresses, freesArray, freesPhysical, freesExternal); ok {
		return found
	}
	for target := range numFreeTargets {
		if ended, ok := s.ended[freeName{f.ptr, f.pid, target}]; ok {
			return ended
		}
	}
	if b, start, ok := s.blockAround(f); ok {
		return freedMemory{verdict: insideBlock, block: b, allocated: true,
			by: noOrigin, offset: f.ptr - start}
	}
	if h := s.holdingsOf(f.pid); h != nil && h.foreign[f.ptr] != 0 {
		return freedMemory{} // a graph's memory, or another API's: its lifetime is not known
	}
	return freedMemory{verdict: unknownPointer, by: noOrigin}
}

// liveElsewhere looks for something live that calls with another target than a free's own end.
func (s *freeScan) liveElsewhere(f *failedFree, targets ...freeTarget) (freedMemory, bool) {
	if f.target == freesAddresses {
		return freedMemory{}, false // memory may be mapped at addresses that are reserved
	}
	for _, target := range targets {
		if target == f.target {
			continue
		}
		if b, ok := s.live(freeName{f.ptr, f.pid, target}); ok {
			return s.belongsTo(target, b), true
		}
	}
	return freedMemory{}, false
}

// belongsTo returns the verdict wrong function for live memory.
func (s *freeScan) belongsTo(target freeTarget, b block) freedMemory {
	found := freedMemory{verdict: wrongFunction, block: b, allocated: b.origin != noOrigin,
		by: noOrigin, right: functionsByTarget[target]}
	switch {
	case target == freesPointer:
		found.right = functionsByMemory[s.t.origins.memory(b.origin)]
	case target == freesArray && baseName(s.t.origins.name(b.origin)) == "cuMipmappedArrayCreate":
		found.right = "cuMipmappedArrayDestroy"
	}
	return found
}

// functionsByTarget are the functions that free something, functionsByMemory those for pointers.
var (
	functionsByTarget = [numFreeTargets]string{
		freesMapping: "cuMemUnmap and cuMemRelease", freesAddresses: "cuMemAddressFree",
		freesIPC: "cuIpcCloseMemHandle", freesArray: "cuArrayDestroy",
		freesPhysical: "cuMemRelease", freesExternal: "cuDestroyExternalMemory",
	}
	functionsByMemory = map[string]string{
		format.MemoryDevice: "cuMemFree", format.MemoryManaged: "cuMemFree",
		format.MemoryAsync: "cuMemFreeAsync", format.MemoryHost: "cuMemFreeHost",
		format.MemoryRegistered: "cuMemHostUnregister",
	}
)

// freesKind reports whether calls that free pointers of one kind of memory free those of another:
// cuMemFree takes memory of pools, and cuMemFreeAsync that of cuMemAlloc.
func freesKind(call, memory string) bool {
	switch call {
	case format.MemoryDevice:
		return memory == format.MemoryDevice || memory == format.MemoryManaged ||
			memory == format.MemoryAsync
	case format.MemoryAsync:
		return memory == format.MemoryDevice || memory == format.MemoryAsync
	}
	return call == memory
}
