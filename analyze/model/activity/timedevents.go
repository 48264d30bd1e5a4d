package activity

// An event that was created before the recording may have timing or not. Its records show it: between two anchors of
// a channel, the works without a call are the records of events with timing.

// timingEvidence counts the times between two anchors in which an event of unknown timing was recorded.
type timingEvidence struct {
	none int64 // no work had no call: the event has no timing
	some int64 // a work had no call
}

// markedEvent is the record of an event of unknown timing after a number of works of the channel.
type markedEvent struct {
	key   handleKey
	after int64 // index of the last call on the channel
}

// maxMarkedEvents bounds the records of a channel since its last anchor.
const maxMarkedEvents = 1 << 16

// noteMark notes the record of an event of unknown timing on a channel.
func (r *reader) noteMark(c *Call, channel *channelState) {
	if channel == nil || !c.AnyTiming {
		return
	}
	key := handleKey{c.Pid, c.Event}
	if _, ok := r.timings[key]; !ok && len(r.timings) < maxEvents {
		r.timings[key] = timingEvidence{}
	}
	if len(channel.marked) < maxMarkedEvents {
		channel.marked = append(channel.marked, markedEvent{key, channel.order.issued()})
	}
}

// noteTimings adds the evidence of an anchor, at which a number of calls had begun. Records next to the anchors may
// belong to the time before or after.
func (c *channelState) noteTimings(begun int64) {
	n := 0
	for ; n < len(c.marked) && c.marked[n].after < begun; n++ {
		m := &c.marked[n]
		if !c.anchored || m.after <= c.anchorBegun {
			continue
		}
		e := c.reader.timings[m.key]
		if c.least > c.anchor {
			e.some++
		} else {
			e.none++
		}
		c.reader.timings[m.key] = e
	}
	c.marked = append(c.marked[:0], c.marked[n:]...)
	c.anchorBegun = begun
}

// timedEvents returns the events of unknown timing whose records add works. isSure reports that all events have
// evidence.
func (r *reader) timedEvents() (timed map[handleKey]bool, isSure bool) {
	const exception = 20 // one wrong time of these: calls of several threads may have another order
	timed = make(map[handleKey]bool)
	isSure = true
	for key, e := range r.timings {
		if e.some > exception*e.none {
			timed[key] = true
		}
		isSure = isSure && e.some+e.none > 0
	}
	return timed, isSure
}
