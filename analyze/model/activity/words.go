package activity

import "slices"

// A progress word belongs to the starts of the operations of its channel, or to their ends. On an H100 and an H200 it
// belongs to the ends on the channel of a copy engine, and to the starts on all others, also of copies that run
// there. Two times test this. The first is from the return of a call whose operation found its queue empty to the word:
// it is short for starts. The second is from the last word to the return of a wait: it is short for ends.

// wordEvidence has times that tell starts from ends.
type wordEvidence struct {
	afterCall, beforeReturn firstTimes
	lastDoneNs, lastWordNs  int64 // of the operation before; 0: unknown
}

const (
	// minWordEvidence is the least number of times of each kind that prove anything.
	minWordEvidence = 20
	// promptNs is longer than most times from a return to the start, and from an end to the return of a wait.
	// lateWordNs is longer than half of these times on a busy machine.
	promptNs, lateWordNs = 20_000, 50_000
)

// add notes the measured word of an operation, in the order of calls. doneNs is when a wait shows that the operation
// was done.
func (e *wordEvidence) add(p *issuedCall, word Interval, doneNs int64) {
	if e.lastDoneNs != 0 && e.lastDoneNs <= p.call.StartNs { // the queue was empty
		e.beforeReturn.add(e.lastDoneNs - e.lastWordNs)
		if !p.barrier && !p.call.StartsEarly {
			returnedNs := p.call.StartNs
			if p.call.EndNs != UnknownNs {
				returnedNs = p.call.EndNs
			}
			e.afterCall.add(word.HiNs - returnedNs)
		}
	}
	e.lastDoneNs, e.lastWordNs = doneNs, word.HiNs
}

// skip notes an operation without a measured word.
func (e *wordEvidence) skip() { e.lastDoneNs = 0 }

// contradicts reports whether the times contradict that words show ends, or starts.
func (e *wordEvidence) contradicts(showsEnds bool) bool {
	if min(len(e.afterCall.list), len(e.beforeReturn.list)) < minWordEvidence {
		return false
	}
	if showsEnds {
		// Waits for a later operation, and threads that wake up late, make most times long. Only starts make nearly all
		// of them long.
		return e.afterCall.quantileNs(2) <= promptNs && e.beforeReturn.quantileNs(10) > lateWordNs
	}
	return e.beforeReturn.quantileNs(2) <= promptNs && e.afterCall.quantileNs(2) > lateWordNs
}

// firstTimes are the first maxTimes times of a kind, ns.
type firstTimes struct{ list []int64 }

// add adds a time if the list is not full.
func (f *firstTimes) add(ns int64) {
	if len(f.list) < maxTimes {
		f.list = append(f.list, max(ns, 0))
	}
}

// quantileNs returns the time that one of n times is below, ns. The list must not be empty.
func (f *firstTimes) quantileNs(n int) int64 {
	return slices.Sorted(slices.Values(f.list))[len(f.list)/n]
}

// contradicted returns the channels whose words show something else than the model assumes. Channels of one kind in a
// process are judged together, because each has few times.
func (r *reader) contradicted() map[int32]bool {
	type kind struct {
		pid       int32
		showsEnds bool
	}
	evidence := make(map[kind]*wordEvidence)
	for _, c := range r.sortedChannels() {
		k := kind{c.Pid, c.showsEnds}
		if evidence[k] == nil {
			evidence[k] = new(wordEvidence)
		}
		e := evidence[k]
		e.afterCall.list = append(e.afterCall.list, c.words.afterCall.list...)
		e.beforeReturn.list = append(e.beforeReturn.list, c.words.beforeReturn.list...)
	}
	wrong := make(map[int32]bool)
	for number, c := range r.channels {
		if evidence[kind{c.Pid, c.showsEnds}].contradicts(c.showsEnds) {
			wrong[number] = true
		}
	}
	return wrong
}
