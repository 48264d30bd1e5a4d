package activity

import "math"

// A program that never waits gives no upper bounds of extra. But a channel that is idle shows its
// numbering: its counter stands still in a pause without calls, and rises soon after the next call
// started. If extra were higher than its lower bound, an operation would have waited in the pause, and its
// begin would have nothing to do with the end of the pause. By chance, the counter rises in a short time
// around the end of the pause with the probability of that time divided by the pause. Enough such pauses
// in a row prove that extra equalled its lower bound at the first of them, because extra never falls.
const (
	maxRiseNs   = 50_000 // later rises of the counter are not counted
	minPause    = 4      // least length of a pause, in times until the rise
	maxEvidence = 3.0    // greatest evidence of one pause, -ln of its probability
	enough      = 25.0   // evidence that proves the lower bound: a chance of 1e-11
	// quietNs is how long after an anchor by waits this evidence is not used.
	quietNs = 100_000_000
)

// idleEvidence is the evidence that the lower bound of extra is its value.
type idleEvidence struct {
	pauses []idlePause // since the lower bound rose, without those that proved it
	sum    float64     // of their evidence
	least  int64       // lower bound that they are about
}

// idlePause is a pause before which counter operations had begun.
type idlePause struct {
	counter  int64
	evidence float64
}

// proveIdle adds the evidence of a sample and the one before it. It returns a counter at which extra
// equalled its lower bound, if enough pauses prove that.
func (c *channelState) proveIdle(s *Sample, begin Interval, previous *moment) (counter int64, ok bool) {
	e := &c.idle
	if e.least != c.least {
		*e = idleEvidence{pauses: e.pauses[:0], least: c.least}
	}
	evidence := c.pauseEvidence(s, begin, previous)
	if evidence == 0 {
		return 0, false
	}
	e.pauses = append(e.pauses, idlePause{previous.counter, evidence})
	e.sum += evidence
	if e.sum < enough {
		return 0, false
	}
	first := e.pauses[0]
	e.pauses = append(e.pauses[:0], e.pauses[1:]...)
	e.sum -= first.evidence
	return first.counter, first.counter > c.anchorCounter && s.SeenNs-c.anchorNs > quietNs
}

// pauseEvidence returns the evidence of the pause between two samples, or 0.
func (c *channelState) pauseEvidence(s *Sample, begin Interval, previous *moment) float64 {
	position := previous.counter - c.least + 1
	next, last := c.order.recent(position), c.order.recent(position-1)
	if next == nil || last == nil || next.first != position || next.last != position || next.unsure {
		return 0
	}
	startNs, lastNs := next.call.StartNs, last.call.StartNs
	pauseNs := startNs - max(previous.begin.HiNs, lastNs)
	riseNs := begin.HiNs - startNs
	if s.Counter > previous.counter+1 { // the first of these operations may have begun right after the read
		riseNs = begin.HiNs - min(startNs, previous.seenNs)
	}
	if riseNs <= 0 || riseNs > maxRiseNs || pauseNs < minPause*riseNs || c.waits.hasReturned(lastNs, startNs) {
		return 0
	}
	return min(maxEvidence, math.Log(float64(pauseNs)/float64(riseNs)))
}
