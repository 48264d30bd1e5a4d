package caching

import (
	"github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/format"
)

// Event is an event of a framework's caching allocator. It is small, because a window of events is
// held in memory and sorted. An allocator holds a lock while it works, so its events are in order
// of time.
type Event struct {
	AtNs      int64 // time of the event, Unix ns
	Ptr       int64 // address; for OutOfMemory the free bytes of the device
	Bytes     int64 // size; for blocks the requested size
	Pool      int64 // number of the private pool; 0: none
	Stream    int64
	Allocated int64 // allocated bytes that the allocator reports at this event; negative: unknown
	Reserved  int64 // reserved bytes that the allocator reports at this event; negative: unknown
	Allocator int32 // number of the allocator in Numbers
	Origin    int32 // origin of the call, if the event has a stack; otherwise origin.None
	Op        Op
}

// Op is the operation of an allocator in an Event or a Change.
type Op uint8

const (
	BlockAllocated     Op = iota // the allocator gave a block to the program
	BlockFreeRequested           // the program freed a block
	BlockFreeCompleted           // no stream uses the freed block any more
	SegmentAllocated             // a segment was allocated from the driver
	SegmentFreed                 // a segment was returned to the driver
	SegmentMapped                // an expandable segment grew by mapped memory
	SegmentUnmapped              // an expandable segment unmapped memory
	OutOfMemory                  // the allocator could not allocate a block
	SnapshotTaken                // the program took a snapshot of the allocator
	// from reported statistics, see reported.go; emitted as BlockAllocated
	ReportedAlloc
	ReportedFree // from reported statistics; emitted as BlockFreeRequested

	// The model emits these operations; no event has them.
	BlockResized // the size of a block was corrected
	BlockLost    // the free of a block was not recorded
	AllocatorEnd // the process ended, and its allocator with it
)

// OpsByName maps the names of allocator events in a recording to their operations.
var OpsByName = map[string]Op{
	format.AllocatorAlloc:         BlockAllocated,
	format.AllocatorFreeRequested: BlockFreeRequested,
	format.AllocatorFreeCompleted: BlockFreeCompleted,
	format.AllocatorSegmentAlloc:  SegmentAllocated,
	format.AllocatorSegmentFree:   SegmentFreed,
	format.AllocatorSegmentMap:    SegmentMapped,
	format.AllocatorSegmentUnmap:  SegmentUnmapped,
	format.AllocatorOOM:           OutOfMemory,
	format.AllocatorSnapshot:      SnapshotTaken,
	format.AllocatorReportedAlloc: ReportedAlloc,
	format.AllocatorReportedFree:  ReportedFree,
}

// IsBegin reports whether the program requested memory. Only such events have a stack.
func (w Op) IsBegin() bool {
	return w.IsAlloc() || w >= SegmentAllocated && w <= OutOfMemory
}

// IsAlloc reports whether the operation allocates a block.
func (w Op) IsAlloc() bool { return w == BlockAllocated || w == ReportedAlloc }

// isReport reports whether the event comes from the allocator's reported statistics.
func (w Op) isReport() bool { return w == ReportedAlloc || w == ReportedFree }

// IsOfBlock reports whether the operation allocates or frees a block.
func (w Op) IsOfBlock() bool {
	return w <= BlockFreeCompleted || w.isReport()
}

// HasSegments reports whether the event proves that the allocator has memory from the driver. A
// reported block lies in such memory.
func (w Op) HasSegments() bool { return w.IsSegment() || w == ReportedAlloc }

// IsSegment reports whether the allocator got memory from the driver or returned it.
func (w Op) IsSegment() bool { return w >= SegmentAllocated && w <= SegmentUnmapped }

// Key identifies an allocator: each process has one for each device.
type Key struct{ Pid, Device int32 }

// Numbers numbers the allocators in the order of their first events.
type Numbers struct {
	Keys []Key
	ids  map[Key]int32
	last int32 // cache: the latest result of ID
}

// NewNumbers returns an empty Numbers.
func NewNumbers() Numbers {
	return Numbers{ids: make(map[Key]int32)}
}

// ID returns the number of an allocator. A new allocator gets the next number.
func (n *Numbers) ID(key Key) int32 {
	if last := n.last; int(last) < len(n.Keys) && n.Keys[last] == key {
		return last
	}
	id := origin.Numbered(n.ids, key)
	if int(id) == len(n.Keys) {
		n.Keys = append(n.Keys, key)
	}
	n.last = id
	return id
}

// ActionsByOp maps operations to PyTorch's names for them in a memory snapshot.
var ActionsByOp = map[Op]string{
	BlockAllocated:     "alloc",
	BlockFreeRequested: "free_requested",
	BlockFreeCompleted: "free_completed",
	SegmentAllocated:   "segment_alloc",
	SegmentFreed:       "segment_free",
	SegmentMapped:      "segment_map",
	SegmentUnmapped:    "segment_unmap",
	OutOfMemory:        "oom",
	SnapshotTaken:      "snapshot",
	ReportedAlloc:      "alloc",
	ReportedFree:       "free_completed",
}
