package analyze

import (
	"github.com/gpurec/gpurec/format"
)

// memoryCall is an alloc or free call, 40 bytes small because a window of them is
// held and sorted.
//
// An alloc takes effect at its end and a free at its start: only then is the order
// right when the driver hands a pointer to another thread while the call that freed
// it has not returned yet.
type memoryCall struct {
	atNs   int64 // when it takes effect
	durNs  int64
	ptr    int64
	bytes  int64
	origin int32
	what   memoryWhat
}

type memoryWhat uint8

const (
	memFree memoryWhat = iota // frees sort before allocs of the same moment
	memAlloc
	memAllocFailed
	memAllocUnknown // open, abandoned or unreadable: what it allocated is not known
)

// addressSpace is more than any allocation that succeeds: a larger one stands in a
// damaged file, and sums of such would leave the range of numbers.
const addressSpace = 1 << 47

// startNs returns when the call was entered.
func (m *memoryCall) startNs() int64 {
	if m.what == memFree {
		return m.atNs
	}
	return m.atNs - m.durNs
}

func (m *memoryCall) before(o *memoryCall) bool {
	if m.atNs != o.atNs {
		return m.atNs < o.atNs
	}
	return m.what == memFree && o.what != memFree
}

// memoryColumns are the columns of one row group; the slices are used again.
type memoryColumns struct {
	start, dur, ptr, bytes, stream  []int64
	pid, tid, device, result, flags []int32
	stack                           []int32
	kind, name, site, memory        []int32 // index into the group's dictionaries
	names, sites, memories          []int32 // dictionary → originTable.strings
	isAlloc, isFree                 []bool  // dictionary of kinds
}

// streamMemory says how inOrder reads memory calls.
func (t *Timeline) streamMemory() stream[memoryCall] {
	var c memoryColumns
	var spare [][]memoryCall
	return stream[memoryCall]{
		load: func(s span) ([]memoryCall, error) {
			var rows []memoryCall
			if n := len(spare); n > 0 {
				rows, spare = spare[n-1][:0], spare[:n-1]
			}
			return t.loadMemory(s.group, &c, rows)
		},
		release: func(_ span, rows []memoryCall) { spare = append(spare, rows) },
		at:      func(m *memoryCall) int64 { return m.atNs },
		less:    (*memoryCall).before,
	}
}

func (t *Timeline) loadMemory(g *format.Group, c *memoryColumns, rows []memoryCall) ([]memoryCall, error) {
	c.read(g, &t.origins.strings)
	if err := g.Err(); err != nil {
		return nil, err
	}
	for i := range c.start {
		what, ok := c.what(i)
		if !ok {
			continue
		}
		m := memoryCall{durNs: max(0, c.dur[i]), ptr: c.ptr[i], bytes: max(0, c.bytes[i]), what: what}
		if what == memAlloc {
			m.bytes = min(m.bytes, addressSpace)
		}
		m.atNs = c.start[i]
		if what != memFree {
			m.atNs = endOf(c.start[i], c.dur[i])
			m.durNs = m.atNs - c.start[i]
		}
		m.origin = t.origins.id(origin{
			stream: c.stream[i], pid: c.pid[i], tid: c.tid[i], device: t.facts.deviceOf(c.device[i]), stack: c.stack[i],
			name: c.names[c.name[i]], site: c.sites[c.site[i]], memory: c.memories[c.memory[i]],
		})
		rows = append(rows, m)
	}
	sortNearly(rows, (*memoryCall).before)
	return rows, nil
}

// what tells what row i did to memory. Failed frees, and frees that had not
// returned, changed nothing that is known.
func (c *memoryColumns) what(i int) (memoryWhat, bool) {
	unfinished := c.flags[i]&(format.FlagOpen|format.FlagAbandoned) != 0
	switch {
	case c.isFree[c.kind[i]]:
		return memFree, !unfinished && c.result[i] == 0 && c.ptr[i] != 0
	case !c.isAlloc[c.kind[i]]:
		return 0, false
	case unfinished:
		return memAllocUnknown, true
	case c.result[i] != 0:
		return memAllocFailed, true
	case c.ptr[i] == 0:
		// cudaMalloc(0) succeeds with a null pointer: nothing was allocated.
		return memAllocUnknown, c.bytes[i] != 0 || c.flags[i]&format.FlagUnreadable != 0
	}
	return memAlloc, true
}

func (c *memoryColumns) read(g *format.Group, strings *names) {
	c.start, c.dur = g.Int64("start_ns", c.start), g.Int64("dur_ns", c.dur)
	c.ptr, c.bytes, c.stream = g.Int64("ptr", c.ptr), g.Int64("bytes", c.bytes), g.Int64("stream", c.stream)
	c.pid, c.tid, c.device = g.Int32("pid", c.pid), g.Int32("tid", c.tid), g.Int32("device", c.device)
	c.result, c.flags, c.stack = g.Int32("result", c.result), g.Int32("flags", c.flags), g.Int32("stack_id", c.stack)
	kind := g.Strings("kind")
	c.kind = kind.Index
	c.isAlloc, c.isFree = c.isAlloc[:0], c.isFree[:0]
	for _, k := range kind.Dict {
		c.isAlloc = append(c.isAlloc, k == format.KindAlloc)
		c.isFree = append(c.isFree, k == format.KindFree)
	}
	column := func(name string) (index, ids []int32) {
		s := g.Strings(name)
		return s.Index, strings.all(s.Dict)
	}
	c.name, c.names = column("name")
	c.site, c.sites = column("site")
	c.memory, c.memories = column("memory_kind")
}
