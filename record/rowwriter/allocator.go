//go:build linux

package rowwriter

import (
	"github.com/gpurec/gpurec/bpf"
	"github.com/gpurec/gpurec/format"
)

// allocatorActionNames maps bpf.CudaAllocatorAction to the names of actions in a recording.
var allocatorActionNames = [...]string{
	bpf.CudaAllocatorActionACTION_ALLOC:          format.AllocatorAlloc,
	bpf.CudaAllocatorActionACTION_FREE_REQUESTED: format.AllocatorFreeRequested,
	bpf.CudaAllocatorActionACTION_FREE_COMPLETED: format.AllocatorFreeCompleted,
	bpf.CudaAllocatorActionACTION_SEGMENT_ALLOC:  format.AllocatorSegmentAlloc,
	bpf.CudaAllocatorActionACTION_SEGMENT_FREE:   format.AllocatorSegmentFree,
	bpf.CudaAllocatorActionACTION_SEGMENT_MAP:    format.AllocatorSegmentMap,
	bpf.CudaAllocatorActionACTION_SEGMENT_UNMAP:  format.AllocatorSegmentUnmap,
	bpf.CudaAllocatorActionACTION_SNAPSHOT:       format.AllocatorSnapshot,
	bpf.CudaAllocatorActionACTION_OOM:            format.AllocatorOOM,
}

// setAllocatorEventColumns sets the columns of an event that read_trace of allocator.h has decoded.
func setAllocatorEventColumns(row *format.Row, e *bpf.CudaEvent) {
	setAllocatorTotals(row, e)
	row.Name = "other"
	if int(e.Grid[0]) < len(allocatorActionNames) {
		row.Name = allocatorActionNames[e.Grid[0]]
	}
	if row.Name == format.AllocatorOOM {
		row.Value, row.Ptr = float64(e.Ptr), 0
	}
}

// setAllocatorReportColumns sets the columns of an event that read_report of allocator.h has
// decoded.
func setAllocatorReportColumns(row *format.Row, e *bpf.CudaEvent) {
	setAllocatorTotals(row, e)
	row.Name = format.AllocatorReportedAlloc
	if row.Bytes < 0 {
		row.Name, row.Bytes = format.AllocatorReportedFree, -row.Bytes
	}
}

// setAllocatorTotals sets the columns that all allocator events share.
func setAllocatorTotals(row *format.Row, e *bpf.CudaEvent) {
	row.Flags &^= format.FlagNoReturn // an allocator event has no duration
	row.Context = 0
	row.AllocatedBytes = int64(e.Grid[1]) | int64(e.Grid[2])<<32
	row.ReservedBytes = int64(e.Block[0]) | int64(e.Block[1])<<32
}
