package activity

import "math"

// A program that never waits gives no upper bounds of extra. But a channel that is idle shows its
// numbering: its counter stands still in a pause without calls, and rises soon after the next call
// started. If extra were higher than its lower bound, a work would have been left in the pause, and its
// end would have nothing to do with the end of the pause. By chance, the counter rises in a short time
// around the end of the pause with the probability of that time divided by the pause. Enough such
// pauses in a row prove that all works before the last one were done, so that extra equalled its lower
// bound.
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
	sum   float64
	least int64 // lower bound that sum is about
}

// wasIdle adds the evidence of a sample and the one before it. It reports whether the evidence proves
// that all works before the last pause were done, which are the works up to the sample before.
func (c *channelState) wasIdle(s *Sample, end Interval, previous *moment) bool {
	e := &c.idle
	if e.least != c.least {
		e.least, e.sum = c.least, 0
	}
	position := previous.counter - c.least + 1
	next, lastNs := c.order.at(position), c.order.startOf(position-1)
	if next == nil || lastNs == 0 || next.first != position || next.last != position || next.unsure {
		return false
	}
	startNs := next.call.StartNs
	pauseNs := startNs - max(previous.end.HiNs, lastNs)
	riseNs := end.HiNs - startNs
	if s.Counter > previous.counter+1 { // the first of these works may have ended right after the read
		riseNs = end.HiNs - min(startNs, previous.seenNs)
	}
	if riseNs <= 0 || riseNs > maxRiseNs || pauseNs < minPause*riseNs || c.waits.hasReturned(lastNs, startNs) {
		return false
	}
	e.sum += min(maxEvidence, math.Log(float64(pauseNs)/float64(riseNs)))
	return e.sum >= enough && s.SeenNs-c.anchorNs > quietNs
}
