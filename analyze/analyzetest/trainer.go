package analyzetest

import (
	"testing"

	"github.com/gpurec/gpurec/format"
)

// SmallAllocatorRecording returns a small recording of a caching allocator: two segments, a private
// pool, a block that waits for a stream, and an out-of-memory event.
func SmallAllocatorRecording(t testing.TB) *TestRecording {
	recording := NewTestRecording(t)
	recording.AddRow(format.Row{Kind: format.KindProcess, Name: "train", Pid: 42, StartNs: Epoch, Device: -1})
	recording.AddRow(
		format.Row{
			Kind:    format.KindNote,
			Name:    format.NoteAllocator,
			Pid:     42,
			StartNs: Epoch,
			Message: `{"allocator":"torch","version":"2.11.0+cu130"}`,
		},
	)
	var allocated, reserved int64
	event := func(at int64, name string, ptr, bytes int64) *format.Row {
		return recording.AddRow(format.Row{
			Kind:           format.KindAllocator,
			Name:           name,
			StartNs:        Epoch + at,
			Pid:            42,
			Tid:            42,
			MemoryKind:     format.MemoryTorch,
			Ptr:            ptr,
			Bytes:          bytes,
			StackStatus:    format.StackNone,
			AllocatedBytes: allocated,
			ReservedBytes:  reserved,
		})
	}
	const small, large = int64(0x7f0000000000), int64(0x7f0000200000)
	reserved += 2 * Mib
	event(Second, format.AllocatorSegmentAlloc, small, 2*Mib)
	event(Second+1, format.AllocatorAlloc, small, 1000)
	allocated += 1024
	reserved += 20 * Mib
	event(2*Second, format.AllocatorSegmentAlloc, large, 20*Mib).SrcPtr = -3
	event(2*Second+1, format.AllocatorAlloc, large, 4*Mib).SrcPtr = -3
	allocated += 4 * Mib
	event(3*Second, format.AllocatorAlloc, small+1024, 512)
	allocated += 512
	event(20*Second, format.AllocatorOOM, 0, 1<<40).Value = float64(3 * Mib)
	allocated -= 1024
	event(30*Second, format.AllocatorFreeRequested, small, 1000)
	allocated -= 512
	event(31*Second, format.AllocatorFreeRequested, small+1024, 512)
	event(31*Second+1, format.AllocatorFreeCompleted, small+1024, 512)
	return recording
}
