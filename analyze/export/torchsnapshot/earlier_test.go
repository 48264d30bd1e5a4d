package torchsnapshot_test

import (
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/export/torchsnapshot"
	"github.com/gpurec/gpurec/analyze/model/state"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

// TestSnapshotHasEarlierBlocks reads the state of an allocator in a recording without its first events.
func TestSnapshotHasEarlierBlocks(t *testing.T) {
	testclass.Unit(t)
	recording := analyzetest.NewTestRecording(t)
	s := state.AllocatorState{
		Pid: 42, Ranges: []state.AllocatorRange{{Ptr: 0x7e0000000000, Bytes: 20 << 20}},
		Blocks: []state.AllocatorBlock{
			{Ptr: 0x7e0000000000, Bytes: 4 << 20, Requested: 4<<20 - 8},
			{Ptr: 0x7e0000400000, Bytes: 2 << 20, Requested: 2 << 20, Awaiting: true},
		},
	}
	s.Allocated, s.Reserved = 4<<20, 20<<20
	recording.Rows = append(recording.Rows, analyzetest.EarlierRows(&s, analyzetest.Epoch+analyzetest.Second)...)
	recording.AddRow(format.Row{
		Kind: format.KindAllocator, Name: format.AllocatorAlloc, MemoryKind: format.MemoryTorch, Pid: 42, Tid: 42,
		StartNs: analyzetest.Epoch + 2*analyzetest.Second, Ptr: 0x7e0000600000, Bytes: 2 << 20,
		AllocatedBytes: 4 << 20, ReservedBytes: 20 << 20,
	})
	snapshot, err := torchsnapshot.NewSnapshot(recording.Timeline(), torchsnapshot.Options{At: query.MomentEnd})
	if err != nil {
		t.Fatal(err)
	}
	totals := snapshot.Totals
	if snapshot.Segments != 1 || snapshot.Blocks != 3 || totals.Allocated != 6<<20 || totals.Active != 8<<20 ||
		totals.Reserved != 20<<20 ||
		totals.Requested != 8<<20-8 ||
		totals.InactiveSplit != 12<<20 ||
		len(snapshot.Missing) != 0 {
		t.Errorf(
			"%d segments, %d blocks, %+v, missing %v",
			snapshot.Segments,
			snapshot.Blocks,
			totals,
			snapshot.Missing,
		)
	}
}
