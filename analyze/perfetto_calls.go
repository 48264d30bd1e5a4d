package analyze

import (
	"fmt"

	"github.com/gpurec/gpurec/format"
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
	kind, name, kernel, memory, copy    format.Strings
	status                              format.Strings
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
}

// stream says how inOrder reads calls for the trace.
func (p *trace) stream() stream[traceCall] {
	var spare []*traceColumns
	return stream[traceCall]{
		load: func(s span) ([]traceCall, error) {
			c := new(traceColumns)
			if n := len(spare); n > 0 {
				c, spare = spare[n-1], spare[:n-1]
			}
			c.read(s.group)
			if err := s.group.Err(); err != nil {
				return nil, err
			}
			for i, d := range c.device {
				c.device[i] = p.t.deviceOf(c.pid[i], c.context[i], d)
			}
			rows := p.selected(c)
			if len(rows) == 0 {
				spare = append(spare, c)
			}
			return rows, nil
		},
		release: func(_ span, rows []traceCall) { spare = append(spare, rows[0].columns) },
		at:      func(c *traceCall) int64 { return c.startNs },
		less:    (*traceCall).before,
	}
}

// selected returns the calls of a row group that pass the filter, in order.
func (p *trace) selected(c *traceColumns) []traceCall {
	f := &p.filter
	var rows []traceCall
	for i, start := range c.start {
		call := traceCall{startNs: start, endNs: endOf(start, c.dur[i]), columns: c, row: int32(i)}
		if c.flags[i]&format.FlagAbandoned != 0 {
			call.endNs = start // how long it took is not known
		}
		if start > p.window.ToNs || call.endNs < p.window.FromNs {
			continue
		}
		p.seen.add(c.pid[i], c.tid[i], c.device[i], c.stream[i])
		kind := c.kind.At(i)
		if f.caller(c.pid[i], c.tid[i], c.device[i], c.stream[i]) && f.kernel(kind, c.kernel.At(i)) && f.size(kind, c.bytes[i]) {
			rows = append(rows, call)
		}
	}
	sortNearly(rows, (*traceCall).before)
	return rows
}

// call writes one call: its slice and, if it gives a stream work, an instant there.
func (p *trace) call(call *traceCall) error {
	p.advance(call.startNs)
	c, i := call.columns, int(call.row)
	kind := c.kind.At(i)
	lane := isLane(kind)
	needs := int64(1)
	if lane {
		needs = 2
	}
	if p.full || p.max > 0 && p.slices+needs > p.max {
		p.leaveOut(call)
		return p.w.err
	}
	p.slices += needs
	p.stats.Calls++
	th := p.threadTrack(thread{c.pid[i], c.tid[i]})
	p.beginSlice(th, call.endNs)
	p.w.name(c.name.At(i))
	p.w.category(kind)
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

// leaveOut counts a call that is too many and says on a track where they begin.
func (p *trace) leaveOut(call *traceCall) {
	p.stats.LeftOut++
	if p.stats.LeftOut > 1 {
		return
	}
	p.full = true // a smaller call that would still fit must not follow one left out
	p.stats.LeftOutNs = call.startNs
	p.instant(p.ownTrack(), fmt.Sprintf("calls from here on are left out: %s slices are the limit", thousands(p.slices)))
	p.w.finish(call.startNs)
}

// lane writes the instant on the stream, tied to the call by a flow.
func (p *trace) lane(call *traceCall, kind string) {
	c, i := call.columns, int(call.row)
	name := c.kernel.At(i)
	if name == "" {
		name = c.name.At(i)
		if c.copy.At(i) != "" {
			name += " " + c.copy.At(i)
		}
	}
	track := p.laneTrack(c.device[i], c.pid[i], c.stream[i])
	p.instant(track, name)
	p.w.category(kind)
	p.w.event = appendFixed(p.w.event, fieldTerminatingFlowIDs, p.flows)
	p.w.finish(call.startNs)
}

// arguments adds what is known of the call as debug annotations.
func (p *trace) arguments(c *traceColumns, i int, kind string) {
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
	text := func(name, v string) {
		if v != "" {
			w.noteText(name, v)
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
	number("bytes", c.bytes[i])
	pointer("ptr", c.ptr[i])
	pointer("src_ptr", c.src[i])
	if c.stream[i] != 0 || isLane(kind) {
		w.noteText("stream", streamName(c.stream[i]))
	}
	text("memory_kind", c.memory.At(i))
	text("copy_kind", c.copy.At(i))
	text("kernel", c.kernel.At(i))
	if c.grid[0][i] != 0 {
		w.noteText("grid", fmt.Sprintf("%d,%d,%d", c.grid[0][i], c.grid[1][i], c.grid[2][i]))
		w.noteText("block", fmt.Sprintf("%d,%d,%d", c.block[0][i], c.block[1][i], c.block[2][i]))
		number("shared_bytes", int64(c.shared[i]))
	}
	text("stack_status", c.status.At(i))
}
