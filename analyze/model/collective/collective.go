package collective

import (
	"cmp"
	"fmt"

	"github.com/gpurec/gpurec/format"
)

// Communicator is a communicator of a process.
type Communicator struct {
	// ID is the identity of the communicator, equal on all ranks. 0: unknown.
	ID int64
	// Ptr is its address in the process Pid, from FromNs (Unix ns) until it was destroyed.
	Ptr, FromNs int64
	Pid         int32
	// Rank is the rank of the process in the communicator, Size the number of ranks. Size 0: both are unknown.
	Rank, Size int32
	// Device is the CUDA ordinal in the process, -1 if unknown.
	Device int32
	Name   string // given by the program, often ""
	Fact   format.CommunicatorFact
}

// Label returns the name of the communicator, or its identity as NCCL_DEBUG prints it.
func (c *Communicator) Label() string {
	if c.ID == 0 {
		return cmp.Or(c.Name, "unknown")
	}
	return cmp.Or(c.Name, fmt.Sprintf("%016x", uint64(c.ID)))
}

// Operation is a collective, or a Send or Recv, that a process called.
type Operation struct {
	// StartNs and DurNs are entry and duration of the call, Unix ns and ns. With IsOpen it had not returned.
	StartNs, DurNs int64
	Sequence       int64 // format.Row.Sequence, with the collectives before the recording; 0: none
	Group          int64 // format.Row.Group
	Count, Bytes   int64 // elements and bytes, as the argument count says
	Stream         int64
	Communicator   int32 // index in Survey.Communicators
	Tid            int32
	Root           int32 // root or peer, format.NoRoot
	Stack          int32 // stack ID; 0: none
	Result         int32
	Function       Function
	DataType       uint8 // index in format.DataTypes
	Reduction      uint8 // index in format.Reductions; len(format.Reductions): format.ReductionCustom
	IsOpen         bool
}

// Function is an operation of NCCL.
type Function uint8

// Operations of NCCL. FunctionOther is one that this version does not know.
const (
	FunctionOther Function = iota
	AllReduce
	AllGather
	ReduceScatter
	Broadcast
	Reduce
	AllToAll
	Gather
	Scatter
	Send
	Recv
	PutSignal
	WaitSignal
	Signal
)

// Survey has the communicators of a recording and the operations on them.
type Survey struct {
	Communicators []Communicator
	Operations    []Operation // ordered by StartNs
}
