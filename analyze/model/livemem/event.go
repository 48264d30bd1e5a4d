package livemem

// MemoryEvent is a change of live memory that does not come from a memory call.
type MemoryEvent struct {
	AtNs       int64
	Pid        int32
	Kind       EventKind
	Ptr, Bytes int64
	// Context is the handle of a context that ends. 0 means all contexts on the device that the
	// program did not create itself.
	Context int64
	Device  int32
	// Step is the size of the pieces of physical memory that are mapped to an earlier segment, bytes. 0: the segment is
	// one allocation.
	Step int64
	// IsPrimary is set if the context that ends is the primary context of Device.
	IsPrimary bool
	// Last is set if the process allocates nothing afterwards. The program did not intend to
	// continue without the memory, so the memory counts as not freed.
	Last bool
}

// EventKind is the kind of an Event, such as the end of a context.
type EventKind uint8

const (
	EventGraphAlloc   EventKind = iota // a graph has a node that allocates memory
	EventMappedBuffer                  // a buffer of another API was mapped
	EventMappedArray                   // an array of another API was mapped
	EventContextEnd                    // a CUDA context was destroyed
	EventProcessExit                   // a process ended
	// EventEarlierSegment: a caching allocator had a segment at Ptr before the recording, or has it now.
	EventEarlierSegment
)
