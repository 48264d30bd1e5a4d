package blockreadings

import (
	"cmp"
	"maps"
	"slices"

	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
)

// maxAllocators bounds the allocators that Read follows.
const maxAllocators = 1 << 12

// Has reports whether a recording has readings of blocks.
func Has(r Recording) bool { return len(r.BlockGroups()) > 0 }

// Recording is a recording with readings. A timeline.Timeline is one.
type Recording interface {
	// BlockGroups returns the row groups of class block.
	BlockGroups() []*format.Group
	// ProcessExitNs returns the end of a process, Unix ns, or 0 if it is not in the recording.
	ProcessExitNs(pid int32) int64
	// WrapReadError adds the path of the recording to a read error. It returns nil for nil.
	WrapReadError(err error) error
}

// Selection says which readings Read counts.
type Selection struct {
	query.Window
	// Passes reports whether an allocator is selected. Read calls it once for each allocator.
	Passes func(Key) bool
}

// Read follows the readings of the selected allocators up to the end of the window. It calls consume after each usable
// reading in the window, until the teardown of the process. Counts are those of readings in the window. Read returns the
// allocators by process and device. Refused readings that found no allocator count for one with the device -1. Read
// returns errors of reading the recording.
func Read(t Recording, selected Selection, consume func(*Allocator)) ([]*Allocator, error) {
	spans, err := readSpans(t, &selected)
	if err != nil {
		return nil, err
	}
	r := reader{
		Window: selected.Window, consume: consume, allocators: make(map[Key]*Allocator), columns: new(columns),
	}
	for key, f := range spans {
		if f != nil {
			r.allocators[key] = newAllocator(key, f.Span)
		}
	}
	for _, g := range t.BlockGroups() {
		r.readGroup(g)
		if err := g.Err(); err != nil {
			return nil, t.WrapReadError(err)
		}
	}
	list := slices.SortedFunc(maps.Values(r.allocators), func(a, b *Allocator) int { return a.compare(b.Key) })
	for _, a := range list {
		r.endReading(a)
	}
	return list, nil
}

// compare orders keys by process and device.
func (k Key) compare(o Key) int {
	return cmp.Or(cmp.Compare(k.Pid, o.Pid), cmp.Compare(k.Device, o.Device))
}

// reader reads rows of class block.
type reader struct {
	query.Window
	consume    func(*Allocator)
	allocators map[Key]*Allocator // the selected ones
	*columns                      // of the present row group
}

// columns are the columns of a row group.
type columns struct {
	start, ptr, bytes, pool, stream, allocated, reserved []int64
	pid, device                                          []int32
	value                                                []float64
	name, message                                        format.Strings
}

// load reads the columns of a row group. The error is in the group.
func (r *columns) load(g *format.Group) {
	r.start, r.ptr, r.bytes = g.Int64("start_ns", r.start), g.Int64("ptr", r.ptr), g.Int64("bytes", r.bytes)
	r.pool, r.stream = g.Int64("src_ptr", r.pool), g.Int64("stream", r.stream)
	r.allocated, r.reserved = g.Int64("allocated_bytes", r.allocated), g.Int64("reserved_bytes", r.reserved)
	r.pid, r.device, r.value = g.Int32("pid", r.pid), g.Int32("device", r.device), g.Float64("value", r.value)
	r.name, r.message = g.StringsInto("name", r.name), g.StringsInto("message", r.message)
}

// readGroup reads a row group. Rows of one allocator are in the order of time.
func (r *reader) readGroup(g *format.Group) {
	r.load(g)
	if g.Err() != nil {
		return
	}
	for i := range r.start {
		if r.start[i] > r.ToNs {
			continue
		}
		if a := r.allocators[Key{r.pid[i], r.device[i]}]; a != nil {
			r.addRow(a, i)
		}
	}
}

// addRow adds row i of a row group to its allocator.
func (r *reader) addRow(a *Allocator, i int) {
	switch name := r.name.At(i); name {
	case format.BlockTotals: // belongs to no reading
	case format.BlocksRefused:
		r.endReading(a)
		if r.start[i] >= r.FromNs {
			a.refuse(r.message.At(i))
		}
	case format.BlocksRead:
		r.endReading(a)
		if r.start[i] > a.LastNs {
			a.Teardown++
			return
		}
		a.begin(
			Totals{r.start[i], r.allocated[i], r.reserved[i], units.RoundInt(r.value[i])},
			r.message.At(i) == format.BlocksComplete,
		)
	default:
		if a.isOpen && r.start[i] != a.present.AtNs {
			// The first row of this reading is missing.
			r.endReading(a)
		}
		switch {
		case r.start[i] > a.LastNs:
		case !a.isOpen:
			a.isKnown = false
		case a.isKnown:
			r.addChange(a, name, i)
		}
	}
}

// addChange adds row i, a change of a block or a segment.
func (r *reader) addChange(a *Allocator, name string, i int) {
	switch name {
	case format.BlockSegment, format.BlockMappedRange:
		a.setSegment(r.ptr[i], segment{
			bytes: r.bytes[i], pool: r.pool[i], stream: r.stream[i], isSmall: r.message.At(i) == format.BlocksSmall,
			isExpandable: name == format.BlockMappedRange,
		})
	case format.BlockSegmentGone:
		a.setSegment(r.ptr[i], segment{})
	case format.BlockAllocated, format.BlockAwaitsStream:
		a.setBlock(r.ptr[i], Block{
			Size:         Size{units.RoundInt(r.value[i]), r.pool[i], r.stream[i]},
			Bytes:        r.bytes[i],
			AwaitsStream: name == format.BlockAwaitsStream,
		})
	case format.BlockGone:
		a.removeBlock(r.ptr[i])
	}
}

// endReading ends the present reading of an allocator, if there is one, and passes it to the consumer.
func (r *reader) endReading(a *Allocator) {
	if !a.isOpen {
		return
	}
	before := a.Counts
	isUsable := a.end()
	if a.present.AtNs < r.FromNs {
		a.Counts = before
	} else if isUsable {
		r.consume(a)
	}
	clear(a.changes)
}
