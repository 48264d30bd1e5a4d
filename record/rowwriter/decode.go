//go:build linux

package rowwriter

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/gpurec/gpurec/bpf"
	"github.com/gpurec/gpurec/format"
)

// fillCallRow fills the row of a call, and follows stream captures. The row's memory is reused, so fillCallRow
// sets every column.
func (w *Writer) fillCallRow(row *format.Row, e *bpf.CudaEvent, call *bpf.ProbedFunction, name string) {
	captured := w.captures.applyCall(e, call)
	w.fillColumns(row, e, call, name)
	if captured {
		row.Flags |= format.FlagCaptured
	}
}

// fillColumns sets all columns of the row of a call.
func (w *Writer) fillColumns(row *format.Row, e *bpf.CudaEvent, call *bpf.ProbedFunction, name string) {
	*row = format.Row{
		Kind: call.Kind, Name: name, MemoryKind: call.Memory, CopyKind: call.Copy,
		StartNs: w.counters.clock.UnixNs(e.StartNs), DurNs: int64(e.DurNs),
		Pid: int32(e.Pid), Tid: int32(e.Tid), CPU: int32(e.Cpu), Device: int32(e.Device),
		Context: int64(e.Context), Stream: int64(e.Stream), Result: e.Result, Flags: convertEventFlags(e.Flags),
		Ptr: int64(e.Ptr), Bytes: int64(e.Bytes), SrcPtr: int64(e.Src),
	}
	if e.ParentNs != 0 {
		row.ParentStartNs = w.counters.clock.UnixNs(e.ParentNs)
	}
	w.setEventColumns(row, e, call)
	w.setStackColumns(row, e, call.Class)
	if hasEngineCall(call.Class) {
		row.ViaStackID = w.engine.stackOf(e)
	}
}

// setStackColumns sets the columns about the call's stack. It counts stacks that are cut or missing
// because unwind tables were not loaded yet.
func (w *Writer) setStackColumns(row *format.Row, e *bpf.CudaEvent, class bpf.CudaCallClass) {
	state := bpf.CudaStackState(e.Stack)
	if e.StackId == 0 {
		row.StackStatus = format.StackNone
		if state == bpf.CudaStackStateSTACK_UNKNOWN {
			w.counters.noTable[class]++
		}
		if state == bpf.CudaStackStateSTACK_RATIONED {
			row.StackStatus = format.StackRationed
		}
		return
	}
	known := w.stacks.GetCallStack(e)
	row.StackID, row.Site, row.StackStatus = known.ID, known.Site, known.Status
	if known.NoTable && state != bpf.CudaStackStateSTACK_PARENT {
		w.counters.noTable[class]++
	}
	switch {
	case known.ID == 0 || known.Status == format.StackRationed:
	case state == bpf.CudaStackStateSTACK_INFERRED || state == bpf.CudaStackStateSTACK_RATIONED:
		row.StackStatus = format.StackInferred
	case state == bpf.CudaStackStateSTACK_PARENT:
		row.StackStatus = format.StackParent
	}
}

// setEventColumns sets the columns of a row whose values depend on call.Columns.
func (w *Writer) setEventColumns(row *format.Row, e *bpf.CudaEvent, call *bpf.ProbedFunction) {
	switch call.Columns {
	case bpf.ColumnsLaunch:
		setGridColumns(row, e)
		row.Function, row.SrcPtr = int64(e.Src), 0
		row.Kernel = w.names.byHandle[kernelKey{e.Pid, e.Src}].display
	case bpf.ColumnsLaunchList:
		setGridColumns(row, e)
		row.Function, row.SrcPtr = int64(e.Src), 0
		row.Value, row.Bytes = float64(e.Bytes), 0
		row.Kernel = w.names.byHandle[kernelKey{e.Pid, e.Src}].display
	case bpf.ColumnsNewFunction:
		row.Function, row.Ptr, row.Bytes, row.SrcPtr = int64(e.Ptr), int64(e.Bytes), 0, 0
		if row.Function == 0 {
			return
		}
		name, known := w.names.byHandle[kernelKey{e.Pid, e.Ptr}]
		if of, ok := w.names.byHandle[kernelKey{e.Pid, e.Bytes}]; ok && call.Effect == bpf.CudaCallEffectEFFECT_NONE {
			name, known = of, true // cuKernelGetFunction: the function has the kernel's name
			w.storeKernelName(e.Pid, e.Ptr, e.StartNs, name, false)
		}
		if known {
			row.Kernel = name.display
		}
	case bpf.ColumnsFunction:
		row.Function, row.Ptr = int64(e.Ptr), 0
		row.Kernel = w.names.byHandle[kernelKey{e.Pid, e.Ptr}].display
	case bpf.ColumnsKernelNode:
		setGridColumns(row, e)
		row.Function, row.Bytes = int64(e.Bytes), 0
		row.Kernel = w.names.byHandle[kernelKey{e.Pid, e.Bytes}].display
	case bpf.ColumnsGraphNode:
		w.setGraphNodeColumns(row, e)
	case bpf.ColumnsDevice:
		row.Device, row.Bytes = int32(e.Bytes), 0
	case bpf.ColumnsDeviceUUID:
		row.Device, row.Bytes = int32(e.Bytes), 0
		if e.Result == 0 {
			row.Message = formatDeviceUUID(e)
		}
	case bpf.ColumnsFreeMemory:
		row.Value, row.SrcPtr = float64(e.Src), 0
	case bpf.ColumnsElapsedTime:
		row.Value, row.Bytes = float64(math.Float32frombits(uint32(e.Bytes))), 0
	case bpf.ColumnsPitched:
		width := int64(e.Grid[0]) | int64(e.Grid[1])<<32
		if e.Result == 0 {
			width = int64(e.Bytes)
		}
		row.Bytes, row.SrcPtr = width*int64(e.Src), 0
	case bpf.ColumnsArray:
		row.Bytes = computeArrayBytes(e)
	case bpf.ColumnsAllocatorEvent:
		setAllocatorEventColumns(row, e)
	case bpf.ColumnsAllocatorReport:
		setAllocatorReportColumns(row, e)
	case bpf.ColumnsCollective, bpf.ColumnsCommunicator, bpf.ColumnsNCCLObject:
		w.setCollectiveColumns(row, e, call)
	case bpf.ColumnsCopyByType:
		row.CopyKind = formatCopyDirection(e.Grid[2], e.Block[0])
	default:
		if call.Name == "cuGraphLaunch" {
			row.Value = float64(w.captures.countGraphKernels(objectHandle{e.Pid, e.Ptr}))
			return
		}
		row.Value = float64(readEventValue(e))
	}
}

// readEventValue returns the call's value, which set_value of decode.h has stored in the grid.
func readEventValue(e *bpf.CudaEvent) uint64 { return uint64(e.Grid[0]) | uint64(e.Grid[1])<<32 }

// Values of CUgraphNodeType that the row writer handles.
const (
	graphNodeKernel      = 0
	graphNodeGraph       = 4
	graphNodeMemAlloc    = 10
	graphNodeMemFree     = 11
	graphNodeConditional = 13
)

// graphNodeTypeNames are the names of CUgraphNodeType in a recording.
var graphNodeTypeNames = [...]string{
	graphNodeKernel:      "kernel",
	1:                    "memcpy",
	2:                    "memset",
	3:                    "host",
	graphNodeGraph:       "graph",
	5:                    "empty",
	6:                    "wait_event",
	7:                    "event_record",
	8:                    "ext_semas_signal",
	9:                    "ext_semas_wait",
	graphNodeMemAlloc:    "mem_alloc",
	graphNodeMemFree:     "mem_free",
	12:                   "batch_mem_op",
	graphNodeConditional: "conditional",
}

// readGraphNodeType returns the CUgraphNodeType of an event, -1 if the BPF program could not read
// it.
func readGraphNodeType(e *bpf.CudaEvent) int64 { return int64(e.Extra) - 1 }

// setGraphNodeColumns sets the columns of a call with CUgraphNodeParams, depending on the node
// type.
func (w *Writer) setGraphNodeColumns(row *format.Row, e *bpf.CudaEvent) {
	kind := readGraphNodeType(e)
	switch {
	case kind < 0:
	case kind < int64(len(graphNodeTypeNames)):
		row.Message = graphNodeTypeNames[kind]
	default:
		row.Message = fmt.Sprintf("type %d", kind)
	}
	switch kind {
	case graphNodeKernel:
		setGridColumns(row, e)
		row.Function, row.Bytes = int64(e.Bytes), 0
		row.Kernel = w.names.byHandle[kernelKey{e.Pid, e.Bytes}].display
	case graphNodeGraph:
		row.Value = float64(readEventValue(e))
	case graphNodeMemAlloc, graphNodeMemFree:
		row.MemoryKind = format.MemoryGraph
	}
}

// setGridColumns sets the columns of grid, block and dynamic shared memory.
func setGridColumns(row *format.Row, e *bpf.CudaEvent) {
	row.GridX, row.GridY, row.GridZ = int32(e.Grid[0]), int32(e.Grid[1]), int32(e.Grid[2])
	row.BlockX, row.BlockY, row.BlockZ = int32(e.Block[0]), int32(e.Block[1]), int32(e.Block[2])
	row.SharedBytes = int32(e.SharedBytes)
}

// formatDeviceUUID returns a device UUID in the format of NVML and nvidia-smi.
func formatDeviceUUID(e *bpf.CudaEvent) string {
	var b [16]byte
	for i, word := range []uint32{e.Grid[0], e.Grid[1], e.Grid[2], e.Block[0]} {
		binary.LittleEndian.PutUint32(b[4*i:], word)
	}
	return fmt.Sprintf("GPU-%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// computeArrayBytes returns the size of a CUDA array in bytes: the product of width, height, depth
// (0 counts as 1), channels, and element size of the CUarray_format. It returns 0 for an unknown
// format. For a mipmapped array it returns the size of the largest level.
func computeArrayBytes(e *bpf.CudaEvent) int64 {
	element := map[uint32]int64{
		0x01: 1, 0x02: 2, 0x03: 4, // unsigned int 8, 16, 32
		0x08: 1, 0x09: 2, 0x0a: 4, // signed int 8, 16, 32
		0x10: 2, 0x20: 4, // half, float
	}[e.Grid[2]]
	return int64(e.Bytes) * max(int64(e.Grid[0]), 1) * max(int64(e.Grid[1]), 1) * int64(e.Block[0]) * element
}

// formatCopyDirection returns the direction of a copy, from the CUmemorytypes of source and target.
func formatCopyDirection(source, target uint32) string {
	letter := func(memoryType uint32) string {
		switch memoryType {
		case 1:
			return "H"
		case 2:
			return "D"
		case 3:
			return "A"
		}
		return "U" // unified: host or device
	}
	return letter(source) + "to" + letter(target)
}

// convertEventFlags converts the flags of an event to those of a row. The numbers in the file
// format are independent of the numbers in BPF.
func convertEventFlags(flags uint8) int32 {
	var row int32
	for _, pair := range [...]struct {
		kernel bpf.CudaEventFlags
		row    int32
	}{
		{bpf.CudaEventFlagsEVENT_OPEN, format.FlagOpen},
		{bpf.CudaEventFlagsEVENT_ABANDONED, format.FlagAbandoned},
		{bpf.CudaEventFlagsEVENT_UNREADABLE, format.FlagUnreadable},
		{bpf.CudaEventFlagsEVENT_NO_RETURN, format.FlagNoReturn},
		{bpf.CudaEventFlagsEVENT_EARLY, format.FlagEarlyStart},
	} {
		if flags&uint8(pair.kernel) != 0 {
			row |= pair.row
		}
	}
	return row
}

// writeStackRows writes the rows of a new stack.
func (w *Writer) writeStackRows(rows []format.Row) {
	for i := range rows {
		rows[i].StartNs = w.counters.clock.NowNs()
		w.writeRows(format.ClassOf(rows[i].Kind), rows[i:i+1])
	}
}
