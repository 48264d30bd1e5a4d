package activity

import "slices"

// streamChain has the works of a stream whose next work is not known yet. The works of a stream may run on
// several channels: copies run on channels of their own. The next work shows when a work ended.
type streamChain struct {
	issued   int64 // calls of the stream so far
	finished int64 // number of the last finished work
	works    tail[chainWork]
	proofs   []endProof // about works that are not in the chain yet
	// graph is the last launch of a graph with several works, if hasGraph is true.
	graph    chainWork
	hasGraph bool
}

// endProof is a fact that a work of another stream proves: a work of this stream had ended at ns.
type endProof struct{ number, ns int64 }

// chainWork is a work with its number among the works of the stream.
type chainWork struct {
	Work
	number  int64
	channel *channelState
	// part and parts are those of issuedCall.
	part, parts int64
	// followsKnown is that of issuedCall.
	followsKnown bool
	// inOrder reports that the call came after all earlier calls of the stream.
	inOrder bool
	// isLate reports that it came after later works of its stream had been finished.
	isLate bool
	// isGuessed reports that guess was used for its most probable start.
	isGuessed bool
	guess     guess
	// isAssumed reports that it is the record of an event of unknown timing without a number: perhaps it is no work. It
	// has no times.
	isAssumed bool
}

// maxChainWorks bounds the works of a stream that wait for a work on another channel.
const maxChainWorks = 4096

// maxEarlyWorks bounds the works in a row that start early.
const maxEarlyWorks = 64

// maxEndProofs bounds the proofs about works whose start is not final yet.
const maxEndProofs = 256

// endBy notes that a work had ended at ns, because a work that waited for it began then.
func (s *streamChain) endBy(number, ns int64) {
	if number <= s.finished {
		return
	}
	for i := range s.works.items {
		if w := &s.works.items[i]; w.number == number {
			w.doneNs = min(w.doneNs, ns)
			return
		}
	}
	if len(s.proofs) < maxEndProofs {
		s.proofs = append(s.proofs, endProof{number, ns})
	}
}

// applyProofs applies the proofs about a work that comes into the chain.
func (s *streamChain) applyProofs(w *chainWork) {
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

// newWork returns memory for a work that add adds.
func (s *streamChain) newWork() *chainWork { return s.works.next() }

// add adds a work of newWork whose start is final, and finishes the works before it.
func (s *streamChain) add(w *chainWork) {
	if w.number <= s.finished { // it was given up
		w.isLate = true
		s.finish(w, nil)
		return
	}
	s.applyProofs(w)
	s.works.extend()
	s.placeLast()
	for {
		next, ok := s.follower()
		if !ok {
			return
		}
		s.finishFirst(next)
	}
}

// placeLast moves the last work to its place by its number.
func (s *streamChain) placeLast() {
	list := s.works.items
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

// follower returns the work that begins after the end of the first work: the next one that does not start
// early; nil: it is unknown. ok is false if the work may still come.
func (s *streamChain) follower() (next *chainWork, ok bool) {
	for i := 1; i < len(s.works.items); i++ {
		switch {
		case s.works.items[i].number != s.works.items[i-1].number+1:
			return nil, len(s.works.items) > maxChainWorks
		case !s.works.items[i].Call.StartsEarly:
			return &s.works.items[i], true
		}
	}
	return nil, len(s.works.items) > maxEarlyWorks
}

// finishFirst finishes the first work of the chain. end is a later work that begins after its end; nil:
// there is none.
func (s *streamChain) finishFirst(end *chainWork) {
	first := &s.works.items[0]
	if s.finished == 0 {
		first.guessStart(0)
	}
	s.finished = first.number
	if len(s.works.items) == 1 {
		s.finish(first, nil)
	} else {
		next := &s.works.items[1]
		first.noteCopy(next)
		s.finish(first, end)
		if next.channel.showsEnds && first.EndQuality >= Bounded && next.isAfter(&first.Work, first.channel) {
			next.beginAfter(first.End.LoNs)
			next.streamIdle = next.followsKnown && first.End.HiNs <= next.Call.StartNs
		}
		next.guessStart(first.followedFromNs())
	}
	s.works.drop(1)
}

// finishChains finishes the last works of all streams.
func (r *reader) finishChains() {
	for i := range r.chains {
		for s := &r.chains[i]; len(s.works.items) > 0; {
			next, _ := s.follower()
			s.finishFirst(next)
		}
		r.chains[i].end()
	}
}

// finish sets the end of a work and passes it to the results. next is a later work of the stream; nil:
// there is none.
func (s *streamChain) finish(w, next *chainWork) {
	switch {
	case w.isAssumed:
	case w.channel.showsEnds:
		w.finishCopy(next)
	default:
		w.setEnd(next)
	}
	if log := w.channel.out.log; log != nil {
		log.addWork(w)
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

// guess has the values from which the most probable start of a work was guessed. They may become narrower later.
type guess struct {
	start, end Interval
	endQuality Quality
}

// guessOf returns the values of a work. The end matters only for copies.
func guessOf(w *Work) guess {
	if !w.isCopy() {
		return guess{start: w.Start}
	}
	return guess{w.Start, w.End, w.EndQuality}
}

// guessStart sets the most probable start of a work that is not measured. afterNs is followedFromNs of the work
// before it on its stream; 0: there is none.
func (w *chainWork) guessStart(afterNs int64) {
	if w.StartQuality == Unknown || w.StartQuality == Measured {
		return
	}
	w.isGuessed, w.guess = true, guessOf(&w.Work)
	w.likelyStartNs = w.guessStartNs(afterNs)
}

// isAfter reports whether a work certainly began after the end of another work of its stream, which ran on
// channel.
func (w *chainWork) isAfter(before *Work, channel *channelState) bool {
	if w.StartQuality < Bounded {
		return false
	}
	if w.channel == channel {
		return w.first > before.last
	}
	return w.inOrder
}

// setEnd sets end and duration of a work. A work begins after the end of the one before it on its stream.
// If it waited in the queue for that, it begins at most gapMaxNs later on the same channel, graphGapMaxNs if
// it is the launch of a graph with several works, and at most handOverMaxNs later on another one. It may also have
// waited for a work without a call.
func (w *chainWork) setEnd(next *chainWork) {
	if w.Call.StartsEarly {
		w.boundEarlyStart(next)
	}
	end := Interval{w.Call.StartNs, w.doneNs}
	if w.StartQuality >= Bounded {
		end.LoNs = w.Start.LoNs
	}
	if next != nil && next.isAfter(&w.Work, w.channel) {
		end.HiNs = min(end.HiNs, next.Start.HiNs)
		switch {
		case w.mayHideWork(next):
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

// isJustBefore reports whether the next work waited in the queue of the channel for the end of this one.
func (w *chainWork) isJustBefore(next *chainWork) bool {
	return next.channel == w.channel && next.Queued && w.Number != 0 && next.Number == w.Number+1
}

// boundEarlyStart bounds the start of a work that starts early: its progress word comes when the GPU takes
// it from the queue, which may be long before its start. next is as in setEnd.
func (w *chainWork) boundEarlyStart(next *chainWork) {
	if w.StartQuality == Unknown {
		return
	}
	if next != nil && next.isAfter(&w.Work, w.channel) {
		w.Start.HiNs = min(w.Start.HiNs, next.Start.HiNs)
	}
	w.Start.HiNs = min(w.Start.HiNs, w.doneNs)
	if w.Start.HiNs == UnknownNs {
		w.Start.HiNs, w.StartQuality = w.Start.LoNs, Estimated
	}
	w.Start.HiNs = max(w.Start.HiNs, w.Start.LoNs)
}

// waitedFor reports whether a work waited in the queue of its channel for nothing but a work of its stream
// on another channel. A copy may also have waited for copies of other streams.
func (w *chainWork) waitedFor(before *chainWork) bool {
	return w.handedOver && w.channel != before.channel && w.channel.streams == 1 && !w.isCopy()
}
