package perfetto

import (
	"encoding/hex"
	"io"
	"math"

	stackpkg "github.com/gpurec/gpurec/analyze/model/stack"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
	"google.golang.org/protobuf/encoding/protowire"
)

// Fields of Perfetto's trace protocol that are written here. The names are those of
// protos/perfetto/trace/*.proto; nobody publishes them as a Go package.
const (
	fieldTracePacket = 1 // Trace

	// TracePacket
	fieldClockSnapshot         = 6
	fieldTimestamp             = 8
	fieldSequenceID            = 10
	fieldTrackEvent            = 11
	fieldInternedData          = 12
	fieldSequenceFlags         = 13
	fieldTrackDescriptor       = 60
	fieldTracePacketDefaults   = 59
	fieldTimestampClockID      = 58 // also of TracePacketDefaults
	fieldFirstPacketOnSequence = 87

	// TrackEvent
	fieldCategoryIIDs       = 3
	fieldDebugAnnotations   = 4
	fieldType               = 9
	fieldNameIID            = 10
	fieldTrackUUID          = 11
	fieldCounterValue       = 30
	fieldDoubleCounterValue = 44
	fieldFlowIDs            = 47
	fieldTerminatingFlowIDs = 48
	fieldCallstackIID       = 56

	// InternedData
	fieldEventCategories  = 1
	fieldEventNames       = 2
	fieldAnnotationNames  = 3
	fieldFunctionNames    = 5
	fieldFrames           = 6
	fieldCallstacks       = 7
	fieldBuildIDs         = 16
	fieldMappingPaths     = 17
	fieldSourcePaths      = 18
	fieldMappings         = 19
	fieldAnnotationValues = 29
)

// Values of TrackEvent.type and other enums.
const (
	eventSliceBegin = 1
	eventSliceEnd   = 2
	eventInstant    = 3
	eventCounter    = 4

	clockRealtime  = 1
	clockMonotonic = 3
	clockBoottime  = 6
	clockDelta     = 64 // of our sequence: times are what has passed since the packet before

	sequenceCleared = 1 // SEQ_INCREMENTAL_STATE_CLEARED
	sequenceNeeds   = 2 // SEQ_NEEDS_INCREMENTAL_STATE

	// One writer writes everything, so one sequence is enough.
	sequenceID = 1
)

func appendVarint(b []byte, field protowire.Number, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), v)
}

func appendFixed(b []byte, field protowire.Number, v uint64) []byte {
	return protowire.AppendFixed64(protowire.AppendTag(b, field, protowire.Fixed64Type), v)
}

func appendBytes[T []byte | string](b []byte, field protowire.Number, v T) []byte {
	b = protowire.AppendVarint(protowire.AppendTag(b, field, protowire.BytesType), uint64(len(v)))
	return append(b, v...)
}

// traceWriter writes packets of a Perfetto trace to a stream. Strings, frames and
// stacks are written once, with the first packet that names them, and are numbers
// from then on. The first error of the stream is kept in err.
type traceWriter struct {
	out io.Writer
	err error
	// offsetNs is what was added to CLOCK_MONOTONIC to get the recording's times.
	offsetNs int64
	lastNs   uint64 // time of the last packet that has one, CLOCK_MONOTONIC

	buf                              []byte // packets not yet written
	packet, event, interned, scratch []byte
	strings                          map[protowire.Number]map[string]uint64 // by field of InternedData
	frames                           map[int32]uint64
	stacks                           map[int32]uint64
	mappings                         map[stackpkg.ModuleKey]uint64
	table                            *stackpkg.Table
}

// traceBuffer is how many bytes are written at once.
const traceBuffer = 1 << 20

func newTraceWriter(out io.Writer, table *stackpkg.Table, offsetNs int64) *traceWriter {
	return &traceWriter{
		out: out, offsetNs: offsetNs, table: table, buf: make([]byte, 0, traceBuffer+1<<16),
		strings: make(map[protowire.Number]map[string]uint64), frames: make(map[int32]uint64),
		stacks: make(map[int32]uint64), mappings: make(map[stackpkg.ModuleKey]uint64),
	}
}

// clock turns a time of the recording into CLOCK_MONOTONIC.
func (w *traceWriter) clock(ns int64) uint64 { return uint64(max(0, ns-w.offsetNs)) }

// flush ends the packet that was put together.
func (w *traceWriter) flush() {
	w.buf = appendBytes(w.buf, fieldTracePacket, w.packet)
	w.packet = w.packet[:0]
	if len(w.buf) >= traceBuffer {
		w.drain()
	}
}

// drain writes the packets that are waiting.
func (w *traceWriter) drain() {
	if w.err == nil {
		_, w.err = w.out.Write(w.buf)
	}
	w.buf = w.buf[:0]
}

// begin writes the first packet: it opens the sequence, says that times are
// differences on CLOCK_MONOTONIC, and ties that clock to the others.
func (w *traceWriter) begin(startNs int64) {
	w.lastNs = w.clock(startNs)
	w.packet = appendVarint(w.packet, fieldSequenceID, sequenceID)
	w.packet = appendVarint(w.packet, fieldSequenceFlags, sequenceCleared)
	w.packet = appendVarint(w.packet, fieldFirstPacketOnSequence, 1)
	delta := appendVarint(appendVarint(appendVarint(nil, 1, clockDelta), 2, w.lastNs), 3, 1) // is_incremental
	w.packet = appendBytes(w.packet, fieldClockSnapshot, appendBytes(w.snapshot(startNs), 1, delta))
	w.packet = appendBytes(w.packet, fieldTracePacketDefaults, appendVarint(nil, fieldTimestampClockID, clockDelta))
	w.flush()
}

// end writes the last packet.
func (w *traceWriter) end(endNs int64) {
	w.packet = appendBytes(w.packet, fieldClockSnapshot, w.snapshot(endNs))
	w.packet = appendVarint(w.packet, fieldSequenceID, sequenceID)
	w.flush()
	w.drain()
}

// snapshot says what the clocks showed at one moment. BOOTTIME is taken to be equal
// to MONOTONIC: they differ by the time a machine was suspended.
func (w *traceWriter) snapshot(ns int64) []byte {
	var s []byte
	for _, c := range [][2]uint64{
		{clockBoottime, w.clock(ns)},
		{clockMonotonic, w.clock(ns)},
		{clockRealtime, uint64(max(0, ns))},
	} {
		s = appendBytes(s, 1, appendVarint(appendVarint(nil, 1, c[0]), 2, c[1]))
	}
	return appendVarint(s, 2, clockBoottime)
}

// track writes a TrackDescriptor; rest holds its fields beyond uuid, parent and name.
func (w *traceWriter) track(uuid, parent uint64, name string, rest []byte) {
	d := appendVarint(nil, 1, uuid)
	if name != "" {
		d = appendBytes(d, 2, units.ValidUTF8(name))
	}
	if parent != 0 {
		d = appendVarint(d, 5, parent)
	}
	w.packet = appendVarint(w.packet, fieldSequenceID, sequenceID)
	w.packet = appendBytes(w.packet, fieldTrackDescriptor, append(d, rest...))
	w.flush()
}

// start begins a TrackEvent; the caller adds fields to w.event and ends it with
// finish.
func (w *traceWriter) start(what, track uint64) {
	w.event = appendVarint(w.event[:0], fieldType, what)
	w.event = appendVarint(w.event, fieldTrackUUID, track)
}

// finish ends an event. Times must not go back.
func (w *traceWriter) finish(ns int64) {
	w.stamp(ns)
	w.packet = appendVarint(w.packet, fieldSequenceFlags, sequenceNeeds)
	if len(w.interned) > 0 {
		w.packet = appendBytes(w.packet, fieldInternedData, w.interned)
		w.interned = w.interned[:0]
	}
	w.packet = appendBytes(w.packet, fieldTrackEvent, w.event)
	w.flush()
}

// finishPlain is finish for events that name nothing interned.
func (w *traceWriter) finishPlain(ns int64) {
	w.stamp(ns)
	w.packet = appendBytes(w.packet, fieldTrackEvent, w.event)
	w.flush()
}

// stamp gives the packet its time and sequence.
func (w *traceWriter) stamp(ns int64) {
	at := max(w.lastNs, w.clock(ns))
	w.packet = appendVarint(w.packet, fieldTimestamp, at-w.lastNs)
	w.packet = appendVarint(w.packet, fieldSequenceID, sequenceID)
	w.lastNs = at
}

// counter writes a value of a counter track.
func (w *traceWriter) counter(ns int64, track uint64, value float64) {
	w.start(eventCounter, track)
	if value == math.Trunc(value) && math.Abs(value) < 1<<53 {
		w.event = appendVarint(w.event, fieldCounterValue, uint64(int64(value)))
	} else {
		w.event = appendFixed(w.event, fieldDoubleCounterValue, math.Float64bits(value))
	}
	w.finishPlain(ns)
}

// intern returns the number of a string in one of the tables of InternedData.
func (w *traceWriter) intern(field protowire.Number, s string) uint64 {
	table := w.strings[field]
	if id, ok := table[s]; ok {
		return id
	}
	if table == nil {
		table = make(map[string]uint64)
		w.strings[field] = table
	}
	id := uint64(len(table) + 1)
	table[s] = id
	w.interned = appendBytes(w.interned, field, appendBytes(appendVarint(nil, 1, id), 2, s))
	return id
}

func (w *traceWriter) name(s string) { w.nameID(w.intern(fieldEventNames, units.ValidUTF8(s))) }

func (w *traceWriter) nameID(id uint64) { w.event = appendVarint(w.event, fieldNameIID, id) }

func (w *traceWriter) category(s string) {
	w.categoryID(w.intern(fieldEventCategories, units.ValidUTF8(s)))
}

func (w *traceWriter) categoryID(id uint64) { w.event = appendVarint(w.event, fieldCategoryIIDs, id) }

// internedColumn remembers the numbers of a column's dictionary.
type internedColumn struct {
	w     *traceWriter
	field protowire.Number
	ids   []uint64 // 0: not interned yet
}

// reset begins a new dictionary.
func (c *internedColumn) reset(w *traceWriter, field protowire.Number, entries int) {
	c.w, c.field = w, field
	c.ids = append(c.ids[:0], make([]uint64, entries)...)
}

// at is the number of row i of the column.
func (c *internedColumn) at(w *traceWriter, column *format.Strings, i int) uint64 {
	if c.w != w {
		c.reset(w, c.field, len(c.ids)) // another part of the trace has begun
	}
	index := column.Index[i]
	if c.ids[index] == 0 {
		c.ids[index] = w.intern(c.field, units.ValidUTF8(column.Dict[index]))
	}
	return c.ids[index]
}

// Fields of DebugAnnotation that hold a value.
const (
	annotationBool      = 2
	annotationInt       = 4
	annotationPointer   = 7
	annotationStringIID = 17
)

// known is at, and 0 where the row has no value.
func (c *internedColumn) known(w *traceWriter, column *format.Strings, i int) uint64 {
	if column.At(i) == "" {
		return 0
	}
	return c.at(w, column, i)
}

// note adds a debug annotation with a value that is a varint.
func (w *traceWriter) note(name string, field protowire.Number, value uint64) {
	a := appendVarint(w.scratch[:0], 1, w.intern(fieldAnnotationNames, name))
	a = appendVarint(a, field, value)
	w.event = appendBytes(w.event, fieldDebugAnnotations, a)
	w.scratch = a[:0]
}

func (w *traceWriter) noteText(name, value string) {
	w.note(name, annotationStringIID, w.intern(fieldAnnotationValues, units.ValidUTF8(value)))
}

// callstack adds the stack to the event, if it was recorded.
func (w *traceWriter) callstack(stack int32) {
	id, ok := w.stacks[stack]
	if !ok {
		frames := w.table.Stacks[stack]
		if len(frames) == 0 {
			return
		}
		id = uint64(len(w.stacks) + 1)
		w.stacks[stack] = id
		s := appendVarint(nil, 1, id)
		for i := len(frames) - 1; i >= 0; i-- { // Perfetto wants the root first
			s = appendVarint(s, 2, w.frame(frames[i]))
		}
		w.interned = appendBytes(w.interned, fieldCallstacks, s)
	}
	w.event = appendVarint(w.event, fieldCallstackIID, id)
}

func (w *traceWriter) frame(frame int32) uint64 {
	if id, ok := w.frames[frame]; ok {
		return id
	}
	id := uint64(len(w.frames) + 1)
	w.frames[frame] = id
	f := &w.table.Frames[frame]
	b := appendVarint(nil, 1, id)
	b = appendVarint(b, 2, w.intern(fieldFunctionNames, units.ValidUTF8(query.FrameName(f))))
	b = appendVarint(b, 3, w.mapping(f))
	b = appendVarint(b, 4, uint64(f.Addr))
	if f.File != "" {
		b = appendVarint(b, 5, w.intern(fieldSourcePaths, units.ValidUTF8(f.File)))
		b = appendVarint(b, 6, uint64(f.Line))
	}
	w.interned = appendBytes(w.interned, fieldFrames, b)
	return id
}

func (w *traceWriter) mapping(f *format.Frame) uint64 {
	key := stackpkg.ModuleKey{File: f.Module, BuildID: f.BuildID}
	if id, ok := w.mappings[key]; ok {
		return id
	}
	id := uint64(len(w.mappings) + 1)
	w.mappings[key] = id
	b := appendVarint(nil, 1, id)
	if raw, err := hex.DecodeString(f.BuildID); err == nil && len(raw) > 0 {
		b = appendVarint(b, 2, w.intern(fieldBuildIDs, string(raw)))
	}
	b = appendVarint(b, 7, w.intern(fieldMappingPaths, units.ValidUTF8(f.Module)))
	w.interned = appendBytes(w.interned, fieldMappings, b)
	return id
}
