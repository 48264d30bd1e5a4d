package activity

import "slices"

// streamChain has the operations of a stream whose next operation is not known yet. The operations of a stream may run
// on several channels: copies run on channels of their own. The next operation shows when an operation ended.
type streamChain struct {
	issued     int64 // calls of the stream so far
	finished   int64 // number of the last finished operation
	operations tail[chainOperation]
	proofs     []endProof // about operations that are not in the chain yet
	// graph is the last launch of a graph with several operations, if hasGraph is true.
	graph    chainOperation
	hasGraph bool
}

// endProof is a fact that an operation of another stream proves: an operation of this stream had ended at ns.
type endProof struct{ number, ns int64 }

// chainOperation is an operation with its number among the operations of the stream.
type chainOperation struct {
	Operation
	number  int64
	channel *channelState
	// part and parts are those of issuedCall.
	part, parts int64
	// followsKnown is that of issuedCall.
	followsKnown bool
	// inOrder reports that the call came after all earlier calls of the stream.
	inOrder bool
	// isLate reports that it came after later operations of its stream had been finished.
	isLate bool
	// isGuessed reports that guess was used for its most probable start.
	isGuessed bool
	guess     guess
	// isAssumed reports that it is the record of an event of unknown timing without a number: perhaps it is no
	// operation. It has no times.
	isAssumed bool
}

// maxChainOperations bounds the operations of a stream that wait for an operation on another channel.
const maxChainOperations = 4096

// maxEarlyOperations bounds the operations in a row that start early.
const maxEarlyOperations = 64

// maxEndProofs bounds the proofs about operations whose start is not final yet.
const maxEndProofs = 256

// endBy notes that an operation had ended at ns, because an operation that waited for it began then.
func (s *streamChain) endBy(number, ns int64) {
	if number <= s.finished {
		return
	}
	for i := range s.operations.items {
		if w := &s.operations.items[i]; w.number == number {
			w.doneNs = min(w.doneNs, ns)
			return
		}
	}
	if len(s.proofs) < maxEndProofs {
		s.proofs = append(s.proofs, endProof{number, ns})
	}
}

// applyProofs applies the proofs about an operation that comes into the chain.
func (s *streamChain) applyProofs(w *chainOperation) {
	if len(s.proofs) == 0 {
		return
	}
	s.proofs = slices.DeleteFunc(s.proofs, func(p endProof) bool {
		if p.number == w.number {
			w.doneNs = min(w.doneNs, p.ns)
		}
		return p.number <= w.number
	})
}

func (r *reader) chainOf(stream int32) *streamChain {
	for int(stream) >= len(r.chains) {
		r.chains = append(r.chains, streamChain{})
	}
	return &r.chains[stream]
}

// newOperation returns memory for an operation that add adds.
func (s *streamChain) newOperation() *chainOperation { return s.operations.next() }

// add adds an operation of newOperation whose start is final, and finishes the operations before it.
func (s *streamChain) add(w *chainOperation) {
	if w.number <= s.finished { // it was given up
		w.isLate = true
		s.finish(w, nil)
		return
	}
	s.applyProofs(w)
	s.operations.extend()
	s.placeLast()
	for {
		next, ok := s.follower()
		if !ok {
			return
		}
		s.finishFirst(next)
	}
}

// placeLast moves the last operation to its place by its number.
func (s *streamChain) placeLast() {
	list := s.operations.items
	last := len(list) - 1
	at := last
	for at > 0 && list[at-1].number > list[last].number {
		at--
	}
	if at < last {
		moved := list[last]
		copy(list[at+1:], list[at:last])
		list[at] = moved
	}
}

// follower returns the operation that begins after the end of the first operation: the next one that does not start
// early; nil: it is unknown. ok is false if the operation may still come.
func (s *streamChain) follower() (next *chainOperation, ok bool) {
	for i := 1; i < len(s.operations.items); i++ {
		switch {
		case s.operations.items[i].number != s.operations.items[i-1].number+1:
			return nil, len(s.operations.items) > maxChainOperations
		case !s.operations.items[i].Call.StartsEarly:
			return &s.operations.items[i], true
		}
	}
	return nil, len(s.operations.items) > maxEarlyOperations
}

// finishFirst finishes the first operation of the chain. end is a later operation that begins after its end; nil:
// there is none.
func (s *streamChain) finishFirst(end *chainOperation) {
	first := &s.operations.items[0]
	if s.finished == 0 {
		first.guessStart(0)
	}
	s.finished = first.number
	if len(s.operations.items) == 1 {
		s.finish(first, nil)
	} else {
		next := &s.operations.items[1]
		first.noteCopy(next)
		s.finish(first, end)
		if next.channel.showsEnds && first.EndQuality >= Bounded && next.isAfter(&first.Operation, first.channel) {
			next.beginAfter(first.End.LoNs)
			next.streamIdle = next.followsKnown && first.End.HiNs <= next.Call.StartNs
		}
		next.guessStart(first.followedFromNs())
	}
	s.operations.drop(1)
}

// finishChains finishes the last operations of all streams.
func (r *reader) finishChains() {
	for i := range r.chains {
		for s := &r.chains[i]; len(s.operations.items) > 0; {
			next, _ := s.follower()
			s.finishFirst(next)
		}
		r.chains[i].end()
	}
}

// finish sets the end of an operation and passes it to the results. next is a later operation of the stream; nil:
// there is none.
func (s *streamChain) finish(w, next *chainOperation) {
	switch {
	case w.isAssumed:
	case w.channel.showsEnds:
		w.finishCopy(next)
	default:
		w.setEnd(next)
	}
	if log := w.channel.out.log; log != nil {
		log.addOperation(w)
	}
	s.deliver(w)
}

// end delivers the rest of the stream.
func (s *streamChain) end() {
	if !s.hasGraph {
		return
	}
	if log := s.graph.channel.out.log; log != nil {
		log.endStream(s.graph.Stream)
	}
	s.deliverGraph()
}

// guess has the values from which the most probable start of an operation was guessed. They may become narrower later.
type guess struct {
	start, end Interval
	endQuality Quality
}

// guessOf returns the values of an operation. The end matters only for copies.
func guessOf(w *Operation) guess {
	if !w.isCopy() {
		return guess{start: w.Start}
	}
	return guess{w.Start, w.End, w.EndQuality}
}

// guessStart sets the most probable start of an operation that is not measured. afterNs is followedFromNs of the
// operation before it on its stream; 0: there is none.
func (w *chainOperation) guessStart(afterNs int64) {
	if w.StartQuality == Unknown || w.StartQuality == Measured {
		return
	}
	w.isGuessed, w.guess = true, guessOf(&w.Operation)
	w.likelyStartNs = w.guessStartNs(afterNs)
}

// isAfter reports whether an operation certainly began after the end of another operation of its stream, which ran on
// channel.
func (w *chainOperation) isAfter(before *Operation, channel *channelState) bool {
	if w.StartQuality < Bounded {
		return false
	}
	if w.channel == channel {
		return w.first > before.last
	}
	return w.inOrder
}

// setEnd sets end and duration of an operation. An operation begins after the end of the one before it on its stream.
// If it waited in the queue for that, it begins at most gapMaxNs later on the same channel, graphGapMaxNs if
// it is the launch of a graph with several operations, and at most handOverMaxNs later on another one. It may also have
// waited for an operation without a call.
func (w *chainOperation) setEnd(next *chainOperation) {
	if w.Call.StartsEarly {
		w.boundEarlyStart(next)
	}
	end := Interval{w.Call.StartNs, w.doneNs}
	if w.StartQuality >= Bounded {
		end.LoNs = w.Start.LoNs
	}
	if next != nil && next.isAfter(&w.Operation, w.channel) {
		end.HiNs = min(end.HiNs, next.Start.HiNs)
		switch {
		case w.mayHideOperation(next):
		case next.parts > 1 && w.isJustBefore(next):
			end.LoNs = max(end.LoNs, min(next.Start.LoNs-graphGapMaxNs, end.HiNs))
		case w.isJustBefore(next):
			end.LoNs = max(end.LoNs, min(next.Start.LoNs-gapMaxNs, end.HiNs))
			if next.StartQuality == Measured {
				w.EndQuality = Measured
			}
		case next.number == w.number+1 && next.waitedFor(w):
			end.LoNs = max(end.LoNs, min(next.Start.LoNs-handOverMaxNs, end.HiNs))
			if next.StartQuality == Measured && w.StartQuality == Measured {
				w.handOverNs = next.StartNs() - w.StartNs()
			}
		}
	}
	if end.HiNs == UnknownNs || end.HiNs < end.LoNs {
		w.EndQuality = Unknown
		return
	}
	w.End, w.EndQuality = end, max(w.EndQuality, Bounded)
	w.boundDuration()
}

// isJustBefore reports whether the next operation waited in the queue of the channel for the end of this one.
func (w *chainOperation) isJustBefore(next *chainOperation) bool {
	return next.channel == w.channel && next.Queued && w.Number != 0 && next.Number == w.Number+1
}

// boundEarlyStart bounds the start of an operation that starts early: its progress word comes when the GPU takes
// it from the queue, which may be long before its start. next is as in setEnd.
func (w *chainOperation) boundEarlyStart(next *chainOperation) {
	if w.StartQuality == Unknown {
		return
	}
	if next != nil && next.isAfter(&w.Operation, w.channel) {
		w.Start.HiNs = min(w.Start.HiNs, next.Start.HiNs)
	}
	w.Start.HiNs = min(w.Start.HiNs, w.doneNs)
	if w.Start.HiNs == UnknownNs {
		w.Start.HiNs, w.StartQuality = w.Start.LoNs, Estimated
	}
	w.Start.HiNs = max(w.Start.HiNs, w.Start.LoNs)
}

// waitedFor reports whether an operation waited in the queue of its channel for nothing but an operation of its stream
// on another channel. A copy may also have waited for copies of other streams.
func (w *chainOperation) waitedFor(before *chainOperation) bool {
	return w.handedOver && w.channel != before.channel && w.channel.streams == 1 && !w.isCopy()
}
