package caching

import (
	"github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/format"
)

// AllocatorEvent is an event of a framework's caching allocator. It is small, because a window of
// events is held in memory and sorted. An allocator holds a lock while it works, so its events are
// in order of time.
type AllocatorEvent struct {
	AtNs      int64 // time of the event, Unix ns
	Ptr       int64 // address; for OpOutOfMemory the free bytes of the device
	Bytes     int64 // size; for blocks the requested size
	Pool      int64 // number of the private pool; 0: none
	Stream    int64
	Allocated int64 // allocated bytes that the allocator reports at this event; negative: unknown
	Reserved  int64 // reserved bytes that the allocator reports at this event; negative: unknown
	Allocator int32 // number of the allocator in AllocatorNumbers
	Origin    int32 // origin of the call, if the event has a stack; otherwise origin.NoOrigin
	Op        AllocatorOp
}

// AllocatorOp is the operation of an allocator in an Event or a Change.
type AllocatorOp uint8

const (
	OpBlockAllocated     AllocatorOp = iota // the allocator gave a block to the program
	OpBlockFreeRequested                    // the program freed a block
	OpBlockFreeCompleted                    // no stream uses the freed block any more
	OpSegmentAllocated                      // a segment was allocated from the driver
	OpSegmentFreed                          // a segment was returned to the driver
	OpSegmentMapped                         // an expandable segment grew by mapped memory
	OpSegmentUnmapped                       // an expandable segment unmapped memory
	OpOutOfMemory                           // the allocator could not allocate a block
	OpSnapshotTaken                         // the program took a snapshot of the allocator
	// OpReportedAlloc: reported statistics show that a block was allocated, see reported.go; emitted as
	// OpBlockAllocated.
	OpReportedAlloc
	OpReportedFree // reported statistics show that a block was freed; emitted as OpBlockFreeRequested

	// The model emits these operations; no event has them.
	OpBlockResized // the size of a block was corrected
	OpBlockLost    // the free of a block was not recorded
	OpAllocatorEnd // the process ended, and its allocator with it
	// OpStateRead: the allocator's state was read from the memory of the process, see earlier.go. The
	// change comes before the model takes the state.
	OpStateRead
	// OpBlockFound: a block from before the recording became known, see earlier.go. Like OpBlockResized, the change
	// comes after the update.
	OpBlockFound
	// OpTotalsRead: the allocator's own totals were read from the memory of the process, see totals.go. The change
	// comes before the model takes them.
	OpTotalsRead
)

// OpsByEventName maps the names of allocator events in a recording to their operations.
var OpsByEventName = map[string]AllocatorOp{
	format.AllocatorAlloc:         OpBlockAllocated,
	format.AllocatorFreeRequested: OpBlockFreeRequested,
	format.AllocatorFreeCompleted: OpBlockFreeCompleted,
	format.AllocatorSegmentAlloc:  OpSegmentAllocated,
	format.AllocatorSegmentFree:   OpSegmentFreed,
	format.AllocatorSegmentMap:    OpSegmentMapped,
	format.AllocatorSegmentUnmap:  OpSegmentUnmapped,
	format.AllocatorOOM:           OpOutOfMemory,
	format.AllocatorSnapshot:      OpSnapshotTaken,
	format.AllocatorReportedAlloc: OpReportedAlloc,
	format.AllocatorReportedFree:  OpReportedFree,
}

// RequestsMemory reports whether the program requested memory. Only such events have a stack.
func (o AllocatorOp) RequestsMemory() bool {
	return o.AllocatesBlock() || o >= OpSegmentAllocated && o <= OpOutOfMemory
}

// AllocatesBlock reports whether the operation allocates a block.
func (o AllocatorOp) AllocatesBlock() bool { return o == OpBlockAllocated || o == OpReportedAlloc }

// isReportedStatistic reports whether the event comes from the allocator's reported statistics.
func (o AllocatorOp) isReportedStatistic() bool { return o == OpReportedAlloc || o == OpReportedFree }

// ConcernsBlock reports whether the operation allocates or frees a block.
func (o AllocatorOp) ConcernsBlock() bool {
	return o <= OpBlockFreeCompleted || o.isReportedStatistic()
}

// ProvesSegment reports whether the event proves that the allocator has memory from the driver. A
// reported block lies in such memory.
func (o AllocatorOp) ProvesSegment() bool { return o.ChangesSegment() || o == OpReportedAlloc }

// ChangesSegment reports whether the allocator got memory from the driver or returned it.
func (o AllocatorOp) ChangesSegment() bool { return o >= OpSegmentAllocated && o <= OpSegmentUnmapped }

// AllocatorKey identifies an allocator: each process has one for each device.
type AllocatorKey struct{ Pid, Device int32 }

// AllocatorNumbers numbers the allocators in the order of their first events.
type AllocatorNumbers struct {
	Keys []AllocatorKey
	ids  map[AllocatorKey]int32
	last int32 // cache of the latest result of NumberOf
}

// NewAllocatorNumbers returns an empty Numbers.
func NewAllocatorNumbers() AllocatorNumbers {
	return AllocatorNumbers{ids: make(map[AllocatorKey]int32)}
}

// NumberOf returns the number of an allocator. A new allocator gets the next number.
func (n *AllocatorNumbers) NumberOf(key AllocatorKey) int32 {
	if last := n.last; int(last) < len(n.Keys) && n.Keys[last] == key {
		return last
	}
	id := origin.NumberOfKey(n.ids, key)
	if int(id) == len(n.Keys) {
		n.Keys = append(n.Keys, key)
	}
	n.last = id
	return id
}

// SnapshotActionsByOp maps operations to PyTorch's names for them in a memory snapshot.
var SnapshotActionsByOp = map[AllocatorOp]string{
	OpBlockAllocated:     "alloc",
	OpBlockFreeRequested: "free_requested",
	OpBlockFreeCompleted: "free_completed",
	OpSegmentAllocated:   "segment_alloc",
	OpSegmentFreed:       "segment_free",
	OpSegmentMapped:      "segment_map",
	OpSegmentUnmapped:    "segment_unmap",
	OpOutOfMemory:        "oom",
	OpSnapshotTaken:      "snapshot",
	OpReportedAlloc:      "alloc",
	OpReportedFree:       "free_completed",
}
