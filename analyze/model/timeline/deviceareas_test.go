package timeline_test

import (
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

// TestDevicesOfOldContexts checks that contexts that are older than the recording get the device of
// the memory that their fills and copies use, and copies between the memory of two devices are known.
func TestDevicesOfOldContexts(t *testing.T) {
	testclass.Unit(t)
	const first, second, both, few = 0xa0, 0xb0, 0xc0, 0xd0
	const onFirst, onSecond, unknown = int64(0x7f00_0000_0000), int64(0x7f80_0000_0000), int64(0x7fc0_0000_0000)
	recording := analyzetest.NewTestRecording(t)
	recording.AddTwoGPUs()
	for i, ptr := range []int64{onFirst, onSecond} {
		recording.AddRow(format.Row{
			Kind: format.KindAllocator, Name: format.AllocatorAlloc, StartNs: analyzetest.Epoch + 5, Pid: 44, Tid: 44,
			MemoryKind: format.MemoryTorch, Device: int32(i), Ptr: ptr, Bytes: 20 << 20, StackStatus: format.StackNone,
			AllocatedBytes: 20 << 20, ReservedBytes: 20 << 20,
		})
	}
	at := int64(10)
	fill := func(context, ptr int64) {
		at += 10
		r := recording.AddCall(format.KindMemset, "cuMemsetD8Async", at, 5)
		r.Ptr, r.Bytes, r.Context, r.Device, r.Pid = ptr, 512, context, -1, 44
	}
	for range 20 {
		fill(first, onFirst+4<<20)
		fill(both, onFirst)
		fill(both, onSecond)
		at += 10
		copied := recording.AddCopy("cuMemcpyDtoHAsync_v2", "DtoH", at, 5, 0x1000, onSecond+19<<20, 4)
		copied.Context, copied.Device, copied.Pid = second, -1, 44
	}
	fill(first, onSecond) // memory of a peer
	fill(few, onFirst)
	fill(first, unknown)

	tl := recording.Timeline()
	for context, want := range map[int64]int32{first: 0, second: 1, both: -1, few: -1} {
		if got := tl.DeviceOfCall(44, context, -1); got != want {
			t.Errorf("context %#x: device %d, want %d", context, got, want)
		}
	}
	peers, err := tl.ReadPeerCopies()
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		to, from int64
		want     bool
	}{
		{onFirst, onSecond, true},
		{onSecond + 20<<20 - 1, onFirst, true},
		{onFirst, onFirst + 1<<20, false},
		{onFirst, unknown, false},
		{onSecond + 20<<20, onFirst, false}, // behind the block
	} {
		if got := peers.Has(44, c.to, c.from); got != c.want {
			t.Errorf("copy to %#x from %#x: %v", c.to, c.from, got)
		}
	}
	if peers.Has(43, onFirst, onSecond) {
		t.Error("addresses of another process are known")
	}
}
