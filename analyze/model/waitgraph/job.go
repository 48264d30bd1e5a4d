package waitgraph

import "github.com/gpurec/gpurec/analyze/model/collective"

// Job has the last operations of the ranks of a job.
type Job struct {
	Ranks         []Rank
	Communicators []Communicator
	// EndNs is the reported time, Unix ns. LongNs is the time without a new operation from which on a rank
	// stands still.
	EndNs, LongNs int64
	// ClockErrorNs returns the error of a difference between times of two ranks, ns. nil: no error.
	ClockErrorNs func(a, b int) int64
}

// Rank is a recorded process.
type Rank struct {
	// DeadNs is the time of the process's end, Unix ns. 0: it is alive.
	DeadNs int64
	// LastNs is the time of its last sign of progress, Unix ns: at least the start of its last operation.
	LastNs int64
	// EndNs is the end of its recording, Unix ns. 0: Job.EndNs.
	EndNs int64
	Host  Host
	// Operations are its last operations in program order. Earlier ones have ended.
	Operations []Operation
}

// Host says what the host of a rank does at Job.EndNs.
type Host uint8

// Values of Host.
const (
	HostUnknown   Host = iota
	HostWaits          // it is in a call that waits for its GPU
	HostElsewhere      // it is known to wait for no GPU
)

// NotRecorded is the value of Communicator.Members for ranks without a recording.
const NotRecorded = -1

// Communicator is a communicator of all its ranks.
type Communicator struct {
	ID int64
	// Members are indexes in Job.Ranks by rank in the communicator, or NotRecorded.
	Members []int
	// Entered is the number of the last collective that each member called, 0 if it called none. It matters
	// where Rank.Operations has no operation of the communicator.
	Entered []int64
	// Relative says that numbers of two members may differ by a constant. Their operations are not compared.
	Relative bool
	// RelativePeers says the same of Send and Recv.
	RelativePeers bool
}

// Progress says whether an operation has ended.
type Progress uint8

// Values of Progress.
const (
	Launched   Progress = iota // it was called; nothing says whether it has ended
	Unfinished                 // it has not ended: its call is open, the host waits for it, or the GPU runs it
	Done                       // it has ended
)

// Operation is a call of a collective, a Send or a Recv.
type Operation struct {
	Signature
	Communicator int   // index in Job.Communicators
	Number       int64 // of the communicator; of Send and Recv of the peer and direction. From 1 on.
	// Order is the position in the program of the rank. Operations of one group have the same order: they run
	// at the same time.
	Order    int64
	Stream   int64 // operations of a stream run in program order
	StartNs  int64 // Unix ns
	Progress Progress
	Ref      int // for the caller
}

// Signature has the arguments that must be equal on all ranks. The peer of Send and Recv is its Root.
type Signature struct {
	Function  collective.Function
	DataType  uint8
	Reduction uint8 // CustomReduction is equal to every value
	Root      int32
	Count     int64
}

// CustomReduction is the Reduction of operators that the program created. Their numbers are not compared.
const CustomReduction = 255

// matches reports whether two ranks that call a and b take part in the same operation.
func (s Signature) matches(b Signature) bool {
	if s.isPeerToPeer() && b.isPeerToPeer() {
		return s.Count == b.Count && s.DataType == b.DataType
	}
	if s.Reduction == CustomReduction || b.Reduction == CustomReduction {
		s.Reduction, b.Reduction = 0, 0
	}
	return s == b
}

// isPeerToPeer reports whether the operation has only two ranks.
func (s Signature) isPeerToPeer() bool {
	return s.Function == collective.Send || s.Function == collective.Recv
}
