package activity

import (
	"maps"
	"slices"
)

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
	w.Queued = w.StartQuality >= Bounded && !p.barrier && p.wasSeenReturned(start.LoNs-queuedNs)
}

// finishPrevious finishes the work before a work of the same stream, and keeps the work.
func (c *channelState) finishPrevious(w *Work) {
	if c.unfinished == nil {
		c.unfinished = make(map[int32]*Work)
	}
	previous := c.unfinished[w.Stream]
	if previous == nil {
		previous = new(Work)
		c.unfinished[w.Stream] = previous
		w.guessStart(nil)
	} else {
		previous.setEnd(w)
		w.guessStart(previous)
		c.out.addWork(c, previous)
	}
	*previous = *w
}

// finishLast finishes the last works of all streams.
func (c *channelState) finishLast() {
	for _, stream := range slices.Sorted(maps.Keys(c.unfinished)) {
		w := c.unfinished[stream]
		w.setEnd(nil)
		c.out.addWork(c, w)
	}
	c.unfinished = nil
}

// setEnd sets end and duration of a work. next is the next work of the stream; nil: there is none. A work
// begins after the end of the one before it on its stream. If it waited in the queue for that, it begins
// at most gapMaxNs later.
func (w *Work) setEnd(next *Work) {
	end := Interval{w.Call.StartNs, w.doneNs}
	if w.StartQuality >= Bounded {
		end.LoNs = w.Start.LoNs
	}
	if next != nil && next.StartQuality >= Bounded && next.first > w.last {
		end.HiNs = min(end.HiNs, next.Start.HiNs)
		if next.Queued && w.Number != 0 && next.Number == w.Number+1 {
			end.LoNs = max(end.LoNs, min(next.Start.LoNs-gapMaxNs, end.HiNs))
			if next.StartQuality == Measured {
				w.EndQuality = Measured
			}
		}
	}
	if end.HiNs == UnknownNs || end.HiNs < end.LoNs {
		w.EndQuality = Unknown
		return
	}
	w.End, w.EndQuality = end, max(w.EndQuality, Bounded)
	if w.StartQuality >= Bounded {
		w.Duration = Interval{max(0, end.LoNs-w.Start.HiNs), max(0, end.HiNs-w.Start.LoNs)}
		w.DurationQuality = min(w.StartQuality, w.EndQuality)
	}
}
