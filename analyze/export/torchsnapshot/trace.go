package torchsnapshot

import (
	"cmp"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/caching"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/format"
)

// traceEvent is an entry of a snapshot's trace: one event of a caching allocator.
type traceEvent struct {
	atNs, ptr, bytes, stream int64
	free                     int64 // free bytes of the device; only of caching.OpOutOfMemory
	stack                    int32
	op                       caching.AllocatorOp
}

// torchEventColumns are the columns of a row group that decide whether an event is in the trace.
type torchEventColumns struct {
	start, bytes []int64
	pid, device  []int32
	name         format.Strings
	ops          []caching.AllocatorOp // by index of name.Dict
	known        []bool                // by index of name.Dict: the name is that of an Op
}

// readRowGroup reads the columns of a row group.
func (c *torchEventColumns) readRowGroup(g *format.Group) {
	c.start, c.bytes = g.Int64("start_ns", c.start), g.Int64("bytes", c.bytes)
	c.pid, c.device = g.Int32("pid", c.pid), g.Int32("device", c.device)
	c.name = g.StringsInto("name", c.name)
	c.ops, c.known = c.ops[:0], c.known[:0]
	for _, name := range c.name.Dict {
		op, ok := caching.OpsByEventName[name]
		c.ops, c.known = append(c.ops, op), append(c.known, ok)
	}
}

// isInTrace reports whether event i of a row group is in the trace of its device.
func (s *Snapshot) isInTrace(c *torchEventColumns, i int) bool {
	n := c.name.Index[i]
	return c.known[n] && c.start[i] >= s.opt.FromNs && c.start[i] <= s.AtNs &&
		(!c.ops[n].ConcernsBlock() || c.bytes[i] >= s.opt.MinBytes) &&
		s.includesAllocator(c.pid[i], c.device[i])
}

// traceRowGroup is a row group with events of the traces.
type traceRowGroup struct {
	timeline.Span
	lastNs int64   // time of the last event of a trace, Unix ns
	events []int64 // number of events, by device
}

// countTraceEvents counts the events of each device's trace, and sets Snapshot.parts.
func (s *Snapshot) countTraceEvents() error {
	var c torchEventColumns
	for _, span := range s.t.Allocations {
		c.readRowGroup(span.Group)
		if err := span.Group.Err(); err != nil {
			return s.t.WrapReadError(err)
		}
		part := traceRowGroup{Span: span, lastNs: span.FirstNs, events: make([]int64, len(s.devices))}
		for i, device := range c.device {
			if s.isInTrace(&c, i) && device >= 0 && int(device) < len(s.devices) && s.devices[device] != nil {
				part.events[device]++
				part.lastNs = max(part.lastNs, c.start[i])
			}
		}
		for device, n := range part.events {
			if n > 0 {
				s.devices[device].events += n
			}
		}
		s.parts = append(s.parts, part)
	}
	slices.SortStableFunc(s.parts, func(a, b traceRowGroup) int { return cmp.Compare(a.FirstNs, b.FirstNs) })
	return nil
}

// newestTraceSpans returns the row groups with the newest events of a device, as many as
// MaxTraceEntries allows. skip is the number of events at the beginning of these groups that are
// too many.
func (s *Snapshot) newestTraceSpans(device int32) (spans []timeline.Span, skip int64) {
	parts := s.parts
	skip = s.devices[device].leftOut
	for len(parts) > 1 && parts[0].events[device] <= skip && parts[0].lastNs < parts[1].FirstNs {
		skip -= parts[0].events[device]
		parts = parts[1:]
	}
	for _, p := range parts {
		spans = append(spans, p.Span)
	}
	return spans, skip
}

// writeTrace writes the trace of a device: its newest events, at most MaxTraceEntries.
func (w *snapshotWriter) writeTrace(device int32) (err error) {
	w.writeList(func(item func()) {
		if w.s.devices[device] == nil {
			return
		}
		spans, skip := w.s.newestTraceSpans(device)
		err = w.s.t.WrapReadError(timeline.EachRowInOrder(spans, w.s.newTraceStream(device), func(e *traceEvent) error {
			if skip > 0 {
				skip--
				return nil
			}
			item()
			w.writeTraceEntry(e)
			return nil
		}))
	})
	return err
}

// writeTraceEntry writes an event with the keys of torch.cuda.memory._snapshot().
func (w *snapshotWriter) writeTraceEntry(e *traceEvent) {
	w.writeDict(func() {
		w.writeStringItem("action", caching.SnapshotActionsByOp[e.op])
		if e.op == caching.OpOutOfMemory {
			w.writeIntItem("device_free", e.free)
		} else {
			w.writeIntItem("addr", e.ptr)
		}
		w.writeIntItem("size", e.bytes)
		w.writeIntItem("stream", e.stream)
		w.writeIntItem("time_us", e.atNs/1000)
		w.writeStringItem("compile_context", "N/A") // PyTorch's value for none
		w.writeStringItem("user_metadata", "")
		if e.stack != 0 {
			w.writeString("frames")
			w.writeStack(e.stack)
		}
	})
}

// newTraceStream returns the functions with which timeline.EachRowInOrder reads the trace of a
// device.
func (s *Snapshot) newTraceStream(device int32) timeline.RowStream[traceEvent] {
	var c torchEventColumns
	var ptr, streams []int64
	var stack []int32
	var value []float64
	return timeline.RowStream[traceEvent]{
		Load: func(span timeline.Span) ([]traceEvent, error) {
			g := span.Group
			c.readRowGroup(g)
			ptr, streams, stack, value = g.Int64(
				"ptr",
				ptr,
			), g.Int64(
				"stream",
				streams,
			), g.Int32(
				"stack_id",
				stack,
			), g.Float64(
				"value",
				value,
			)
			if err := g.Err(); err != nil {
				return nil, err
			}
			var rows []traceEvent
			for i, start := range c.start {
				if c.device[i] != device || !s.isInTrace(&c, i) {
					continue
				}
				e := traceEvent{
					atNs:   start,
					ptr:    ptr[i],
					bytes:  c.bytes[i],
					stream: streams[i],
					stack:  stack[i],
					op:     c.ops[c.name.Index[i]],
				}
				if e.op == caching.OpOutOfMemory {
					e.free = int64(value[i])
				}
				rows = append(rows, e)
			}
			timeline.SortNearlySorted(rows, func(a, b *traceEvent) bool { return a.atNs < b.atNs })
			return rows, nil
		},
		At:   func(e *traceEvent) int64 { return e.atNs },
		Less: func(a, b *traceEvent) bool { return a.atNs < b.atNs },
	}
}
