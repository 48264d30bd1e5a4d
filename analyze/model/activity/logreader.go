package activity

import (
	"encoding/binary"
	"fmt"

	"github.com/gpurec/gpurec/analyze/spill"
)

// operationReader reads a log of operations. It adds what follows from the durations. It is not safe for concurrent
// use, but several readers may read one log.
type operationReader struct {
	log       *operationLog
	means     map[int32]*meanTable
	untimed   func(pid, device int32, span Interval) // may be nil
	sink      channelState                           // of all operations, for streamChain.deliver
	shapes    [shapeSlots]shapeOfOperations
	times     logTimes
	streams   []streamOfLog
	holds     holds
	operation chainOperation // memory of readOperation
	block     []byte         // the rest of the block
}

// shapeOfOperations is a shape with the duration of its operations.
type shapeOfOperations struct {
	operationShape
	mean *Duration
}

// streamOfLog is the state of a stream between two of its operations.
type streamOfLog struct {
	chain   streamChain // only the operations of a graph
	afterNs int64       // Operation.followedFromNs of the last operation
}

func newOperationReader(
	log *operationLog,
	means map[int32]*meanTable,
	yield func(*Operation),
	untimed func(pid, device int32, span Interval),
) *operationReader {
	r := &operationReader{log: log, means: means, untimed: untimed}
	r.sink.out = &results{onOperation: yield}
	return r
}

// readAll reads the log. It returns errors of reading its file.
func (r *operationReader) readAll() (err error) {
	buffer := make([]byte, spill.BlockBytes)
	for i := range r.log.blocks.Blocks() {
		if r.block, err = r.log.blocks.ReadBlock(i, buffer); err != nil {
			return fmt.Errorf("read the operations of the GPU: %w", err)
		}
		for len(r.block) > 0 {
			r.readEntry()
		}
	}
	return nil
}

// readEntry reads an entry.
func (r *operationReader) readEntry() {
	flags := entryFlags(binary.LittleEndian.Uint32(r.block))
	r.block = r.block[4:]
	switch {
	case flags&entryIsSpan != 0:
		pid, device, span := int32(r.number()), int32(r.number()), r.interval(0)
		if r.untimed != nil {
			r.untimed(pid, device, span)
		}
	case flags&entryEndsStream != 0:
		r.streamOf(int32(r.number())).chain.deliverGraph()
	default:
		r.readOperation(flags)
	}
}

// number reads a number.
func (r *operationReader) number() int64 {
	if first := r.block[0]; first < 0x80 { // most numbers are short
		r.block = r.block[1:]
		return int64(first>>1) ^ -int64(first&1)
	}
	v, n := binary.Varint(r.block)
	r.block = r.block[n:]
	return v
}

// byte reads a byte.
func (r *operationReader) byte() byte {
	b := r.block[0]
	r.block = r.block[1:]
	return b
}

// interval reads an interval near a time.
func (r *operationReader) interval(nearNs int64) Interval {
	loNs := nearNs + r.number()
	return Interval{loNs, loNs + r.number()}
}

// shape reads a shape.
func (r *operationReader) shape(flags entryFlags) *shapeOfOperations {
	s := &r.shapes[r.number()]
	if flags&entryHasShape == 0 {
		return s
	}
	s.context, s.handle, s.blocks = r.number(), r.number(), r.number()
	for _, to := range [...]*int32{&s.pid, &s.tid, &s.device, &s.label, &s.stack, &s.stream, &s.channel} {
		*to = int32(r.number())
	}
	s.op, s.hold, s.place = Op(r.byte()), HoldKind(r.byte()), Place(r.byte())
	for _, to := range [...]*bool{&s.waits, &s.startsEarly, &s.anyTiming, &s.likelyTiming} {
		*to = r.byte() != 0
	}
	s.mean = r.means[s.pid].of(labelKey{s.op, s.label})
	return s
}

// readOperation reads an operation and passes it on.
func (r *operationReader) readOperation(flags entryFlags) {
	w, s := &r.operation, r.shape(flags)
	*w = chainOperation{channel: &r.sink, Operation: Operation{
		Call: Call{
			Context: s.context, Stream: s.handle, Pid: s.pid, Tid: s.tid, Device: s.device, StartsEarly: s.startsEarly,
			Label: s.label, Stack: s.stack, Op: s.op, Hold: s.hold, Waits: s.waits, AnyTiming: s.anyTiming,
			LikelyTiming: s.likelyTiming, Place: s.place, Blocks: s.blocks,
		},
		Channel:         s.channel,
		Stream:          s.stream,
		Mean:            s.mean,
		StartQuality:    flags.quality(0),
		EndQuality:      flags.quality(1),
		DurationQuality: flags.quality(2),
		Queued:          flags&entryIsQueued != 0,
		engineIdle:      flags&entryEngineIdle != 0,
		streamIdle:      flags&entryStreamIdle != 0,
	}}
	r.times.callNs += r.number()
	r.times.likely += r.number()
	w.Call.StartNs, w.likely = r.times.callNs, r.times.likely
	r.readTimes(w, flags)
	if flags&(entryHasParts|entryHasGuess|entryHasHold) != 0 {
		r.readRest(w, flags)
	}
	stream := r.streamOf(w.Stream)
	switch {
	case flags&entryHasGuess != 0:
		w.guessAgain(stream.afterNs)
	case flags&entryIsGuessed != 0:
		w.likelyStartNs = w.guessStartNs(stream.afterNs)
	}
	if flags&entryIsLate == 0 {
		stream.afterNs = w.followedFromNs()
	}
	stream.chain.deliver(w)
}

// quality returns one of the qualities.
func (f entryFlags) quality(i int) Quality {
	return Quality(f >> (i * qualityBits) & (1<<qualityBits - 1))
}

// readTimes reads what appendTimes appends.
func (r *operationReader) readTimes(w *chainOperation, flags entryFlags) {
	nearNs := w.Call.StartNs
	w.Call.EndNs, w.doneNs = UnknownNs, UnknownNs
	if flags&entryHasReturn != 0 {
		w.Call.EndNs = nearNs + r.number()
	}
	if flags&entryHasStart != 0 {
		w.Start = r.interval(nearNs)
	}
	if flags&entryHasEnd != 0 {
		w.End = r.interval(w.Start.HiNs)
	}
	if flags&entryHasDuration != 0 {
		w.Duration = r.interval(0)
	} else {
		w.Duration, _ = w.boundedDuration()
	}
	switch {
	case flags&entryIsLikely != 0:
		w.Number = w.likely
	case flags&entryHasNumber != 0:
		w.Number = r.number()
	}
	if flags&entryHasDone != 0 {
		w.doneNs = nearNs + r.number()
	}
}

// readRest reads what appendRest appends.
func (r *operationReader) readRest(w *chainOperation, flags entryFlags) {
	if flags&entryHasHold != 0 {
		h := Hold{StartNs: w.Call.StartNs + r.number(), Stack: int32(r.number()), Stream: int32(r.number())}
		h.After = LastCall{
			StartNs: w.Call.StartNs + r.number(), Stack: int32(r.number()), Label: int32(r.number()),
		}
		h.Kind, h.After.Op = HoldKind(r.byte()), Op(r.byte())
		w.Hold = r.holds.add(h)
	}
	if flags&entryHasParts != 0 {
		w.part, w.parts = r.number(), r.number()
	}
	if flags&entryHasGuess != 0 {
		w.guess.start, w.guess.end = r.interval(w.Start.LoNs), r.interval(w.Start.LoNs)
		w.guess.endQuality = Quality(r.byte())
	}
}

// guessAgain sets the most probable start of a finished operation from the values that it had when the start was
// guessed.
func (w *chainOperation) guessAgain(afterNs int64) {
	before := w.Operation
	before.Start = w.guess.start
	if w.isCopy() {
		before.End, before.EndQuality = w.guess.end, w.guess.endQuality
	}
	w.likelyStartNs = before.guessStartNs(afterNs)
}

// streamOf returns the state of a stream.
func (r *operationReader) streamOf(number int32) *streamOfLog {
	for int(number) >= len(r.streams) {
		r.streams = append(r.streams, streamOfLog{})
	}
	return &r.streams[number]
}
