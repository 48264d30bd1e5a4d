package format

// Rows of kind allocator_block are the state of a caching allocator when the recording began to see its events: what
// was allocated before. All rows of one state have the same Pid, Device, StartNs and DurNs. Since 1.2.
//
// A segment has one row, and each of its blocks has one. The blocks cover the segment. Events of the allocator before
// StartNs are in the state, later ones are not. There is none from StartNs to StartNs+DurNs.

// KindAllocatorBlock is a block or a segment of a caching allocator that existed at StartNs. Name is one of the constants
// below. Ptr and Bytes are its address and size, SrcPtr its private pool as in rows of kind allocator, Stream its
// stream. AllocatedBytes and ReservedBytes are the allocator's totals. The class is ClassFact. Since 1.2.
const KindAllocatorBlock = "allocator_block"

// Values of Row.Name in rows of kind allocator_block.
const (
	// BlockAllocated is a block that the program uses. Value is the requested size in bytes.
	BlockAllocated = "allocated"
	// BlockAwaitsStream is a block that the program freed, and a stream still uses. Value is the requested size.
	BlockAwaitsStream = "awaits_stream"
	// BlockCached is free memory of a segment.
	BlockCached = "cached"
	// BlockSegment is a segment: one allocation from the driver. Message says which blocks it has: BlocksSmall or
	// BlocksLarge.
	BlockSegment = "segment"
	// BlockMappedRange is a contiguous range of mapped memory of an expandable segment. Message is as for BlockSegment.
	BlockMappedRange = "mapped_range"
)

// Values of Row.Message in rows of segments.
const (
	BlocksSmall = "small" // requests of at most 1 MiB
	BlocksLarge = "large"
)

// NoteAllocatorState is the name of notes whose message is an AllocatorStateFact as JSON. There is one for each
// allocator that was read or refused. Since 1.2.
const NoteAllocatorState = "allocator_state"

// AllocatorStateFact says whether the state of a caching allocator was read when recording its events began. The note's
// Pid and Device name the allocator. Device is -1 if no device's allocator was found.
type AllocatorStateFact struct {
	// Refused is the reason why the state is unknown, as a clause. If it is empty, the state is in rows of kind
	// allocator_block with the StartNs of the note. An allocator without segments has no such rows.
	Refused string `json:"refused,omitempty"`
	// Blocks and Segments are the numbers of rows: of blocks that the program or a stream uses, and of segments.
	Blocks   int `json:"blocks,omitempty"`
	Segments int `json:"segments,omitempty"`
	// Tries is how often the allocator was read until it did not change meanwhile. ReadNs is how long the last reading
	// took.
	Tries  int   `json:"tries,omitempty"`
	ReadNs int64 `json:"read_ns,omitempty"`
	// LimitBytes is the limit of reserved bytes that the program had set when the state was read, as with
	// torch.cuda.set_per_process_memory_fraction. 0: none was set, or it is unknown. Since 1.4.
	LimitBytes int64 `json:"limit_bytes,omitempty"`
}
