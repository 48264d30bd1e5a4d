package timeline

import (
	"cmp"
	"math"
	"slices"

	"github.com/gpurec/gpurec/analyze/model/livemem"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// readEvents collects the events of a replay in order of time: ends of processes and contexts, and
// memory of graphs and other APIs.
func (t *Timeline) readEvents() error {
	t.Events = t.earlierSegmentEvents() // a replay may use the earlier list
	for _, e := range t.Facts.Exits {
		t.Events = append(t.Events, livemem.MemoryEvent{AtNs: e.AtNs, Pid: e.Pid, Kind: livemem.EventProcessExit})
	}
	ends, err := t.findContextEnds()
	if err != nil {
		return err
	}
	t.Events = append(t.Events, ends...)
	for i := range t.API.Calls {
		c := &t.API.Calls[i]
		switch {
		case c.Kind == APIGraphAlloc:
			t.Events = append(
				t.Events,
				livemem.MemoryEvent{
					AtNs:  c.EndNs,
					Pid:   c.Pid,
					Kind:  livemem.EventGraphAlloc,
					Ptr:   c.ptr,
					Bytes: c.bytes,
				},
			)
		case c.Kind == APIMappedBuffer && c.ptr != 0:
			t.Events = append(
				t.Events,
				livemem.MemoryEvent{AtNs: c.EndNs, Pid: c.Pid, Kind: livemem.EventMappedBuffer, Ptr: c.ptr},
			)
		case c.Kind == APIMappedArray && c.ptr != 0:
			t.Events = append(
				t.Events,
				livemem.MemoryEvent{AtNs: c.EndNs, Pid: c.Pid, Kind: livemem.EventMappedArray, Ptr: c.ptr},
			)
		}
	}
	slices.SortStableFunc(t.Events, func(a, b livemem.MemoryEvent) int {
		return cmp.Or(
			cmp.Compare(a.AtNs, b.AtNs),
			cmp.Compare(a.Pid, b.Pid),
			cmp.Compare(a.Kind, b.Kind),
			cmp.Compare(a.Context, b.Context), // contexts come from a map
		)
	})
	return nil
}

// primaryContextKey identifies the primary context of a device in a process.
type primaryContextKey struct{ pid, device int32 }

// primaryContext is the recorded history of a primary context.
type primaryContext struct {
	context int64   // context handle, which never changes; 0: no retain was recorded
	refs    int64   // recorded retains minus recorded releases of the context
	resets  []int64 // times of cuDevicePrimaryCtxReset, Unix ns
	// ends are the releases that drop the last recorded reference.
	ends []livemem.MemoryEvent
	// idle are the times at which the context is not retained, if every retain was recorded. These
	// are the time before the first retain, and from each of ends to the next retain.
	idle []query.Window
}

// findContextEnds returns when contexts ended. The last release of a primary context also ends it.
// But a process that started before the recording may have retained it then; this shows as calls in
// the context after its presumed end.
func (t *Timeline) findContextEnds() ([]livemem.MemoryEvent, error) {
	var ends []livemem.MemoryEvent
	primaries := make(map[primaryContextKey]*primaryContext)
	changes := 0 // retains and releases
	// references by cuCtxAttach; the last cuCtxDetach destroys the context
	attached := make(map[contextKey]int)
	of := func(c *APICall) *primaryContext {
		key := primaryContextKey{c.Pid, c.Device}
		if primaries[key] == nil {
			primaries[key] = new(primaryContext)
		}
		return primaries[key]
	}
	for i := range t.API.Calls {
		c := &t.API.Calls[i]
		switch c.Kind {
		case APICreateContext:
			t.createdContexts[contextKey{c.Pid, c.ptr}] = true
		case APIAttachContext:
			attached[contextKey{c.Pid, c.ptr}]++
		case APIDetachContext:
			if key := (contextKey{c.Pid, c.ptr}); attached[key] > 0 {
				attached[key]--
			} else if c.ptr != 0 {
				ends = append(
					ends,
					livemem.MemoryEvent{AtNs: c.StartNs, Pid: c.Pid, Kind: livemem.EventContextEnd, Context: c.ptr},
				)
			}
		case APIDestroyContext:
			if c.ptr != 0 {
				ends = append(
					ends,
					livemem.MemoryEvent{AtNs: c.StartNs, Pid: c.Pid, Kind: livemem.EventContextEnd, Context: c.ptr},
				)
			}
		case APIResetPrimary:
			of(c).resets = append(of(c).resets, c.StartNs)
		case APIRetainPrimary:
			of(c).retainContext(c)
			changes++
		case APIReleasePrimary:
			of(c).releaseContext(c)
			changes++
		}
	}
	for key, p := range primaries {
		for _, at := range p.resets {
			ends = append(
				ends,
				livemem.MemoryEvent{
					AtNs:    at,
					Pid:     key.pid,
					Kind:    livemem.EventContextEnd,
					Context: p.context,
					Device:  key.device, IsPrimary: true,
				},
			)
		}
	}
	released, err := t.findLastReleases(primaries, changes)
	if err != nil {
		return nil, err
	}
	ends = append(ends, released...)
	return ends, t.markLastEvents(ends)
}

func (p *primaryContext) retainContext(c *APICall) {
	if p.context == 0 {
		p.idle = append(p.idle, query.Window{FromNs: math.MinInt64, ToNs: c.StartNs - 1})
	} else if p.refs == 0 && len(p.idle) > 0 {
		p.idle[len(p.idle)-1].ToNs = c.StartNs - 1
	}
	p.context = c.ptr
	p.refs++
}

func (p *primaryContext) releaseContext(c *APICall) {
	if p.refs == 0 {
		return // the process retained the context before the recording
	}
	if p.refs--; p.refs == 0 {
		p.ends = append(
			p.ends,
			livemem.MemoryEvent{
				AtNs:    c.StartNs,
				Pid:     c.Pid,
				Kind:    livemem.EventContextEnd,
				Context: p.context,
				Device:  c.Device, IsPrimary: true,
			},
		)
		p.idle = append(p.idle, query.Window{FromNs: c.EndNs + 1, ToNs: math.MaxInt64})
	}
}

// contextUses has the contexts that a call used while they were presumed to be released.
type contextUses struct {
	used    map[contextKey]bool
	scanned scannedSpans // row groups that were read
	changes int          // retains and releases when they were read: others make other times of release
}

// findLastReleases returns the ends of those primary contexts that no call used while they were
// presumed to be released. changes is the number of retains and releases.
func (t *Timeline) findLastReleases(
	primaries map[primaryContextKey]*primaryContext,
	changes int,
) ([]livemem.MemoryEvent, error) {
	if t.uses.changes != changes {
		t.uses = contextUses{used: make(map[contextKey]bool), changes: changes}
	}
	candidates := make(map[contextKey]*primaryContext)
	for key, p := range primaries {
		if context := (contextKey{key.pid, p.context}); len(p.ends) > 0 && !t.uses.used[context] {
			candidates[context] = p
		}
	}
	if len(candidates) == 0 {
		return nil, nil
	}
	from := t.uses.scanned
	err := t.eachContextUse(t.Memory[from.memory:], t.Calls[from.calls:], func(key contextKey, startNs int64) {
		p := candidates[key]
		if p != nil &&
			slices.ContainsFunc(p.idle, func(w query.Window) bool { return startNs >= w.FromNs && startNs <= w.ToNs }) {
			delete(candidates, key)
			t.uses.used[key] = true
		}
	})
	t.uses.scanned = scannedSpans{len(t.Memory), len(t.Calls)}
	var ends []livemem.MemoryEvent
	for _, p := range candidates {
		ends = append(ends, p.ends...)
	}
	return ends, err
}

// eachContextUse calls yield for all successful calls of row groups that need a live context.
func (t *Timeline) eachContextUse(memoryCalls, calls []Span, yield func(key contextKey, startNs int64)) error {
	s := &t.API
	var kind, memory format.Strings
	var needs []bool
	for _, spans := range [][]Span{memoryCalls, calls} {
		for _, sp := range spans {
			g := sp.Group
			kind, memory = g.StringsInto("kind", kind), g.StringsInto("memory_kind", memory)
			s.Pid, s.Context, s.Start = g.Int32(
				"pid",
				s.Pid,
			), g.Int64(
				"context",
				s.Context,
			), g.Int64(
				"start_ns",
				s.Start,
			)
			s.result, s.flags = g.Int32("result", s.result), g.Int32("flags", s.flags)
			if err := g.Err(); err != nil {
				return err
			}
			needs = needs[:0]
			for _, k := range kind.Dict {
				needs = append(needs, k == format.KindAlloc || IsStreamWork(k))
			}
			for i, start := range s.Start {
				unfinished := s.flags[i]&(format.FlagOpen|format.FlagAbandoned) != 0
				if needs[kind.Index[i]] && s.result[i] == 0 && !unfinished && memory.At(i) != format.MemoryPhysical {
					yield(contextKey{s.Pid[i], s.Context[i]}, start)
				}
			}
		}
	}
	return nil
}

// markLastEvents sets Last on the ends of contexts after which the process allocates nothing.
func (t *Timeline) markLastEvents(ends []livemem.MemoryEvent) error {
	if len(ends) == 0 {
		return nil
	}
	if err := t.readLastAllocs(); err != nil {
		return err
	}
	for i := range ends {
		ends[i].Last = t.lastAllocs.ns[ends[i].Pid] <= ends[i].AtNs
	}
	return nil
}

// readLastAllocs finds when the last allocation of each process took effect.
func (t *Timeline) readLastAllocs() error {
	last := &t.lastAllocs
	if last.ns == nil {
		last.ns = make(map[int32]int64)
	}
	s := &t.API
	var kind format.Strings
	for _, sp := range t.Memory[last.spans:] {
		g := sp.Group
		kind = g.StringsInto("kind", kind)
		s.Pid, s.Start, s.Dur = g.Int32("pid", s.Pid), g.Int64("start_ns", s.Start), g.Int64("dur_ns", s.Dur)
		s.result, s.flags = g.Int32("result", s.result), g.Int32("flags", s.flags)
		if err := g.Err(); err != nil {
			return err
		}
		for i, start := range s.Start {
			if s.result[i] == 0 && s.flags[i]&(format.FlagOpen|format.FlagAbandoned) == 0 &&
				kind.At(i) == format.KindAlloc {
				last.ns[s.Pid[i]] = max(last.ns[s.Pid[i]], units.EndOfRange(start, s.Dur[i]))
			}
		}
	}
	last.spans = len(t.Memory)
	return nil
}

// ContextEndFrees reports whether the end of a context frees the memory of an origin. Memory in an
// unknown context is not freed. PyTorch's segments from before the recording are in the primary context.
func (t *Timeline) ContextEndFrees(id int32, e *livemem.MemoryEvent) bool {
	o := &t.Origins.List[id]
	if t.Origins.IsEarlier(id) {
		return e.IsPrimary && o.Device == e.Device
	}
	if e.Context != 0 || o.Context == 0 {
		return o.Context != 0 && o.Context == e.Context
	}
	return o.Device == e.Device && !t.createdContexts[contextKey{o.Pid, o.Context}]
}
