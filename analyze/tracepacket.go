package analyze

import (
	"bufio"
	"encoding/hex"
	"io"
	"math"

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
	out *bufio.Writer
	err error
	// offsetNs is what was added to CLOCK_MONOTONIC to get the recording's times.
	offsetNs int64

	packet, event, interned, scratch []byte
	strings                          map[protowire.Number]map[string]uint64 // by field of InternedData
	frames                           map[int32]uint64
	stacks                           map[int32]uint64
	mappings                         map[moduleKey]uint64
	table                            *stackTable
}

func newTraceWriter(out io.Writer, table *stackTable, offsetNs int64) *traceWriter {
	return &traceWriter{
		out: bufio.NewWriterSize(out, 1<<20), offsetNs: offsetNs, table: table,
		strings: make(map[protowire.Number]map[string]uint64), frames: make(map[int32]uint64),
		stacks: make(map[int32]uint64), mappings: make(map[moduleKey]uint64),
	}
}

// clock turns a time of the recording into CLOCK_MONOTONIC.
func (w *traceWriter) clock(ns int64) uint64 { return uint64(max(0, ns-w.offsetNs)) }

// flush writes the packet that was put together.
func (w *traceWriter) flush() {
	head := protowire.AppendVarint(protowire.AppendTag(w.scratch[:0], fieldTracePacket, protowire.BytesType), uint64(len(w.packet)))
	w.write(head)
	w.write(w.packet)
	w.scratch, w.packet = head[:0], w.packet[:0]
}

func (w *traceWriter) write(b []byte) {
	if w.err == nil {
		_, w.err = w.out.Write(b)
	}
}

// begin writes the first packet: it opens the sequence, says that times are
// CLOCK_MONOTONIC, and ties that clock to the others.
func (w *traceWriter) begin(startNs int64) {
	w.packet = appendVarint(w.packet, fieldSequenceID, sequenceID)
	w.packet = appendVarint(w.packet, fieldSequenceFlags, sequenceCleared)
	w.packet = appendVarint(w.packet, fieldFirstPacketOnSequence, 1)
	w.packet = appendBytes(w.packet, fieldClockSnapshot, w.snapshot(startNs))
	w.packet = appendBytes(w.packet, fieldTracePacketDefaults, appendVarint(nil, fieldTimestampClockID, clockMonotonic))
	w.flush()
}

// snapshot says what the clocks showed at one moment. BOOTTIME is taken to be equal
// to MONOTONIC: they differ by the time a machine was suspended.
func (w *traceWriter) snapshot(ns int64) []byte {
	var s []byte
	for _, c := range [][2]uint64{{clockBoottime, w.clock(ns)}, {clockMonotonic, w.clock(ns)}, {clockRealtime, uint64(max(0, ns))}} {
		s = appendBytes(s, 1, appendVarint(appendVarint(nil, 1, c[0]), 2, c[1]))
	}
	return appendVarint(s, 2, clockBoottime)
}

// track writes a TrackDescriptor; rest holds its fields beyond uuid, parent and name.
func (w *traceWriter) track(uuid, parent uint64, name string, rest []byte) {
	d := appendVarint(nil, 1, uuid)
	if name != "" {
		d = appendBytes(d, 2, validUTF8(name))
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

func (w *traceWriter) finish(ns int64) {
	w.packet = appendVarint(w.packet, fieldTimestamp, w.clock(ns))
	w.packet = appendVarint(w.packet, fieldSequenceID, sequenceID)
	w.packet = appendVarint(w.packet, fieldSequenceFlags, sequenceNeeds)
	if len(w.interned) > 0 {
		w.packet = appendBytes(w.packet, fieldInternedData, w.interned)
		w.interned = w.interned[:0]
	}
	w.packet = appendBytes(w.packet, fieldTrackEvent, w.event)
	w.flush()
}

// counter writes a value of a counter track.
func (w *traceWriter) counter(ns int64, track uint64, value float64) {
	w.start(eventCounter, track)
	if value == math.Trunc(value) && math.Abs(value) < 1<<53 {
		w.event = appendVarint(w.event, fieldCounterValue, uint64(int64(value)))
	} else {
		w.event = appendFixed(w.event, fieldDoubleCounterValue, math.Float64bits(value))
	}
	w.finish(ns)
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

func (w *traceWriter) name(s string) {
	w.event = appendVarint(w.event, fieldNameIID, w.intern(fieldEventNames, validUTF8(s)))
}

func (w *traceWriter) category(s string) {
	w.event = appendVarint(w.event, fieldCategoryIIDs, w.intern(fieldEventCategories, validUTF8(s)))
}

// Fields of DebugAnnotation that hold a value.
const (
	annotationBool      = 2
	annotationInt       = 4
	annotationPointer   = 7
	annotationStringIID = 17
)

// note adds a debug annotation with a value that is a varint.
func (w *traceWriter) note(name string, field protowire.Number, value uint64) {
	a := appendVarint(w.scratch[:0], 1, w.intern(fieldAnnotationNames, name))
	a = appendVarint(a, field, value)
	w.event = appendBytes(w.event, fieldDebugAnnotations, a)
	w.scratch = a[:0]
}

func (w *traceWriter) noteText(name, value string) {
	w.note(name, annotationStringIID, w.intern(fieldAnnotationValues, validUTF8(value)))
}

// callstack adds the stack to the event, if it was recorded.
func (w *traceWriter) callstack(stack int32) {
	frames, ok := w.table.stacks[stack]
	if !ok || len(frames) == 0 {
		return
	}
	id, ok := w.stacks[stack]
	if !ok {
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
	f := &w.table.frames[frame]
	b := appendVarint(nil, 1, id)
	b = appendVarint(b, 2, w.intern(fieldFunctionNames, validUTF8(frameName(f))))
	b = appendVarint(b, 3, w.mapping(f))
	b = appendVarint(b, 4, uint64(f.Addr))
	w.interned = appendBytes(w.interned, fieldFrames, b)
	return id
}

func (w *traceWriter) mapping(f *format.Frame) uint64 {
	key := moduleKey{f.Module, f.BuildID}
	if id, ok := w.mappings[key]; ok {
		return id
	}
	id := uint64(len(w.mappings) + 1)
	w.mappings[key] = id
	b := appendVarint(nil, 1, id)
	if raw, err := hex.DecodeString(f.BuildID); err == nil && len(raw) > 0 {
		b = appendVarint(b, 2, w.intern(fieldBuildIDs, string(raw)))
	}
	b = appendVarint(b, 7, w.intern(fieldMappingPaths, validUTF8(f.Module)))
	w.interned = appendBytes(w.interned, fieldMappings, b)
	return id
}
