package format

// Rows of class collective are calls of NCCL, and of libraries with the same API. Since 1.2. Their columns:
//
//   - Name is the function, such as ncclAllReduce. Result is its ncclResult_t: 0 is success, 7 in progress.
//   - Ptr is the address of the communicator in the process. Communicator is its identity, equal on all ranks:
//     NCCL's commHash, as NCCL_DEBUG prints it in hexadecimal. 0: unknown.
//   - CommunicatorRank and CommunicatorSize are the rank in the communicator and its number of ranks. A size of
//     0 says that both are unknown.
//   - Sequence numbers the collectives of a communicator in program order, from 1 on. Send and Recv have numbers
//     of their own, for each communicator, peer and direction. The CommunicatorFact says what the numbers mean,
//     and how many collectives were before. Calls without a number have 0.
//   - Group numbers the outermost groups of a thread from 1 on: operations between ncclGroupStart and
//     ncclGroupEnd and the row of ncclGroupEnd have the same number. 0: no group. GroupUnknown: groups are not
//     recorded any more, because a thread called NCCL too often. A row of ncclGroupEnd has the number of operations
//     in Value. Inner groups and ncclGroupStart have no rows.
//   - Value is the number of elements, Bytes their size, DataType and Reduction their names as in the constants
//     below. Root is the root, or the peer of Send and Recv; -1: none.
//   - Stream and StackID are as in other calls. Kernel launches of an operation have the row of its outermost
//     group, or its own row, as parent.

// DataTypes are the data types of NCCL, in the order of ncclDataType_t. Row.DataType has one of them.
var DataTypes = [...]string{
	"int8", "uint8", "int32", "uint32", "int64", "uint64", "float16", "float32", "float64", "bfloat16",
	"float8_e4m3", "float8_e5m2",
}

// DataTypeBytes has the size of an element of each of DataTypes in bytes.
var DataTypeBytes = [len(DataTypes)]int64{1, 1, 4, 4, 8, 8, 2, 4, 8, 2, 1, 1}

// Reductions of NCCL: values of Row.Reduction, in the order of ncclRedOp_t.
var Reductions = [...]string{"sum", "prod", "max", "min", "avg"}

// ReductionCustom is the Row.Reduction of operators that the program created. Their numbers differ between ranks.
const ReductionCustom = "custom"

// GroupUnknown is the Row.Group of calls that may be in a group: groups are not recorded.
const GroupUnknown = -1

// NoRoot is the Row.Root of operations without a root or a peer.
const NoRoot = -1

// How a communicator came to be: values of CommunicatorFact.How.
const (
	CommunicatorInit   = "init"   // ncclCommInitRank and its variants
	CommunicatorSplit  = "split"  // ncclCommSplit
	CommunicatorShrink = "shrink" // ncclCommShrink
	CommunicatorGrow   = "grow"   // ncclCommGrow
	CommunicatorOlder  = "older"  // it existed before the recording
)

// What Row.Sequence means on a communicator: values of CommunicatorFact.Numbering.
const (
	// NumberingExact: numbers count from the creation of the communicator, which was recorded.
	NumberingExact = "exact"
	// NumberingCounter: Before is the number of earlier collectives, by the library's own counters.
	NumberingCounter = "counter"
	// NumberingRelative: numbers count from the first recorded call. Those of two ranks may differ by a constant.
	NumberingRelative = "relative"
)

// How a communicator ended: values of CommunicatorFact.End.
const (
	CommunicatorFinalized = "finalized"
	CommunicatorDestroyed = "destroyed"
	CommunicatorAborted   = "aborted"
)

// CommunicatorFact is the message of rows of kind communicator. Name of the row is the communicator's name, if
// the program gave it one. Ptr, Communicator, CommunicatorRank, CommunicatorSize and Device (ordinal in the
// process) are columns of the row.
type CommunicatorFact struct {
	Library string `json:"library,omitempty"` // path of the library in the process
	Version string `json:"version,omitempty"` // version of the library, such as 2.28.9
	How     string `json:"how"`               // one of CommunicatorInit to CommunicatorOlder
	// UniqueID is a hash of the ncclUniqueId, equal on all ranks. 0: the communicator was made without one, or before
	// the recording. It joins the ranks where the identity is unknown.
	UniqueID int64 `json:"unique_id,omitempty"`
	// Parent is the identity of the communicator from which this one was made. 0: none, or unknown.
	Parent int64 `json:"parent,omitempty"`
	// Numbering is one of the Numbering constants. Before is the number of collectives before the first recorded
	// one. The number of a collective since the communicator was made is Row.Sequence + Before.
	Numbering string `json:"numbering"`
	Before    int64  `json:"before,omitempty"`
	// Missing says why rank, size or identity are unknown, or numbers relative.
	Missing string `json:"missing,omitempty"`
	// End is one of CommunicatorFinalized to CommunicatorAborted, and EndNs its time. "": it had not ended.
	End   string `json:"end,omitempty"`
	EndNs int64  `json:"end_ns,omitempty"`
	// Census is the last reading of the library's own counters. nil: it was not read.
	Census *CommunicatorCensus `json:"census,omitempty"`
}

// CommunicatorCensus has what the library knows about a communicator, read from the memory of the process.
type CommunicatorCensus struct {
	AtNs int64 `json:"at_ns"` // Unix ns
	// SinceNs is the time of the first reading since which all readings had these counts, Unix ns. It equals AtNs if
	// they were read once.
	SinceNs int64 `json:"since_ns,omitempty"`
	// Counts are the collectives that were launched, by function: AllReduce, Broadcast and so on. Send, Recv,
	// operations of captured graphs and of communicators with one rank are not in it.
	Counts map[string]int64 `json:"counts"`
	// AsyncResult is the ncclResult_t of ncclCommGetAsyncError.
	AsyncResult    int32 `json:"async_result,omitempty"`
	Aborted        bool  `json:"aborted,omitempty"`
	FinalizeCalled bool  `json:"finalize_called,omitempty"`
}
