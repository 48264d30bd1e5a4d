package activity

// reader gives the calls and samples of a recording to their channels.
type reader struct {
	streams  *streamTable
	channels map[int32]*channelState // by number
	paired   map[int32]*channelState // by stream
	// channelsOf are the channels that run calls of a stream: its own, and copy channels.
	channelsOf map[int32][]*channelState
	threads    map[threadKey]*threadState
	thread     *threadState // of the last call
	events     map[handleKey]*recordedEvent
	contexts   map[contextKey][]int32 // streams
	order      map[int32]*streamBarrier
	legacy     map[contextKey]*legacyOrder
	lastLegacy contextKey // of lastOrder, the latest entry of legacy
	lastOrder  *legacyOrder
	returns    []callReturn  // memory of noteThread
	chains     []streamChain // by stream
	operations graphOperations
	proofs     []dependencyProof
	holds      holds
	onUntimed  func(pid, device int32, span Interval)
	bursts     map[int32][]burst // of streams without a channel
	hidden     map[int32]*spans  // times in which operations without a call may have run, by process
	// hasOpenPlaces reports that there are copies whose place is an assumption.
	hasOpenPlaces bool
	timings       *timedEvents // nil: no event of unknown timing was recorded on a paired stream
	unpaired      int64
	calls         int64 // calls that add operations
	gaps          []Window
	gap           int // first gap that has not ended
}

type threadKey struct{ pid, tid int32 }

// threadState has the last call of a thread, if its return is unknown.
type threadState struct {
	key  threadKey
	open *callReturn
}

type contextKey struct {
	pid     int32
	context int64
}

// recordedEvent is the latest record of an event.
type recordedEvent struct {
	stream int32    // stream of the record
	after  LastCall // the last operation of the stream before the record
	// channel runs the last operation before the record, or the record itself if it is an operation. nil: it is
	// unknown, and the fields below are not set.
	channel  *channelState
	index    int64 // index of that operation's call on the channel
	number   int64 // number of that operation on the stream
	gap      int   // gaps that had ended at the record
	returned int64 // return of the call of the record, Unix ns
	// doneNs and position are from the latest wait for the event; 0 without a wait.
	doneNs, position int64
}

func newReader(channels, paired map[int32]*channelState, gaps []Window) *reader {
	r := &reader{
		streams: newStreamTable(), channels: channels, paired: paired, gaps: gaps,
		channelsOf: make(map[int32][]*channelState), threads: make(map[threadKey]*threadState),
		events: make(map[handleKey]*recordedEvent), contexts: make(map[contextKey][]int32),
		order: make(map[int32]*streamBarrier), legacy: make(map[contextKey]*legacyOrder),
		bursts: make(map[int32][]burst),
	}
	for _, c := range channels {
		c.reader = r
	}
	for _, c := range paired {
		c.streams++
	}
	return r
}

// AddSample adds a sample.
func (r *reader) AddSample(s *Sample) {
	if c := r.channels[s.Channel]; c != nil && c.clock != nil {
		c.addSample(s)
		r.applyProofs()
	}
}

// AddCall adds a call.
func (r *reader) AddCall(c *Call) {
	returned := r.noteThread(c)
	switch c.Op {
	case OpWaitStream:
		r.wait(c, r.streams.streamOf(c))
	case OpWaitContext:
		for _, stream := range r.contexts[contextKey{c.Pid, c.Context}] {
			r.wait(c, stream)
		}
	case OpWaitEvent:
		r.waitForEvent(c)
	case OpHoldStream:
		r.holdStream(c)
	case OpMarkEvent:
		r.markEvent(c)
	case OpEndStream:
		r.endStream(c)
	case OpEndContext, OpEndDevice:
		r.streams.endContexts(c)
	default:
		r.addOperation(c, returned)
	}
}

// noteThread notes that the previous call of the thread has returned. If the return of call c is
// unknown, it returns a callReturn, which the next call of the thread sets.
func (r *reader) noteThread(c *Call) *callReturn {
	thread := r.stateOfThread(threadKey{c.Pid, c.Tid})
	if thread.open != nil {
		thread.open.endNs = c.StartNs
		thread.open = nil
	}
	if c.EndNs != UnknownNs {
		return nil
	}
	if len(r.returns) == 0 {
		const chunk = 256
		r.returns = make([]callReturn, chunk)
	}
	thread.open, r.returns = &r.returns[0], r.returns[1:]
	thread.open.endNs = UnknownNs
	return thread.open
}

func (r *reader) stateOfThread(key threadKey) *threadState {
	if r.thread != nil && r.thread.key == key {
		return r.thread
	}
	thread := r.threads[key]
	if thread == nil {
		thread = &threadState{key: key}
		r.threads[key] = thread
	}
	r.thread = thread
	return thread
}

// wait notes that the operation of a stream is done when a call returns.
func (r *reader) wait(c *Call, stream int32) {
	if c.EndNs == UnknownNs {
		return
	}
	if b := r.order[stream]; b != nil && b.untimed.lastNs < c.StartNs {
		r.endUntimed(b, c.EndNs)
	}
	for _, channel := range r.channelsOf[stream] {
		if position := channel.order.returnedPosition(stream, c.StartNs); position > 0 {
			channel.waits.add(completion{atNs: c.EndNs, position: position, stream: stream})
		}
	}
}

// waitForEvent notes that the latest record of an event is done when a call returns. After a gap,
// the latest record may be lost, so the wait proves nothing.
func (r *reader) waitForEvent(c *Call) {
	e := r.events[handleKey{c.Pid, c.Event}]
	if e == nil || e.channel == nil || c.EndNs == UnknownNs || r.isInGap(c.StartNs) || e.gap != r.gap {
		return
	}
	if p := e.channel.order.at(e.index); p != nil && p.returnedBy(c.StartNs) {
		e.channel.waits.add(completion{atNs: c.EndNs, position: p.first, stream: p.stream})
		e.doneNs, e.position = c.EndNs, p.first
	}
}

// noteRecord notes the latest record of an event, on an unknown channel. A wait for the record before that
// has not returned yet may wait for the new one, so it proves nothing.
func (r *reader) noteRecord(c *Call) *recordedEvent {
	key := handleKey{c.Pid, c.Event}
	e := r.events[key]
	if e == nil {
		if len(r.events) >= maxEvents {
			clear(r.events)
		}
		e = new(recordedEvent)
		r.events[key] = e
	}
	if e.channel != nil && e.doneNs >= c.StartNs {
		e.channel.waits.cancel(e.doneNs, e.position)
	}
	stream := r.streams.streamOf(c)
	*e = recordedEvent{stream: stream, after: r.barrierOf(stream).lastOperation}
	return e
}

// setChannel sets the channel that the record waits for, and the index of the operation's call on it.
func (r *reader) setChannel(e *recordedEvent, c *Call, channel *channelState, index int64) {
	e.channel, e.index, e.number = channel, index, r.chainOf(e.stream).issued
	e.gap, e.returned = r.gap, c.EndNs
}

// holdStream notes that the next operation of a stream waits for an event, a value or a host function.
func (r *reader) holdStream(c *Call) {
	b := r.barrierOf(r.streams.streamOf(c))
	b.holds = true
	r.noteHold(b, c)
	e := r.events[handleKey{c.Pid, c.Event}]
	if c.Event != 0 && e != nil && e.channel != nil && e.gap == r.gap && !r.isInGap(c.StartNs) &&
		e.returned <= c.StartNs {
		b.after, b.behind = operationID{e.stream, e.number}, dependencyOn(e.channel, e.index, c.StartNs)
	}
}

// markEvent notes the latest record of an event without timing: it is done with the last operation of the
// stream.
func (r *reader) markEvent(c *Call) {
	e := r.noteRecord(c)
	r.noteMark(c, r.paired[e.stream])
	b := r.order[e.stream]
	if b.last != nil && !r.isInGap(c.StartNs) && b.gap == r.gap {
		r.setChannel(e, c, b.last, b.index)
	}
}

func (r *reader) endStream(c *Call) {
	stream := r.streams.streamOf(c)
	key := contextKey{c.Pid, c.Context}
	list := r.contexts[key]
	for i, s := range list {
		if s == stream {
			r.contexts[key] = append(list[:i:i], list[i+1:]...)
			break
		}
	}
	for _, channel := range r.channelsOf[stream] {
		channel.order.endStream(stream)
	}
	delete(r.channelsOf, stream)
	if b := r.order[stream]; b != nil {
		r.endUntimed(b, UnknownNs)
	}
	delete(r.order, stream)
	r.streams.endStream(c)
}

// addOperation adds an operation to the channel of its stream.
func (r *reader) addOperation(c *Call, returned *callReturn) {
	operations := r.operations.of(c)
	r.calls += operations
	stream := r.streams.streamOf(c)
	queue := r.streams.queueOf(c, stream)
	channel := r.paired[queue]
	if c.hasNoPlace() {
		channel = nil
	}
	b, known := r.order[stream], false
	if b != nil {
		known = b.last != nil
	} else {
		b = r.barrierOf(stream)
	}
	if !known {
		key := contextKey{c.Pid, c.Context}
		r.contexts[key] = appendNew(r.contexts[key], stream)
	}
	legacy, follows, overlaps := r.waitsForLegacy(c, b), r.followsGap(c, b), r.overlaps(c, b)
	mayWait := legacy || follows || overlaps || b.holds
	moved := b.last != channel
	behind := [2]dependency{b.behind}
	if moved {
		behind[1] = dependencyOn(b.last, b.index, c.StartNs)
	}
	if overlaps {
		behind = [2]dependency{}
	}
	hold := r.holdOf(b, stream, channel)
	if c.Op != OpRecordEvent {
		b.lastOperation = LastCall{c.StartNs, c.Stack, c.Label, c.Op}
	}
	b.holds, b.last = overlaps, channel // a call that overlaps may come after this one
	var record *recordedEvent
	if c.Op == OpRecordEvent {
		record = r.noteRecord(c)
		r.noteMark(c, channel)
	}
	open := openCall{channel: channel, startNs: c.StartNs, endNs: c.EndNs, returned: returned, tid: c.Tid}
	if channel == nil {
		r.unpaired++
		b.untimed.add(c, queue, operations)
		b.open = append(b.open, open)
		return
	}
	chain := r.chainOf(stream)
	issued := issuedCall{
		call: *c, returned: returned, stream: stream, barrier: mayWait || moved, inOrder: !overlaps,
		handedOver: moved && known && !mayWait, after: b.after, hold: hold, parts: operations,
		followsKnown: known && !mayWait, behind: behind,
	}
	for ; issued.part < operations; issued.part++ {
		chain.issued++
		issued.number = chain.issued
		channel.order.add(&issued)
		issued.barrier, issued.handedOver, issued.after, issued.hold = true, false, operationID{}, nil
		issued.behind = [2]dependency{}
	}
	b.after, b.behind = operationID{}, dependency{}
	if moved {
		r.channelsOf[stream] = appendNew(r.channelsOf[stream], channel)
	}
	index := channel.order.issued()
	b.index, open.index = index, index
	b.open = append(b.open, open)
	if record != nil {
		r.setChannel(record, c, channel, index)
	}
	if c.Waits && c.EndNs != UnknownNs {
		channel.waits.add(completion{atNs: c.EndNs, position: channel.order.at(index).first, stream: stream})
	}
}

func appendNew[T comparable](list []T, v T) []T {
	for _, o := range list {
		if o == v {
			return list
		}
	}
	return append(list, v)
}
