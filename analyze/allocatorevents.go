package analyze

import (
	"math"
	"slices"

	"github.com/gpurec/gpurec/format"
)

// allocatorEvent is what a framework's caching allocator told, small because a window
// of them is held and sorted. An allocator works under a lock: its events are in
// order of their times.
type allocatorEvent struct {
	atNs      int64
	ptr       int64 // of an out-of-memory: what the device had free, bytes
	bytes     int64 // of blocks: as asked for
	pool      int64 // private pool, 0 is none
	stream    int64
	allocated int64 // the allocator's own totals at this moment; negative: not known
	reserved  int64
	allocator int32 // number of process and device, see Timeline.allocators
	origin    int32 // of an event with a stack, else noOrigin
	what      allocatorWhat
}

// noOrigin is the origin of what came from a place that was not seen.
const noOrigin = -1

// allocatorWhat says what an allocator did.
type allocatorWhat uint8

const (
	blockAllocated allocatorWhat = iota
	blockFreeRequested
	blockFreeCompleted
	segmentAllocated
	segmentFreed
	segmentMapped   // expandable segments grow by pieces
	segmentUnmapped // and shrink
	outOfMemory
	lookedAt      // somebody took a snapshot
	reportedAlloc // what reports tell, see allocatorreports.go: handed out as blockAllocated
	reportedFree  // and as blockFreeRequested

	// What no event tells, but the model.
	blockResized // how large a block is became known better
	blockLost    // the end of a block was not recorded
	allocatorEnd // the process ended, and its allocator with all that it held
)

var allocatorNames = map[string]allocatorWhat{
	format.AllocatorAlloc: blockAllocated, format.AllocatorFreeRequested: blockFreeRequested, format.AllocatorFreeCompleted: blockFreeCompleted,
	format.AllocatorSegmentAlloc: segmentAllocated, format.AllocatorSegmentFree: segmentFreed,
	format.AllocatorSegmentMap: segmentMapped, format.AllocatorSegmentUnmap: segmentUnmapped,
	format.AllocatorOOM: outOfMemory, format.AllocatorSnapshot: lookedAt,
	format.AllocatorReportedAlloc: reportedAlloc, format.AllocatorReportedFree: reportedFree,
}

// isBegin reports whether a place in the program asked for this; only then the event
// has a stack.
func (w allocatorWhat) isBegin() bool {
	return w.isAlloc() || w >= segmentAllocated && w <= outOfMemory
}

// isAlloc reports whether a block is handed out.
func (w allocatorWhat) isAlloc() bool { return w == blockAllocated || w == reportedAlloc }

// isReport reports whether this is told by an allocator's reports.
func (w allocatorWhat) isReport() bool { return w == reportedAlloc || w == reportedFree }

// isOfBlock reports whether a block is handed out or given back.
func (w allocatorWhat) isOfBlock() bool {
	return w <= blockFreeCompleted || w.isReport()
}

// tellsSegments reports whether an event tells of memory from the driver: a reported block
// lies in some.
func (w allocatorWhat) tellsSegments() bool { return w.isSegment() || w == reportedAlloc }

// isSegment reports whether memory came from the driver or went back.
func (w allocatorWhat) isSegment() bool { return w >= segmentAllocated && w <= segmentUnmapped }

// allocatorKey names an allocator: there is one per process and device.
type allocatorKey struct{ pid, device int32 }

// allocatorColumns are the columns of one row group; the slices are used again.
type allocatorColumns struct {
	start, ptr, bytes, stream, context, pool []int64
	allocated, reserved                      []int64
	pid, tid, device, stack                  []int32
	value                                    []float64
	name, site, memory                       format.Strings
	names, sites, memories                   []int32 // dictionary → originTable.strings
	whats                                    []allocatorWhat
	known                                    []bool // dictionary of names: it means something
}

// scanAllocators notes where the events are and how many there are.
func (t *Timeline) scanAllocators(g *format.Group, index int) {
	s := &t.scan
	s.start = g.Int64("start_ns", s.start)
	if len(s.start) == 0 {
		return
	}
	first, last := slices.Min(s.start), slices.Max(s.start)
	t.allocations = append(t.allocations, span{group: g, index: index, firstNs: first})
	if s.events+s.allocatorEvents == 0 || first < s.firstNs {
		s.firstNs = first
	}
	s.lastNs = max(s.lastNs, last)
	s.allocatorEvents += int64(len(s.start))
}

// streamAllocators says how inOrder reads events: all, or only those that tell of segments,
// which are few unless there are reports.
func (t *Timeline) streamAllocators(onlySegments bool) stream[allocatorEvent] {
	var c allocatorColumns
	l := newLoader[allocatorEvent](t)
	return stream[allocatorEvent]{
		ahead: func(s span) (rows []allocatorEvent, begin func(), err error) {
			if c.readNames(s.group, onlySegments) {
				rows = c.load(s.group, l)
			}
			return rows, l.begin(func() { adoptEvents(l, rows) }), s.group.Err()
		},
		release: l.release,
		at:      func(e *allocatorEvent) int64 { return e.atNs },
		less:    func(a, b *allocatorEvent) bool { return a.atNs < b.atNs },
	}
}

// readNames reads what the events of a group are, and reports whether any of them is
// wanted.
func (c *allocatorColumns) readNames(g *format.Group, onlySegments bool) bool {
	c.name = g.StringsInto("name", c.name)
	c.whats, c.known = c.whats[:0], c.known[:0]
	for _, name := range c.name.Dict {
		what, ok := allocatorNames[name]
		c.whats, c.known = append(c.whats, what), append(c.known, ok && (!onlySegments || what.tellsSegments()))
	}
	return slices.Contains(c.known, true)
}

func (c *allocatorColumns) read(g *format.Group, strings *names) {
	c.start, c.ptr, c.bytes = g.Int64("start_ns", c.start), g.Int64("ptr", c.ptr), g.Int64("bytes", c.bytes)
	c.stream, c.context, c.pool = g.Int64("stream", c.stream), g.Int64("context", c.context), g.Int64("src_ptr", c.pool)
	c.allocated, c.reserved = g.Int64("allocated_bytes", c.allocated), g.Int64("reserved_bytes", c.reserved)
	c.pid, c.tid, c.device = g.Int32("pid", c.pid), g.Int32("tid", c.tid), g.Int32("device", c.device)
	c.stack = g.Int32("stack_id", c.stack)
	c.site, c.memory = g.StringsInto("site", c.site), g.StringsInto("memory_kind", c.memory)
	c.names, c.sites, c.memories = strings.all(c.name.Dict), strings.all(c.site.Dict), strings.all(c.memory.Dict)
	if slices.Contains(c.whats, outOfMemory) {
		c.value = g.Float64("value", c.value)
	}
}

// load returns the wanted events of a group, whose names have been read.
func (c *allocatorColumns) load(g *format.Group, l *loader[allocatorEvent]) []allocatorEvent {
	wanted := 0
	for _, name := range c.name.Index {
		if c.known[name] {
			wanted++
		}
	}
	c.read(g, &l.origins.strings)
	if wanted == 0 || g.Err() != nil {
		return nil
	}
	rows := l.rows(wanted)
	isSorted, last := true, int64(math.MinInt64)
	for i, start := range c.start {
		name := c.name.Index[i]
		if !c.known[name] {
			continue
		}
		e := allocatorEvent{
			atNs: start, ptr: c.ptr[i] & (1<<56 - 1), bytes: min(max(0, c.bytes[i]), addressSpace), pool: c.pool[i], stream: c.stream[i], what: c.whats[name], origin: noOrigin,
			allocated: min(c.allocated[i], addressSpace), reserved: min(c.reserved[i], addressSpace),
			allocator: l.allocators.id(allocatorKey{c.pid[i], c.device[i]}),
		}
		if e.what.isBegin() {
			e.origin = l.origins.id(origin{
				stream: c.stream[i], context: c.context[i], pid: c.pid[i], tid: c.tid[i], device: c.device[i], stack: c.stack[i],
				name: c.names[name], site: c.sites[c.site.Index[i]], memory: c.memories[c.memory.Index[i]],
			})
		}
		if e.what == outOfMemory {
			e.ptr = int64(min(max(0, c.value[i]), addressSpace))
		}
		rows = append(rows, e)
		isSorted, last = isSorted && start >= last, start
	}
	if !isSorted {
		sortNearly(rows, func(a, b *allocatorEvent) bool { return a.atNs < b.atNs })
	}
	return rows
}

// adoptEvents gives events the Timeline's numbers.
func adoptEvents(l *loader[allocatorEvent], rows []allocatorEvent) {
	for i := range rows {
		e := &rows[i]
		e.allocator = l.adoptedAllocators[e.allocator]
		if e.origin != noOrigin {
			e.origin = l.adopted[e.origin]
		}
	}
}

// allocatorNumbers number allocators in the order in which they are met.
type allocatorNumbers struct {
	keys []allocatorKey
	ids  map[allocatorKey]int32
	last int32 // number of the one that was asked for last
}

func newAllocatorNumbers() allocatorNumbers {
	return allocatorNumbers{ids: make(map[allocatorKey]int32)}
}

func (n *allocatorNumbers) id(key allocatorKey) int32 {
	if last := n.last; int(last) < len(n.keys) && n.keys[last] == key {
		return last
	}
	id := numbered(n.ids, key)
	if int(id) == len(n.keys) {
		n.keys = append(n.keys, key)
	}
	n.last = id
	return id
}
