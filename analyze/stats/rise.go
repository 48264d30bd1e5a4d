package stats

import (
	"math"
	"time"
)

// Rise is the trend of a series of floors from where it starts to rise.
type Rise struct {
	Trend
	Steady  bool // rises without a pause, and does not slow down: a leak may explain it
	Slowing bool // rises without a pause, but more and more slowly: a cache that fills up explains it
}

// NewRise returns the rise of a series. block is the mean size of what it counts: see Trend.IsSlowing.
func NewRise(floors []int64, block float64) Rise {
	r := Rise{Trend: NewTrend(CutBeforeRise(floors))}
	if r.RisesThroughout() {
		r.Slowing = r.IsSlowing(block)
		r.Steady = !r.Slowing
	}
	return r
}

// ExceedsNoise reports whether a rise is at least `least`, and 1 % of the level at its end. perNs is its slope. A rise
// that lasted for less than a minute is extrapolated to a minute.
func ExceedsNoise(perNs, durNs, level, least float64) bool {
	return perNs*max(durNs, float64(time.Minute)) >= max(least, level/100)
}

// MinCountForStatistics is the number of live blocks below which their statistics are not meaningful.
const MinCountForStatistics = 10

// RandomRise returns the rise of the number of live blocks that chance explains if blocks begin and end independently of
// each other. It is twice the standard deviation of the difference of two Poisson variables whose mean is that number.
// It is 0 if none ended, and for few blocks: the program may replace one block by a larger one again and again.
func RandomRise(live, ended int64) float64 {
	if ended == 0 || live < MinCountForStatistics {
		return 0
	}
	return 2 * math.Sqrt(2*float64(live))
}
