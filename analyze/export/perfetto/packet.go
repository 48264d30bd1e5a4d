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
	fieldTracePacket = 1 // field of message Trace

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
	fieldEventType          = 9
	fieldNameIID            = 10
	fieldTrackUUID          = 11
	fieldName               = 23
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
	eventTypeSliceBegin = 1
	eventTypeSliceEnd   = 2
	eventTypeInstant    = 3
	eventTypeCounter    = 4

	clockIDRealtime  = 1
	clockIDMonotonic = 3
	clockIDBoottime  = 6
	clockIDDelta     = 64 // clock of the packet sequence: a time is the difference to the previous packet

	sequenceFlagStateCleared = 1 // SEQ_INCREMENTAL_STATE_CLEARED
	sequenceFlagNeedsState   = 2 // SEQ_NEEDS_INCREMENTAL_STATE

	packetSequenceID = 1 // all packets belong to one sequence
)

// appendVarintField appends a varint field to an encoded message.
func appendVarintField(b []byte, field protowire.Number, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), v)
}

// appendFixed64Field appends a fixed64 field to an encoded message.
func appendFixed64Field(b []byte, field protowire.Number, v uint64) []byte {
	return protowire.AppendFixed64(protowire.AppendTag(b, field, protowire.Fixed64Type), v)
}

// appendBytesField appends a string, bytes or message field to an encoded message.
func appendBytesField[T []byte | string](b []byte, field protowire.Number, v T) []byte {
	b = protowire.AppendVarint(protowire.AppendTag(b, field, protowire.BytesType), uint64(len(v)))
	return append(b, v...)
}

// traceWriter writes packets of a Perfetto trace. It writes each string, frame and stack once, in
// the interned data of the first packet that uses it. Later packets refer to its number (iid).
type traceWriter struct {
	out      io.Writer
	err      error  // first error of a write to out
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
	table    *stack.StackTable
}

// traceBufferBytes is the size, in bytes, from which on buffered packets are written to out.
const traceBufferBytes = 1 << 20

// newTraceWriter returns a writer of a trace with the stacks of a table.
func newTraceWriter(out io.Writer, table *stack.StackTable, offsetNs int64) *traceWriter {
	return &traceWriter{
		out: out, offsetNs: offsetNs, table: table, buf: make([]byte, 0, traceBufferBytes+1<<16),
		strings: make(map[protowire.Number]map[string]uint64), frames: make(map[int32]uint64),
		stacks: make(map[int32]uint64), mappings: make(map[stack.ModuleKey]uint64),
	}
}

// toMonotonicClock converts a recorded time (Unix ns) to CLOCK_MONOTONIC.
func (w *traceWriter) toMonotonicClock(ns int64) uint64 { return uint64(max(0, ns-w.offsetNs)) }

// flushPacket appends the current packet to the buffer, and writes the buffer if it is full.
func (w *traceWriter) flushPacket() {
	w.buf = appendBytesField(w.buf, fieldTracePacket, w.packet)
	w.packet = w.packet[:0]
	if len(w.buf) >= traceBufferBytes {
		w.writeBuffer()
	}
}

// writeBuffer writes the buffered packets to out.
func (w *traceWriter) writeBuffer() {
	if w.err == nil {
		_, w.err = w.out.Write(w.buf)
	}
	w.buf = w.buf[:0]
}

// beginSequence writes the first packet. It begins the sequence, makes clockIDDelta its default
// clock, and relates that clock to CLOCK_MONOTONIC and the other clocks.
func (w *traceWriter) beginSequence(startNs int64) {
	w.lastNs = w.toMonotonicClock(startNs)
	w.packet = appendVarintField(w.packet, fieldSequenceID, packetSequenceID)
	w.packet = appendVarintField(w.packet, fieldSequenceFlags, sequenceFlagStateCleared)
	w.packet = appendVarintField(w.packet, fieldFirstPacketOnSequence, 1)
	delta := appendVarintField(
		appendVarintField(appendVarintField(nil, 1, clockIDDelta), 2, w.lastNs),
		3,
		1,
	) // is_incremental
	w.packet = appendBytesField(w.packet, fieldClockSnapshot, appendBytesField(w.newClockSnapshot(startNs), 1, delta))
	w.packet = appendBytesField(
		w.packet,
		fieldTracePacketDefaults,
		appendVarintField(nil, fieldTimestampClockID, clockIDDelta),
	)
	w.flushPacket()
}

// endSequence writes the last packet, a clock snapshot, and all buffered packets.
func (w *traceWriter) endSequence(endNs int64) {
	w.packet = appendBytesField(w.packet, fieldClockSnapshot, w.newClockSnapshot(endNs))
	w.packet = appendVarintField(w.packet, fieldSequenceID, packetSequenceID)
	w.flushPacket()
	w.writeBuffer()
}

// newClockSnapshot returns a ClockSnapshot with the values of all clocks at one time. It assumes
// that BOOTTIME equals MONOTONIC. They differ only after the machine was suspended.
func (w *traceWriter) newClockSnapshot(ns int64) []byte {
	var s []byte
	for _, c := range [][2]uint64{
		{clockIDBoottime, w.toMonotonicClock(ns)},
		{clockIDMonotonic, w.toMonotonicClock(ns)},
		{clockIDRealtime, uint64(max(0, ns))},
	} {
		s = appendBytesField(s, 1, appendVarintField(appendVarintField(nil, 1, c[0]), 2, c[1]))
	}
	return appendVarintField(s, 2, clockIDBoottime)
}

// writeTrackDescriptor writes a TrackDescriptor; rest holds its fields beyond uuid, parent and
// name.
func (w *traceWriter) writeTrackDescriptor(uuid, parent uint64, name string, rest []byte) {
	d := appendVarintField(nil, 1, uuid)
	if name != "" {
		d = appendBytesField(d, 2, units.ReplaceInvalidUTF8(name))
	}
	if parent != 0 {
		d = appendVarintField(d, 5, parent)
	}
	w.packet = appendVarintField(w.packet, fieldSequenceID, packetSequenceID)
	w.packet = appendBytesField(w.packet, fieldTrackDescriptor, append(d, rest...))
	w.flushPacket()
}

// startEvent begins a TrackEvent of a type such as eventTypeInstant. The caller adds fields to
// w.event and calls finishEvent.
func (w *traceWriter) startEvent(eventType, track uint64) {
	w.event = appendVarintField(w.event[:0], fieldEventType, eventType)
	w.event = appendVarintField(w.event, fieldTrackUUID, track)
}

// finishEvent ends the event and sets its time. Times must not decrease.
func (w *traceWriter) finishEvent(ns int64) {
	w.stampPacket(ns)
	w.packet = appendVarintField(w.packet, fieldSequenceFlags, sequenceFlagNeedsState)
	if len(w.interned) > 0 {
		w.packet = appendBytesField(w.packet, fieldInternedData, w.interned)
		w.interned = w.interned[:0]
	}
	w.packet = appendBytesField(w.packet, fieldTrackEvent, w.event)
	w.flushPacket()
}

// finishPlainEvent is finishEvent for events without interned data.
func (w *traceWriter) finishPlainEvent(ns int64) {
	w.stampPacket(ns)
	w.packet = appendBytesField(w.packet, fieldTrackEvent, w.event)
	w.flushPacket()
}

// stampPacket sets the time and the sequence of the current packet.
func (w *traceWriter) stampPacket(ns int64) {
	at := max(w.lastNs, w.toMonotonicClock(ns))
	w.packet = appendVarintField(w.packet, fieldTimestamp, at-w.lastNs)
	w.packet = appendVarintField(w.packet, fieldSequenceID, packetSequenceID)
	w.lastNs = at
}

// writeCounterEvent writes an event with the value of a counter track.
func (w *traceWriter) writeCounterEvent(ns int64, track uint64, value float64) {
	w.startEvent(eventTypeCounter, track)
	if value == math.Trunc(value) && math.Abs(value) < 1<<53 {
		w.event = appendVarintField(w.event, fieldCounterValue, uint64(int64(value)))
	} else {
		w.event = appendFixed64Field(w.event, fieldDoubleCounterValue, math.Float64bits(value))
	}
	w.finishPlainEvent(ns)
}

// internString returns the number of a string in a table of InternedData, and adds the string if it
// is new. field selects the table.
func (w *traceWriter) internString(field protowire.Number, s string) uint64 {
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
	w.interned = appendBytesField(w.interned, field, appendBytesField(appendVarintField(nil, 1, id), 2, s))
	return id
}

// setEventName sets the name of the current event.
func (w *traceWriter) setEventName(s string) {
	w.setEventNameID(w.internString(fieldEventNames, units.ReplaceInvalidUTF8(s)))
}

// setEventNameID sets the name of the current event to an interned string.
func (w *traceWriter) setEventNameID(id uint64) {
	w.event = appendVarintField(w.event, fieldNameIID, id)
}

// setOwnEventName sets the name of the current event without interning it, for names that do not repeat.
func (w *traceWriter) setOwnEventName(s string) {
	w.event = appendBytesField(w.event, fieldName, units.ReplaceInvalidUTF8(s))
}

// addEventCategory adds a category to the current event.
func (w *traceWriter) addEventCategory(s string) {
	w.addEventCategoryID(w.internString(fieldEventCategories, units.ReplaceInvalidUTF8(s)))
}

// addEventCategoryID adds an interned category to the current event.
func (w *traceWriter) addEventCategoryID(id uint64) {
	w.event = appendVarintField(w.event, fieldCategoryIIDs, id)
}

// internedColumn caches the numbers of the strings in a column's dictionary.
type internedColumn struct {
	w     *traceWriter
	field protowire.Number
	ids   []uint64 // numbers by index of the dictionary; 0 if not interned yet
}

// resetIDs clears the cached numbers for the dictionary of a new row group.
func (c *internedColumn) resetIDs(w *traceWriter, field protowire.Number, entries int) {
	c.w, c.field = w, field
	c.ids = append(c.ids[:0], make([]uint64, entries)...)
}

// stringID returns the number of the string in row i of a column.
func (c *internedColumn) stringID(w *traceWriter, column *format.Strings, i int) uint64 {
	if c.w != w {
		c.resetIDs(w, c.field, len(c.ids)) // a new part of the trace has its own numbers
	}
	index := column.Index[i]
	if c.ids[index] == 0 {
		c.ids[index] = w.internString(c.field, units.ReplaceInvalidUTF8(column.Dict[index]))
	}
	return c.ids[index]
}

// Fields of DebugAnnotation for values of different types.
const (
	fieldAnnotationBool      = 2
	fieldAnnotationInt       = 4
	fieldAnnotationPointer   = 7
	fieldAnnotationStringIID = 17
)

// stringIDOrZero is stringID, but returns 0 for an empty string.
func (c *internedColumn) stringIDOrZero(w *traceWriter, column *format.Strings, i int) uint64 {
	if column.At(i) == "" {
		return 0
	}
	return c.stringID(w, column, i)
}

// addAnnotation adds a debug annotation with a varint value to the current event.
func (w *traceWriter) addAnnotation(name string, field protowire.Number, value uint64) {
	a := appendVarintField(w.scratch[:0], 1, w.internString(fieldAnnotationNames, name))
	a = appendVarintField(a, field, value)
	w.event = appendBytesField(w.event, fieldDebugAnnotations, a)
	w.scratch = a[:0]
}

// addTextAnnotation adds a debug annotation with a text to the current event.
func (w *traceWriter) addTextAnnotation(name, value string) {
	w.addAnnotation(
		name,
		fieldAnnotationStringIID,
		w.internString(fieldAnnotationValues, units.ReplaceInvalidUTF8(value)),
	)
}

// setEventStack sets the stack of the current event, if it was recorded.
func (w *traceWriter) setEventStack(stack int32) {
	id, ok := w.stacks[stack]
	if !ok {
		frames := w.table.Stacks[stack]
		if len(frames) == 0 {
			return
		}
		id = uint64(len(w.stacks) + 1)
		w.stacks[stack] = id
		s := appendVarintField(nil, 1, id)
		for i := len(frames) - 1; i >= 0; i-- { // Perfetto's order is root first
			s = appendVarintField(s, 2, w.internFrame(frames[i]))
		}
		w.interned = appendBytesField(w.interned, fieldCallstacks, s)
	}
	w.event = appendVarintField(w.event, fieldCallstackIID, id)
}

// internFrame returns the number of a stack frame in the interned data, and adds the frame if it is
// new.
func (w *traceWriter) internFrame(frame int32) uint64 {
	if id, ok := w.frames[frame]; ok {
		return id
	}
	id := uint64(len(w.frames) + 1)
	w.frames[frame] = id
	f := &w.table.Frames[frame]
	b := appendVarintField(nil, 1, id)
	b = appendVarintField(b, 2, w.internString(fieldFunctionNames, units.ReplaceInvalidUTF8(query.FrameName(f))))
	b = appendVarintField(b, 3, w.internModule(f))
	b = appendVarintField(b, 4, uint64(f.Addr))
	if f.File != "" {
		b = appendVarintField(b, 5, w.internString(fieldSourcePaths, units.ReplaceInvalidUTF8(f.File)))
		b = appendVarintField(b, 6, uint64(f.Line))
	}
	w.interned = appendBytesField(w.interned, fieldFrames, b)
	return id
}

// internModule returns the number of the module of a frame in the interned data, and adds the
// module if it is new.
func (w *traceWriter) internModule(f *format.Frame) uint64 {
	key := stack.ModuleKey{File: f.Module, BuildID: f.BuildID}
	if id, ok := w.mappings[key]; ok {
		return id
	}
	id := uint64(len(w.mappings) + 1)
	w.mappings[key] = id
	b := appendVarintField(nil, 1, id)
	if raw, err := hex.DecodeString(f.BuildID); err == nil && len(raw) > 0 {
		b = appendVarintField(b, 2, w.internString(fieldBuildIDs, string(raw)))
	}
	b = appendVarintField(b, 7, w.internString(fieldMappingPaths, units.ReplaceInvalidUTF8(f.Module)))
	w.interned = appendBytesField(w.interned, fieldMappings, b)
	return id
}
