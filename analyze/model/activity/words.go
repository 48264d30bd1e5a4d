package activity

import "slices"

// A progress word belongs to the starts of the works of its channel, or to their ends. On an H100 and an H200 it
// belongs to the ends on the channel of a copy engine, and to the starts on all others, also of copies that run
// there. Two times show it: how long after its call the word of a work comes that found its queue empty, and how
// long before the return of a wait the word of the last work comes.

// wordKind names the times that a progress word shows.
type wordKind uint8

// Kinds of wordKind.
const (
	wordOfQueues wordKind = iota // as the streams of the channel suggest
	wordOfStarts
	wordOfEnds
)

// wordEvidence has times that tell starts from ends.
type wordEvidence struct {
	afterCall, beforeReturn sampledTime
	lastDoneNs, lastWordNs  int64 // of the work before; 0: unknown
}

const (
	// minWordEvidence is the least number of times of each kind that prove anything.
	minWordEvidence = 20
	// promptNs is longer than the shortest times from a return to the start, and from an end to the return of a
	// wait. lateWordNs is longer than these times on a busy machine.
	promptNs, lateWordNs = 20_000, 50_000
)

// setWordKind sets what the progress word shows. Without evidence, it follows from the streams.
func (c *channelState) setWordKind(kind wordKind) {
	c.showsEnds = kind == wordOfEnds || kind == wordOfQueues && !c.runsStreams
}

// add notes the measured word of a work, in the order of calls. doneNs is when a wait shows that the work was done.
func (e *wordEvidence) add(p *issuedCall, word Interval, doneNs int64) {
	if e.lastDoneNs != 0 && e.lastDoneNs <= p.call.StartNs { // the queue was empty
		e.beforeReturn.addFirst(e.lastDoneNs - e.lastWordNs)
		if !p.barrier && !p.call.StartsEarly {
			returnedNs := p.call.StartNs
			if p.call.EndNs != UnknownNs {
				returnedNs = p.call.EndNs
			}
			e.afterCall.addFirst(word.HiNs - returnedNs)
		}
	}
	e.lastDoneNs, e.lastWordNs = doneNs, word.HiNs
}

// skip notes a work without a measured word.
func (e *wordEvidence) skip() { e.lastDoneNs = 0 }

// kind returns what the words show; wordOfQueues: they do not tell.
func (e *wordEvidence) kind() wordKind {
	if min(len(e.afterCall.list), len(e.beforeReturn.list)) < minWordEvidence {
		return wordOfQueues
	}
	afterNs, beforeNs := e.afterCall.shortNs(), e.beforeReturn.shortNs()
	switch {
	case afterNs <= promptNs && beforeNs > lateWordNs:
		return wordOfStarts
	case beforeNs <= promptNs && afterNs > lateWordNs:
		return wordOfEnds
	}
	return wordOfQueues
}

// addFirst adds a time if the list is not full.
func (l *sampledTime) addFirst(ns int64) {
	if len(l.list) < maxTimes {
		l.list = append(l.list, int32(min(max(ns, 0), maxTimeNs)))
	}
}

// shortNs returns the time that a tenth of the times are below.
func (l *sampledTime) shortNs() int64 {
	list := slices.Sorted(slices.Values(l.list))
	return int64(list[len(list)/10])
}

// learnWords returns the channels whose words show something else than their streams suggest.
func (r *reader) learnWords() map[int32]wordKind {
	learned := make(map[int32]wordKind)
	for number, c := range r.channels {
		if kind := c.words.kind(); kind != wordOfQueues && (kind == wordOfEnds) != c.showsEnds {
			learned[number] = kind
		}
	}
	return learned
}
