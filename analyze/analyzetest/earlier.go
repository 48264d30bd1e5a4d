package analyzetest

import (
	"fmt"

	"github.com/gpurec/gpurec/analyze/model/caching"
	"github.com/gpurec/gpurec/analyze/model/state"
	"github.com/gpurec/gpurec/format"
)

// EarlierRows returns the rows of an allocator's state that was read at a time (Unix ns) from the memory of the process.
// The state must have all blocks.
func EarlierRows(s *state.AllocatorState, atNs int64) (rows []*format.Row) {
	base := format.Row{
		Kind: format.KindAllocatorBlock, StartNs: atNs, DurNs: 1000, Pid: s.Pid, Device: s.Device,
		MemoryKind: format.MemoryTorch, AllocatedBytes: s.Allocated, ReservedBytes: s.Reserved,
	}
	add := func(name string, ptr, bytes int64) *format.Row {
		r := base
		r.Name, r.Ptr, r.Bytes = name, ptr, bytes
		rows = append(rows, &r)
		return &r
	}
	blocks := s.Blocks
	for _, g := range s.Ranges {
		base.Stream, base.SrcPtr = g.Stream, g.Pool
		name := format.BlockSegment
		if g.Expandable {
			name = format.BlockMappedRange
		}
		size := format.BlocksLarge
		if g.Bytes == caching.SmallSegmentBytes {
			size = format.BlocksSmall
		}
		add(name, g.Ptr, g.Bytes).Message = size
		at := g.Ptr
		for len(blocks) > 0 && blocks[0].Ptr < g.Ptr+g.Bytes {
			b := blocks[0]
			if b.Ptr > at {
				add(format.BlockCached, at, b.Ptr-at)
			}
			name := format.BlockAllocated
			if b.Awaiting {
				name = format.BlockAwaitsStream
			}
			add(name, b.Ptr, b.Bytes).Value = float64(b.Requested)
			at, blocks = b.Ptr+b.Bytes, blocks[1:]
		}
		if at < g.Ptr+g.Bytes {
			add(format.BlockCached, at, g.Ptr+g.Bytes-at)
		}
	}
	note := format.Row{
		Kind: format.KindNote, Name: format.NoteAllocatorState, StartNs: atNs, Pid: s.Pid, Device: s.Device,
		Message: fmt.Sprintf(`{"segments":%d,"tries":1}`, len(s.Ranges)),
	}
	return append(rows, &note)
}
