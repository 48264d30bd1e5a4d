package analyze

import (
	"cmp"
	"math"
	"slices"

	"github.com/gpurec/gpurec/format"
)

// memoryEvent changes memory and is told by another row than that of a memory call.
type memoryEvent struct {
	atNs       int64
	pid        int32
	what       eventWhat
	ptr, bytes int64
	// Of a context that ends: its handle, or 0 for all contexts on the device that
	// the program did not make itself.
	context int64
	device  int32
	// last: the process allocates nothing afterwards. Nobody meant to go on without
	// that memory, so it is what the program did not free.
	last bool
}

type eventWhat uint8

const (
	eventGraphAlloc eventWhat = iota
	eventMappedBuffer
	eventMappedArray
	eventContextEnd
	eventExit
)

// readEvents collects the events of a recording in order of time.
func (t *Timeline) readEvents() error {
	for _, e := range t.facts.exits {
		t.events = append(t.events, memoryEvent{atNs: e.atNs, pid: e.pid, what: eventExit})
	}
	ends, err := t.contextEnds()
	if err != nil {
		return err
	}
	t.events = append(t.events, ends...)
	for i := range t.api.calls {
		c := &t.api.calls[i]
		switch {
		case c.what == apiGraphAlloc:
			t.events = append(t.events, memoryEvent{atNs: c.endNs, pid: c.pid, what: eventGraphAlloc, ptr: c.ptr, bytes: c.bytes})
		case c.what == apiMappedBuffer && c.ptr != 0:
			t.events = append(t.events, memoryEvent{atNs: c.endNs, pid: c.pid, what: eventMappedBuffer, ptr: c.ptr})
		case c.what == apiMappedArray && c.ptr != 0:
			t.events = append(t.events, memoryEvent{atNs: c.endNs, pid: c.pid, what: eventMappedArray, ptr: c.ptr})
		}
	}
	slices.SortStableFunc(t.events, func(a, b memoryEvent) int {
		return cmp.Or(cmp.Compare(a.atNs, b.atNs), cmp.Compare(a.pid, b.pid), cmp.Compare(a.what, b.what))
	})
	return nil
}

// primaryKey names the primary context of a device in a process.
type primaryKey struct{ pid, device int32 }

// primary is what was seen of a primary context.
type primary struct {
	context int64 // its handle, always the same; 0: never retained here
	refs    int64
	resets  []int64
	// ends are the releases that would be the last one if every retain was seen.
	ends []memoryEvent
	// idle is when the context cannot be in use if that is so: before the first
	// retain, and from each of ends to the next retain.
	idle []Window
}

// contextEnds returns when contexts ended. The last release of a primary context ends
// it, too, but a process that is recorded while it runs has retained it before: then
// it is used at times when it should not be.
func (t *Timeline) contextEnds() ([]memoryEvent, error) {
	var ends []memoryEvent
	primaries := make(map[primaryKey]*primary)
	attached := make(map[contextKey]int) // by cuCtxAttach; the last cuCtxDetach destroys the context
	of := func(c *apiCall) *primary {
		key := primaryKey{c.pid, c.device}
		if primaries[key] == nil {
			primaries[key] = new(primary)
		}
		return primaries[key]
	}
	for i := range t.api.calls {
		c := &t.api.calls[i]
		switch c.what {
		case apiCreateContext:
			t.madeHere[contextKey{c.pid, c.ptr}] = true
		case apiAttachContext:
			attached[contextKey{c.pid, c.ptr}]++
		case apiDetachContext:
			if key := (contextKey{c.pid, c.ptr}); attached[key] > 0 {
				attached[key]--
			} else if c.ptr != 0 {
				ends = append(ends, memoryEvent{atNs: c.startNs, pid: c.pid, what: eventContextEnd, context: c.ptr})
			}
		case apiDestroyContext:
			if c.ptr != 0 {
				ends = append(ends, memoryEvent{atNs: c.startNs, pid: c.pid, what: eventContextEnd, context: c.ptr})
			}
		case apiResetPrimary:
			of(c).resets = append(of(c).resets, c.startNs)
		case apiRetainPrimary:
			of(c).retain(c)
		case apiReleasePrimary:
			of(c).release(c)
		}
	}
	for key, p := range primaries {
		for _, at := range p.resets {
			ends = append(ends, memoryEvent{atNs: at, pid: key.pid, what: eventContextEnd, context: p.context, device: key.device})
		}
	}
	released, err := t.lastReleases(primaries)
	if err != nil {
		return nil, err
	}
	ends = append(ends, released...)
	return ends, t.markLast(ends)
}

func (p *primary) retain(c *apiCall) {
	if p.context == 0 {
		p.idle = append(p.idle, Window{math.MinInt64, c.startNs - 1})
	} else if p.refs == 0 && len(p.idle) > 0 {
		p.idle[len(p.idle)-1].ToNs = c.startNs - 1
	}
	p.context = c.ptr
	p.refs++
}

func (p *primary) release(c *apiCall) {
	if p.refs == 0 {
		return // retained before the recording
	}
	if p.refs--; p.refs == 0 {
		p.ends = append(p.ends, memoryEvent{atNs: c.startNs, pid: c.pid, what: eventContextEnd, context: p.context, device: c.device})
		p.idle = append(p.idle, Window{c.endNs + 1, math.MaxInt64})
	}
}

// lastReleases returns the ends of those primary contexts that were idle when they
// should be.
func (t *Timeline) lastReleases(primaries map[primaryKey]*primary) ([]memoryEvent, error) {
	candidates := make(map[contextKey]*primary)
	for key, p := range primaries {
		if len(p.ends) > 0 {
			candidates[contextKey{key.pid, p.context}] = p
		}
	}
	if len(candidates) == 0 {
		return nil, nil
	}
	err := t.uses(func(key contextKey, startNs int64) {
		p := candidates[key]
		if p != nil && slices.ContainsFunc(p.idle, func(w Window) bool { return startNs >= w.FromNs && startNs <= w.ToNs }) {
			delete(candidates, key)
		}
	})
	var ends []memoryEvent
	for _, p := range candidates {
		ends = append(ends, p.ends...)
	}
	return ends, err
}

// uses yields all calls that need a living context and succeeded.
func (t *Timeline) uses(yield func(key contextKey, startNs int64)) error {
	s := &t.api
	var kind, memory format.Strings
	var needs []bool
	for _, spans := range [][]span{t.memory, t.calls} {
		for _, sp := range spans {
			g := sp.group
			kind, memory = g.StringsInto("kind", kind), g.StringsInto("memory_kind", memory)
			s.pid, s.context, s.start = g.Int32("pid", s.pid), g.Int64("context", s.context), g.Int64("start_ns", s.start)
			s.result, s.flags = g.Int32("result", s.result), g.Int32("flags", s.flags)
			if err := g.Err(); err != nil {
				return err
			}
			needs = needs[:0]
			for _, k := range kind.Dict {
				needs = append(needs, k == format.KindAlloc || isLane(k))
			}
			for i, start := range s.start {
				unfinished := s.flags[i]&(format.FlagOpen|format.FlagAbandoned) != 0
				if needs[kind.Index[i]] && s.result[i] == 0 && !unfinished && memory.At(i) != format.MemoryPhysical {
					yield(contextKey{s.pid[i], s.context[i]}, start)
				}
			}
		}
	}
	return nil
}

// markLast marks the ends of contexts after which their process allocates nothing.
func (t *Timeline) markLast(ends []memoryEvent) error {
	if len(ends) == 0 {
		return nil
	}
	last := make(map[int32]int64) // pid → when its last allocation took effect
	s := &t.api
	var kind format.Strings
	for _, sp := range t.memory {
		g := sp.group
		kind = g.StringsInto("kind", kind)
		s.pid, s.start, s.dur = g.Int32("pid", s.pid), g.Int64("start_ns", s.start), g.Int64("dur_ns", s.dur)
		s.result, s.flags = g.Int32("result", s.result), g.Int32("flags", s.flags)
		if err := g.Err(); err != nil {
			return err
		}
		for i, start := range s.start {
			if s.result[i] == 0 && s.flags[i]&(format.FlagOpen|format.FlagAbandoned) == 0 && kind.At(i) == format.KindAlloc {
				last[s.pid[i]] = max(last[s.pid[i]], endOf(start, s.dur[i]))
			}
		}
	}
	for i := range ends {
		ends[i].last = last[ends[i].pid] <= ends[i].atNs
	}
	return nil
}

// endedWith reports whether memory goes with a context that ends. Memory of which the
// context is not known stays.
func (t *Timeline) endedWith(id int32, e *memoryEvent) bool {
	o := &t.origins.list[id]
	if e.context != 0 || o.context == 0 {
		return o.context != 0 && o.context == e.context
	}
	return o.device == e.device && !t.madeHere[contextKey{o.pid, o.context}]
}
