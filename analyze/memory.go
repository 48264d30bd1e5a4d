package analyze

import (
	"github.com/gpurec/gpurec/format"
)

// memoryCall is a call that changes what memory there is, small because a window of
// them is held and sorted.
//
// What the driver hands out counts from the end of the call, what it takes back from
// the start: only then is the order right when another thread gets a pointer or a
// handle again while the call that freed it has not returned yet. Mapping and
// retaining count from the start: the program names a handle that it has already, and
// another thread may release that meanwhile.
type memoryCall struct {
	atNs   int64 // when it takes effect
	durNs  int64
	ptr    int64 // pointer or handle, by space
	bytes  int64
	handle int64 // of memMap: what appears at ptr; of memAllocFailed: the result
	origin int32
	what   memoryWhat
	space  memorySpace
}

type memoryWhat uint8

const (
	memFree memoryWhat = iota
	memUnmap
	memReturn // borrowed memory is given back
	memUnreserve
	memAlloc
	memAllocFailed
	memAllocUnknown // open, abandoned or unreadable: what it allocated is not known
	memGraphAlloc   // put into a graph by stream capture
	memReserve      // addresses, no memory
	memBorrow
	memRetain
	memMap
)

// memorySpace says what a number names: pointers, and handles of several sorts,
// which may be equal and yet are different things.
type memorySpace uint8

const (
	spacePointer memorySpace = iota // of the device, of the host: one address space
	spaceArray
	spacePhysical
	spaceIPC
	spaceExternal
)

// memoryKinds are the meanings of the column kind, but for alloc and free those of
// calls that succeeded.
var memoryKinds = map[string]memoryWhat{
	format.KindAlloc: memAlloc, format.KindFree: memFree, format.KindMap: memMap, format.KindUnmap: memUnmap,
	format.KindRetain: memRetain, format.KindBorrow: memBorrow, format.KindReturn: memReturn,
	format.KindReserve: memReserve, format.KindUnreserve: memUnreserve,
}

var memorySpaces = map[string]memorySpace{
	format.MemoryArray: spaceArray, format.MemoryPhysical: spacePhysical,
	format.MemoryIPC: spaceIPC, format.MemoryExternal: spaceExternal,
}

// addressSpace is more than any allocation that succeeds: a larger one stands in a
// damaged file, and sums of such would leave the range of numbers.
const addressSpace = 1 << 47

// fromStart reports whether such calls take effect when they are entered.
func (w memoryWhat) fromStart() bool { return w <= memUnreserve || w >= memRetain }

// rank orders calls that take effect at one moment: what ends, what begins, what
// refers to that.
func (w memoryWhat) rank() int {
	switch {
	case w <= memUnreserve:
		return 0
	case w < memRetain:
		return 1
	}
	return 2
}

// startNs returns when the call was entered.
func (m *memoryCall) startNs() int64 {
	if m.what.fromStart() {
		return m.atNs
	}
	return m.atNs - m.durNs
}

func (m *memoryCall) before(o *memoryCall) bool {
	if m.atNs != o.atNs {
		return m.atNs < o.atNs
	}
	return m.what.rank() < o.what.rank()
}

// memoryColumns are the columns of one row group; the slices are used again.
type memoryColumns struct {
	start, dur, ptr, bytes, stream  []int64
	context, src                    []int64
	pid, tid, device, result, flags []int32
	stack                           []int32
	value                           []float64
	kind, name, site, memory        format.Strings
	names, sites, memories          []int32       // dictionary → originTable.strings
	whats                           []memoryWhat  // dictionary of kinds
	known                           []bool        // dictionary of kinds: it means something
	spaces                          []memorySpace // dictionary of memory kinds
}

// streamMemory says how inOrder reads memory calls.
func (t *Timeline) streamMemory() stream[memoryCall] {
	var c memoryColumns
	l := newLoader[memoryCall](t)
	return stream[memoryCall]{
		ahead: func(s span) ([]memoryCall, func(), error) {
			rows, err := t.loadMemory(s.group, &c, l)
			return rows, l.begin(func() {
				for i := range rows {
					rows[i].origin = l.adopted[rows[i].origin]
				}
			}), err
		},
		release: l.release,
		at:      func(m *memoryCall) int64 { return m.atNs },
		less:    (*memoryCall).before,
	}
}

func (t *Timeline) loadMemory(g *format.Group, c *memoryColumns, l *loader[memoryCall]) ([]memoryCall, error) {
	c.read(g, &l.origins.strings)
	if err := g.Err(); err != nil {
		return nil, err
	}
	rows := l.rows(len(c.start))
	for i := range c.start {
		what, ok := c.what(i)
		if !ok {
			continue
		}
		m := memoryCall{durNs: max(0, c.dur[i]), ptr: c.ptr[i], bytes: max(0, c.bytes[i]), what: what, space: c.spaces[c.memory.Index[i]]}
		if what == memAlloc {
			m.bytes = min(m.bytes, addressSpace)
		}
		switch what {
		case memMap:
			m.handle = c.src[i]
		case memAllocFailed:
			m.handle = int64(c.result[i])
		}
		m.atNs = c.start[i]
		if !what.fromStart() {
			m.atNs = endOf(c.start[i], c.dur[i])
			m.durNs = m.atNs - c.start[i]
		}
		m.origin = l.origins.id(origin{
			stream: c.stream[i], context: c.context[i], pid: c.pid[i], tid: c.tid[i], device: t.deviceOfMemory(c, i, m.space), stack: c.stack[i],
			name: c.names[c.name.Index[i]], site: c.sites[c.site.Index[i]], memory: c.memories[c.memory.Index[i]],
		})
		rows = append(rows, m)
	}
	sortNearly(rows, (*memoryCall).before)
	return rows, nil
}

// deviceOfMemory returns the device that row i is about. cuMemCreate names it: the
// thread may have another one current, or none.
func (t *Timeline) deviceOfMemory(c *memoryColumns, i int, space memorySpace) int32 {
	if space == spacePhysical && c.whats[c.kind.Index[i]] == memAlloc && c.flags[i]&format.FlagUnreadable == 0 {
		if v := c.value[i]; v >= 0 && v < maxDevices {
			return int32(v)
		}
	}
	return t.deviceOf(c.pid[i], c.context[i], c.device[i])
}

// maxDevices is more than a machine has; a larger number is none of a device.
const maxDevices = 1 << 10

// what tells what row i did to memory. Failed calls, and frees that had not
// returned, changed nothing that is known.
func (c *memoryColumns) what(i int) (memoryWhat, bool) {
	kind := c.kind.Index[i]
	unfinished := c.flags[i]&(format.FlagOpen|format.FlagAbandoned) != 0
	captured := c.flags[i]&format.FlagCaptured != 0
	what := c.whats[kind]
	switch {
	case !c.known[kind]:
		return 0, false
	case what != memAlloc:
		// Null is a pointer that may be freed, and no memory.
		return what, !unfinished && !captured && c.result[i] == 0 && (c.ptr[i] != 0 || what != memFree)
	case unfinished:
		return memAllocUnknown, true
	case c.result[i] != 0:
		return memAllocFailed, true
	case c.ptr[i] == 0:
		// cudaMalloc(0) succeeds with a null pointer: nothing was allocated.
		return memAllocUnknown, c.bytes[i] != 0 || c.flags[i]&format.FlagUnreadable != 0
	case captured:
		return memGraphAlloc, true
	}
	return memAlloc, true
}

func (c *memoryColumns) read(g *format.Group, strings *names) {
	c.start, c.dur = g.Int64("start_ns", c.start), g.Int64("dur_ns", c.dur)
	c.ptr, c.bytes, c.stream = g.Int64("ptr", c.ptr), g.Int64("bytes", c.bytes), g.Int64("stream", c.stream)
	c.context = g.Int64("context", c.context)
	c.pid, c.tid, c.device = g.Int32("pid", c.pid), g.Int32("tid", c.tid), g.Int32("device", c.device)
	c.result, c.flags, c.stack = g.Int32("result", c.result), g.Int32("flags", c.flags), g.Int32("stack_id", c.stack)
	c.kind = g.StringsInto("kind", c.kind)
	c.name, c.site, c.memory = g.StringsInto("name", c.name), g.StringsInto("site", c.site), g.StringsInto("memory_kind", c.memory)
	c.names, c.sites, c.memories = strings.all(c.name.Dict), strings.all(c.site.Dict), strings.all(c.memory.Dict)
	c.whats, c.known, c.spaces = c.whats[:0], c.known[:0], c.spaces[:0]
	maps, physical := false, false
	for _, k := range c.kind.Dict {
		what, known := memoryKinds[k]
		c.whats, c.known = append(c.whats, what), append(c.known, known)
		maps = maps || known && what == memMap
	}
	for _, m := range c.memory.Dict {
		space := memorySpaces[m]
		c.spaces = append(c.spaces, space)
		physical = physical || space == spacePhysical
	}
	// Most recordings have none of these.
	if maps {
		c.src = g.Int64("src_ptr", c.src)
	}
	if physical {
		c.value = g.Float64("value", c.value)
	}
}
