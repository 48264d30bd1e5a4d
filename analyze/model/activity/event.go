package activity

// Sample is one read of a progress word. SeenNs is a time of the recording before the read, in Unix
// ns. GPUTimeNs is the start of operation Counter by the GPU's own clock; on the channel of a copy engine, the
// end of copy Counter.
type Sample struct {
	SeenNs, Counter, GPUTimeNs int64
	Channel                    int32
}

// Channel is the life of one progress word. ToNs is UnknownNs if the word lived until the end.
// Times are Unix ns.
type Channel struct {
	Number, Pid, Device int32 // Device is -1 if it is unknown
	FirstCounter        int64 // counter at FromNs
	FromNs, ToNs        int64
}

// Op is the effect of a call on channels.
type Op uint8

// Kinds of Op. Calls of the kinds up to OpCopyToHost add one operation to a channel.
const (
	OpKernel       Op = iota // launches a kernel
	OpGraph                  // launches a graph
	OpFill                   // sets device memory
	OpCopyOnDevice           // copies device memory, on the channel of the stream
	OpRecordEvent            // records an event with timing
	OpCopyToDevice           // copies host memory to the device, on the channel that Call.Place names
	OpCopyToHost             // copies device memory to the host, on a copy channel

	OpMarkEvent   // records an event without timing, which is no operation
	OpWaitStream  // returns after all work of a stream
	OpWaitContext // returns after all work of a context
	OpWaitEvent   // returns after the record of an event
	OpHoldStream  // makes a stream wait for an event
	OpEndStream   // destroys a stream
	OpEndContext  // destroys a context and its streams
	OpEndDevice   // destroys all contexts of a device
)

// opNames are the names of operations in reports.
var opNames = [...]string{
	OpKernel: "kernel", OpGraph: "graph", OpFill: "memset", OpCopyOnDevice: "copy DtoD",
	OpRecordEvent: "event record", OpCopyToDevice: "copy HtoD", OpCopyToHost: "copy DtoH",
}

// String returns the name of operations of the kind, or "" if the kind adds no work.
func (o Op) String() string {
	if !o.IsOperation() {
		return ""
	}
	return opNames[o]
}

// runsOnEngine reports whether a copy engine runs the operation of a call.
func (c *Call) runsOnEngine() bool {
	return c.Op == OpCopyToHost || c.Op == OpCopyToDevice && c.Place == OnEngine
}

// hasNoPlace reports whether it is unknown which channel runs the operation of a call.
func (c *Call) hasNoPlace() bool { return c.Op == OpCopyToDevice && c.Place == AnyPlace }

// IsOperation reports whether the call adds an operation to a channel.
func (o Op) IsOperation() bool { return o <= OpCopyToHost }

// Stream handles with a special meaning. Handle 0 must be replaced by one of them.
const (
	LegacyStream    = 1 // the legacy default stream of a context
	PerThreadStream = 2 // the default stream of a thread in a context
)

// RecordedHandle returns the handle of a stream as in the recording, where the default streams have the
// handle 0.
func RecordedHandle(stream int64) int64 {
	if stream == LegacyStream || stream == PerThreadStream {
		return 0
	}
	return stream
}

// Call is a successful call that adds work to a channel, waits for work, or ends a stream. EndNs is
// UnknownNs if the return was not recorded. Times are Unix ns.
type Call struct {
	StartNs, EndNs         int64
	Context, Stream, Event int64
	ID                     int64 // chosen by the Source; the package only copies it
	Pid, Tid, Device       int32
	StartsEarly            bool  // the kernel may begin before the operation before it on its stream has ended
	Label                  int32 // number in Result.Labels: a kernel with its grid, a graph, a size; -1: none
	Stack                  int32 // number of the stack; 0: none
	Op                     Op
	Hold                   HoldKind // of OpHoldStream
	Waits                  bool     // the call adds an operation, and returns after its end
	AnyTiming              bool     // of OpRecordEvent: the event may have no timing
	LikelyTiming           bool     // of OpRecordEvent with AnyTiming: it probably has timing
	Place                  Place    // of OpCopyToDevice
	Blocks                 int64    // of OpKernel: thread blocks of the grid; 0: unknown
}

// Place is the channel that runs a copy to the device.
type Place uint8

// Kinds of Place.
const (
	OnEngine Place = iota // the channel of a copy engine
	OnStream              // the channel of the stream
	AnyPlace              // one of these two
)

// Window is a span of time in Unix ns.
type Window struct{ FromNs, ToNs int64 }

// Consumer receives the calls and samples of a recording in the order of StartNs and SeenNs.
type Consumer interface {
	AddCall(*Call)
	AddSample(*Sample)
}

// Source replays a recording into a Consumer. Every replay gives the same calls and samples.
type Source func(Consumer) error
