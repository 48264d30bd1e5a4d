package livemem

// Event changes memory and is told by another row than that of a memory call.
type Event struct {
	AtNs       int64
	Pid        int32
	Kind       EventKind
	Ptr, Bytes int64
	// Of a context that ends: its handle, or 0 for all contexts on the device that
	// the program did not make itself.
	Context int64
	Device  int32
	// last: the process allocates nothing afterwards. Nobody meant to go on without
	// that memory, so it is what the program did not free.
	Last bool
}

type EventKind uint8

const (
	EventGraphAlloc EventKind = iota
	EventMappedBuffer
	EventMappedArray
	EventContextEnd
	EventExit
)
