package timeline

import (
	"math"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/caching"
	"github.com/gpurec/gpurec/analyze/model/livemem"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// This file adds the own totals of caching allocators to replays of a recording that lacks their events for part of the
// time.

// scanTotals records the positions of the new row groups that may have own totals.
func (t *Timeline) scanTotals() error {
	var start []int64
	for i := len(t.totals); i < len(t.Blocks); i++ {
		g := t.Blocks[i]
		s := Span{Group: g, Index: i, FirstNs: math.MaxInt64}
		if start = g.Int64("start_ns", start); len(start) > 0 {
			s.FirstNs, s.LastNs = slices.Min(start), slices.Max(start)
		}
		if err := g.Err(); err != nil {
			return err
		}
		t.totals = append(t.totals, s)
	}
	return nil
}

// newTotalsStream returns the stream of the allocators' own totals.
func newTotalsStream() RowStream[caching.OwnTotals] {
	var c totalsColumns
	return RowStream[caching.OwnTotals]{
		Load: func(s Span) ([]caching.OwnTotals, error) { return c.load(s.Group), s.Group.Err() },
		At:   func(o *caching.OwnTotals) int64 { return o.AtNs },
		Less: func(a, b *caching.OwnTotals) bool { return a.AtNs < b.AtNs },
	}
}

// totalsColumns are the columns of one row group with rows of totals. They are reused for the next group.
type totalsColumns struct {
	start, bytes, allocated, reserved, counter []int64
	pid, device                                []int32
	value                                      []float64
	name                                       format.Strings
}

// load returns the totals of a row group in order of time.
func (c *totalsColumns) load(g *format.Group) (rows []caching.OwnTotals) {
	c.name = g.StringsInto("name", c.name)
	if !slices.Contains(c.name.Dict, format.BlockTotals) {
		return nil
	}
	c.start, c.bytes, c.counter = g.Int64("start_ns", c.start), g.Int64("bytes", c.bytes), g.Int64("counter", c.counter)
	c.allocated, c.reserved = g.Int64("allocated_bytes", c.allocated), g.Int64("reserved_bytes", c.reserved)
	c.pid, c.device, c.value = g.Int32("pid", c.pid), g.Int32("device", c.device), g.Float64("value", c.value)
	if g.Err() != nil {
		return nil
	}
	limit := func(bytes int64) int64 { return min(max(0, bytes), livemem.MaxAllocBytes) }
	for i, at := range c.start {
		if c.name.At(i) == format.BlockTotals {
			rows = append(rows, caching.OwnTotals{
				Pid: c.pid[i], Device: c.device[i], AtNs: at, Allocated: limit(c.allocated[i]),
				Reserved: limit(c.reserved[i]), Peak: limit(c.bytes[i]), Allocs: units.RoundInt(max(0, c.value[i])),
				Frees: max(0, c.counter[i]),
			})
		}
	}
	SortNearlySorted(rows, func(a, b *caching.OwnTotals) bool { return a.AtNs < b.AtNs })
	return rows
}

// nextTotals returns the next totals at or before atNs, Unix ns, or nil. It leaves out those from before the last event
// that was applied, at lastNs. It returns errors of reading the recording.
func (q *readingQueue) nextTotals(atNs, lastNs int64) (*caching.OwnTotals, error) {
	for q.totals != nil {
		if len(q.rows) == 0 {
			rows, err := q.totals.NextRows()
			if err != nil || len(rows) == 0 {
				return nil, q.t.WrapReadError(err)
			}
			q.rows = rows
		}
		if q.rows[0].AtNs > atNs {
			break
		}
		own := &q.rows[0]
		q.rows = q.rows[1:]
		if own.AtNs > lastNs {
			return own, nil
		}
	}
	return nil, nil
}

// applyTotalsBefore applies the allocators' own totals from before an event or a reading at atNs, Unix ns.
func (r *MemoryReplay) applyTotalsBefore(atNs int64) error {
	for r.readings != nil {
		own, err := r.readings.nextTotals(atNs, r.lastEventNs)
		if own == nil || err != nil {
			return err
		}
		r.driver.ApplyEventsBefore(own.AtNs)
		r.Allocators.ApplyTotals(own, r.consumeAllocator)
	}
	return nil
}
