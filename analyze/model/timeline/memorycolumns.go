package timeline

import (
	"github.com/gpurec/gpurec/analyze/model/livemem"
	"github.com/gpurec/gpurec/analyze/model/origin"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// memoryColumns holds the columns of one row group of memory calls. The slices are reused for the
// next group.
type memoryColumns struct {
	start, dur, ptr, bytes, stream  []int64
	context, src                    []int64
	pid, tid, device, result, flags []int32
	stack, via                      []int32
	value                           []float64
	kind, name, site, memory        format.Strings
	// number in origin.OriginTable.Strings of each dictionary entry
	names, sites, memories []int32
	ops                    []livemem.CallOp // op of each kind in the dictionary
	// dictionary of kinds: whether the kind has an op
	known  []bool
	spaces []livemem.NumberSpace // dictionary of memory kinds → number space
}

// NewMemoryStream returns the Stream with which EachRowInOrder reads memory calls.
func (t *Timeline) NewMemoryStream() RowStream[livemem.MemoryCall] {
	var c memoryColumns
	l := newRowLoader[livemem.MemoryCall](t)
	return RowStream[livemem.MemoryCall]{
		ahead: func(s Span) ([]livemem.MemoryCall, func(), error) {
			rows, err := t.loadMemory(s.Group, &c, l)
			return rows, l.shareNumbers(func() {
				for i := range rows {
					rows[i].Origin = l.timelineOrigins[rows[i].Origin]
				}
			}), err
		},
		Release: l.reuseRows,
		At:      func(m *livemem.MemoryCall) int64 { return m.AtNs },
		Less:    (*livemem.MemoryCall).ComesBefore,
	}
}

func (t *Timeline) loadMemory(
	g *format.Group,
	c *memoryColumns,
	l *rowLoader[livemem.MemoryCall],
) ([]livemem.MemoryCall, error) {
	c.readColumns(g, &l.origins.Strings)
	if err := g.Err(); err != nil {
		return nil, err
	}
	rows := l.takeRows(len(c.start))
	for i := range c.start {
		op, ok := c.opOfRow(i)
		if !ok {
			continue
		}
		m := livemem.MemoryCall{
			DurNs: max(0, c.dur[i]),
			Ptr:   c.ptr[i],
			Bytes: max(0, c.bytes[i]),
			Op:    op,
			Space: c.spaces[c.memory.Index[i]],
		}
		if op == livemem.OpAlloc {
			m.Bytes = min(m.Bytes, livemem.MaxAllocBytes)
		}
		switch op {
		case livemem.OpMapHandle:
			m.Handle = c.src[i]
		case livemem.OpAllocFailed:
			m.Handle = int64(c.result[i])
		}
		m.AtNs = c.start[i]
		if !op.TakesEffectAtStart() {
			m.AtNs = units.EndOfRange(c.start[i], c.dur[i])
			m.DurNs = m.AtNs - c.start[i]
		}
		m.Origin = l.origins.NumberOf(origin.CallOrigin{
			Stream:  c.stream[i],
			Context: c.context[i],
			Pid:     c.pid[i],
			Tid:     c.tid[i],
			Device:  t.deviceOfMemory(c, i, m.Space),
			Stack:   c.stack[i],
			Via:     c.via[i],
			Name:    c.names[c.name.Index[i]],
			Site:    c.sites[c.site.Index[i]],
			Memory:  c.memories[c.memory.Index[i]],
		})
		rows = append(rows, m)
	}
	SortNearlySorted(rows, (*livemem.MemoryCall).ComesBefore)
	return rows, nil
}

// deviceOfMemory returns the device of the memory in row i. cuMemCreate has the device as an
// argument, which may differ from the thread's current device.
func (t *Timeline) deviceOfMemory(c *memoryColumns, i int, space livemem.NumberSpace) int32 {
	if space == livemem.SpacePhysical && c.ops[c.kind.Index[i]] == livemem.OpAlloc &&
		c.flags[i]&format.FlagUnreadable == 0 {
		if v := c.value[i]; v >= 0 && v < livemem.MaxDevices {
			return int32(v)
		}
	}
	return t.DeviceOfCall(c.pid[i], c.context[i], c.device[i])
}

// opOfRow returns the effect of row i on memory. It returns false if the row has none.
func (c *memoryColumns) opOfRow(i int) (livemem.CallOp, bool) {
	kind := c.kind.Index[i]
	if !c.known[kind] {
		return 0, false
	}
	return c.ops[kind].Outcome(c.flags[i], c.result[i], c.ptr[i], c.bytes[i])
}

func (c *memoryColumns) readColumns(g *format.Group, strings *origin.StringNumbers) {
	c.start, c.dur = g.Int64("start_ns", c.start), g.Int64("dur_ns", c.dur)
	c.ptr, c.bytes, c.stream = g.Int64("ptr", c.ptr), g.Int64("bytes", c.bytes), g.Int64("stream", c.stream)
	c.context = g.Int64("context", c.context)
	c.pid, c.tid, c.device = g.Int32("pid", c.pid), g.Int32("tid", c.tid), g.Int32("device", c.device)
	c.result, c.flags, c.stack = g.Int32("result", c.result), g.Int32("flags", c.flags), g.Int32("stack_id", c.stack)
	c.via = g.Int32("via_stack_id", c.via)
	c.kind = g.StringsInto("kind", c.kind)
	c.name, c.site, c.memory = g.StringsInto(
		"name",
		c.name,
	), g.StringsInto(
		"site",
		c.site,
	), g.StringsInto(
		"memory_kind",
		c.memory,
	)
	c.names, c.sites, c.memories = strings.NumbersOf(
		c.name.Dict,
	), strings.NumbersOf(
		c.site.Dict,
	), strings.NumbersOf(
		c.memory.Dict,
	)
	c.ops, c.known, c.spaces = c.ops[:0], c.known[:0], c.spaces[:0]
	maps, physical := false, false
	for _, k := range c.kind.Dict {
		op, known := livemem.OpsByKind[k]
		c.ops, c.known = append(c.ops, op), append(c.known, known)
		maps = maps || known && op == livemem.OpMapHandle
	}
	for _, m := range c.memory.Dict {
		space := livemem.SpacesByMemoryKind[m]
		c.spaces = append(c.spaces, space)
		physical = physical || space == livemem.SpacePhysical
	}
	// Most recordings need neither column.
	if maps {
		c.src = g.Int64("src_ptr", c.src)
	}
	if physical {
		c.value = g.Float64("value", c.value)
	}
}
