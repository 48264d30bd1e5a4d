package frag

import (
	"cmp"
	"slices"
	"sort"

	"github.com/gpurec/gpurec/analyze/model/caching"
	"github.com/gpurec/gpurec/analyze/model/ledger"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// reservation is a stretch of addresses that a program reserved (cuMemAddressReserve),
// with what is mapped there.
type reservation struct {
	ptr, end int64
	device   int32
	mapped   ledger.Mappings
}

// survey measures the mapped and unmapped parts.
func (r *reservation) survey(s *caching.Space) {
	s.Extents++
	s.Reserved += r.end - r.ptr
	at := r.ptr
	r.mapped.Each(func(m ledger.Mapping) {
		s.Active += m.End - m.Start
		s.Blocks++
		if m.Start > at {
			s.AddGap(m.Start-at, caching.AnyBlocks)
		}
		at = m.End
	})
	if at < r.end {
		s.AddGap(r.end-at, caching.AnyBlocks)
	}
}

// addressCall is a call about addresses that succeeded.
type addressCall struct {
	atNs, ptr, bytes int64
	pid, device      int32
	what             addressWhat
}

type addressWhat uint8

const (
	addressUnmap addressWhat = iota // what ends comes first
	addressUnreserve
	addressReserve
	addressMap
)

var addressKinds = map[string]addressWhat{
	format.KindUnmap: addressUnmap, format.KindUnreserve: addressUnreserve, format.KindReserve: addressReserve, format.KindMap: addressMap,
}

func (c *addressCall) before(o *addressCall) bool {
	if c.atNs != o.atNs {
		return c.atNs < o.atNs
	}
	return c.what < o.what
}

// eachAddressCall yields the calls about addresses in order of effect, if the recording
// has any reservation.
func eachAddressCall(t *timeline.Timeline, yield func(*addressCall)) error {
	var kind format.Strings
	var spans []timeline.Span
	reserves := false
	for _, s := range t.Memory {
		kind = s.Group.StringsInto("kind", kind)
		if err := s.Group.Err(); err != nil {
			return t.Wrap(err)
		}
		if slices.ContainsFunc(kind.Dict, func(k string) bool { _, ok := addressKinds[k]; return ok }) {
			spans = append(spans, s)
		}
		reserves = reserves || slices.Contains(kind.Dict, format.KindReserve)
	}
	if !reserves {
		return nil
	}
	err := timeline.InOrder(spans, timeline.Stream[addressCall]{
		Load: func(s timeline.Span) ([]addressCall, error) { return loadAddressCalls(t, s.Group) },
		At:   func(c *addressCall) int64 { return c.atNs },
		Less: (*addressCall).before,
	}, func(c *addressCall) error { yield(c); return nil })
	return t.Wrap(err)
}

func loadAddressCalls(t *timeline.Timeline, g *format.Group) ([]addressCall, error) {
	kind := g.Strings("kind")
	start, dur, ptr, bytes := g.Int64("start_ns", nil), g.Int64("dur_ns", nil), g.Int64("ptr", nil), g.Int64("bytes", nil)
	context := g.Int64("context", nil)
	pid, device, result, flags := g.Int32("pid", nil), g.Int32("device", nil), g.Int32("result", nil), g.Int32("flags", nil)
	if err := g.Err(); err != nil {
		return nil, err
	}
	var rows []addressCall
	for i := range start {
		what, ok := addressKinds[kind.At(i)]
		if !ok || result[i] != 0 || flags[i]&(format.FlagOpen|format.FlagAbandoned) != 0 || ptr[i] <= 0 || bytes[i] <= 0 || bytes[i] > ledger.AddressSpace {
			continue
		}
		c := addressCall{start[i], ptr[i], bytes[i], pid[i], t.DeviceOf(pid[i], context[i], device[i]), what}
		if what == addressReserve {
			c.atNs = units.EndOf(start[i], dur[i])
		}
		rows = append(rows, c)
	}
	timeline.SortNearly(rows, (*addressCall).before)
	return rows, nil
}

// reservations are those of all processes at a moment.
type reservations map[int32][]*reservation // by process, in order of address

// find returns the place of the first reservation of a process that ends behind ptr.
func (r reservations) find(pid int32, ptr int64) int {
	list := r[pid]
	return sort.Search(len(list), func(i int) bool { return list[i].end > ptr })
}

func (r reservations) apply(c *addressCall) {
	list := r[c.pid]
	at := r.find(c.pid, c.ptr)
	end := units.EndOf(c.ptr, c.bytes)
	inside := at < len(list) && list[at].ptr <= c.ptr && end <= list[at].end
	switch c.what {
	case addressReserve:
		last := at
		for last < len(list) && list[last].ptr < end {
			last++ // its end was lost
		}
		list = slices.Delete(list, at, last)
		r[c.pid] = slices.Insert(list, at, &reservation{ptr: c.ptr, end: end, device: c.device})
	case addressUnreserve:
		if inside && list[at].ptr == c.ptr {
			r[c.pid] = slices.Delete(list, at, at+1)
		}
	case addressMap:
		if inside {
			list[at].mapped.Cut(c.ptr, end, func(ledger.Mapping) {})
			list[at].mapped.Insert(ledger.Mapping{Start: c.ptr, End: end})
		}
	case addressUnmap:
		if inside {
			list[at].mapped.Cut(c.ptr, end, func(ledger.Mapping) {})
		}
	}
}

// addressRange is [start, end).
type addressRange struct{ start, end int64 }

// addressRanges are ranges in order, none touching another one once they are joined.
type addressRanges []addressRange

// joined sorts the ranges and makes one of those that touch.
func (r addressRanges) joined() addressRanges {
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

// overlaps reports whether any of the joined ranges shares an address with [start, end).
func (r addressRanges) overlaps(start, end int64) bool {
	i := sort.Search(len(r), func(i int) bool { return r[i].end > start })
	return i < len(r) && r[i].start < end
}
