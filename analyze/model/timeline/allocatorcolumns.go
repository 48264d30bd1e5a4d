package timeline

import (
	"math"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/caching"
	"github.com/gpurec/gpurec/analyze/model/livemem"
	"github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/format"
)

// allocatorColumns holds the columns of one row group of allocator events. The slices are reused
// for the next group.
type allocatorColumns struct {
	start, ptr, bytes, stream, context, pool []int64
	allocated, reserved                      []int64
	pid, tid, device, stack, via             []int32
	value                                    []float64
	name, site, memory                       format.Strings
	// dictionary → index in origin.OriginTable.Strings
	names, sites, memories []int32
	ops                    []caching.AllocatorOp // operation of each event name in the dictionary
	// dictionary of names: whether to read the event
	known []bool
}

// scanAllocators records the position of a row group of allocator events, and counts its events.
func (t *Timeline) scanAllocators(g *format.Group, index int) {
	s := &t.Scan
	s.start = g.Int64("start_ns", s.start)
	if len(s.start) == 0 {
		return
	}
	first, last := slices.Min(s.start), slices.Max(s.start)
	t.Allocations = append(t.Allocations, Span{Group: g, Index: index, FirstNs: first})
	if s.Events+s.AllocatorEvents == 0 || first < s.firstNs {
		s.firstNs = first
	}
	s.LastNs = max(s.LastNs, last)
	s.AllocatorEvents += int64(len(s.start))
}

// NewAllocatorStream returns the Stream with which EachRowInOrder reads allocator events. With
// onlySegments it reads only events about segments, which are rare unless the allocator is known
// from reported statistics.
func (t *Timeline) NewAllocatorStream(onlySegments bool) RowStream[caching.AllocatorEvent] {
	var c allocatorColumns
	l := newRowLoader[caching.AllocatorEvent](t)
	return RowStream[caching.AllocatorEvent]{
		ahead: func(s Span) (rows []caching.AllocatorEvent, begin func(), err error) {
			if c.readNames(s.Group, onlySegments) {
				rows = c.loadEvents(s.Group, l)
			}
			return rows, l.shareNumbers(func() { renumberEvents(l, rows) }), s.Group.Err()
		},
		Release: l.reuseRows,
		At:      func(e *caching.AllocatorEvent) int64 { return e.AtNs },
		Less:    func(a, b *caching.AllocatorEvent) bool { return a.AtNs < b.AtNs },
	}
}

// readNames resolves the names of a row group's events, and reports whether any of them is to be
// read.
func (c *allocatorColumns) readNames(g *format.Group, onlySegments bool) bool {
	c.name = g.StringsInto("name", c.name)
	c.ops, c.known = c.ops[:0], c.known[:0]
	for _, name := range c.name.Dict {
		op, ok := caching.OpsByEventName[name]
		c.ops, c.known = append(c.ops, op), append(c.known, ok && (!onlySegments || op.ProvesSegment()))
	}
	return slices.Contains(c.known, true)
}

func (c *allocatorColumns) readColumns(g *format.Group, strings *origin.StringNumbers) {
	c.start, c.ptr, c.bytes = g.Int64("start_ns", c.start), g.Int64("ptr", c.ptr), g.Int64("bytes", c.bytes)
	c.stream, c.context, c.pool = g.Int64("stream", c.stream), g.Int64("context", c.context), g.Int64("src_ptr", c.pool)
	c.allocated, c.reserved = g.Int64("allocated_bytes", c.allocated), g.Int64("reserved_bytes", c.reserved)
	c.pid, c.tid, c.device = g.Int32("pid", c.pid), g.Int32("tid", c.tid), g.Int32("device", c.device)
	c.stack, c.via = g.Int32("stack_id", c.stack), g.Int32("via_stack_id", c.via)
	c.site, c.memory = g.StringsInto("site", c.site), g.StringsInto("memory_kind", c.memory)
	c.names, c.sites, c.memories = strings.NumbersOf(
		c.name.Dict,
	), strings.NumbersOf(
		c.site.Dict,
	), strings.NumbersOf(
		c.memory.Dict,
	)
	if slices.Contains(c.ops, caching.OpOutOfMemory) {
		c.value = g.Float64("value", c.value)
	}
}

// loadEvents returns the selected events of a row group. readNames must have been called for it.
func (c *allocatorColumns) loadEvents(g *format.Group, l *rowLoader[caching.AllocatorEvent]) []caching.AllocatorEvent {
	wanted := 0
	for _, name := range c.name.Index {
		if c.known[name] {
			wanted++
		}
	}
	c.readColumns(g, &l.origins.Strings)
	if wanted == 0 || g.Err() != nil {
		return nil
	}
	rows := l.takeRows(wanted)
	isSorted, last := true, int64(math.MinInt64)
	for i, start := range c.start {
		name := c.name.Index[i]
		if !c.known[name] {
			continue
		}
		e := caching.AllocatorEvent{
			AtNs:      start,
			Ptr:       c.ptr[i] & (1<<56 - 1),
			Bytes:     min(max(0, c.bytes[i]), livemem.MaxAllocBytes),
			Pool:      c.pool[i],
			Stream:    c.stream[i],
			Op:        c.ops[name],
			Origin:    origin.NoOrigin,
			Allocated: min(c.allocated[i], livemem.MaxAllocBytes),
			Reserved:  min(c.reserved[i], livemem.MaxAllocBytes),
			Allocator: l.allocators.NumberOf(caching.AllocatorKey{Pid: c.pid[i], Device: c.device[i]}),
		}
		if e.Op.RequestsMemory() {
			e.Origin = l.origins.NumberOf(origin.CallOrigin{
				Stream:  c.stream[i],
				Context: c.context[i],
				Pid:     c.pid[i],
				Tid:     c.tid[i],
				Device:  c.device[i],
				Stack:   c.stack[i],
				Via:     c.via[i],
				Name:    c.names[name],
				Site:    c.sites[c.site.Index[i]],
				Memory:  c.memories[c.memory.Index[i]],
			})
		}
		if e.Op == caching.OpOutOfMemory {
			e.Ptr = int64(min(max(0, c.value[i]), livemem.MaxAllocBytes))
		}
		rows = append(rows, e)
		isSorted, last = isSorted && start >= last, start
	}
	if !isSorted {
		SortNearlySorted(rows, func(a, b *caching.AllocatorEvent) bool { return a.AtNs < b.AtNs })
	}
	return rows
}

// renumberEvents replaces the loader's numbers in events by the Timeline's.
func renumberEvents(l *rowLoader[caching.AllocatorEvent], rows []caching.AllocatorEvent) {
	for i := range rows {
		e := &rows[i]
		e.Allocator = l.timelineAllocators[e.Allocator]
		if e.Origin != origin.NoOrigin {
			e.Origin = l.timelineOrigins[e.Origin]
		}
	}
}
