package collective

import "strings"

// functionNames are the names of Function in NCCL, without the prefix nccl.
var functionNames = [...]string{
	FunctionOther: "other", AllReduce: "AllReduce", AllGather: "AllGather", ReduceScatter: "ReduceScatter",
	Broadcast: "Broadcast", Reduce: "Reduce", AllToAll: "AlltoAll", Gather: "Gather", Scatter: "Scatter",
	Send: "Send", Recv: "Recv", PutSignal: "PutSignal", WaitSignal: "WaitSignal", Signal: "Signal",
}

// String returns the name of the operation without the prefix nccl, such as AllReduce.
func (f Function) String() string { return functionNames[min(int(f), len(functionNames)-1)] }

// FunctionOf returns the operation of a function, such as ncclAllReduce. Names of RCCL that differ in case, and
// ncclBcast, are those of NCCL.
func FunctionOf(name string) Function {
	base, ok := strings.CutPrefix(strings.TrimPrefix(name, "p"), "nccl")
	if !ok {
		return FunctionOther
	}
	switch {
	case strings.EqualFold(base, "Bcast"):
		return Broadcast
	case strings.EqualFold(base, "AllToAllv"):
		return AllToAll
	}
	for f, text := range functionNames {
		if f != int(FunctionOther) && strings.EqualFold(base, text) {
			return Function(f)
		}
	}
	return FunctionOther
}

// IsCollective reports whether all ranks of the communicator take part in the operation.
func (f Function) IsCollective() bool { return f >= AllReduce && f <= Scatter }

// BusFactor returns the factor from the rate of the algorithm to that of the bus among n ranks, as nccl-tests
// defines it. For AllGather, ReduceScatter and AlltoAll the size is that of all ranks' parts together.
func (f Function) BusFactor(n int) float64 {
	if n < 1 {
		return 0
	}
	size := float64(n)
	switch f {
	case AllReduce:
		return 2 * (size - 1) / size
	case AllGather, ReduceScatter, AllToAll, Gather, Scatter:
		return (size - 1) / size
	}
	return 1
}

// TotalBytes returns the size of the operation as nccl-tests defines it: the argument for AllReduce, Broadcast,
// Reduce, Send and Recv, and the parts of all n ranks together for the others.
func (o *Operation) TotalBytes(n int) int64 {
	switch o.Function {
	case AllGather, ReduceScatter, AllToAll, Gather, Scatter:
		if n > 0 && o.Bytes < 1<<62/int64(n) {
			return o.Bytes * int64(n)
		}
	}
	return o.Bytes
}
