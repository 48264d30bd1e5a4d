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

// FreeVerdict is the reason why the driver refused to free something.
type FreeVerdict uint8

const (
	// the call was correct, and the driver refused it for another reason
	FreeRefused FreeVerdict = iota
	// an earlier call freed the memory, and it was not allocated again
	DoubleFree
	InsideBlock   // the address is inside a live block, not at its start
	WrongFunction // the memory is live, but another function must free it
	ContextEnded  // the memory ended with its context
	// UnknownPointer: no recorded allocation returned the address.
	UnknownPointer
	// NumFreeVerdicts is the number of verdicts.
	NumFreeVerdicts
)

// String returns the verdict in words.
func (v FreeVerdict) String() string {
	return [...]string{
		"refused", "double free", "inside a block", "wrong function",
		"freed with its context", "unknown pointer",
	}[v]
}

// FreedMemory explains one failed free.
type FreedMemory struct {
	Verdict FreeVerdict
	// Block is the memory, and Allocated reports whether its allocation was recorded. For reserved
	// addresses Block.Bytes is 0.
	Block     livemem.Block
	Allocated bool
	// By and AtNs are the origin and start (Unix ns) of the call that freed the memory first
	// (DoubleFree). For ContextEnded they are origin.None and the end of the context.
	By   int32
	AtNs int64
	// Right is the function that must free the memory (WrongFunction).
	Right string
	// Offset is the distance from the start of the block in bytes (InsideBlock).
	Offset int64
}

// freeName identifies a resource that a process can free.
type freeName struct {
	ptr    int64
	pid    int32
	target freeTarget
}

// freeScan replays memory calls to classify failed frees. It tracks only the addresses in failed
// frees, so its memory is bounded by MaxFailedFrees, not by the length of the recording.
type freeScan struct {
	t    *timeline.Timeline
	r    livemem.Replay
	list []FailedFree // not classified yet, in order of their return
	next int          // index in found of the result for list[0]
	// found has one result for each failed free.
	found []FreedMemory

	wanted    map[freeName]bool // addresses in failed frees; target is 0
	addresses map[int32][]int64 // the addresses of wanted by process, sorted
	// ended says how each wanted resource ended last. reserved has the live address reservations
	// among them.
	ended    map[freeName]FreedMemory
	reserved map[freeName]livemem.Block
	// around has the live blocks that contain a wanted address after their start, by process.
	around map[int32]*livemem.Mappings
	last   map[origin.Thread]FailedFree // the previous failed free of each thread
}

// ClassifyFrees sorts the failed frees by the time of their return, and returns the reason for each
// in the same order. It returns errors of reading the recording.
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

// classifyBefore classifies the frees that returned before ns. A failed free is classified at its
// return: a call that succeeded meanwhile took effect before the failure.
func (s *freeScan) classifyBefore(ns int64) {
	for len(s.list) > 0 && s.list[0].endNs < ns {
		f := &s.list[0]
		s.r.EventsBefore(f.endNs)
		s.found[s.next] = s.classify(f)
		s.list, s.next = s.list[1:], s.next+1
	}
}

// call applies a memory call. It records what the call freed or reserved if a failed free has the
// same address.
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
	if s.r.Live.Counts.Nested == nested { // otherwise the enclosing call already ended the memory
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

// consume tracks blocks that contain wanted addresses, and records which wanted blocks end with a
// context.
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
	// Find the first wanted address after the start of the block.
	if i, _ := slices.BinarySearch(addresses, c.Ptr+1); i == len(addresses) || addresses[i] >= end {
		return
	}
	blocks := s.around[o.Pid]
	blocks.Cut(c.Ptr, end, func(livemem.Mapping) {})
	if c.Kind == livemem.Allocated {
		blocks.Insert(livemem.Mapping{Start: c.Ptr, End: end, Number: c.Ptr})
	}
}

// targetOfBlock returns the target of the calls that can free a block.
func (s *freeScan) targetOfBlock(b *livemem.Block) freeTarget {
	target, _ := targetOf(format.KindFree, s.t.Origins.Memory(b.Origin))
	return target
}

// exit forgets a process, because the kernel may reuse its pid.
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

// memoryOf returns the live memory of a process, or nil if no memory call of the process was
// recorded.
func (s *freeScan) memoryOf(pid int32) *livemem.ProcessMemory {
	number, ok := s.t.Origins.Pids[pid]
	if !ok {
		return nil
	}
	return s.r.Live.OfProcess(number)
}

// live returns the block that a call with this target and address would free now.
func (s *freeScan) live(name freeName) (livemem.Block, bool) {
	h := s.memoryOf(name.pid)
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

// blockAround returns the live block that contains the failed free's address after its start, and
// the block's start.
func (s *freeScan) blockAround(f *FailedFree) (b livemem.Block, start int64, ok bool) {
	h := s.memoryOf(f.Pid)
	if h == nil || f.target > freesMapping {
		return b, 0, false
	}
	s.around[f.Pid].Overlapping(f.Ptr, units.EndOf(f.Ptr, 1), func(m livemem.Mapping) {
		start = m.Start
		b, ok = h.Pointers.Get(start)
	})
	return b, start, ok && f.Ptr > start
}

// classify returns the reason why a free failed. It checks in this order:
//
//	refused         the memory is live, and the function is the right one
//	wrong function  memory is live at the address, and another function must free it
//	double free     an earlier call freed the memory, or its context ended
//	wrong function  live addresses or a live handle, which another function must free
//	double free     another function freed the resource before
//	inside a block  the address is after the start of a live block
//	unknown pointer everything else
func (s *freeScan) classify(f *FailedFree) FreedMemory {
	th := origin.Thread{Pid: f.Pid, Tid: f.Tid}
	inner := s.last[th]
	s.last[th] = *f
	if inner.Ptr == f.Ptr && f.StartNs <= inner.StartNs && inner.endNs <= f.endNs {
		return FreedMemory{} // the nested call failed too, and is classified on its own
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
	// The driver can return the address to another thread before the failed call returns.
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
	if h := s.memoryOf(f.Pid); h != nil && h.Foreign[f.Ptr] != 0 {
		return FreedMemory{} // memory of a graph or of another API: its lifetime is unknown
	}
	return FreedMemory{Verdict: UnknownPointer, By: origin.None}
}

// liveElsewhere returns the first of targets under which the failed free's address is live. It
// skips the target of the failed free itself.
func (s *freeScan) liveElsewhere(f *FailedFree, targets ...freeTarget) (FreedMemory, bool) {
	if f.target == freesAddresses {
		return FreedMemory{}, false // reserved addresses may also have memory mapped to them
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

// belongsTo returns the verdict WrongFunction for live memory, with the right function.
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

// functionsByTarget are the functions that free each target. functionsByMemory are those that free
// a pointer, by memory kind.
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

// freesKind reports whether a function for one memory kind can free another kind: cuMemFree also
// frees memory of pools, and cuMemFreeAsync memory of cuMemAlloc.
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
