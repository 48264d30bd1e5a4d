package activity

// setTimes sets the times of a work. Its number is at most latest, and it ended before doneNs.
func (c *channelState) setTimes(w *Work, p *issuedCall, latest, doneNs int64) {
	earliest := c.numbers.earliest(p.first)
	if p.earliest != 0 {
		earliest = p.earliest
	}
	end, sampled := c.moments.endOf(earliest)
	if p.earliest != 0 {
		end.LoNs, sampled = max(end.LoNs, p.earliestEndNs), false
	}
	switch {
	case earliest == latest && sampled:
		w.EndQuality, w.Number = Measured, earliest
	case latest == unbounded:
		if end.HiNs != UnknownNs {
			w.EndQuality = Estimated
		}
	default:
		if earliest == latest {
			w.Number = earliest
		}
		last, _ := c.moments.endOf(latest)
		end.HiNs = last.HiNs
		w.EndQuality = Bounded
	}
	end.LoNs = max(end.LoNs, p.call.StartNs)
	end.HiNs = min(end.HiNs, doneNs)
	if w.EndQuality == Unknown && end.HiNs != UnknownNs {
		w.EndQuality = Bounded // by a wait alone
	}
	if end.HiNs == UnknownNs || end.HiNs < end.LoNs {
		w.EndQuality, w.Number = Unknown, 0
		return
	}
	w.End = end
	c.setStart(w, p, earliest, latest)
}

// setStart sets start and duration from the end of the work before it on the channel.
func (c *channelState) setStart(w *Work, p *issuedCall, earliest, latest int64) {
	previous, _ := c.moments.endOf(earliest - 1)
	if latest == unbounded {
		previous.HiNs = UnknownNs
	} else if latest != earliest {
		last, _ := c.moments.endOf(latest - 1)
		previous.HiNs = last.HiNs
	}
	w.Start = Interval{max(p.call.StartNs, min(previous.LoNs, w.End.LoNs)), w.End.HiNs}
	w.StartQuality = min(w.EndQuality, Bounded)
	if p.returnedBy(previous.LoNs-queuedNs) && !p.barrier && w.EndQuality >= Bounded {
		w.Queued, w.StartQuality = true, Estimated
		w.Start = Interval{
			min(previous.LoNs+gapMinNs, w.End.HiNs),
			max(min(previous.HiNs, w.End.HiNs-gapMaxNs)+gapMaxNs, min(previous.LoNs+gapMinNs, w.End.HiNs)),
		}
	}
	w.Duration = Interval{max(0, w.End.LoNs-w.Start.HiNs), max(0, w.End.HiNs-w.Start.LoNs)}
	w.DurationQuality = w.StartQuality
}
