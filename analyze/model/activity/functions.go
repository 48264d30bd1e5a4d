package activity

import (
	"strings"

	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/format"
)

// functionOp is the effect of a function on channels.
type functionOp struct {
	op    Op
	hold  HoldKind
	known bool
	waits bool // a copy to the host whose call returns after the copy
}

// opsByFunction has the functions whose effect does not depend on copy_kind.
var opsByFunction = map[string]Op{
	"cuEventRecord":              OpRecordEvent,
	"cuEventRecordWithFlags":     OpRecordEvent,
	"cuStreamSynchronize":        OpWaitStream,
	"cuCtxSynchronize":           OpWaitContext,
	"cuCtxSynchronize_v2":        OpWaitContext,
	"cuEventSynchronize":         OpWaitEvent,
	"cuStreamWaitEvent":          OpHoldStream,
	"cuStreamWaitValue32":        OpHoldStream,
	"cuStreamWaitValue32_v2":     OpHoldStream,
	"cuStreamWaitValue64":        OpHoldStream,
	"cuStreamWaitValue64_v2":     OpHoldStream,
	"cuStreamBatchMemOp":         OpHoldStream,
	"cuStreamBatchMemOp_v2":      OpHoldStream,
	"cuLaunchHostFunc":           OpHoldStream,
	"cuLaunchHostFunc_v2":        OpHoldStream,
	"cuStreamAddCallback":        OpHoldStream,
	"cuStreamDestroy":            OpEndStream,
	"cuStreamDestroy_v2":         OpEndStream,
	"cuCtxDestroy":               OpEndContext,
	"cuCtxDestroy_v2":            OpEndContext,
	"cuDevicePrimaryCtxReset":    OpEndDevice,
	"cuDevicePrimaryCtxReset_v2": OpEndDevice,
}

// opOf returns the effect of a function by kind, name and copy_kind of a row.
func opOf(kind, function, copyKind string) functionOp {
	name := catalog.BaseFunctionName(function)
	switch {
	case kind == format.KindMemset:
		return functionOp{op: OpFill, known: true}
	case kind == format.KindMemcpy:
		return copyOp(name, copyKind)
	case name == "cuLaunchCooperativeKernelMultiDevice": // operations on several streams
		return functionOp{}
	case kind == format.KindLaunch && name == "cuGraphLaunch":
		return functionOp{op: OpGraph, known: true}
	case kind == format.KindLaunch:
		return functionOp{op: OpKernel, known: true}
	}
	op, known := opsByFunction[name]
	if op == OpHoldStream && known {
		return functionOp{op: op, hold: holdKindOf(name), known: true}
	}
	return functionOp{op: op, known: known}
}

// CopyOp returns the effect of a copy by its function and direction. It reports false if the operation of the copy
// is unknown.
func CopyOp(function, copyKind string) (Op, bool) {
	f := copyOp(catalog.BaseFunctionName(function), copyKind)
	return f.op, f.known
}

// copyOp returns the effect of a copy. The operations of batches, of copies between devices and of
// copies within the host are unknown.
func copyOp(name, copyKind string) functionOp {
	from, to, ok := strings.Cut(copyKind, "to")
	if !ok || strings.Contains(name, "Batch") || strings.Contains(name, "Peer") {
		return functionOp{}
	}
	switch {
	case from == "H" && to == "H":
		return functionOp{}
	case from == "H":
		return functionOp{op: OpCopyToDevice, known: true}
	case to == "H":
		return functionOp{op: OpCopyToHost, known: true, waits: !strings.Contains(name, "Async")}
	}
	return functionOp{op: OpCopyOnDevice, known: true}
}
