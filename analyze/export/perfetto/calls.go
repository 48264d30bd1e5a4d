package perfetto

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/model/calls"
	"github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/stats"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
	"google.golang.org/protobuf/encoding/protowire"
)

// traceCall is one call on its way into a trace: where it is and when it was.
type traceCall struct {
	startNs, endNs int64
	columns        *traceColumns
	row            int32
}

// before orders calls by their start; a call that encloses another comes first.
func (c *traceCall) before(o *traceCall) bool {
	if c.startNs != o.startNs {
		return c.startNs < o.startNs
	}
	return c.endNs > o.endNs
}

// traceColumns are the columns of one row group that a trace shows.
type traceColumns struct {
	start, dur, stream, ptr, bytes, src []int64
	context                             []int64
	pid, tid, device, result, flags     []int32
	stack                               []int32
	grid, block                         [3][]int32
	shared                              []int32
	value                               []float64
	rows                                []traceCall // those that are shown
	kind, name, kernel, memory, copy    format.Strings
	status                              format.Strings

	// Numbers of these in the trace.
	nameIDs, kindIDs, kernelNameIDs, kernelIDs, memoryIDs, copyIDs, statusIDs internedColumn
}

func (c *traceColumns) read(g *format.Group) {
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
		ids.reset(nil, of.field, len(of.column.Dict))
	}
}

// stream says how timeline.InOrder reads calls for the trace.
func (p *trace) stream() timeline.Stream[traceCall] {
	var spare []*traceColumns
	return timeline.Stream[traceCall]{
		Load: func(s timeline.Span) ([]traceCall, error) {
			c := new(traceColumns)
			if n := len(spare); n > 0 {
				c, spare = spare[n-1], spare[:n-1]
			}
			c.read(s.Group)
			if err := s.Group.Err(); err != nil {
				return nil, err
			}
			for i, d := range c.device {
				c.device[i] = p.t.DeviceOf(c.pid[i], c.context[i], d)
			}
			rows := p.selected(c)
			if len(rows) == 0 {
				spare = append(spare, c)
			}
			return rows, nil
		},
		Release: func(_ timeline.Span, rows []traceCall) { spare = append(spare, rows[0].columns) },
		At:      func(c *traceCall) int64 { return c.startNs },
		Less:    (*traceCall).before,
	}
}

// selected returns the calls of a row group that pass the filter, in order.
func (p *trace) selected(c *traceColumns) []traceCall {
	f := &p.filter
	rows := slices.Grow(c.rows[:0], len(c.start))
	for i, start := range c.start {
		call := traceCall{startNs: start, endNs: units.EndOf(start, c.dur[i]), columns: c, row: int32(i)}
		if c.flags[i]&(format.FlagAbandoned|format.FlagNoReturn) != 0 {
			call.endNs = start // how long it took is not known
		}
		if start > p.window.ToNs || call.endNs < p.window.FromNs {
			continue
		}
		if f.Callers() {
			p.seen.Add(c.pid[i], c.tid[i], c.device[i], c.stream[i])
		}
		kind := c.kind.At(i)
		if f.PassesCaller(c.pid[i], c.tid[i], c.device[i], c.stream[i]) && f.PassesKernel(kind, c.kernel.At(i)) &&
			f.PassesSize(kind, c.bytes[i]) {
			rows = append(rows, call)
		}
	}
	timeline.SortNearly(rows, (*traceCall).before)
	c.rows = rows
	return rows
}

// call writes one call: its slice and, if it gives a stream work, an instant there.
func (p *trace) call(call *traceCall) error {
	p.advance(call.startNs)
	c, i := call.columns, int(call.row)
	kind, flags := c.kind.At(i), c.flags[i]
	failed := flags&timeline.NoResult == 0 && calls.IsError(c.result[i])
	lane := timeline.IsLane(kind) && !failed
	needs := int64(1)
	if lane {
		needs = 2
	}
	slice := sliceEnd{
		startNs:  call.startNs,
		atNs:     call.endNs,
		who:      origin.Thread{Pid: c.pid[i], Tid: c.tid[i]},
		stack:    c.stack[i],
		name:     c.name.At(i),
		category: kind,
		waits: kind == format.KindSync && flags&(format.FlagAbandoned|format.FlagNoReturn) == 0 &&
			!strings.Contains(c.name.At(i), "Query"),
	}
	if slice.waits {
		p.wait(call.startNs, slice.who.Pid, 1)
	}
	if p.max > 0 && p.slices+needs > p.max && p.more != nil && p.slices > 0 {
		if err := p.nextPart(call.startNs); err != nil {
			return err
		}
	}
	if flags&format.FlagOpen != 0 {
		p.openCall(slice)
	}
	if p.full || p.max > 0 && p.slices+needs > p.max && p.more == nil {
		p.leaveOut(call, slice)
		return p.w.err
	}
	p.slices += needs
	p.stats.Calls++
	slice.thread = p.threadTrack(slice.who)
	if flags&(format.FlagAbandoned|format.FlagNoReturn) != 0 { // how long it took is not known
		p.w.start(eventInstant, slice.thread.uuid)
	} else {
		p.beginSlice(slice)
	}
	p.w.nameID(c.nameIDs.at(p.w, &c.name, i))
	p.w.categoryID(c.kindIDs.at(p.w, &c.kind, i))
	if lane {
		p.flows++
		p.w.event = appendFixed(p.w.event, fieldFlowIDs, p.flows)
	}
	p.w.callstack(c.stack[i])
	p.arguments(c, i, kind)
	p.w.finish(call.startNs)
	if lane {
		p.lane(call, kind)
	}
	return p.w.err
}

// openCall shows a call that has not returned on a track of its own.
func (p *trace) openCall(slice sliceEnd) {
	slice.thread = p.openTrack(slice.who, slice.name)
	slice.name, slice.category, slice.opens, slice.waits = slice.name+" has not returned", "open", true, false
	p.beginSlice(slice)
	p.w.name(slice.name)
	p.w.category(slice.category)
	p.w.callstack(slice.stack)
	p.w.finish(slice.startNs)
}

// leaveOut counts a call that is too many and says on a track where they begin.
func (p *trace) leaveOut(call *traceCall, slice sliceEnd) {
	if slice.waits { // counters go on
		p.ends = stats.HeapPush(p.ends, slice, sliceEnd.before)
	}
	p.stats.LeftOut++
	if p.stats.LeftOut > 1 {
		return
	}
	p.full = true // a smaller call that would still fit must not follow one left out
	p.stats.LeftOutNs = call.startNs
	p.instant(
		p.ownTrack(),
		fmt.Sprintf("calls from here on are left out: %s slices are the limit", units.Count(p.slices)),
	)
	p.w.finish(call.startNs)
}

// lane writes the instant on the stream, or on that of what was captured, tied to the call by a flow.
func (p *trace) lane(call *traceCall, kind string) {
	c, i := call.columns, int(call.row)
	p.w.start(eventInstant, p.laneTrack(lane{c.stream[i], c.pid[i], c.device[i], c.flags[i]&format.FlagCaptured != 0}))
	switch {
	case c.kernel.At(i) != "":
		p.w.nameID(c.kernelNameIDs.at(p.w, &c.kernel, i))
	case kind == format.KindLaunch && catalog.BaseName(c.name.At(i)) == "cuGraphLaunch":
		p.graph(c, i, call.startNs)
	case c.copy.At(i) != "":
		p.w.name(c.name.At(i) + " " + c.copy.At(i))
	default:
		p.w.nameID(c.nameIDs.at(p.w, &c.name, i))
	}
	p.w.categoryID(c.kindIDs.at(p.w, &c.kind, i))
	p.w.event = appendFixed(p.w.event, fieldTerminatingFlowIDs, p.flows)
	p.w.finish(call.startNs)
}

// graph names the launch of a graph by how many kernels it holds, and lists what it holds as far as that is known.
func (p *trace) graph(c *traceColumns, i int, ns int64) {
	if n := int64(c.value[i]); n > 0 {
		p.w.name("graph of " + units.Plural(n, "kernel"))
	} else {
		p.w.name("graph")
	}
	p.w.note("graph", annotationPointer, uint64(c.ptr[i]))
	holds := "not known: how it was made is not in the recording"
	if v := p.graphs.At(c.pid[i], c.ptr[i], ns); v != nil && v.Text != "" {
		holds = v.Text
	}
	p.w.noteText("holds", holds)
}

// launchNotes is what annotations of a launch say; strings are numbers of the trace.
type launchNotes struct {
	stream         int64
	kernel, status uint64
	grid, block    [3]int32
	shared, result int32
	flags          int32
}

// maxLaunchNotes is how many different launches' annotations are kept encoded.
const maxLaunchNotes = 1 << 16

// arguments adds what is known of the call as debug annotations.
func (p *trace) arguments(c *traceColumns, i int, kind string) {
	if kind != format.KindLaunch || c.ptr[i] != 0 || c.bytes[i] != 0 || c.src[i] != 0 {
		p.encodeArguments(c, i, kind)
		return
	}
	// Launches come in masses, and most of them again.
	key := launchNotes{
		stream: c.stream[i],
		kernel: c.kernelIDs.known(p.w, &c.kernel, i),
		status: c.statusIDs.known(p.w, &c.status, i),
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
	if notes, ok := p.launches[key]; ok {
		p.w.event = append(p.w.event, notes...)
		return
	}
	before := len(p.w.event)
	p.encodeArguments(c, i, kind)
	if len(p.launches) < maxLaunchNotes {
		p.launches[key] = slices.Clone(p.w.event[before:])
	}
}

func (p *trace) encodeArguments(c *traceColumns, i int, kind string) {
	w := p.w
	number := func(name string, v int64) {
		if v != 0 {
			w.note(name, annotationInt, uint64(v))
		}
	}
	pointer := func(name string, v int64) {
		if v != 0 {
			w.note(name, annotationPointer, uint64(v))
		}
	}
	text := func(name string, ids *internedColumn, column *format.Strings) {
		if column.At(i) != "" {
			w.note(name, annotationStringIID, ids.at(w, column, i))
		}
	}
	switch {
	case c.flags[i]&format.FlagOpen != 0:
		w.note("open", annotationBool, 1)
	case c.flags[i]&format.FlagAbandoned != 0:
		w.note("abandoned", annotationBool, 1)
	case c.flags[i]&format.FlagNoReturn != 0:
		w.note("duration_unknown", annotationBool, 1)
	default:
		number("result", int64(c.result[i]))
	}
	if c.flags[i]&format.FlagCaptured != 0 {
		w.note("captured", annotationBool, 1)
	}
	number("bytes", c.bytes[i])
	pointer("ptr", c.ptr[i])
	pointer("src_ptr", c.src[i])
	if c.stream[i] != 0 || timeline.IsLane(kind) {
		w.noteText("stream", query.StreamName(c.stream[i]))
	}
	text("memory_kind", &c.memoryIDs, &c.memory)
	text("copy_kind", &c.copyIDs, &c.copy)
	text("kernel", &c.kernelIDs, &c.kernel)
	if c.grid[0][i] != 0 {
		w.noteText("grid", fmt.Sprintf("%d,%d,%d", c.grid[0][i], c.grid[1][i], c.grid[2][i]))
		w.noteText("block", fmt.Sprintf("%d,%d,%d", c.block[0][i], c.block[1][i], c.block[2][i]))
		number("shared_bytes", int64(c.shared[i]))
	}
	text("stack_status", &c.statusIDs, &c.status)
}
