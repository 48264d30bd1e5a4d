package fault

import (
	"cmp"
	"math"
	"slices"

	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/model/livemem"
	"github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// FreeVerdict says why the driver refused to free something.
type FreeVerdict uint8

const (
	FreeRefused   FreeVerdict = iota // the call was right: the driver refused for another reason
	DoubleFree                       // it was freed before, and not allocated again since
	InsideBlock                      // the address lies inside a live block
	WrongFunction                    // the memory is live, and another function frees it
	ContextEnded                     // it ended with its context
	UnknownPointer
	NumFreeVerdicts
)

func (v FreeVerdict) String() string {
	return [...]string{
		"refused", "double free", "inside a block", "wrong function",
		"freed with its context", "unknown pointer",
	}[v]
}

// FreedMemory is what a failed free is about.
type FreedMemory struct {
	Verdict FreeVerdict
	// The memory, and whether its allocation is in the recording. Of an address range, bytes is 0.
	Block     livemem.Block
	Allocated bool
	// DoubleFree: the origin and entry of the call that freed it first. ContextEnded: origin.None and
	// the end of the context.
	By   int32
	AtNs int64
	// WrongFunction: the right one.
	Right string
	// InsideBlock: bytes from the block's start.
	Offset int64
}

// freeName names what a process can free.
type freeName struct {
	ptr    int64
	pid    int32
	target freeTarget
}

// freeScan replays memory to classify failed frees. It follows only the addresses that they name,
// so that its memory is bounded by MaxFailedFrees however long the recording is.
type freeScan struct {
	t    *timeline.Timeline
	r    livemem.Replay
	list []FailedFree // in order of their ends, without those that are classified
	next int          // index of list[0] in found
	// found is parallel to the list.
	found []FreedMemory

	wanted    map[freeName]bool // target is 0
	addresses map[int32][]int64 // of wanted, in order, by process
	// ended is how wanted things ended last, reserved are live reservations of them.
	ended    map[freeName]FreedMemory
	reserved map[freeName]livemem.Block
	// around are the live blocks that hold a wanted address behind their start, by process.
	around map[int32]*livemem.Mappings
	last   map[origin.Thread]FailedFree // the last failed free of a thread
}

// ClassifyFrees sorts failed frees by the time of their return, and says of each why it failed.
func ClassifyFrees(t *timeline.Timeline, list []FailedFree) ([]FreedMemory, error) {
	if len(list) == 0 {
		return nil, nil
	}
	slices.SortStableFunc(list, func(a, b FailedFree) int {
		return cmp.Or(cmp.Compare(a.endNs, b.endNs), -cmp.Compare(a.StartNs, b.StartNs))
	})
	s := &freeScan{
		t: t, list: list, found: make([]FreedMemory, len(list)),
		wanted: make(map[freeName]bool), addresses: make(map[int32][]int64),
		ended: make(map[freeName]FreedMemory), reserved: make(map[freeName]livemem.Block),
		around: make(map[int32]*livemem.Mappings), last: make(map[origin.Thread]FailedFree),
	}
	for i := range list {
		f := &list[i]
		if name := (freeName{ptr: f.Ptr, pid: f.Pid}); !s.wanted[name] {
			s.wanted[name] = true
			s.addresses[f.Pid] = append(s.addresses[f.Pid], f.Ptr)
		}
	}
	for pid, addresses := range s.addresses {
		slices.Sort(addresses)
		s.around[pid] = new(livemem.Mappings)
	}
	s.r = livemem.Replay{Live: livemem.New(&t.Origins, t.EndedWith), Events: t.Events, Consume: s.consume, Exit: s.exit}
	err := timeline.InOrder(t.Memory, t.StreamMemory(), func(m *livemem.Call) error {
		s.classifyBefore(m.AtNs)
		s.call(m)
		return nil
	})
	s.classifyBefore(math.MaxInt64)
	return s.found, t.Wrap(err)
}

// classifyBefore classifies the frees that returned before a moment. A call that succeeded while
// a free failed took effect before the failure was known, so a failure counts from its return.
func (s *freeScan) classifyBefore(ns int64) {
	for len(s.list) > 0 && s.list[0].endNs < ns {
		f := &s.list[0]
		s.r.EventsBefore(f.endNs)
		s.found[s.next] = s.classify(f)
		s.list, s.next = s.list[1:], s.next+1
	}
}

// call applies a call, and notes what it frees or reserves if a failed free names it.
func (s *freeScan) call(m *livemem.Call) {
	o := &s.t.Origins.List[m.Origin]
	name := freeName{ptr: m.Ptr, pid: o.Pid}
	if m.Op > livemem.OpUnreserve && m.Op != livemem.OpReserve || !s.wanted[name] {
		s.r.Call(m)
		return
	}
	name.target = targetOfCall(m)
	s.r.EventsBefore(m.AtNs)
	if m.Op == livemem.OpReserve {
		s.reserved[name] = livemem.Block{SinceNs: m.AtNs, Origin: m.Origin}
		return
	}
	end := FreedMemory{Verdict: DoubleFree, By: m.Origin, AtNs: m.AtNs}
	b, ok := s.live(name)
	end.Block, end.Allocated = b, ok && b.Origin != origin.None
	nested := s.r.Live.Counts.Nested
	s.r.Call(m)
	if s.r.Live.Counts.Nested == nested { // else the call around this one ended it
		s.ended[name] = end
		delete(s.reserved, name)
	}
}

// targetOfCall returns the target of a call that frees or reserves something.
func targetOfCall(m *livemem.Call) freeTarget {
	switch {
	case m.Op == livemem.OpUnmap:
		return freesMapping
	case m.Op == livemem.OpReserve || m.Op == livemem.OpUnreserve:
		return freesAddresses
	case m.Space == livemem.SpaceArray:
		return freesArray
	case m.Space == livemem.SpacePhysical:
		return freesPhysical
	case m.Space == livemem.SpaceIPC:
		return freesIPC
	case m.Space == livemem.SpaceExternal:
		return freesExternal
	}
	return freesPointer
}

// consume follows blocks that hold wanted addresses, and notes what ends with a context.
func (s *freeScan) consume(_ *livemem.Set, c *livemem.Change) {
	if c.Kind == livemem.AllocFailed {
		return
	}
	o := &s.t.Origins.List[c.Block.Origin]
	name := freeName{ptr: c.Ptr, pid: o.Pid}
	if c.Kind >= livemem.FreedWithCtx && s.wanted[name] {
		name.target = s.targetOfBlock(&c.Block)
		s.ended[name] = FreedMemory{
			Verdict: ContextEnded, Block: c.Block, Allocated: true,
			By: origin.None, AtNs: c.AtNs,
		}
	}
	addresses := s.addresses[o.Pid]
	if len(addresses) == 0 || s.targetOfBlock(&c.Block) != freesPointer {
		return
	}
	end := units.EndOf(c.Ptr, c.Block.Bytes)
	// The first wanted address behind the block's start.
	if i, _ := slices.BinarySearch(addresses, c.Ptr+1); i == len(addresses) || addresses[i] >= end {
		return
	}
	blocks := s.around[o.Pid]
	blocks.Cut(c.Ptr, end, func(livemem.Mapping) {})
	if c.Kind == livemem.Allocated {
		blocks.Insert(livemem.Mapping{Start: c.Ptr, End: end, Number: c.Ptr})
	}
}

// targetOfBlock returns the target of calls that free a block of the replay.
func (s *freeScan) targetOfBlock(b *livemem.Block) freeTarget {
	target, _ := targetOf(format.KindFree, s.t.Origins.Memory(b.Origin))
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
		s.around[pid] = new(livemem.Mappings)
	}
}

// holdingsOf returns what a process has, nil if no memory call of it is recorded.
func (s *freeScan) holdingsOf(pid int32) *livemem.ProcessMemory {
	number, ok := s.t.Origins.Pids[pid]
	if !ok {
		return nil
	}
	return s.r.Live.OfProcess(number)
}

// live returns what a call with that target and number would free now.
func (s *freeScan) live(name freeName) (livemem.Block, bool) {
	h := s.holdingsOf(name.pid)
	if h == nil {
		return livemem.Block{}, false
	}
	switch name.target {
	case freesPointer:
		return h.Pointers.Get(name.ptr)
	case freesArray:
		return h.Arrays.Get(name.ptr)
	case freesPhysical:
		if mem := h.Handles[name.ptr]; mem != nil && mem.Refs > 0 {
			return mem.Block, true
		}
	case freesMapping:
		return h.MappedAt(name.ptr)
	case freesAddresses:
		b, ok := s.reserved[name]
		return b, ok
	case freesIPC:
		return livemem.Block{
			Origin: origin.None,
		}, h.Borrowed[livemem.BorrowedName{Space: livemem.SpaceIPC, Ptr: name.ptr}] > 0
	case freesExternal:
		return livemem.Block{
			Origin: origin.None,
		}, h.Borrowed[livemem.BorrowedName{Space: livemem.SpaceExternal, Ptr: name.ptr}] > 0
	}
	return livemem.Block{}, false
}

// blockAround returns the live block that has an address behind its start.
func (s *freeScan) blockAround(f *FailedFree) (b livemem.Block, start int64, ok bool) {
	h := s.holdingsOf(f.Pid)
	if h == nil || f.target > freesMapping {
		return b, 0, false
	}
	s.around[f.Pid].Overlapping(f.Ptr, units.EndOf(f.Ptr, 1), func(m livemem.Mapping) {
		start = m.Start
		b, ok = h.Pointers.Get(start)
	})
	return b, start, ok && f.Ptr > start
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
func (s *freeScan) classify(f *FailedFree) FreedMemory {
	th := origin.Thread{Pid: f.Pid, Tid: f.Tid}
	inner := s.last[th]
	s.last[th] = *f
	if inner.Ptr == f.Ptr && f.StartNs <= inner.StartNs && inner.endNs <= f.endNs {
		return FreedMemory{} // the call inside this one failed, and says the same
	}
	found := s.lookUp(f)
	if blamesContext(f.Result) && found.Verdict != ContextEnded {
		return FreedMemory{}
	}
	return found
}

func (s *freeScan) lookUp(f *FailedFree) FreedMemory {
	own := freeName{f.Ptr, f.Pid, f.target}
	ended, wasFreed := s.ended[own]
	// The driver can hand the address out while the failed call returns.
	if b, ok := s.live(own); ok && !(wasFreed && b.SinceNs > f.StartNs) {
		if f.target == freesPointer && !freesKind(f.memory, s.t.Origins.Memory(b.Origin)) {
			return s.belongsTo(freesPointer, b)
		}
		return FreedMemory{}
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
		if ended, ok := s.ended[freeName{f.Ptr, f.Pid, target}]; ok {
			return ended
		}
	}
	if b, start, ok := s.blockAround(f); ok {
		return FreedMemory{
			Verdict: InsideBlock, Block: b, Allocated: true,
			By: origin.None, Offset: f.Ptr - start,
		}
	}
	if h := s.holdingsOf(f.Pid); h != nil && h.Foreign[f.Ptr] != 0 {
		return FreedMemory{} // a graph's memory, or another API's: its lifetime is not known
	}
	return FreedMemory{Verdict: UnknownPointer, By: origin.None}
}

// liveElsewhere looks for something live that calls with another target than a free's own end.
func (s *freeScan) liveElsewhere(f *FailedFree, targets ...freeTarget) (FreedMemory, bool) {
	if f.target == freesAddresses {
		return FreedMemory{}, false // memory may be mapped at addresses that are reserved
	}
	for _, target := range targets {
		if target == f.target {
			continue
		}
		if b, ok := s.live(freeName{f.Ptr, f.Pid, target}); ok {
			return s.belongsTo(target, b), true
		}
	}
	return FreedMemory{}, false
}

// belongsTo returns the verdict wrong function for live memory.
func (s *freeScan) belongsTo(target freeTarget, b livemem.Block) FreedMemory {
	found := FreedMemory{
		Verdict: WrongFunction, Block: b, Allocated: b.Origin != origin.None,
		By: origin.None, Right: functionsByTarget[target],
	}
	switch {
	case target == freesPointer:
		found.Right = functionsByMemory[s.t.Origins.Memory(b.Origin)]
	case target == freesArray && catalog.BaseName(s.t.Origins.Name(b.Origin)) == "cuMipmappedArrayCreate":
		found.Right = "cuMipmappedArrayDestroy"
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
