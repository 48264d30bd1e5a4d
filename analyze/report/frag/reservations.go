package frag

import (
	"cmp"
	"slices"
	"sort"

	"github.com/gpurec/gpurec/analyze/model/caching"
	"github.com/gpurec/gpurec/analyze/model/livemem"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// reservation is an address range that a program reserved with cuMemAddressReserve, and the memory
// mapped there.
type reservation struct {
	ptr, end int64
	device   int32
	mapped   livemem.Mappings
}

// addToSpace adds the mapped and unmapped parts of the reservation to a space.
func (r *reservation) addToSpace(s *caching.MemorySpace) {
	s.Extents++
	s.Reserved += r.end - r.ptr
	at := r.ptr
	r.mapped.EachMapping(func(m livemem.Mapping) {
		s.Active += m.End - m.Start
		s.Blocks++
		if m.Start > at {
			s.AddHole(m.Start-at, caching.HoleForAnyBlocks)
		}
		at = m.End
	})
	if at < r.end {
		s.AddHole(r.end-at, caching.HoleForAnyBlocks)
	}
}

// addressCall is a successful call that reserves, maps, unmaps or frees an address range.
type addressCall struct {
	atNs, ptr, bytes int64
	pid, device      int32
	op               addressOp
}

// addressOp is the effect of an addressCall. Calls at the same time are applied in ascending order.
type addressOp uint8

const (
	addressOpUnmap addressOp = iota
	addressOpUnreserve
	addressOpReserve
	addressOpMap
)

// addressOpByKind has the addressOp of each call kind that changes reserved addresses.
var addressOpByKind = map[string]addressOp{
	format.KindUnmap:     addressOpUnmap,
	format.KindUnreserve: addressOpUnreserve,
	format.KindReserve:   addressOpReserve,
	format.KindMap:       addressOpMap,
}

// isBefore reports whether the call c takes effect before the call o.
func (c *addressCall) isBefore(o *addressCall) bool {
	if c.atNs != o.atNs {
		return c.atNs < o.atNs
	}
	return c.op < o.op
}

// forEachAddressCall calls yield for each address call, in order of their effect. It calls yield
// for none if the recording has no reservation.
func forEachAddressCall(t *timeline.Timeline, yield func(*addressCall)) error {
	var kind format.Strings
	var spans []timeline.Span
	reserves := false
	for _, s := range t.Memory {
		kind = s.Group.StringsInto("kind", kind)
		if err := s.Group.Err(); err != nil {
			return t.WrapReadError(err)
		}
		if slices.ContainsFunc(kind.Dict, func(k string) bool { _, ok := addressOpByKind[k]; return ok }) {
			spans = append(spans, s)
		}
		reserves = reserves || slices.Contains(kind.Dict, format.KindReserve)
	}
	if !reserves {
		return nil
	}
	err := timeline.EachRowInOrder(spans, timeline.RowStream[addressCall]{
		Load: func(s timeline.Span) ([]addressCall, error) { return loadAddressCalls(t, s.Group) },
		At:   func(c *addressCall) int64 { return c.atNs },
		Less: (*addressCall).isBefore,
	}, func(c *addressCall) error { yield(c); return nil })
	return t.WrapReadError(err)
}

// loadAddressCalls returns the address calls of a row group, in order of their effect.
func loadAddressCalls(t *timeline.Timeline, g *format.Group) ([]addressCall, error) {
	kind := g.Strings("kind")
	start, dur, ptr, bytes := g.Int64(
		"start_ns",
		nil,
	), g.Int64(
		"dur_ns",
		nil,
	), g.Int64(
		"ptr",
		nil,
	), g.Int64(
		"bytes",
		nil,
	)
	context := g.Int64("context", nil)
	pid, device, result, flags := g.Int32(
		"pid",
		nil,
	), g.Int32(
		"device",
		nil,
	), g.Int32(
		"result",
		nil,
	), g.Int32(
		"flags",
		nil,
	)
	if err := g.Err(); err != nil {
		return nil, err
	}
	var rows []addressCall
	for i := range start {
		op, ok := addressOpByKind[kind.At(i)]
		if !ok || result[i] != 0 || flags[i]&(format.FlagOpen|format.FlagAbandoned) != 0 || ptr[i] <= 0 ||
			bytes[i] <= 0 ||
			bytes[i] > livemem.MaxAllocBytes {
			continue
		}
		c := addressCall{start[i], ptr[i], bytes[i], pid[i], t.DeviceOfCall(pid[i], context[i], device[i]), op}
		if op == addressOpReserve {
			c.atNs = units.EndOfRange(start[i], dur[i])
		}
		rows = append(rows, c)
	}
	timeline.SortNearlySorted(rows, (*addressCall).isBefore)
	return rows, nil
}

// reservationsByPid has the current reservations of each process id, sorted by address.
type reservationsByPid map[int32][]*reservation

// findReservation returns the index of the first reservation of a process that ends after ptr.
func (r reservationsByPid) findReservation(pid int32, ptr int64) int {
	list := r[pid]
	return sort.Search(len(list), func(i int) bool { return list[i].end > ptr })
}

// applyCall applies the next call to the reservations.
func (r reservationsByPid) applyCall(c *addressCall) {
	list := r[c.pid]
	at := r.findReservation(c.pid, c.ptr)
	end := units.EndOfRange(c.ptr, c.bytes)
	inside := at < len(list) && list[at].ptr <= c.ptr && end <= list[at].end
	switch c.op {
	case addressOpReserve:
		last := at
		for last < len(list) && list[last].ptr < end {
			last++ // the call that freed this reservation was lost
		}
		list = slices.Delete(list, at, last)
		r[c.pid] = slices.Insert(list, at, &reservation{ptr: c.ptr, end: end, device: c.device})
	case addressOpUnreserve:
		if inside && list[at].ptr == c.ptr {
			r[c.pid] = slices.Delete(list, at, at+1)
		}
	case addressOpMap:
		if inside {
			list[at].mapped.RemoveOverlapping(c.ptr, end, func(livemem.Mapping) {})
			list[at].mapped.InsertMapping(livemem.Mapping{Start: c.ptr, End: end})
		}
	case addressOpUnmap:
		if inside {
			list[at].mapped.RemoveOverlapping(c.ptr, end, func(livemem.Mapping) {})
		}
	}
}

// addressRange is the address range [start, end).
type addressRange struct{ start, end int64 }

// addressRanges is a list of address ranges. joined returns it sorted, with no two ranges touching.
type addressRanges []addressRange

// mergeTouching returns the ranges sorted, with touching ranges merged. It reorders r.
func (r addressRanges) mergeTouching() addressRanges {
	slices.SortFunc(r, func(a, b addressRange) int { return cmp.Compare(a.start, b.start) })
	var list addressRanges
	for _, a := range r {
		if n := len(list); n > 0 && a.start <= list[n-1].end {
			list[n-1].end = max(list[n-1].end, a.end)
		} else {
			list = append(list, a)
		}
	}
	return list
}

// overlaps reports whether a range of r shares an address with [start, end). r must be joined.
func (r addressRanges) overlaps(start, end int64) bool {
	i := sort.Search(len(r), func(i int) bool { return r[i].end > start })
	return i < len(r) && r[i].start < end
}
