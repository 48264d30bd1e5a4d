package perfetto

import (
	"encoding/hex"
	"io"
	"math"

	"github.com/gpurec/gpurec/analyze/model/stack"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/units"
	"github.com/gpurec/gpurec/format"
	"google.golang.org/protobuf/encoding/protowire"
)

// Field numbers of Perfetto's trace format, with the names of protos/perfetto/trace/*.proto. There
// is no Go package with these messages.
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
	clockDelta     = 64 // clock of the packet sequence: a time is the difference to the previous packet

	sequenceCleared = 1 // SEQ_INCREMENTAL_STATE_CLEARED
	sequenceNeeds   = 2 // SEQ_NEEDS_INCREMENTAL_STATE

	sequenceID = 1 // all packets belong to one sequence
)

// appendVarint appends a varint field to an encoded message.
func appendVarint(b []byte, field protowire.Number, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), v)
}

// appendFixed appends a fixed64 field to an encoded message.
func appendFixed(b []byte, field protowire.Number, v uint64) []byte {
	return protowire.AppendFixed64(protowire.AppendTag(b, field, protowire.Fixed64Type), v)
}

// appendBytes appends a string, bytes or message field to an encoded message.
func appendBytes[T []byte | string](b []byte, field protowire.Number, v T) []byte {
	b = protowire.AppendVarint(protowire.AppendTag(b, field, protowire.BytesType), uint64(len(v)))
	return append(b, v...)
}

// traceWriter writes packets of a Perfetto trace. It writes each string, frame and stack once, in
// the interned data of the first packet that uses it. Later packets refer to its number (iid).
type traceWriter struct {
	out      io.Writer
	err      error  // first error of out
	offsetNs int64  // recorded time minus CLOCK_MONOTONIC
	lastNs   uint64 // time of the last packet with a time, CLOCK_MONOTONIC

	buf      []byte // packets that are not yet written to out
	packet   []byte // current TracePacket
	event    []byte // current TrackEvent
	interned []byte // InternedData of the current packet
	scratch  []byte // reused buffer for small messages

	// Numbers of interned data.
	strings  map[protowire.Number]map[string]uint64 // by field of InternedData
	frames   map[int32]uint64                       // by frame id
	stacks   map[int32]uint64                       // by stack id
	mappings map[stack.ModuleKey]uint64
	table    *stack.Table
}

// traceBuffer is the size from which on buf is written to out, bytes.
const traceBuffer = 1 << 20

// newTraceWriter returns a writer of a trace with the stacks of a table.
func newTraceWriter(out io.Writer, table *stack.Table, offsetNs int64) *traceWriter {
	return &traceWriter{
		out: out, offsetNs: offsetNs, table: table, buf: make([]byte, 0, traceBuffer+1<<16),
		strings: make(map[protowire.Number]map[string]uint64), frames: make(map[int32]uint64),
		stacks: make(map[int32]uint64), mappings: make(map[stack.ModuleKey]uint64),
	}
}

// clock converts a recorded time (Unix ns) to CLOCK_MONOTONIC.
func (w *traceWriter) clock(ns int64) uint64 { return uint64(max(0, ns-w.offsetNs)) }

// flush appends the current packet to buf, and writes buf if it is full.
func (w *traceWriter) flush() {
	w.buf = appendBytes(w.buf, fieldTracePacket, w.packet)
	w.packet = w.packet[:0]
	if len(w.buf) >= traceBuffer {
		w.drain()
	}
}

// drain writes buf to out.
func (w *traceWriter) drain() {
	if w.err == nil {
		_, w.err = w.out.Write(w.buf)
	}
	w.buf = w.buf[:0]
}

// begin writes the first packet. It begins the sequence, makes clockDelta its default clock, and
// relates that clock to CLOCK_MONOTONIC and the other clocks.
func (w *traceWriter) begin(startNs int64) {
	w.lastNs = w.clock(startNs)
	w.packet = appendVarint(w.packet, fieldSequenceID, sequenceID)
	w.packet = appendVarint(w.packet, fieldSequenceFlags, sequenceCleared)
	w.packet = appendVarint(w.packet, fieldFirstPacketOnSequence, 1)
	delta := appendVarint(appendVarint(appendVarint(nil, 1, clockDelta), 2, w.lastNs), 3, 1) // is_incremental
	w.packet = appendBytes(w.packet, fieldClockSnapshot, appendBytes(w.clockSnapshot(startNs), 1, delta))
	w.packet = appendBytes(w.packet, fieldTracePacketDefaults, appendVarint(nil, fieldTimestampClockID, clockDelta))
	w.flush()
}

// end writes the last packet, a clock snapshot, and all packets in buf.
func (w *traceWriter) end(endNs int64) {
	w.packet = appendBytes(w.packet, fieldClockSnapshot, w.clockSnapshot(endNs))
	w.packet = appendVarint(w.packet, fieldSequenceID, sequenceID)
	w.flush()
	w.drain()
}

// clockSnapshot returns a ClockSnapshot with the values of all clocks at one time. It assumes that
// BOOTTIME equals MONOTONIC. They differ only after the machine was suspended.
func (w *traceWriter) clockSnapshot(ns int64) []byte {
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

// start begins a TrackEvent of a type such as eventInstant. The caller adds fields to w.event and
// calls finish.
func (w *traceWriter) start(eventType, track uint64) {
	w.event = appendVarint(w.event[:0], fieldType, eventType)
	w.event = appendVarint(w.event, fieldTrackUUID, track)
}

// finish ends the event and sets its time. Times must not decrease.
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

// finishPlain is finish for events without interned data.
func (w *traceWriter) finishPlain(ns int64) {
	w.stamp(ns)
	w.packet = appendBytes(w.packet, fieldTrackEvent, w.event)
	w.flush()
}

// stamp sets the time and the sequence of the current packet.
func (w *traceWriter) stamp(ns int64) {
	at := max(w.lastNs, w.clock(ns))
	w.packet = appendVarint(w.packet, fieldTimestamp, at-w.lastNs)
	w.packet = appendVarint(w.packet, fieldSequenceID, sequenceID)
	w.lastNs = at
}

// counter writes an event with the value of a counter track.
func (w *traceWriter) counter(ns int64, track uint64, value float64) {
	w.start(eventCounter, track)
	if value == math.Trunc(value) && math.Abs(value) < 1<<53 {
		w.event = appendVarint(w.event, fieldCounterValue, uint64(int64(value)))
	} else {
		w.event = appendFixed(w.event, fieldDoubleCounterValue, math.Float64bits(value))
	}
	w.finishPlain(ns)
}

// intern returns the number of a string in a table of InternedData. field selects the table.
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

// name sets the name of the current event.
func (w *traceWriter) name(s string) { w.nameID(w.intern(fieldEventNames, units.ValidUTF8(s))) }

// nameID sets the name of the current event to an interned string.
func (w *traceWriter) nameID(id uint64) { w.event = appendVarint(w.event, fieldNameIID, id) }

// category adds a category to the current event.
func (w *traceWriter) category(s string) {
	w.categoryID(w.intern(fieldEventCategories, units.ValidUTF8(s)))
}

// categoryID adds an interned category to the current event.
func (w *traceWriter) categoryID(id uint64) { w.event = appendVarint(w.event, fieldCategoryIIDs, id) }

// internedColumn caches the numbers of the strings in a column's dictionary.
type internedColumn struct {
	w     *traceWriter
	field protowire.Number
	ids   []uint64 // by index of the dictionary; 0 if not interned yet
}

// reset clears the cache for a new dictionary.
func (c *internedColumn) reset(w *traceWriter, field protowire.Number, entries int) {
	c.w, c.field = w, field
	c.ids = append(c.ids[:0], make([]uint64, entries)...)
}

// at returns the number of the string in row i of a column.
func (c *internedColumn) at(w *traceWriter, column *format.Strings, i int) uint64 {
	if c.w != w {
		c.reset(w, c.field, len(c.ids)) // a new part of the trace has its own numbers
	}
	index := column.Index[i]
	if c.ids[index] == 0 {
		c.ids[index] = w.intern(c.field, units.ValidUTF8(column.Dict[index]))
	}
	return c.ids[index]
}

// Fields of DebugAnnotation for values of different types.
const (
	annotationBool      = 2
	annotationInt       = 4
	annotationPointer   = 7
	annotationStringIID = 17
)

// known is at, but returns 0 for an empty string.
func (c *internedColumn) known(w *traceWriter, column *format.Strings, i int) uint64 {
	if column.At(i) == "" {
		return 0
	}
	return c.at(w, column, i)
}

// note adds a debug annotation with a varint value to the current event.
func (w *traceWriter) note(name string, field protowire.Number, value uint64) {
	a := appendVarint(w.scratch[:0], 1, w.intern(fieldAnnotationNames, name))
	a = appendVarint(a, field, value)
	w.event = appendBytes(w.event, fieldDebugAnnotations, a)
	w.scratch = a[:0]
}

// noteText adds a debug annotation with a text to the current event.
func (w *traceWriter) noteText(name, value string) {
	w.note(name, annotationStringIID, w.intern(fieldAnnotationValues, units.ValidUTF8(value)))
}

// callstack sets the stack of the current event, if it was recorded.
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
		for i := len(frames) - 1; i >= 0; i-- { // Perfetto's order is root first
			s = appendVarint(s, 2, w.frame(frames[i]))
		}
		w.interned = appendBytes(w.interned, fieldCallstacks, s)
	}
	w.event = appendVarint(w.event, fieldCallstackIID, id)
}

// frame returns the number of a frame.
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

// mapping returns the number of the module of a frame.
func (w *traceWriter) mapping(f *format.Frame) uint64 {
	key := stack.ModuleKey{File: f.Module, BuildID: f.BuildID}
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
