package analyzetest

import (
	"maps"
	"slices"
	"testing"

	"github.com/gpurec/gpurec/format"
)

// TestAllocator is a caching allocator whose blocks are read at regular times, as by record --blocks-every. Each pool
// and stream has one segment, of testSegmentBytes.
type TestAllocator struct {
	Pid, Device int32
	// CompleteEvery is the number of readings from one that lists all blocks to the next one.
	CompleteEvery int

	recording *TestRecording
	blocks    map[int64]TestBlock // by address
	segments  map[int64]TestBlock
	listed    map[int64]TestBlock   // blocks and segments of the last reading
	spare     map[TestBlock][]int64 // addresses of freed blocks, by the block without its address
	next      int64
	readings  int
}

// TestBlock is a block or a segment of a TestAllocator. Name is that of its rows.
type TestBlock struct {
	Name                                string
	Ptr, Bytes, Requested, Pool, Stream int64
}

// The address of the first segment, and the size of all segments.
const (
	testSegmentBase  = int64(0x7f00_0000_0000)
	testSegmentBytes = int64(16 << 30)
)

// NewTestAllocator returns an allocator without blocks.
func NewTestAllocator(recording *TestRecording, pid, device int32) *TestAllocator {
	return &TestAllocator{
		Pid: pid, Device: device, CompleteEvery: 64, recording: recording, blocks: make(map[int64]TestBlock),
		segments: make(map[int64]TestBlock), spare: make(map[TestBlock][]int64),
	}
}

// Alloc allocates a block of the default pool and stream.
func (a *TestAllocator) Alloc(requested int64) (ptr int64) { return a.AllocIn(requested, 0, 0) }

// AllocIn allocates a block of a pool and a stream. It takes the address of the last equal block that was freed.
func (a *TestAllocator) AllocIn(requested, pool, stream int64) (ptr int64) {
	b := TestBlock{
		Name:      format.BlockAllocated,
		Bytes:     (requested + 511) / 512 * 512,
		Requested: requested,
		Pool:      pool,
		Stream:    stream,
	}
	if n := len(a.spare[b]); n > 0 {
		ptr, a.spare[b] = a.spare[b][n-1], a.spare[b][:n-1]
	} else {
		ptr = a.segmentOf(pool, stream) + a.next
		a.next += b.Bytes
	}
	b.Ptr = ptr
	a.blocks[ptr] = b
	return ptr
}

// segmentOf returns the address of the segment of a pool and a stream.
func (a *TestAllocator) segmentOf(pool, stream int64) int64 {
	for ptr, s := range a.segments {
		if s.Pool == pool && s.Stream == stream {
			return ptr
		}
	}
	ptr := testSegmentBase + testSegmentBytes*int64(len(a.segments))
	a.segments[ptr] = TestBlock{
		Name: format.BlockSegment, Ptr: ptr, Bytes: testSegmentBytes, Pool: pool, Stream: stream,
	}
	return ptr
}

// AwaitStream frees a block that a stream still uses.
func (a *TestAllocator) AwaitStream(ptr int64) {
	b := a.blocks[ptr]
	b.Name = format.BlockAwaitsStream
	a.blocks[ptr] = b
}

// Free frees a block.
func (a *TestAllocator) Free(ptr int64) {
	b := a.blocks[ptr]
	delete(a.blocks, ptr)
	b.Name, b.Ptr = format.BlockAllocated, 0
	a.spare[b] = append(a.spare[b], ptr)
}

// FreeAll frees the blocks at addresses.
func (a *TestAllocator) FreeAll(list []int64) {
	for _, ptr := range list {
		a.Free(ptr)
	}
}

// Blocks returns the blocks in order of address.
func (a *TestAllocator) Blocks() (list []TestBlock) {
	for _, ptr := range slices.Sorted(maps.Keys(a.blocks)) {
		list = append(list, a.blocks[ptr])
	}
	return list
}

// Refuse adds a reading that the recorder refused.
func (a *TestAllocator) Refuse(at int64, reason string) *format.Row {
	row := a.newRow(at)
	row.Name, row.Message = format.BlocksRefused, reason
	return a.recording.AddRow(row)
}

func (a *TestAllocator) newRow(at int64) format.Row {
	return format.Row{
		Kind: format.KindBlock, StartNs: Epoch + at, Pid: a.Pid, Device: a.Device, MemoryKind: format.MemoryTorch,
	}
}

// Read adds the rows of a reading, and returns them.
func (a *TestAllocator) Read(at int64) (rows []*format.Row) {
	now := maps.Clone(a.blocks)
	maps.Copy(now, a.segmentKeys())
	row := a.newRow(at)
	row.DurNs = 100 * Us
	for _, b := range a.blocks {
		if b.Name == format.BlockAllocated {
			row.AllocatedBytes += b.Bytes
		}
	}
	row.ReservedBytes = testSegmentBytes * int64(len(a.segments))
	first := row
	first.Name, first.Value, first.Bytes = format.BlocksRead, float64(len(a.blocks)), 8<<10
	if a.readings%a.CompleteEvery == 0 {
		first.Message, a.listed = format.BlocksComplete, nil
	}
	a.readings++
	rows = append(rows, a.recording.AddRow(first))
	for _, key := range slices.Sorted(maps.Keys(a.listed)) {
		if _, ok := now[key]; !ok {
			gone := row
			gone.Name, gone.Ptr = format.BlockGone, key
			rows = append(rows, a.recording.AddRow(gone))
		}
	}
	for _, key := range slices.Sorted(maps.Keys(now)) {
		if b := now[key]; b != a.listed[key] {
			r := row
			r.Name, r.Ptr, r.Bytes, r.Value = b.Name, b.Ptr, b.Bytes, float64(b.Requested)
			r.SrcPtr, r.Stream = b.Pool, b.Stream
			if b.Name == format.BlockSegment {
				r.Message = format.BlocksLarge
			}
			rows = append(rows, a.recording.AddRow(r))
		}
	}
	a.listed = now
	return rows
}

// segmentKeys returns the segments by keys that no block has.
func (a *TestAllocator) segmentKeys() map[int64]TestBlock {
	keys := make(map[int64]TestBlock)
	for ptr, s := range a.segments {
		keys[-ptr] = s
	}
	return keys
}

// BlocksRecording returns a recording of a minute without events of allocators. A training reads its blocks each second
// on two devices. On device 0, blocks of 128 KiB grow, a cache of blocks of 1 MiB fills up, temporary blocks come and
// go, and a CUDA graph has a private pool. Three readings are refused. On device 1, all blocks stay. One reading of it
// does not add up.
func BlocksRecording(t testing.TB) *TestRecording {
	recording := NewTestRecording(t)
	recording.AddRow(format.Row{
		Kind: format.KindProcess, Name: "train", Pid: 42, StartNs: Epoch, Device: -1, Message: `{"exe":"/app/train"}`,
	})
	first, second := NewTestAllocator(recording, 42, 0), NewTestAllocator(recording, 42, 1)
	second.CompleteEvery = 16
	for range 24 {
		first.Alloc(4 << 20)
		second.Alloc(4 << 20)
	}
	for range 8 {
		first.AllocIn(2<<20, -3, 0x7f11)
	}
	var temporary []int64
	for i := range int64(60) {
		first.FreeAll(temporary)
		temporary = nil
		for range i * 7 % 5 {
			temporary = append(temporary, first.Alloc(300_000))
		}
		for range 10 {
			first.Alloc(128 << 10)
		}
		if i < 24 {
			first.Alloc(1 << 20)
		}
		at := 500*Ms + i*Second
		if i%20 == 13 {
			first.Refuse(at, "the allocator is busy")
		} else {
			first.Read(at)
		}
		if rows := second.Read(at + 300*Ms); i == 30 {
			rows[0].Value++
		}
	}
	return recording
}
