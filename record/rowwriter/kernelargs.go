//go:build linux

package rowwriter

import (
	"encoding/hex"
	"encoding/json"
	"slices"
	"time"
	"unsafe"

	"github.com/gpurec/gpurec/bpf"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/record/kernelargs"
)

const (
	// AllLaunches has the arguments of all launches written.
	AllLaunches = -1
	// maxUnresolved is the largest number of launches that wait for the parameters of their kernels.
	maxUnresolved = 16384
	// settleLimit is the longest time in which the row writer waits for images of modules.
	settleLimit = time.Second
)

// argumentKeeper writes the arguments of launches. The BPF programs keep those of the last launches of each stream,
// until a failure or the end of the recording, or send those of all launches. nil: arguments are not recorded.
type argumentKeeper struct {
	rowCounter
	perStream int // AllLaunches, or the number of launches of a stream
	resolver  *kernelargs.Resolver
	pids      map[uint32]bool      // processes with launches
	failures  map[uint32]time.Time // when the arguments before a failure of a process were written
	// unresolved are the records of AllLaunches that wait for images of modules.
	unresolved []bpf.CudaArgumentsEvent
	// read counts launches whose arguments were read, without those that the BPF programs still count.
	read int64
}

// newArgumentKeeper returns a keeper for perStream launches of a stream, nil if perStream is 0.
func newArgumentKeeper(perStream int, resolver *kernelargs.Resolver) *argumentKeeper {
	if perStream == 0 {
		return nil
	}
	return &argumentKeeper{
		perStream: perStream,
		resolver:  resolver,
		pids:      make(map[uint32]bool),
		failures:  make(map[uint32]time.Time),
	}
}

// argumentsHeaderBytes is the size of a record without its values.
const argumentsHeaderBytes = int(unsafe.Offsetof(bpf.CudaArgumentsEvent{}.Data))

// addArguments adds a record of AllLaunches. It returns the size of the record.
func (w *Writer) addArguments(chunk []byte) int {
	var e bpf.CudaArgumentsEvent
	raw := unsafe.Slice((*byte)(unsafe.Pointer(&e)), unsafe.Sizeof(e))
	copy(raw[:argumentsHeaderBytes], chunk)
	size := argumentsHeaderBytes + int(e.Bytes)
	copy(raw, chunk[:min(size, len(chunk))])
	k := w.arguments
	if k == nil {
		return size
	}
	k.read++
	k.unresolved = append(k.unresolved, e)
	if len(k.unresolved) >= maxUnresolved {
		w.writeUnresolved()
	}
	return size
}

// writeKeptArguments writes and forgets the kept launches of the processes that pick selects.
func (w *Writer) writeKeptArguments(pick func(pid uint32) bool) {
	k := w.arguments
	if k == nil || k.perStream == AllLaunches {
		return
	}
	taken, err := w.counters.probes.TakeArguments(pick)
	if err != nil {
		w.writeNote("kernel_args", "arguments of launches are missing: "+err.Error())
	}
	k.read += taken.Launches
	if len(taken.Events) == 0 {
		return
	}
	for pid := range k.pids {
		if pick(pid) {
			k.resolver.AddProcess(int32(pid)) // it may have loaded libraries since
		}
	}
	k.resolver.Settle(settleLimit)
	w.writeArguments(taken.Events)
}

// writeUnresolved writes the launches of AllLaunches that waited.
func (w *Writer) writeUnresolved() {
	k := w.arguments
	if k == nil || len(k.unresolved) == 0 {
		return
	}
	k.resolver.Settle(settleLimit)
	w.writeArguments(k.unresolved)
	k.unresolved = k.unresolved[:0]
}

// writeAllArguments writes all arguments that are left, at the end of the recording.
func (w *Writer) writeAllArguments() {
	w.writeUnresolved()
	w.writeKeptArguments(func(uint32) bool { return true })
}

// writeArguments writes the rows of records, and counts them as recorded or lost.
func (w *Writer) writeArguments(records []bpf.CudaArgumentsEvent) {
	k := w.arguments
	rows := make([]format.Row, 0, len(records))
	for i := range records {
		row := w.argumentsRow(&records[i])
		if w.bounds.endNs != 0 && row.StartNs >= w.bounds.endNs || w.failed != nil {
			k.lost.Add(1)
			continue
		}
		rows = append(rows, row)
	}
	k.countRecorded(len(rows))
	w.writeRows(format.ClassArguments, rows)
}

// argumentsRow returns the row of a record.
func (w *Writer) argumentsRow(e *bpf.CudaArgumentsEvent) format.Row {
	name := w.names.byHandle[kernelKey{e.Pid, e.Function}]
	layout, source := w.arguments.resolver.Layout(int32(e.Pid), int64(e.Function), name.mangled)
	args := format.KernelArgs{Layout: source, Values: decodeArguments(e, layout, source)}
	total := int64(0)
	for i := range args.Values {
		total += int64(len(args.Values[i].Hex) / 2)
	}
	args.Missing = missingArguments(e, &args, layout)
	message, err := json.Marshal(&args)
	if err != nil {
		message = nil // cannot happen: texts always encode
	}
	_, call, perThread, _ := bpf.FunctionByCookie(e.Call)
	row := format.Row{
		Kind: format.KindKernelArgs, Name: call, StartNs: w.counters.clock.UnixNs(e.StartNs),
		Pid: int32(e.Pid), Tid: int32(e.Tid), Device: -1, Context: int64(e.Context), Stream: int64(e.Stream),
		Function: int64(e.Function), Kernel: name.display,
		Value: float64(len(args.Values)), Bytes: total, Message: string(message),
	}
	if perThread {
		row.Flags = format.FlagPerThreadStream
	}
	return row
}

// decodeArguments returns the values of a record. Without a layout, these are words of 8 bytes.
func decodeArguments(
	e *bpf.CudaArgumentsEvent,
	layout kernelargs.Layout,
	source string,
) (values []format.KernelArgument) {
	data := e.Data[:min(len(e.Data), int(e.Bytes))]
	if source != format.ArgumentsUnknown {
		for i, p := range layout {
			at, limit, ok := valueOf(e, i, p.Offset)
			if !ok {
				return values
			}
			end := min(at+int(p.Size), limit)
			offset := int64(p.Offset)
			values = append(values, format.KernelArgument{
				Offset: &offset, Hex: hex.EncodeToString(data[at:end]), IsCut: end-at < int(p.Size),
			})
		}
		return values
	}
	if bpf.CudaArgumentsForm(e.Form) == bpf.CudaArgumentsFormARGUMENTS_BUFFER {
		for at := 0; at < len(data); at += 8 {
			offset := int64(at)
			values = append(values, format.KernelArgument{
				Offset: &offset, Hex: hex.EncodeToString(data[at:min(at+8, len(data))]),
			})
		}
		return values
	}
	for i := range int(e.Count) {
		at, limit, ok := valueOf(e, i, 0)
		if !ok {
			return values
		}
		values = append(values, format.KernelArgument{Hex: hex.EncodeToString(data[at:min(at+8, limit)])})
	}
	return values
}

// valueOf returns where the value of parameter i begins in the data, and where it ends at the latest.
func valueOf(e *bpf.CudaArgumentsEvent, i int, offset uint32) (at, limit int, ok bool) {
	size := min(len(e.Data), int(e.Bytes))
	if bpf.CudaArgumentsForm(e.Form) == bpf.CudaArgumentsFormARGUMENTS_BUFFER {
		return int(offset), size, int(offset) < size
	}
	if i >= int(e.Count) || i >= len(e.At) {
		return 0, 0, false
	}
	at, limit = int(e.At[i]), min(int(e.NearBytes), size)
	if i >= int(e.Near) {
		limit = size
		if i+1 < int(e.Count) {
			limit = min(int(e.At[i+1]), size)
		}
	}
	return at, limit, at < limit
}

// missingArguments says why not all values of a launch are there.
func missingArguments(e *bpf.CudaArgumentsEvent, a *format.KernelArgs, layout kernelargs.Layout) string {
	isCut := slices.ContainsFunc(a.Values, func(v format.KernelArgument) bool { return v.IsCut })
	switch {
	case a.Layout == format.ArgumentsUnknown && e.IsCut != 0:
		return "only the first parameters were read"
	case a.Layout == format.ArgumentsUnknown && len(a.Values) == 0:
		return "the memory of the arguments could not be read"
	case a.Layout != format.ArgumentsUnknown && (isCut || len(a.Values) < len(layout)):
		return "the memory of the other values could not be read, or they have too many bytes"
	}
	return ""
}

// noteCallForArguments passes what a call says about kernels to the resolver, and writes the kept arguments of
// a process whose GPU work has failed.
func (w *Writer) noteCallForArguments(e *bpf.CudaEvent, call *bpf.ProbedFunction, row *format.Row) {
	k := w.arguments
	if k == nil {
		return
	}
	if isAsynchronousError(e.Result) && e.Flags&noResultFlags == 0 {
		w.writeArgumentsOfFailure(e.Pid)
	}
	pid := int32(e.Pid)
	if call.SamplesReturnProbes() && !k.pids[e.Pid] {
		k.pids[e.Pid] = true
		k.resolver.AddProcess(pid)
	}
	if call.ForKernelArgs {
		k.resolver.AddParameter(pid, row.Ptr, int64(row.Value),
			kernelargs.Parameter{Offset: uint32(row.SrcPtr), Size: uint32(row.Bytes)}, e.Result != 0)
		return
	}
	if e.Result != 0 || e.Flags&noResultFlags != 0 {
		return
	}
	switch call.Name {
	case "cuModuleLoadData", "cuModuleLoadDataEx", "cuModuleLoadFatBinary", "cuLibraryLoadData":
		k.resolver.AddModule(pid, row.Ptr, kernelargs.ImageInMemory, uint64(row.SrcPtr))
	case "cuModuleLoad", "cuLibraryLoadFromFile":
		k.resolver.AddModule(pid, row.Ptr, kernelargs.ImageInFile, uint64(row.SrcPtr))
	case "cuModuleGetFunction", "cuLibraryGetKernel":
		k.resolver.AddFunction(pid, row.Function, row.Ptr, w.names.byHandle[kernelKey{e.Pid, e.Ptr}].mangled)
	case "cuKernelGetFunction": // the module of a kernel is that of its function
		k.resolver.CopyFunction(pid, row.Function, row.Ptr)
	case "cuModuleUnload", "cuLibraryUnload":
		for _, function := range k.resolver.RemoveModule(pid, row.Ptr) {
			_ = w.counters.probes.ForgetKernelLayout(pid, function) // it may not be there
		}
	}
}

// failureInterval is the shortest time between two writes of the kept arguments of a process: after a failure, each
// of its calls fails.
const failureInterval = time.Second

// writeArgumentsOfFailure writes the kept arguments of a process whose GPU work has failed.
func (w *Writer) writeArgumentsOfFailure(pid uint32) {
	k := w.arguments
	if time.Since(k.failures[pid]) < failureInterval {
		return
	}
	w.writeKeptArguments(func(of uint32) bool { return of == pid })
	k.failures[pid] = time.Now()
}

// noResultFlags mark calls whose result is unknown.
const noResultFlags = uint8(bpf.CudaEventFlagsEVENT_OPEN | bpf.CudaEventFlagsEVENT_ABANDONED |
	bpf.CudaEventFlagsEVENT_NO_RETURN)

// isAsynchronousError reports whether a result comes from earlier work on the GPU. See the same function of
// package catalog.
func isAsynchronousError(result int32) bool {
	switch result {
	case 214, 220, 226, 700, 702, 710, 714, 715, 716, 717, 718, 719, 721, 911:
		return true
	}
	return false
}

// writeArgumentsOfXid writes the kept arguments of the process of an Xid, or of all if it is unknown.
func (w *Writer) writeArgumentsOfXid(pid int32) {
	w.writeKeptArguments(func(of uint32) bool { return pid == 0 || int32(of) == pid })
}

// argumentCounts returns the counts for the metadata, nil if arguments are not recorded.
func (w *Writer) argumentCounts() *format.KernelArgsCount {
	return w.argumentCountsWithout(w.droppedArguments())
}

// droppedArguments returns the number of rows that a ring has dropped.
func (w *Writer) droppedArguments() int64 {
	if w.arguments == nil {
		return 0
	}
	return w.arguments.dropped
}

// argumentCountsWithout returns the counts without a number of dropped rows, nil if arguments are not recorded.
func (w *Writer) argumentCountsWithout(dropped int64) *format.KernelArgsCount {
	k := w.arguments
	if k == nil {
		return nil
	}
	counts := format.KernelArgsCount{PerStream: max(0, k.perStream)}
	if rows := k.countsWithout(dropped); rows != nil {
		counts.RowCount = *rows
	}
	lost := w.counters.probes.LostArguments()
	counts.Lost += lost
	if counts.Read = k.read + lost; k.perStream != AllLaunches {
		counts.Read = k.read + w.counters.probes.CountArgumentLaunches()
	}
	counts.Replaced = max(0, counts.Read-counts.Recorded-counts.Lost-counts.Dropped)
	if k.perStream == AllLaunches {
		counts.Replaced = 0 // those that are not written yet
	}
	return &counts
}

// argumentsSinceRotate returns the number of rows since the last rotation, and counts from 0 again.
func (w *Writer) argumentsSinceRotate() (n int64) {
	if w.arguments != nil {
		n, w.arguments.sinceRotate = w.arguments.sinceRotate, 0
	}
	return n
}

// countLostArguments counts the rows of a segment that was not written as lost instead of recorded.
func (w *Writer) countLostArguments(rotation int) {
	if w.arguments == nil {
		return
	}
	rows := &w.arguments.sinceRotate
	if i := slices.IndexFunc(w.pending, func(r rotationCallCounts) bool { return r.rotation == rotation }); i >= 0 {
		rows = &w.pending[i].arguments
	}
	w.arguments.countLost(rows)
}

// forgetArguments writes the kept arguments of processes that have ended, and forgets these processes.
func (w *Writer) forgetArguments(gone map[int32]bool) {
	if w.arguments == nil {
		return
	}
	w.writeKeptArguments(func(pid uint32) bool { return gone[int32(pid)] })
	w.arguments.resolver.ForgetProcesses(gone)
	for pid := range gone {
		delete(w.arguments.pids, uint32(pid))
		delete(w.arguments.failures, uint32(pid))
	}
}
