package changepoint

import "math"

// FindRateChanges finds the changes of the rate of a counter of rare events, such as errors. From and To of
// a change are events per second. A decrease of the counter means that it was reset. The chance of a false
// alarm is at most MaxFalseAlarms, if events are independent.
func FindRateChanges(s *Series) []Change {
	n := len(s.AtNs)
	if n < 3 {
		return nil
	}
	c := &counter{atNs: s.AtNs, sums: make([]float64, n)}
	for i := 1; i < n; i++ {
		d := s.Values[i] - s.Values[i-1]
		if d < 0 {
			d = s.Values[i]
		}
		c.sums[i] = c.sums[i-1] + max(0, d)
	}
	return c.split(0, n-1, 0)
}

// counter has the sums of the increases of a counter up to each sample.
type counter struct {
	atNs []int64
	sums []float64
}

const (
	maxCounterDepth = 4
	// minCounterRatio is how many times the rates before and after a change differ at least.
	minCounterRatio = 4
)

// split returns the changes of the rate between two samples.
func (c *counter) split(from, to, depth int) []Change {
	if to-from < 2 || depth == maxCounterDepth {
		return nil
	}
	best, place := 0.0, -1
	for at := from + 1; at < to; at++ {
		if chance := c.logChance(from, at, to); chance < best {
			best, place = chance, at
		}
	}
	best += math.Log(float64(len(c.atNs)))
	if place < 0 || best > math.Log(MaxFalseAlarms) {
		return nil
	}
	place = c.moveToFirst(from, place)
	before, after := c.rate(from, place), c.rate(place, to)
	if max(before, after) < minCounterRatio*min(before, after) {
		return nil
	}
	change := Change{
		From: before, To: after, LogChance: best, BeforeNs: c.atNs[place], AfterNs: c.atNs[place+1],
		Before: place - from, After: to - place,
	}
	if before > after {
		change.BeforeNs, change.AfterNs = c.atNs[place-1], c.atNs[place]
	}
	list := append(c.split(from, place, depth+1), change)
	return append(list, c.split(place, to, depth+1)...)
}

// moveToFirst moves a rise to the sample after which the first events came: the interval before it may have
// some of them already.
func (c *counter) moveToFirst(from, place int) int {
	const minEvents = 3
	for place > from+1 && c.sums[place]-c.sums[place-1] >= minEvents &&
		c.rate(place-1, place) >= minCounterRatio*c.rate(from, place-1) {
		place--
	}
	return place
}

// rate returns the events per second between two samples.
func (c *counter) rate(from, to int) float64 {
	return (c.sums[to] - c.sums[from]) / max(1e-9, float64(c.atNs[to]-c.atNs[from])/1e9)
}

// logChance bounds the logarithm of the chance that so many of the events are on one side of a sample, by
// Chernoff's bound of the binomial distribution.
func (c *counter) logChance(from, at, to int) float64 {
	all, second := c.sums[to]-c.sums[from], c.sums[to]-c.sums[at]
	share := float64(c.atNs[to]-c.atNs[at]) / max(1, float64(c.atNs[to]-c.atNs[from]))
	if all == 0 || share <= 0 || share >= 1 {
		return 0
	}
	q := second / all
	divergence := 0.0
	if q > 0 {
		divergence += q * math.Log(q/share)
	}
	if q < 1 {
		divergence += (1 - q) * math.Log((1-q)/(1-share))
	}
	return math.Ln2 - all*divergence
}
