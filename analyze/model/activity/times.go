package activity

// setTimes sets the time of an operation that the progress word shows: its start, or the end of a copy. Its
// number is at most latest, and it was done at doneNs.
func (c *channelState) setTimes(w *Operation, p *issuedCall, latest, doneNs int64) {
	word, quality := c.wordOf(w, p, latest, doneNs)
	if quality == Measured {
		c.words.add(p, word, doneNs)
	} else {
		c.words.skip()
	}
	if quality == Unknown {
		w.Number = 0
		return
	}
	if c.showsEnds {
		c.setEndOfCopy(w, word, quality)
		return
	}
	w.Start, w.StartQuality = word, quality
	if w.Call.StartsEarly { // the next operation bounds the start from above
		w.Start.HiNs, w.StartQuality = doneNs, min(quality, Bounded)
		return
	}
	waited := quality >= Bounded && p.wasSeenReturned(word.LoNs-queuedNs)
	w.Queued, w.handedOver = waited && !p.barrier, waited && p.handedOver
}

// wordOf returns when the progress word showed an operation. It sets the number of the operation if it is certain.
func (c *channelState) wordOf(w *Operation, p *issuedCall, latest, doneNs int64) (word Interval, quality Quality) {
	w.doneNs, w.first, w.last = doneNs, p.first, p.last
	earliest := c.numbers.earliest(p.first)
	if p.earliest != 0 {
		earliest = p.earliest
	}
	w.likely = earliest
	word, sampled := c.moments.beginNear(earliest, &c.nearEarliest)
	if p.earliest != 0 {
		word.LoNs, sampled = max(word.LoNs, p.earliestBeginNs), false
	}
	switch {
	case earliest == latest && sampled:
		quality, w.Number = Measured, earliest
	case latest == unbounded:
		if word.HiNs != UnknownNs {
			quality = Estimated
		}
	default:
		if earliest == latest {
			w.Number = earliest
		}
		last, _ := c.moments.beginNear(latest, &c.nearLatest)
		word.HiNs = last.HiNs
		quality = Bounded
	}
	word.LoNs = max(word.LoNs, p.call.StartNs)
	word.HiNs = min(word.HiNs, doneNs)
	if quality == Unknown && word.HiNs != UnknownNs {
		quality = Bounded // by a wait alone
	}
	if word.HiNs == UnknownNs || word.HiNs < word.LoNs {
		return word, Unknown
	}
	return word, quality
}
