package activity

// setStart sets the start of a work. Its number is at most latest, and it was done at doneNs.
func (c *channelState) setStart(w *Work, p *issuedCall, latest, doneNs int64) {
	w.doneNs, w.first, w.last = doneNs, p.first, p.last
	earliest := c.numbers.earliest(p.first)
	if p.earliest != 0 {
		earliest = p.earliest
	}
	w.likely = earliest
	start, sampled := c.moments.beginOf(earliest)
	if p.earliest != 0 {
		start.LoNs, sampled = max(start.LoNs, p.earliestBeginNs), false
	}
	switch {
	case earliest == latest && sampled:
		w.StartQuality, w.Number = Measured, earliest
	case latest == unbounded:
		if start.HiNs != UnknownNs {
			w.StartQuality = Estimated
		}
	default:
		if earliest == latest {
			w.Number = earliest
		}
		last, _ := c.moments.beginOf(latest)
		start.HiNs = last.HiNs
		w.StartQuality = Bounded
	}
	start.LoNs = max(start.LoNs, p.call.StartNs)
	start.HiNs = min(start.HiNs, doneNs)
	if w.StartQuality == Unknown && start.HiNs != UnknownNs {
		w.StartQuality = Bounded // by a wait alone
	}
	if start.HiNs == UnknownNs || start.HiNs < start.LoNs {
		w.StartQuality, w.Number = Unknown, 0
		return
	}
	w.Start = start
	waited := w.StartQuality >= Bounded && p.wasSeenReturned(start.LoNs-queuedNs)
	w.Queued, w.handedOver = waited && !p.barrier, waited && p.handedOver
}
