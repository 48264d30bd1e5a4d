package activity

import (
	"cmp"
	"math"
	"slices"
	"sort"
	"sync"
)

// survey reads a recording once. For each stream and channel, it compares the calls that are
// certainly done with the counter. It also collects points for the clocks.
type survey struct {
	mu         sync.Mutex // of channelStates
	streams    *streamTable
	queues     map[int32]*surveyQueue // by stream
	channels   map[int32]*surveyChannel
	byPid      map[int32][]*surveyChannel
	future     []*surveyChannel // channels that have not begun, by FromNs
	numbers    []int32          // of channels
	windows    callWindows
	votes      map[votePair]*vote
	graphs     map[votePair]*graphEquations
	operations graphOperations // known from an earlier survey
	waits      []surveyWait    // not returned yet, by time of their return
	// of lists the queues that have calls of a stream, ofContext the streams of a context.
	of        map[int32][]*surveyQueue
	ofContext map[contextKey][]int32
	events    map[handleKey]surveyEvent
	gaps      []Window
	lastNs    int64 // time of the last sample
}

// surveyQueue has the calls of a stream, or the copies of a context.
type surveyQueue struct {
	stream    int32
	issued    int64
	ended     bool            // the stream was destroyed
	outside   int64           // calls outside of gaps
	done      int64           // calls that are done, as waits prove
	byStream  map[int32]int64 // number of the last call of each stream
	calls     queueCalls
	calledNs  int64 // start of the last call
	early     int   // marks at calls after a pause
	uncertain int64 // records of events of unknown timing that are taken for none
}

// surveyWait is a wait. When it returns at atNs, the calls of a queue up to a number are done.
type surveyWait struct {
	atNs   int64
	queue  *surveyQueue
	number int64
}

// surveyEvent is the latest record of an event.
type surveyEvent struct {
	queue  *surveyQueue
	number int64
}

// surveyChannel has the last sample of a channel.
type surveyChannel struct {
	Channel
	clock    clockPoints
	last     Sample
	sampled  bool
	offsetNs int64 // a recent bound of the clock offset
	delayNs  int64 // mean delay of recent samples above offsetNs
	samples  int64
	marks    []mark // moments that wait for the next sample
	outside  int64  // steps of the counter outside of gaps
	// outsideAt is surveyQueue.outside at FromNs, by stream.
	outsideAt map[int32]int64
	markedNs  int64 // when queues without waits were marked
}

// mark is a moment at which at least done and at most issued calls of a queue were done, and the
// counter was at least low.
type mark struct {
	queue                   *surveyQueue
	atNs, done, issued, low int64
	calls                   *queueCalls // if the queue was empty, and has launches of graphs; else nil
}

func newSurvey(channels []Channel, gaps []Window) *survey {
	v := &survey{
		streams: newStreamTable(), queues: make(map[int32]*surveyQueue), channels: make(map[int32]*surveyChannel),
		byPid: make(map[int32][]*surveyChannel), votes: make(map[votePair]*vote),
		graphs: make(map[votePair]*graphEquations), of: make(map[int32][]*surveyQueue),
		ofContext: make(map[contextKey][]int32), events: make(map[handleKey]surveyEvent), gaps: gaps,
		windows: callWindows{spanNs: firstWindowNs},
	}
	for _, c := range channels {
		s := &surveyChannel{Channel: c, offsetNs: math.MaxInt64}
		s.last.Counter, s.last.SeenNs = c.FirstCounter, c.FromNs
		v.channels[c.Number] = s
		v.byPid[c.Pid] = append(v.byPid[c.Pid], s)
		v.future = append(v.future, s)
		v.numbers = append(v.numbers, c.Number)
	}
	slices.SortFunc(v.future, func(a, b *surveyChannel) int { return cmp.Compare(a.FromNs, b.FromNs) })
	return v
}

// inGap reports whether a gap overlaps a span of time.
func (sv *survey) inGap(fromNs, toNs int64) bool { return overlapsGap(sv.gaps, fromNs, toNs) }

// overlapsGap reports whether one of the gaps, in order of time, overlaps a span of time.
func overlapsGap(gaps []Window, fromNs, toNs int64) bool {
	i := sort.Search(len(gaps), func(i int) bool { return gaps[i].ToNs >= fromNs })
	return i < len(gaps) && gaps[i].FromNs <= toNs
}

// isComplete reports whether no gap overlaps the life of a channel.
func (sv *survey) isComplete(c *channelState) bool { return !sv.inGap(c.FromNs, c.ToNs) }

// AddCall counts a call. It numbers streams by the same calls as reader.AddCall.
func (sv *survey) AddCall(c *Call) {
	sv.beginChannels(c.StartNs)
	sv.returnWaits(c.StartNs)
	sv.noteWindow(c.StartNs)
	switch c.Op {
	case OpWaitStream:
		sv.wait(c, sv.streams.streamOf(c))
	case OpWaitContext:
		for _, stream := range sv.ofContext[contextKey{c.Pid, c.Context}] {
			sv.wait(c, stream)
		}
	case OpWaitEvent:
		if e, ok := sv.events[handleKey{c.Pid, c.Event}]; ok {
			sv.addWait(surveyWait{c.EndNs, e.queue, e.number})
		}
	case OpHoldStream:
		sv.streams.streamOf(c)
	case OpMarkEvent:
		sv.markEvent(c)
	case OpEndStream:
		if q := sv.queues[sv.streams.streamOf(c)]; q != nil {
			q.ended = true
		}
		sv.streams.endStream(c)
	case OpEndContext, OpEndDevice:
		sv.streams.endContexts(c)
	default:
		sv.addOperation(c)
	}
}

// An operation begins after its call. After a pause, only the channel of this stream can advance. This
// separates streams with equal call counts.
const (
	sparseNs      = 100_000
	maxEarlyMarks = 4096
)

func (sv *survey) addOperation(c *Call) {
	stream := sv.streams.streamOf(c)
	if c.hasNoPlace() {
		return
	}
	number := sv.streams.queueOf(c, stream)
	q := sv.queues[number]
	if q == nil {
		q = &surveyQueue{stream: number, byStream: make(map[int32]int64)}
		sv.queues[number] = q
	}
	if c.StartNs-q.calledNs > sparseNs && q.early < maxEarlyMarks {
		q.early++
		sv.mark(q, c.StartNs)
	}
	q.calledNs = c.StartNs
	operations := sv.operations.of(c)
	q.calls.add(c)
	q.issued += operations
	if len(sv.gaps) == 0 || !sv.inGap(c.StartNs-gapSlackNs, c.StartNs) {
		q.outside += operations
	}
	if _, ok := q.byStream[stream]; !ok {
		if len(sv.of[stream]) == 0 {
			key := contextKey{c.Pid, c.Context}
			sv.ofContext[key] = append(sv.ofContext[key], stream)
		}
		sv.of[stream] = append(sv.of[stream], q)
	}
	q.byStream[stream] = q.issued
	if c.Op == OpRecordEvent && len(sv.events) < maxEvents {
		sv.events[handleKey{c.Pid, c.Event}] = surveyEvent{q, q.issued}
	}
	if c.Waits {
		sv.addWait(surveyWait{c.EndNs, q, q.issued})
	}
}

// markEvent notes the latest record of an event without timing: it is done with the last operation of the
// stream.
func (sv *survey) markEvent(c *Call) {
	stream := sv.streams.streamOf(c)
	key := handleKey{c.Pid, c.Event}
	delete(sv.events, key)
	q := sv.queues[stream]
	if q == nil {
		return
	}
	if c.AnyTiming {
		q.uncertain++
	}
	if len(sv.events) < maxEvents {
		sv.events[key] = surveyEvent{q, q.byStream[stream]}
	}
}

func (sv *survey) wait(c *Call, stream int32) {
	for _, q := range sv.of[stream] {
		sv.addWait(surveyWait{c.EndNs, q, q.byStream[stream]})
	}
}

// addWait keeps a wait until it returns.
func (sv *survey) addWait(w surveyWait) {
	if w.atNs == UnknownNs || w.number <= w.queue.done {
		return
	}
	at := sort.Search(len(sv.waits), func(i int) bool { return sv.waits[i].atNs > w.atNs })
	sv.waits = slices.Insert(sv.waits, at, w)
}

// returnWaits marks the moments in which waits returned, up to ns.
func (sv *survey) returnWaits(ns int64) {
	n := 0
	for ; n < len(sv.waits) && sv.waits[n].atNs <= ns; n++ {
		if w := &sv.waits[n]; w.number > w.queue.done {
			w.queue.done = w.number
			sv.mark(w.queue, w.atNs)
		}
	}
	if n > 0 {
		sv.waits = slices.Delete(sv.waits, 0, n)
	}
}

// mark notes how many calls of a queue were done at ns, for each channel of the process.
func (sv *survey) mark(q *surveyQueue, ns int64) {
	var calls *queueCalls
	if q.done == q.issued && len(sv.operations) == 0 {
		calls = q.calls.snapshot()
	}
	for _, c := range sv.byPid[sv.streams.list[q.stream].Pid] {
		if ns < c.FromNs || ns > c.ToNs {
			continue
		}
		if len(c.marks) >= maxMarks {
			// the channel does not move
			sv.resolve(c, c.last.Counter+1, UnknownNs, UnknownNs)
		}
		c.marks = append(c.marks, mark{q, ns, q.done, q.issued, c.last.Counter, calls})
	}
}

// markInterval is the time between marks of queues without waits.
const markInterval = 20_000_000

// markQueuesWithoutWaits notes what was issued of the queues that have no waits.
func (sv *survey) markQueuesWithoutWaits(c *surveyChannel, ns int64) {
	if ns-c.markedNs < markInterval || len(c.marks) >= maxMarks/2 {
		return
	}
	c.markedNs = ns
	for stream, q := range sv.queues {
		if q.done == 0 && !q.ended && sv.streams.list[stream].Pid == c.Pid {
			c.marks = append(c.marks, mark{q, ns, 0, q.issued, c.last.Counter, nil})
		}
	}
}

// beginChannels notes the calls before the start of each channel that has begun at ns.
func (sv *survey) beginChannels(ns int64) {
	for len(sv.future) > 0 && sv.future[0].FromNs <= ns {
		c := sv.future[0]
		sv.future = sv.future[1:]
		c.outsideAt = make(map[int32]int64)
		for stream, q := range sv.queues {
			if sv.streams.list[stream].Pid == c.Pid {
				c.outsideAt[stream] = q.outside
			}
		}
	}
}

// AddSample resolves the marks that waited for a sample of the channel.
func (sv *survey) AddSample(s *Sample) {
	sv.returnWaits(s.SeenNs)
	c := sv.channels[s.Channel]
	if c == nil || s.Counter <= c.last.Counter || s.GPUTimeNs <= c.last.GPUTimeNs {
		return
	}
	difference := s.SeenNs - s.GPUTimeNs
	c.clock.add(s.GPUTimeNs, difference)
	c.learnOffset(s.SeenNs, difference)
	if len(c.marks) > 0 {
		sv.resolve(c, s.Counter, s.GPUTimeNs+c.offsetNs-c.offsetSlackNs(), s.GPUTimeNs+c.offsetNs)
	}
	if len(sv.gaps) == 0 || !sv.inGap(c.last.SeenNs-gapSlackNs, s.SeenNs) {
		c.outside += s.Counter - c.last.Counter
	}
	c.last, c.sampled = *s, true
	sv.lastNs = s.SeenNs
	sv.markQueuesWithoutWaits(c, s.SeenNs)
}

// learnOffset updates the bound of the clock offset.
func (c *surveyChannel) learnOffset(seenNs, differenceNs int64) {
	if !c.sampled {
		c.offsetNs = differenceNs
	}
	c.offsetNs = min(c.offsetNs+(seenNs-c.last.SeenNs)*maxDriftPPM/1_000_000, differenceNs)
	c.samples++
	c.delayNs += (differenceNs - c.offsetNs - c.delayNs) / 16
}

// offsetSlackNs returns by how much offsetNs may be too high.
func (c *surveyChannel) offsetSlackNs() int64 {
	const enough, slackNs = 32, 20_000
	if c.samples < enough {
		return UnknownNs
	}
	return slackNs + c.delayNs
}

// gapSlackNs is the time after a gap in which operations of unrecorded calls may still run.
const gapSlackNs = 20_000_000
