package livemem

import "github.com/gpurec/gpurec/format"

// MemoryCall is a call that allocates, frees, maps or imports memory. It is small, because a window
// of calls is held in memory and sorted.
//
// An allocation takes effect when the call returns, a free when the call starts. This keeps the
// order right if another thread gets the same address while the call that freed it has not
// returned. Mapping and retaining take effect at the start of the call: another thread may release
// the handle before the call returns.
type MemoryCall struct {
	AtNs   int64 // when the call takes effect, Unix ns
	DurNs  int64 // duration of the call, ns
	Ptr    int64 // address or handle of the memory, see Space
	Bytes  int64 // size of the memory in bytes
	Handle int64 // OpMapHandle: the handle mapped at Ptr; OpAllocFailed: the CUDA result
	Origin int32 // origin of the call, a number in origin.OriginTable
	Op     CallOp
	Space  NumberSpace
}

// CallOp is the effect of a call on memory. The ops up to OpFreeAddresses end memory, and their
// order matters for sorting.
type CallOp uint8

const (
	OpFree                CallOp = iota // frees an allocation, or drops a reference to a handle
	OpUnmap                             // unmaps physical memory from addresses
	OpCloseBorrowed                     // closes memory opened by OpOpenBorrowed
	OpFreeAddresses                     // frees reserved addresses
	OpAlloc                             // allocates memory, or creates a handle
	OpAllocFailed                       // an allocation that returned an error
	OpAllocUnknownAddress               // open, abandoned or unreadable, so the address is unknown
	OpGraphAlloc                        // captured into a graph by stream capture
	OpReserveAddresses                  // reserves addresses without memory
	OpOpenBorrowed                      // opens memory of another process or API
	OpRetainHandle                      // adds a reference to a handle
	OpMapHandle                         // maps physical memory to addresses
)

// NumberSpace is the number space of Call.Ptr: addresses, or one of several kinds of handles. Equal
// numbers in different spaces are different objects.
type NumberSpace uint8

const (
	SpacePointer  NumberSpace = iota // device and host addresses, which share one address space
	SpaceArray                       // Ptr is the handle of a CUDA array
	SpacePhysical                    // Ptr is the handle of physical memory (cuMemCreate)
	SpaceIPC                         // Ptr is an address imported from another process
	SpaceExternal                    // Ptr is the handle of memory imported from another API
)

// OpsByKind maps the column kind to the op of a call. For alloc and free it is the op of a
// successful call.
var OpsByKind = map[string]CallOp{
	format.KindAlloc: OpAlloc, format.KindFree: OpFree, format.KindMap: OpMapHandle, format.KindUnmap: OpUnmap,
	format.KindRetain: OpRetainHandle, format.KindBorrow: OpOpenBorrowed, format.KindReturn: OpCloseBorrowed,
	format.KindReserve: OpReserveAddresses, format.KindUnreserve: OpFreeAddresses,
}

// SpacesByMemoryKind maps the column memory_kind to the number space of its handles. Other kinds
// use SpacePointer.
var SpacesByMemoryKind = map[string]NumberSpace{
	format.MemoryArray: SpaceArray, format.MemoryPhysical: SpacePhysical,
	format.MemoryIPC: SpaceIPC, format.MemoryExternal: SpaceExternal,
}

// MaxAllocBytes is larger than any successful allocation, in bytes. A larger size comes from a
// damaged file; the bound keeps sums from overflowing.
const MaxAllocBytes = 1 << 47

// TakesEffectAtStart reports whether calls with this op take effect when they start. Other calls
// take effect when they return.
func (o CallOp) TakesEffectAtStart() bool { return o <= OpFreeAddresses || o >= OpRetainHandle }

// orderAtSameTime orders ops that take effect at the same time: first frees, then allocations, then
// ops that refer to existing memory.
func (o CallOp) orderAtSameTime() int {
	switch {
	case o <= OpFreeAddresses:
		return 0
	case o < OpRetainHandle:
		return 1
	}
	return 2
}

// startNs returns the start of the call, Unix ns.
func (m *MemoryCall) startNs() int64 {
	if m.Op.TakesEffectAtStart() {
		return m.AtNs
	}
	return m.AtNs - m.DurNs
}

// ComesBefore reports whether the call must be applied before o.
func (m *MemoryCall) ComesBefore(o *MemoryCall) bool {
	if m.AtNs != o.AtNs {
		return m.AtNs < o.AtNs
	}
	return m.Op.orderAtSameTime() < o.Op.orderAtSameTime()
}

// MaxDevices is larger than the number of GPUs in any machine. A larger device number is invalid.
const MaxDevices = 1 << 10
