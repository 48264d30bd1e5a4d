package activity

import (
	"encoding/binary"
	"fmt"

	"github.com/gpurec/gpurec/analyze/spill"
)

// workReader reads a log of works. It adds what follows from the durations. It is not safe for concurrent use, but
// several readers may read one log.
type workReader struct {
	log     *workLog
	means   map[int32]*meanTable
	untimed func(pid, device int32, span Interval) // may be nil
	sink    channelState                           // of all works, for streamChain.deliver
	shapes  [shapeSlots]shapeOfWorks
	times   logTimes
	streams []streamOfLog
	holds   holds
	work    chainWork // memory of readWork
	block   []byte    // the rest of the block
}

// shapeOfWorks is a shape with the duration of its works.
type shapeOfWorks struct {
	workShape
	mean *Duration
}

// streamOfLog is the state of a stream between two of its works.
type streamOfLog struct {
	chain   streamChain // only the works of a graph
	afterNs int64       // Work.followedFromNs of the last work
}

func newWorkReader(
	log *workLog, means map[int32]*meanTable, yield func(*Work), untimed func(pid, device int32, span Interval),
) *workReader {
	r := &workReader{log: log, means: means, untimed: untimed}
	r.sink.out = &results{onWork: yield}
	return r
}

// readAll reads the log. It returns errors of reading its file.
func (r *workReader) readAll() (err error) {
	buffer := make([]byte, spill.BlockBytes)
	for i := range r.log.blocks.Blocks() {
		if r.block, err = r.log.blocks.ReadBlock(i, buffer); err != nil {
			return fmt.Errorf("read the works of the GPU: %w", err)
		}
		for len(r.block) > 0 {
			r.readEntry()
		}
	}
	return nil
}

// readEntry reads an entry.
func (r *workReader) readEntry() {
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
		r.readWork(flags)
	}
}

// number reads a number.
func (r *workReader) number() int64 {
	if first := r.block[0]; first < 0x80 { // most numbers are short
		r.block = r.block[1:]
		return int64(first>>1) ^ -int64(first&1)
	}
	v, n := binary.Varint(r.block)
	r.block = r.block[n:]
	return v
}

// byte reads a byte.
func (r *workReader) byte() byte {
	b := r.block[0]
	r.block = r.block[1:]
	return b
}

// interval reads an interval near a time.
func (r *workReader) interval(nearNs int64) Interval {
	loNs := nearNs + r.number()
	return Interval{loNs, loNs + r.number()}
}

// shape reads a shape.
func (r *workReader) shape(flags entryFlags) *shapeOfWorks {
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

// readWork reads a work and passes it on.
func (r *workReader) readWork(flags entryFlags) {
	w, s := &r.work, r.shape(flags)
	*w = chainWork{channel: &r.sink, Work: Work{
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
func (r *workReader) readTimes(w *chainWork, flags entryFlags) {
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
func (r *workReader) readRest(w *chainWork, flags entryFlags) {
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

// guessAgain sets the most probable start of a finished work from the values that it had when the start was guessed.
func (w *chainWork) guessAgain(afterNs int64) {
	before := w.Work
	before.Start = w.guess.start
	if w.isCopy() {
		before.End, before.EndQuality = w.guess.end, w.guess.endQuality
	}
	w.likelyStartNs = before.guessStartNs(afterNs)
}

// streamOf returns the state of a stream.
func (r *workReader) streamOf(number int32) *streamOfLog {
	for int(number) >= len(r.streams) {
		r.streams = append(r.streams, streamOfLog{})
	}
	return &r.streams[number]
}
