package perfetto

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/model/calls"
	"github.com/gpurec/gpurec/analyze/model/kernelargs"
	"github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/stats"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
	"google.golang.org/protobuf/encoding/protowire"
)

// traceCall is a call that will be written to the trace: its time and its row in the columns.
type traceCall struct {
	startNs, endNs int64 // Unix ns; equal if the duration is unknown
	columns        *traceCallColumns
	row            int32
}

// startsBefore reports whether a call comes before another one in the trace: by start time, and an
// enclosing call before the calls inside of it.
func (c *traceCall) startsBefore(o *traceCall) bool {
	if c.startNs != o.startNs {
		return c.startNs < o.startNs
	}
	return c.endNs > o.endNs
}

// traceCallColumns are the columns of one row group that the trace needs.
type traceCallColumns struct {
	start, dur, stream, ptr, bytes, src []int64
	context                             []int64
	pid, tid, device, result, flags     []int32
	stack                               []int32
	grid, block                         [3][]int32
	shared                              []int32
	value                               []float64
	rows                                []traceCall // calls that pass the filter
	kind, name, kernel, memory, copy    format.Strings
	status                              format.Strings

	// Numbers of the strings in the trace.
	nameIDs, kindIDs, kernelNameIDs, kernelIDs, memoryIDs, copyIDs, statusIDs internedColumn
}

// readRowGroup reads the columns of a row group of calls.
func (c *traceCallColumns) readRowGroup(g *format.Group) {
	c.start, c.dur = g.Int64("start_ns", c.start), g.Int64("dur_ns", c.dur)
	c.stream, c.ptr = g.Int64("stream", c.stream), g.Int64("ptr", c.ptr)
	c.bytes, c.src = g.Int64("bytes", c.bytes), g.Int64("src_ptr", c.src)
	c.context = g.Int64("context", c.context)
	c.pid, c.tid, c.device = g.Int32("pid", c.pid), g.Int32("tid", c.tid), g.Int32("device", c.device)
	c.result, c.flags, c.stack = g.Int32("result", c.result), g.Int32("flags", c.flags), g.Int32("stack_id", c.stack)
	for i, axis := range []string{"x", "y", "z"} {
		c.grid[i], c.block[i] = g.Int32("grid_"+axis, c.grid[i]), g.Int32("block_"+axis, c.block[i])
	}
	c.shared = g.Int32("shared_bytes", c.shared)
	c.kind, c.name, c.kernel = g.Strings("kind"), g.Strings("name"), g.Strings("kernel")
	c.memory, c.copy, c.status = g.Strings("memory_kind"), g.Strings("copy_kind"), g.Strings("stack_status")
	c.value = g.Float64("value", c.value)
	for ids, of := range map[*internedColumn]struct {
		field  protowire.Number
		column *format.Strings
	}{
		&c.nameIDs:       {fieldEventNames, &c.name},
		&c.kindIDs:       {fieldEventCategories, &c.kind},
		&c.kernelNameIDs: {fieldEventNames, &c.kernel},
		&c.kernelIDs:     {fieldAnnotationValues, &c.kernel},
		&c.memoryIDs:     {fieldAnnotationValues, &c.memory},
		&c.copyIDs:       {fieldAnnotationValues, &c.copy},
		&c.statusIDs:     {fieldAnnotationValues, &c.status},
	} {
		ids.resetIDs(nil, of.field, len(of.column.Dict))
	}
}

// newCallStream returns the functions with which timeline.EachRowInOrder reads calls for the trace.
func (t *traceBuilder) newCallStream() timeline.RowStream[traceCall] {
	var spare []*traceCallColumns
	return timeline.RowStream[traceCall]{
		Load: func(s timeline.Span) ([]traceCall, error) {
			c := new(traceCallColumns)
			if n := len(spare); n > 0 {
				c, spare = spare[n-1], spare[:n-1]
			}
			c.readRowGroup(s.Group)
			if err := s.Group.Err(); err != nil {
				return nil, err
			}
			for i, d := range c.device {
				c.device[i] = t.t.DeviceOfCall(c.pid[i], c.context[i], d)
			}
			rows := t.selectCalls(c)
			if len(rows) == 0 {
				spare = append(spare, c)
			}
			return rows, nil
		},
		Release: func(_ timeline.Span, rows []traceCall) { spare = append(spare, rows[0].columns) },
		At:      func(c *traceCall) int64 { return c.startNs },
		Less:    (*traceCall).startsBefore,
	}
}

// selectCalls returns the calls of a row group that pass the filter, in order of start.
func (t *traceBuilder) selectCalls(c *traceCallColumns) []traceCall {
	f := &t.filter
	rows := slices.Grow(c.rows[:0], len(c.start))
	for i, start := range c.start {
		call := traceCall{startNs: start, endNs: units.EndOfRange(start, c.dur[i]), columns: c, row: int32(i)}
		if c.flags[i]&(format.FlagAbandoned|format.FlagNoReturn) != 0 {
			call.endNs = start // the duration is unknown
		}
		if start > t.window.ToNs || call.endNs < t.window.FromNs {
			continue
		}
		if f.SelectsCallers() {
			t.seen.AddCaller(c.pid[i], c.tid[i], c.device[i], c.stream[i])
		}
		kind := c.kind.At(i)
		if f.PassesCaller(c.pid[i], c.tid[i], c.device[i], c.stream[i]) && f.PassesKernel(kind, c.kernel.At(i)) &&
			f.PassesSize(kind, c.bytes[i]) {
			rows = append(rows, call)
		}
	}
	timeline.SortNearlySorted(rows, (*traceCall).startsBefore)
	c.rows = rows
	return rows
}

// writeCall writes one call: a slice on its thread and, if it submits work to a stream, an instant
// on the stream.
func (t *traceBuilder) writeCall(call *traceCall) error {
	t.writeEventsUntil(call.startNs)
	c, i := call.columns, int(call.row)
	kind, flags := c.kind.At(i), c.flags[i]
	failed := flags&timeline.NoResultFlags == 0 && calls.IsErrorResult(c.result[i])
	lane := timeline.IsStreamWork(kind) && !failed
	added := int64(1)
	if lane {
		added = 2
	}
	slice := openSlice{
		startNs:  call.startNs,
		atNs:     call.endNs,
		caller:   origin.Thread{Pid: c.pid[i], Tid: c.tid[i]},
		stack:    c.stack[i],
		name:     c.name.At(i),
		category: kind,
		waits: kind == format.KindSync && flags&(format.FlagAbandoned|format.FlagNoReturn) == 0 &&
			!strings.Contains(c.name.At(i), "Query"),
	}
	if slice.waits {
		t.countWaitingThread(call.startNs, slice.caller.Pid, 1)
	}
	if t.max > 0 && t.slices+added > t.max && t.next != nil && t.slices > 0 {
		if err := t.beginNextPart(call.startNs); err != nil {
			return err
		}
	}
	if flags&format.FlagOpen != 0 {
		t.writeOpenCall(slice)
	}
	if t.full || t.max > 0 && t.slices+added > t.max && t.next == nil {
		if slice.waits { // the counter of waiting threads includes calls that are left out
			t.ends = stats.HeapPush(t.ends, slice, openSlice.endsBefore)
		}
		t.leaveOut(call.startNs)
		return t.w.err
	}
	t.slices += added
	t.stats.Calls++
	slice.thread = t.findThreadTrack(slice.caller)
	if flags&(format.FlagAbandoned|format.FlagNoReturn) != 0 { // the duration is unknown
		t.w.startEvent(eventTypeInstant, slice.thread.uuid)
	} else {
		t.beginSlice(slice)
	}
	t.w.setEventNameID(c.nameIDs.stringID(t.w, &c.name, i))
	t.w.addEventCategoryID(c.kindIDs.stringID(t.w, &c.kind, i))
	onGPU := lane && flags&format.FlagCaptured == 0 && t.operations.shows(laneOfCall(c, i), kind, c.copy.At(i))
	if onGPU {
		t.w.event = appendFixed64Field(t.w.event, fieldFlowIDs, flowOfCall(c.pid[i], c.tid[i], call.startNs))
	} else if lane {
		t.flows++
		t.w.event = appendFixed64Field(t.w.event, fieldFlowIDs, t.flows)
	}
	t.w.setEventStack(c.stack[i])
	t.addArguments(c, i, kind)
	t.w.finishEvent(call.startNs)
	if lane && !onGPU {
		t.writeLaneInstant(call, kind)
	}
	return t.w.err
}

// writeOpenCall writes a call that has not returned on a track of its own.
func (t *traceBuilder) writeOpenCall(slice openSlice) {
	slice.thread = t.newOpenCallTrack(slice.caller, slice.name)
	slice.name, slice.category, slice.ownTrack, slice.waits = slice.name+" has not returned", "open", true, false
	t.beginSlice(slice)
	t.w.setEventName(slice.name)
	t.w.addEventCategory(slice.category)
	t.w.setEventStack(slice.stack)
	t.w.finishEvent(slice.startNs)
}

// leaveOut counts a call beyond MaxSlices that starts at a time, Unix ns. For the first one it writes an instant on
// gpurec's track.
func (t *traceBuilder) leaveOut(startNs int64) {
	t.stats.LeftOut++
	if t.stats.LeftOut > 1 {
		return
	}
	t.full = true // no later call is written, even if it needs fewer slices
	t.stats.LeftOutNs = startNs
	t.startInstant(
		t.findGpurecTrack(),
		fmt.Sprintf("all later calls are left out: the limit of %s slices is reached", units.FormatCount(t.slices)),
	)
	t.w.finishEvent(startNs)
}

// laneOfCall returns the lane of a call's stream.
func laneOfCall(c *traceCallColumns, i int) streamLane {
	return streamLane{
		stream: c.stream[i], pid: c.pid[i], device: c.device[i], captured: c.flags[i]&format.FlagCaptured != 0,
	}
}

// writeLaneInstant writes the instant of a call on the lane of its stream, and ends the flow from
// the call.
func (t *traceBuilder) writeLaneInstant(call *traceCall, kind string) {
	c, i := call.columns, int(call.row)
	t.w.startEvent(eventTypeInstant, t.findLaneTrack(laneOfCall(c, i)))
	switch {
	case c.kernel.At(i) != "":
		t.w.setEventNameID(c.kernelNameIDs.stringID(t.w, &c.kernel, i))
	case kind == format.KindLaunch && catalog.BaseFunctionName(c.name.At(i)) == "cuGraphLaunch":
		t.describeGraphLaunch(c, i, call.startNs)
	case c.copy.At(i) != "":
		t.w.setEventName(c.name.At(i) + " " + c.copy.At(i))
	default:
		t.w.setEventNameID(c.nameIDs.stringID(t.w, &c.name, i))
	}
	t.w.addEventCategoryID(c.kindIDs.stringID(t.w, &c.kind, i))
	t.w.event = appendFixed64Field(t.w.event, fieldTerminatingFlowIDs, t.flows)
	t.w.finishEvent(call.startNs)
}

// describeGraphLaunch sets the name of a graph launch to the graph's number of kernels. It adds a
// list of the graph's nodes whose creation was recorded.
func (t *traceBuilder) describeGraphLaunch(c *traceCallColumns, i int, ns int64) {
	if n := int64(c.value[i]); n > 0 {
		t.w.setEventName("graph of " + units.CountWithNoun(n, "kernel"))
	} else {
		t.w.setEventName("graph")
	}
	t.w.addAnnotation("graph", fieldAnnotationPointer, uint64(c.ptr[i]))
	holds := "unknown: the construction of the graph was not recorded"
	if v := t.graphs.VersionAt(c.pid[i], c.ptr[i], ns); v != nil && v.Text != "" {
		holds = v.Text
	}
	t.w.addTextAnnotation("holds", holds)
}

// launchAnnotations are the arguments of a launch that annotations show. Strings are interned
// numbers.
type launchAnnotations struct {
	stream         int64
	kernel, status uint64
	grid, block    [3]int32
	shared, result int32
	flags          int32
}

// maxCachedAnnotations is the largest number of encoded annotations in traceBuilder.launches.
const maxCachedAnnotations = 1 << 16

// addArguments adds the arguments and the result of a call as debug annotations. It caches the
// encoded annotations of launches.
func (t *traceBuilder) addArguments(c *traceCallColumns, i int, kind string) {
	if kind == format.KindLaunch {
		t.addKernelArguments(c, i)
	}
	if kind != format.KindLaunch || c.ptr[i] != 0 || c.bytes[i] != 0 || c.src[i] != 0 {
		t.encodeArguments(c, i, kind)
		return
	}
	// Most launches repeat the arguments of an earlier launch.
	key := launchAnnotations{
		stream: c.stream[i],
		kernel: c.kernelIDs.stringIDOrZero(t.w, &c.kernel, i),
		status: c.statusIDs.stringIDOrZero(t.w, &c.status, i),
		grid: [3]int32{
			c.grid[0][i],
			c.grid[1][i],
			c.grid[2][i],
		},
		block:  [3]int32{c.block[0][i], c.block[1][i], c.block[2][i]},
		shared: c.shared[i],
		result: c.result[i],
		flags:  c.flags[i],
	}
	if notes, ok := t.launches[key]; ok {
		t.w.event = append(t.w.event, notes...)
		return
	}
	before := len(t.w.event)
	t.encodeArguments(c, i, kind)
	if len(t.launches) < maxCachedAnnotations {
		t.launches[key] = slices.Clone(t.w.event[before:])
	}
}

// addKernelArguments adds the recorded arguments of a kernel launch.
func (t *traceBuilder) addKernelArguments(c *traceCallColumns, i int) {
	message, ok := t.kernelArgs[kernelargs.LaunchKey{Pid: c.pid[i], Tid: c.tid[i], StartNs: c.start[i]}]
	if !ok {
		return
	}
	args, err := format.ParseKernelArgs(message)
	if err != nil {
		return // a damaged row
	}
	t.w.addTextAnnotation("arguments", kernelargs.FormatText(&args))
	t.w.addTextAnnotation("arguments_layout", args.Layout)
}

// encodeArguments adds the debug annotations of a call to the current event.
func (t *traceBuilder) encodeArguments(c *traceCallColumns, i int, kind string) {
	w := t.w
	number := func(name string, v int64) {
		if v != 0 {
			w.addAnnotation(name, fieldAnnotationInt, uint64(v))
		}
	}
	pointer := func(name string, v int64) {
		if v != 0 {
			w.addAnnotation(name, fieldAnnotationPointer, uint64(v))
		}
	}
	text := func(name string, ids *internedColumn, column *format.Strings) {
		if column.At(i) != "" {
			w.addAnnotation(name, fieldAnnotationStringIID, ids.stringID(w, column, i))
		}
	}
	switch {
	case c.flags[i]&format.FlagOpen != 0:
		w.addAnnotation("open", fieldAnnotationBool, 1)
	case c.flags[i]&format.FlagAbandoned != 0:
		w.addAnnotation("abandoned", fieldAnnotationBool, 1)
	case c.flags[i]&format.FlagNoReturn != 0:
		w.addAnnotation("duration_unknown", fieldAnnotationBool, 1)
	default:
		number("result", int64(c.result[i]))
	}
	if c.flags[i]&format.FlagCaptured != 0 {
		w.addAnnotation("captured", fieldAnnotationBool, 1)
	}
	number("bytes", c.bytes[i])
	pointer("ptr", c.ptr[i])
	pointer("src_ptr", c.src[i])
	if c.stream[i] != 0 || timeline.IsStreamWork(kind) {
		w.addTextAnnotation("stream", query.StreamName(c.stream[i]))
	}
	text("memory_kind", &c.memoryIDs, &c.memory)
	text("copy_kind", &c.copyIDs, &c.copy)
	text("kernel", &c.kernelIDs, &c.kernel)
	if c.grid[0][i] != 0 {
		w.addTextAnnotation("grid", fmt.Sprintf("%d,%d,%d", c.grid[0][i], c.grid[1][i], c.grid[2][i]))
		w.addTextAnnotation("block", fmt.Sprintf("%d,%d,%d", c.block[0][i], c.block[1][i], c.block[2][i]))
		number("shared_bytes", int64(c.shared[i]))
	}
	text("stack_status", &c.statusIDs, &c.status)
}
