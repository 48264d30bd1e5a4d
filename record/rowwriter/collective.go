//go:build linux

package rowwriter

import (
	"github.com/gpurec/gpurec/bpf"
	"github.com/gpurec/gpurec/format"
)

// noArgument is the value of an argument that a function does not have: NO_ARGUMENT of collective.h.
const noArgument = ^uint32(0)

// inProgress is the ncclResult_t of a call that continues in the background: ncclInProgress.
const inProgress = 7

// setCollectiveColumns sets the columns of a call of NCCL that read_collective of collective.h has decoded.
func (w *Writer) setCollectiveColumns(row *format.Row, e *bpf.CudaEvent, call *bpf.ProbedFunction) {
	row.SrcPtr, row.Bytes, row.Root = 0, 0, format.NoRoot
	row.Group = int64(e.Block[0]) | int64(e.Block[1])<<32
	switch call.Columns {
	case bpf.ColumnsCollective:
		w.setOperationColumns(row, e)
	case bpf.ColumnsCommunicator:
		w.setCommunicatorColumns(row, e, call)
	case bpf.ColumnsNCCLObject:
		switch {
		case call.Decode == bpf.CudaCallDecodeDECODE_GROUP_END:
			row.Value = float64(e.Block[2])
		case call.Effect == bpf.CudaCallEffectEFFECT_COMMUNICATORS:
			row.Value = float64(e.Bytes)
		default:
			row.Bytes = int64(e.Bytes)
		}
	}
}

// setOperationColumns sets the columns of a collective, Send or Recv.
func (w *Writer) setOperationColumns(row *format.Row, e *bpf.CudaEvent) {
	row.Value = float64(e.Bytes)
	if t := e.Grid[0]; t < uint32(len(format.DataTypes)) {
		row.DataType, row.Bytes = format.DataTypes[t], int64(e.Bytes)*format.DataTypeBytes[t]
	}
	switch op := e.Grid[1]; {
	case op == noArgument:
	case op < uint32(len(format.Reductions)):
		row.Reduction = format.Reductions[op]
	default:
		row.Reduction = format.ReductionCustom
	}
	if e.Grid[2] != noArgument {
		row.Root = int32(e.Grid[2])
	}
	row.Sequence = int64(e.Src)
	w.communicatorOf(e, row.StartNs).setColumns(row)
}

// setCommunicatorColumns sets the columns of a call about a communicator, and notes new and ended communicators.
func (w *Writer) setCommunicatorColumns(row *format.Row, e *bpf.CudaEvent, call *bpf.ProbedFunction) {
	if call.Effect == bpf.CudaCallEffectEFFECT_COMMUNICATOR {
		w.setNewCommunicatorColumns(row, e, call)
		return
	}
	if e.Ptr == 0 {
		return
	}
	c := w.communicatorOf(e, row.StartNs)
	c.setColumns(row)
	if end := communicatorEnds[call.Name]; end != "" && !c.hasEnded() && w.communicators[c.communicatorKey] == c {
		c.fact.End, c.fact.EndNs = end, row.StartNs
		w.writeCommunicator(c)
	}
}

// setNewCommunicatorColumns sets the columns of a call that makes a communicator. While the call is open, its
// communicator has no identity of the library: the hash of its unique id takes its place, or the identity of its parent.
func (w *Writer) setNewCommunicatorColumns(row *format.Row, e *bpf.CudaEvent, call *bpf.ProbedFunction) {
	isOpen := row.Flags&(format.FlagOpen|format.FlagAbandoned) != 0
	if !isOpen && (e.Result == 0 || e.Result == inProgress) && e.Ptr != 0 {
		w.addCommunicator(row, e, call).setColumns(row)
		return
	}
	row.Ptr = 0 // the address at which the communicator would be stored
	switch {
	case !isOpen:
	case hasUniqueID(call):
		row.Communicator, row.CommunicatorRank, row.CommunicatorSize = int64(e.Src), int32(e.Grid[0]), int32(e.Bytes)
	default: // all ranks of the parent make the call
		if parent := w.parentOf(e); parent != nil {
			parent.setColumns(row)
		}
	}
}

// parentOf returns the communicator from which a call makes a new one, nil if it is unknown.
func (w *Writer) parentOf(e *bpf.CudaEvent) *knownCommunicator {
	if parent := w.communicators[communicatorKey{e.Pid, e.Src}]; parent != nil && parent.epoch == e.Extra {
		return parent
	}
	return nil
}

// hasUniqueID reports whether a function makes the communicator of the ranks with one unique id. The event has its hash
// in Src.
func hasUniqueID(call *bpf.ProbedFunction) bool {
	return call.Decode == bpf.CudaCallDecodeDECODE_INIT_RANK || call.Decode == bpf.CudaCallDecodeDECODE_INIT_IDS
}

// communicatorEnds has how a communicator ends by the function that ends it.
var communicatorEnds = map[string]string{
	"ncclCommFinalize": format.CommunicatorFinalized,
	"ncclCommDestroy":  format.CommunicatorDestroyed,
	"ncclCommAbort":    format.CommunicatorAborted,
}
