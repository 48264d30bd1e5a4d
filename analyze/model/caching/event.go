package caching

import (
	"github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/format"
)

// Event is what a framework's caching allocator told, small because a window
// of them is held and sorted. An allocator works under a lock: its events are in
// order of their times.
type Event struct {
	AtNs      int64
	Ptr       int64 // of an out-of-memory: what the device had free, bytes
	Bytes     int64 // of blocks: as asked for
	Pool      int64 // private pool, 0 is none
	Stream    int64
	Allocated int64 // the allocator's own totals at this moment; negative: not known
	Reserved  int64
	Allocator int32 // number of process and device, see Timeline.allocators
	Origin    int32 // of an event with a stack, else origin.None
	Op        Op
}

// Op says what an allocator did.
type Op uint8

const (
	BlockAllocated Op = iota
	BlockFreeRequested
	BlockFreeCompleted
	SegmentAllocated
	SegmentFreed
	SegmentMapped   // expandable segments grow by pieces
	SegmentUnmapped // and shrink
	OutOfMemory
	SnapshotTaken // somebody took a snapshot
	ReportedAlloc // what reports tell, see reported.go: handed out as BlockAllocated
	ReportedFree  // and as BlockFreeRequested

	// What no event tells, but the model.
	BlockResized // how large a block is became known better
	BlockLost    // the end of a block was not recorded
	AllocatorEnd // the process ended, and its allocator with all that it held
)

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

// IsBegin reports whether a place in the program asked for this; only then the event
// has a stack.
func (w Op) IsBegin() bool {
	return w.IsAlloc() || w >= SegmentAllocated && w <= OutOfMemory
}

// IsAlloc reports whether a block is handed out.
func (w Op) IsAlloc() bool { return w == BlockAllocated || w == ReportedAlloc }

// isReport reports whether this is told by an allocator's reports.
func (w Op) isReport() bool { return w == ReportedAlloc || w == ReportedFree }

// IsOfBlock reports whether a block is handed out or given back.
func (w Op) IsOfBlock() bool {
	return w <= BlockFreeCompleted || w.isReport()
}

// HasSegments reports whether an event tells of memory from the driver: a reported block
// lies in some.
func (w Op) HasSegments() bool { return w.IsSegment() || w == ReportedAlloc }

// IsSegment reports whether memory came from the driver or went back.
func (w Op) IsSegment() bool { return w >= SegmentAllocated && w <= SegmentUnmapped }

// Key names an allocator: there is one per process and device.
type Key struct{ Pid, Device int32 }

// Numbers number allocators in the order in which they are met.
type Numbers struct {
	Keys []Key
	ids  map[Key]int32
	last int32 // number of the one that was asked for last
}

func NewNumbers() Numbers {
	return Numbers{ids: make(map[Key]int32)}
}

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

// ActionsByOp are the events by PyTorch's names for them.
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
