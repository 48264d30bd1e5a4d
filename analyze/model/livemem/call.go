package livemem

import "github.com/gpurec/gpurec/format"

// Call is a call that changes what memory there is, small because a window of
// them is held and sorted.
//
// What the driver hands out counts from the end of the call, what it takes back from
// the start: only then is the order right when another thread gets a pointer or a
// handle again while the call that freed it has not returned yet. Mapping and
// retaining count from the start: the program names a handle that it has already, and
// another thread may release that meanwhile.
type Call struct {
	AtNs   int64 // when it takes effect
	DurNs  int64
	Ptr    int64 // pointer or handle, by space
	Bytes  int64
	Handle int64 // of OpMap: what appears at ptr; of OpAllocFailed: the result
	Origin int32
	Op     Op
	Space  Space
}

// Op says what a call does. Ops from OpFree to OpUnreserve take back, and their order counts.
type Op uint8

const (
	OpFree Op = iota
	OpUnmap
	OpReturn // borrowed memory is given back
	OpUnreserve
	OpAlloc
	OpAllocFailed
	OpAllocUnknown // open, abandoned or unreadable: what it allocated is not known
	OpGraphAlloc   // put into a graph by stream capture
	OpReserve      // addresses, no memory
	OpBorrow
	OpRetain
	OpMap
)

// Space says what a number names: pointers, and handles of several sorts,
// which may be equal and yet are different things.
type Space uint8

const (
	SpacePointer Space = iota // of the device, of the host: one address space
	SpaceArray
	SpacePhysical
	SpaceIPC
	SpaceExternal
)

// OpsByKind are the meanings of the column kind, but for alloc and free those of
// calls that succeeded.
var OpsByKind = map[string]Op{
	format.KindAlloc: OpAlloc, format.KindFree: OpFree, format.KindMap: OpMap, format.KindUnmap: OpUnmap,
	format.KindRetain: OpRetain, format.KindBorrow: OpBorrow, format.KindReturn: OpReturn,
	format.KindReserve: OpReserve, format.KindUnreserve: OpUnreserve,
}

var SpacesByMemory = map[string]Space{
	format.MemoryArray: SpaceArray, format.MemoryPhysical: SpacePhysical,
	format.MemoryIPC: SpaceIPC, format.MemoryExternal: SpaceExternal,
}

// AddressSpace is more than any allocation that succeeds: a larger one stands in a
// damaged file, and sums of such would leave the range of numbers.
const AddressSpace = 1 << 47

// FromStart reports whether such calls take effect when they are entered.
func (w Op) FromStart() bool { return w <= OpUnreserve || w >= OpRetain }

// rank orders calls that take effect at one moment: what ends, what begins, what
// refers to that.
func (w Op) rank() int {
	switch {
	case w <= OpUnreserve:
		return 0
	case w < OpRetain:
		return 1
	}
	return 2
}

// startNs returns when the call was entered.
func (m *Call) startNs() int64 {
	if m.Op.FromStart() {
		return m.AtNs
	}
	return m.AtNs - m.DurNs
}

func (m *Call) Before(o *Call) bool {
	if m.AtNs != o.AtNs {
		return m.AtNs < o.AtNs
	}
	return m.Op.rank() < o.Op.rank()
}

// MaxDevices is more than a machine has; a larger number is none of a device.
const MaxDevices = 1 << 10
