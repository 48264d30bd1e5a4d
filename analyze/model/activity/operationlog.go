package activity

import (
	"encoding/binary"

	"github.com/gpurec/gpurec/analyze/spill"
)

// A replay numbers the operations again each time that a report reads them. So the replay that collects durations also
// writes a log of the operations, without what follows from the durations. operationReader reads it.

// operationLog is a list of operations and spans of time in the order in which a replay finishes them.
type operationLog struct {
	blocks spill.List
	block  []byte
	shapes *[shapeSlots]operationShape
	times  logTimes
	err    error // of the last block; the log is not complete
}

// logTimes are the values of the entry before, from which the next ones differ little.
type logTimes struct {
	callNs, likely int64
}

// operationShape has the facts that the operations of a call site share.
type operationShape struct {
	context, handle, blocks                int64
	pid, tid, device, label, stack, stream int32
	channel                                int32
	op                                     Op
	hold                                   HoldKind
	place                                  Place
	waits, startsEarly                     bool
	anyTiming, likelyTiming                bool
}

// shapeSlots is the number of recent shapes that a log keeps, by a hash.
const shapeSlots = 1 << shapeBits

const shapeBits = 13

// slotOf returns the place of a shape.
func (s *operationShape) slotOf() uint32 {
	mixed := uint32(s.stack)*0x9e3779b1 ^ uint32(s.label)*0x85ebca6b ^ uint32(s.channel)*0xc2b2ae35 ^ uint32(s.tid)<<7
	return (mixed * 0x9e3779b1) >> (32 - shapeBits)
}

// entryFlags say what an entry of a log has.
type entryFlags uint32

// qualityBits are the bits of a quality. The first bits of entryFlags are those of an operation's start, end and
// duration.
const qualityBits = 2

// Further bits of entryFlags.
const (
	entryIsSpan     entryFlags = 1 << (iota + 3*qualityBits) // a time of untimed operations, and no other bit
	entryEndsStream                                          // no operation of the stream follows, and no other bit
	entryHasShape                                            // its shape is new
	entryHasReturn
	entryHasStart
	entryHasEnd
	entryHasDuration // it does not follow from start and end
	entryHasNumber
	entryIsLikely // its number is the lowest one that it may have
	entryHasDone
	entryHasHold
	entryHasParts
	entryIsGuessed
	entryHasGuess // what the guess was made from has changed
	entryIsLate
	entryIsQueued
	entryEngineIdle
	entryStreamIdle
)

// maxEntryBytes is more than an entry of a log can have.
const maxEntryBytes = 512

func newOperationLog() *operationLog {
	return &operationLog{block: make([]byte, 0, spill.BlockBytes), shapes: new([shapeSlots]operationShape)}
}

// reserve makes room for an entry. It reports whether the log is written at all.
func (l *operationLog) reserve() bool {
	if len(l.block)+maxEntryBytes > spill.BlockBytes {
		l.flush()
	}
	return l.err == nil
}

// flush ends the block.
func (l *operationLog) flush() {
	if l.err == nil && len(l.block) > 0 {
		l.err = l.blocks.Append(l.block)
	}
	l.block = l.block[:0]
}

// finish ends the log.
func (l *operationLog) finish() {
	l.flush()
	l.block, l.shapes = nil, nil
	if l.err != nil {
		l.close()
	}
}

// close frees the log. Its file has no name, so nothing remains of it.
func (l *operationLog) close() { _ = l.blocks.Close() }

// addSpan adds a span of time in which untimed operations may have run.
func (l *operationLog) addSpan(pid, device int32, span Interval) {
	if !l.reserve() {
		return
	}
	b := binary.LittleEndian.AppendUint32(l.block, uint32(entryIsSpan))
	b = binary.AppendVarint(binary.AppendVarint(b, int64(pid)), int64(device))
	l.block = appendInterval(b, span, 0)
}

// endStream adds that no operation of a stream follows.
func (l *operationLog) endStream(stream int32) {
	if l.reserve() {
		b := binary.LittleEndian.AppendUint32(l.block, uint32(entryEndsStream))
		l.block = binary.AppendVarint(b, int64(stream))
	}
}

// appendInterval appends an interval near a time.
func appendInterval(b []byte, i Interval, nearNs int64) []byte {
	return binary.AppendVarint(binary.AppendVarint(b, i.LoNs-nearNs), i.HiNs-i.LoNs)
}

// addOperation adds a finished operation of a stream.
func (l *operationLog) addOperation(w *chainOperation) {
	if !l.reserve() {
		return
	}
	shape := shapeOf(&w.Operation)
	slot, flags := shape.slotOf(), flagsOf(w)
	if l.shapes[slot] != shape {
		l.shapes[slot] = shape
		flags |= entryHasShape
	}
	b := binary.AppendVarint(binary.LittleEndian.AppendUint32(l.block, uint32(flags)), int64(slot))
	if flags&entryHasShape != 0 {
		b = shape.append(b)
	}
	b = binary.AppendVarint(b, w.Call.StartNs-l.times.callNs)
	b = binary.AppendVarint(b, w.likely-l.times.likely)
	l.times = logTimes{w.Call.StartNs, w.likely}
	b = appendTimes(b, w, flags)
	if flags&(entryHasParts|entryHasGuess|entryHasHold) != 0 {
		b = appendRest(b, w, flags)
	}
	l.block = b
}

// shapeOf returns the shape of an operation.
func shapeOf(w *Operation) operationShape {
	c := &w.Call
	return operationShape{
		context: c.Context, handle: c.Stream, blocks: c.Blocks, pid: c.Pid, tid: c.Tid, device: c.Device,
		label: c.Label, stack: c.Stack, stream: w.Stream, channel: w.Channel, op: c.Op, hold: c.Hold, place: c.Place,
		waits: c.Waits, startsEarly: c.StartsEarly, anyTiming: c.AnyTiming, likelyTiming: c.LikelyTiming,
	}
}

// append appends all fields.
func (s *operationShape) append(b []byte) []byte {
	for _, v := range [...]int64{
		s.context, s.handle, s.blocks, int64(s.pid), int64(s.tid), int64(s.device), int64(s.label), int64(s.stack),
		int64(s.stream), int64(s.channel),
	} {
		b = binary.AppendVarint(b, v)
	}
	return append(b, byte(s.op), byte(s.hold), byte(s.place), byteOf(s.waits), byteOf(s.startsEarly),
		byteOf(s.anyTiming), byteOf(s.likelyTiming))
}

func byteOf(isSet bool) byte {
	if isSet {
		return 1
	}
	return 0
}

// flagsOf returns the flags of an operation, apart from entryHasShape.
func flagsOf(w *chainOperation) entryFlags {
	flags := entryFlags(w.StartQuality) | entryFlags(w.EndQuality)<<qualityBits |
		entryFlags(w.DurationQuality)<<(2*qualityBits)
	set := func(flag entryFlags, isSet bool) {
		if isSet {
			flags |= flag
		}
	}
	duration, quality := w.boundedDuration()
	set(entryHasReturn, w.Call.EndNs != UnknownNs)
	set(entryHasStart, w.Start != Interval{})
	set(entryHasEnd, w.End != Interval{})
	set(entryHasDuration, w.Duration != duration || w.DurationQuality != quality)
	set(entryHasNumber, w.Number != 0 && w.Number != w.likely)
	set(entryIsLikely, w.Number != 0 && w.Number == w.likely)
	set(entryHasDone, w.doneNs != UnknownNs)
	set(entryHasHold, w.Hold != nil)
	set(entryHasParts, w.parts > 1)
	set(entryIsGuessed, w.isGuessed)
	set(entryHasGuess, w.isGuessed && w.guess != guessOf(&w.Operation))
	set(entryIsLate, w.isLate)
	set(entryIsQueued, w.Queued)
	set(entryEngineIdle, w.engineIdle)
	set(entryStreamIdle, w.streamIdle)
	return flags
}

// appendTimes appends the times and the number of an operation.
func appendTimes(b []byte, w *chainOperation, flags entryFlags) []byte {
	nearNs := w.Call.StartNs
	if flags&entryHasReturn != 0 {
		b = binary.AppendVarint(b, w.Call.EndNs-nearNs)
	}
	if flags&entryHasStart != 0 {
		b = appendInterval(b, w.Start, nearNs)
	}
	if flags&entryHasEnd != 0 {
		b = appendInterval(b, w.End, w.Start.HiNs)
	}
	if flags&entryHasDuration != 0 {
		b = appendInterval(b, w.Duration, 0)
	}
	if flags&entryHasNumber != 0 {
		b = binary.AppendVarint(b, w.Number)
	}
	if flags&entryHasDone != 0 {
		b = binary.AppendVarint(b, w.doneNs-nearNs)
	}
	return b
}

// appendRest appends what few operations have.
func appendRest(b []byte, w *chainOperation, flags entryFlags) []byte {
	if flags&entryHasHold != 0 {
		h := w.Hold
		for _, v := range [...]int64{
			h.StartNs - w.Call.StartNs, int64(h.Stack), int64(h.Stream), h.After.StartNs - w.Call.StartNs,
			int64(h.After.Stack), int64(h.After.Label),
		} {
			b = binary.AppendVarint(b, v)
		}
		b = append(b, byte(h.Kind), byte(h.After.Op))
	}
	if flags&entryHasParts != 0 {
		b = binary.AppendVarint(binary.AppendVarint(b, w.part), w.parts)
	}
	if flags&entryHasGuess != 0 {
		b = appendInterval(b, w.guess.start, w.Start.LoNs)
		b = appendInterval(b, w.guess.end, w.Start.LoNs)
		b = append(b, byte(w.guess.endQuality))
	}
	return b
}
