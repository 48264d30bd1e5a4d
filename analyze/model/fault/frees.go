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
	// VerdictRefused: the call was correct, and the driver refused it for another reason.
	VerdictRefused FreeVerdict = iota
	// VerdictDoubleFree: an earlier call freed the memory, and it was not allocated again.
	VerdictDoubleFree
	VerdictInsideBlock   // the address is inside a live block, not at its start
	VerdictWrongFunction // the memory is live, but another function must free it
	VerdictContextEnded  // the memory ended with its context
	// VerdictUnknownPointer: no recorded allocation returned the address.
	VerdictUnknownPointer
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

// FailedFreeReason explains one failed free.
type FailedFreeReason struct {
	Verdict FreeVerdict
	// Block is the memory, and Allocated reports whether its allocation was recorded. For reserved
	// addresses Block.Bytes is 0.
	Block     livemem.Block
	Allocated bool
	// By and AtNs are the origin and start (Unix ns) of the call that freed the memory first
	// (VerdictDoubleFree). For VerdictContextEnded they are origin.NoOrigin and the end of the
	// context.
	By   int32
	AtNs int64
	// Right is the function that must free the memory (VerdictWrongFunction).
	Right string
	// Offset is the distance from the start of the block in bytes (VerdictInsideBlock).
	Offset int64
}

// freedResource identifies a resource that a process can free.
type freedResource struct {
	ptr    int64
	pid    int32
	target freeTarget
}

// failedFreeScan replays memory calls to classify failed frees. It tracks only the addresses in
// failed frees, so its memory is bounded by MaxFailedFrees, not by the length of the recording.
type failedFreeScan struct {
	t    *timeline.Timeline
	r    livemem.MemoryReplay
	list []FailedFree // failed frees not classified yet, in order of their return
	next int          // index in found of the result for list[0]
	// found has one result for each failed free.
	found []FailedFreeReason

	wanted    map[freedResource]bool // addresses in failed frees; target is 0
	addresses map[int32][]int64      // the addresses of wanted by process, sorted
	// ended says how each wanted resource ended last. reserved has the live address reservations
	// among them.
	ended    map[freedResource]FailedFreeReason
	reserved map[freedResource]livemem.Block
	// around has the live blocks that contain a wanted address after their start, by process.
	around map[int32]*livemem.Mappings
	last   map[origin.Thread]FailedFree // the previous failed free of each thread
}

// ClassifyFrees sorts the failed frees by the time of their return, and returns the reason for each
// in the same order. It returns errors of reading the recording.
func ClassifyFrees(t *timeline.Timeline, list []FailedFree) ([]FailedFreeReason, error) {
	if len(list) == 0 {
		return nil, nil
	}
	slices.SortStableFunc(list, func(a, b FailedFree) int {
		return cmp.Or(cmp.Compare(a.endNs, b.endNs), -cmp.Compare(a.StartNs, b.StartNs))
	})
	s := &failedFreeScan{
		t: t, list: list, found: make([]FailedFreeReason, len(list)),
		wanted: make(map[freedResource]bool), addresses: make(map[int32][]int64),
		ended: make(map[freedResource]FailedFreeReason), reserved: make(map[freedResource]livemem.Block),
		around: make(map[int32]*livemem.Mappings), last: make(map[origin.Thread]FailedFree),
	}
	for i := range list {
		f := &list[i]
		if name := (freedResource{ptr: f.Ptr, pid: f.Pid}); !s.wanted[name] {
			s.wanted[name] = true
			s.addresses[f.Pid] = append(s.addresses[f.Pid], f.Ptr)
		}
	}
	for pid, addresses := range s.addresses {
		slices.Sort(addresses)
		s.around[pid] = new(livemem.Mappings)
	}
	s.r = livemem.MemoryReplay{
		Live:    livemem.New(&t.Origins, t.ContextEndFrees),
		Events:  t.Events,
		Consume: s.applyChange,
		Exit:    s.forgetProcess,
	}
	err := timeline.EachRowInOrder(t.Memory, t.NewMemoryStream(), func(m *livemem.MemoryCall) error {
		s.classifyBefore(m.AtNs)
		s.applyCall(m)
		return nil
	})
	s.classifyBefore(math.MaxInt64)
	return s.found, t.WrapReadError(err)
}

// classifyBefore classifies the frees that returned before ns. A failed free is classified at its
// return: a call that succeeded meanwhile took effect before the failure.
func (s *failedFreeScan) classifyBefore(ns int64) {
	for len(s.list) > 0 && s.list[0].endNs < ns {
		f := &s.list[0]
		s.r.ApplyEventsBefore(f.endNs)
		s.found[s.next] = s.classifyFree(f)
		s.list, s.next = s.list[1:], s.next+1
	}
}

// applyCall applies a memory call. It records what the call freed or reserved if a failed free has
// the same address.
func (s *failedFreeScan) applyCall(m *livemem.MemoryCall) {
	o := &s.t.Origins.List[m.Origin]
	name := freedResource{ptr: m.Ptr, pid: o.Pid}
	if m.Op > livemem.OpFreeAddresses && m.Op != livemem.OpReserveAddresses || !s.wanted[name] {
		s.r.ApplyCall(m)
		return
	}
	name.target = freeTargetOfCall(m)
	s.r.ApplyEventsBefore(m.AtNs)
	if m.Op == livemem.OpReserveAddresses {
		s.reserved[name] = livemem.Block{SinceNs: m.AtNs, Origin: m.Origin}
		return
	}
	end := FailedFreeReason{Verdict: VerdictDoubleFree, By: m.Origin, AtNs: m.AtNs}
	b, ok := s.findLiveBlock(name)
	end.Block, end.Allocated = b, ok && b.Origin != origin.NoOrigin
	nested := s.r.Live.Counts.Nested
	s.r.ApplyCall(m)
	if s.r.Live.Counts.Nested == nested { // otherwise the enclosing call already ended the memory
		s.ended[name] = end
		delete(s.reserved, name)
	}
}

// freeTargetOfCall returns the target of a call that frees or reserves something.
func freeTargetOfCall(m *livemem.MemoryCall) freeTarget {
	switch {
	case m.Op == livemem.OpUnmap:
		return freeTargetMapping
	case m.Op == livemem.OpReserveAddresses || m.Op == livemem.OpFreeAddresses:
		return freeTargetAddresses
	case m.Space == livemem.SpaceArray:
		return freeTargetArray
	case m.Space == livemem.SpacePhysical:
		return freeTargetPhysical
	case m.Space == livemem.SpaceIPC:
		return freeTargetIPC
	case m.Space == livemem.SpaceExternal:
		return freeTargetExternal
	}
	return freeTargetPointer
}

// applyChange tracks blocks that contain wanted addresses, and records which wanted blocks end with
// a context.
func (s *failedFreeScan) applyChange(_ *livemem.Set, c *livemem.Change) {
	if c.Kind == livemem.ChangeAllocFailed {
		return
	}
	o := &s.t.Origins.List[c.Block.Origin]
	name := freedResource{ptr: c.Ptr, pid: o.Pid}
	if c.Kind >= livemem.ChangeFreedWithContext && s.wanted[name] {
		name.target = s.freeTargetOfBlock(&c.Block)
		s.ended[name] = FailedFreeReason{
			Verdict: VerdictContextEnded, Block: c.Block, Allocated: true,
			By: origin.NoOrigin, AtNs: c.AtNs,
		}
	}
	addresses := s.addresses[o.Pid]
	if len(addresses) == 0 || s.freeTargetOfBlock(&c.Block) != freeTargetPointer {
		return
	}
	end := units.EndOfRange(c.Ptr, c.Block.Bytes)
	// Find the first wanted address after the start of the block.
	if i, _ := slices.BinarySearch(addresses, c.Ptr+1); i == len(addresses) || addresses[i] >= end {
		return
	}
	blocks := s.around[o.Pid]
	blocks.RemoveOverlapping(c.Ptr, end, func(livemem.Mapping) {})
	if c.Kind == livemem.ChangeAllocated {
		blocks.InsertMapping(livemem.Mapping{Start: c.Ptr, End: end, Number: c.Ptr})
	}
}

// freeTargetOfBlock returns the target of the calls that can free a block.
func (s *failedFreeScan) freeTargetOfBlock(b *livemem.Block) freeTarget {
	target, _ := freeTargetOf(format.KindFree, s.t.Origins.MemoryKindOf(b.Origin))
	return target
}

// forgetProcess forgets a process, because the kernel may reuse its pid.
func (s *failedFreeScan) forgetProcess(pid int32, _ int64) {
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
func (s *failedFreeScan) memoryOf(pid int32) *livemem.ProcessMemory {
	number, ok := s.t.Origins.Pids[pid]
	if !ok {
		return nil
	}
	return s.r.Live.MemoryOfProcess(number)
}

// findLiveBlock returns the block that a call with this target and address would free now.
func (s *failedFreeScan) findLiveBlock(name freedResource) (livemem.Block, bool) {
	h := s.memoryOf(name.pid)
	if h == nil {
		return livemem.Block{}, false
	}
	switch name.target {
	case freeTargetPointer:
		return h.Pointers.Get(name.ptr)
	case freeTargetArray:
		return h.Arrays.Get(name.ptr)
	case freeTargetPhysical:
		if mem := h.Handles[name.ptr]; mem != nil && mem.Refs > 0 {
			return mem.Block, true
		}
	case freeTargetMapping:
		return h.MappedBlockAt(name.ptr)
	case freeTargetAddresses:
		b, ok := s.reserved[name]
		return b, ok
	case freeTargetIPC:
		return livemem.Block{
			Origin: origin.NoOrigin,
		}, h.Borrowed[livemem.BorrowedKey{Space: livemem.SpaceIPC, Ptr: name.ptr}] > 0
	case freeTargetExternal:
		return livemem.Block{
			Origin: origin.NoOrigin,
		}, h.Borrowed[livemem.BorrowedKey{Space: livemem.SpaceExternal, Ptr: name.ptr}] > 0
	}
	return livemem.Block{}, false
}

// findBlockAround returns the live block that contains the failed free's address after its start,
// and the block's start.
func (s *failedFreeScan) findBlockAround(f *FailedFree) (b livemem.Block, start int64, ok bool) {
	h := s.memoryOf(f.Pid)
	if h == nil || f.target > freeTargetMapping {
		return b, 0, false
	}
	s.around[f.Pid].EachOverlapping(f.Ptr, units.EndOfRange(f.Ptr, 1), func(m livemem.Mapping) {
		start = m.Start
		b, ok = h.Pointers.Get(start)
	})
	return b, start, ok && f.Ptr > start
}

// classifyFree returns the reason why a free failed. It checks in this order:
//
//	refused         the memory is live, and the function is the right one
//	wrong function  memory is live at the address, and another function must free it
//	double free     an earlier call freed the memory, or its context ended
//	wrong function  live addresses or a live handle, which another function must free
//	double free     another function freed the resource before
//	inside a block  the address is after the start of a live block
//	unknown pointer everything else
func (s *failedFreeScan) classifyFree(f *FailedFree) FailedFreeReason {
	th := origin.Thread{Pid: f.Pid, Tid: f.Tid}
	inner := s.last[th]
	s.last[th] = *f
	if inner.Ptr == f.Ptr && f.StartNs <= inner.StartNs && inner.endNs <= f.endNs {
		return FailedFreeReason{} // the nested call failed too, and is classified on its own
	}
	found := s.findReason(f)
	if blamesDestroyedContext(f.Result) && found.Verdict != VerdictContextEnded {
		return FailedFreeReason{}
	}
	return found
}

func (s *failedFreeScan) findReason(f *FailedFree) FailedFreeReason {
	own := freedResource{f.Ptr, f.Pid, f.target}
	ended, wasFreed := s.ended[own]
	// The driver can return the address to another thread before the failed call returns.
	if b, ok := s.findLiveBlock(own); ok && !(wasFreed && b.SinceNs > f.StartNs) {
		if f.target == freeTargetPointer && !canFreeMemoryKind(f.memory, s.t.Origins.MemoryKindOf(b.Origin)) {
			return s.newWrongFunction(freeTargetPointer, b)
		}
		return FailedFreeReason{}
	}
	if found, ok := s.findOtherLiveTarget(f, freeTargetPointer, freeTargetMapping, freeTargetIPC); ok {
		return found
	}
	if wasFreed {
		return ended
	}
	if found, ok := s.findOtherLiveTarget(
		f,
		freeTargetAddresses,
		freeTargetArray,
		freeTargetPhysical,
		freeTargetExternal,
	); ok {
		return found
	}
	for target := range numFreeTargets {
		if ended, ok := s.ended[freedResource{f.Ptr, f.Pid, target}]; ok {
			return ended
		}
	}
	if b, start, ok := s.findBlockAround(f); ok {
		return FailedFreeReason{
			Verdict: VerdictInsideBlock, Block: b, Allocated: true,
			By: origin.NoOrigin, Offset: f.Ptr - start,
		}
	}
	if h := s.memoryOf(f.Pid); h != nil && h.Foreign[f.Ptr] != 0 {
		return FailedFreeReason{} // memory of a graph or of another API: its lifetime is unknown
	}
	return FailedFreeReason{Verdict: VerdictUnknownPointer, By: origin.NoOrigin}
}

// findOtherLiveTarget returns the first of targets under which the failed free's address is live.
// It skips the target of the failed free itself.
func (s *failedFreeScan) findOtherLiveTarget(f *FailedFree, targets ...freeTarget) (FailedFreeReason, bool) {
	if f.target == freeTargetAddresses {
		return FailedFreeReason{}, false // reserved addresses may also have memory mapped to them
	}
	for _, target := range targets {
		if target == f.target {
			continue
		}
		if b, ok := s.findLiveBlock(freedResource{f.Ptr, f.Pid, target}); ok {
			return s.newWrongFunction(target, b), true
		}
	}
	return FailedFreeReason{}, false
}

// newWrongFunction returns the verdict VerdictWrongFunction for live memory, with the right
// function.
func (s *failedFreeScan) newWrongFunction(target freeTarget, b livemem.Block) FailedFreeReason {
	found := FailedFreeReason{
		Verdict: VerdictWrongFunction, Block: b, Allocated: b.Origin != origin.NoOrigin,
		By: origin.NoOrigin, Right: freeFunctionsByTarget[target],
	}
	switch {
	case target == freeTargetPointer:
		found.Right = freeFunctionsByMemoryKind[s.t.Origins.MemoryKindOf(b.Origin)]
	case target == freeTargetArray &&
		catalog.BaseFunctionName(s.t.Origins.FunctionOf(b.Origin)) == "cuMipmappedArrayCreate":
		found.Right = "cuMipmappedArrayDestroy"
	}
	return found
}

// freeFunctionsByTarget are the functions that free each target. freeFunctionsByMemoryKind are
// those that free a pointer, by memory kind.
var (
	freeFunctionsByTarget = [numFreeTargets]string{
		freeTargetMapping: "cuMemUnmap and cuMemRelease", freeTargetAddresses: "cuMemAddressFree",
		freeTargetIPC: "cuIpcCloseMemHandle", freeTargetArray: "cuArrayDestroy",
		freeTargetPhysical: "cuMemRelease", freeTargetExternal: "cuDestroyExternalMemory",
	}
	freeFunctionsByMemoryKind = map[string]string{
		format.MemoryDevice: "cuMemFree", format.MemoryManaged: "cuMemFree",
		format.MemoryAsync: "cuMemFreeAsync", format.MemoryHost: "cuMemFreeHost",
		format.MemoryRegistered: "cuMemHostUnregister",
	}
)

// canFreeMemoryKind reports whether a function for one memory kind can free another kind: cuMemFree
// also frees memory of pools, and cuMemFreeAsync memory of cuMemAlloc.
func canFreeMemoryKind(call, memory string) bool {
	switch call {
	case format.MemoryDevice:
		return memory == format.MemoryDevice || memory == format.MemoryManaged ||
			memory == format.MemoryAsync
	case format.MemoryAsync:
		return memory == format.MemoryDevice || memory == format.MemoryAsync
	}
	return call == memory
}
