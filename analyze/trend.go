package analyze

import (
	"math"
	"slices"
)

// trend is how a series of equally spaced values moves.
type trend struct {
	// tau is Kendall's rank correlation with time, pairs that rise minus pairs that
	// fall over all pairs: 1 for a series that only rises, about 0 for one that
	// comes back.
	tau float64
	// slope is the Theil-Sen estimate, the median of the slopes of all pairs, per
	// step of the series: single jumps do not move it.
	slope float64
	// recent is how much the last quarter of the series rose.
	recent float64
	steps  int
}

// newTrend measures a series; one of fewer than two values has no trend.
func newTrend(series []int64) trend {
	t := trend{steps: len(series)}
	if len(series) < 2 {
		return t
	}
	var rises, falls int
	var slopes []float64
	for i, a := range series {
		for j := i + 1; j < len(series); j++ {
			d := float64(series[j]) - float64(a)
			switch {
			case d > 0:
				rises++
			case d < 0:
				falls++
			}
			slopes = append(slopes, d/float64(j-i))
		}
	}
	t.tau = float64(rises-falls) / float64(len(slopes))
	slices.Sort(slopes)
	t.slope = median(slopes)
	last := len(series) - 1
	t.recent = float64(series[last]) - float64(series[last-(last+3)/4])
	return t
}

// lasting reports whether the series rose all along: tau at least 0.8, and in its
// last quarter still at a quarter of the overall slope or more. Memory that fills a
// cache and then stops fails the second test.
func (t trend) lasting() bool {
	quarter := float64((t.steps + 2) / 4)
	return t.steps >= minTrendSteps && t.tau >= 0.8 && t.slope > 0 && t.recent >= t.slope*quarter/4
}

// minTrendSteps is the shortest series that can be called rising: five values in
// order come about by chance once in 120 times.
const minTrendSteps = 5

// median returns the middle of sorted values, 0 for none.
func median[T int64 | float64](sorted []T) T {
	n := len(sorted)
	switch {
	case n == 0:
		return 0
	case n%2 == 1:
		return sorted[n/2]
	}
	return sorted[n/2-1] + (sorted[n/2]-sorted[n/2-1])/2
}

// roundInt rounds to an int64, values out of its range to its bounds.
func roundInt(v float64) int64 {
	switch {
	case math.IsNaN(v):
		return 0
	case v >= math.MaxInt64:
		return math.MaxInt64
	case v <= math.MinInt64:
		return math.MinInt64
	}
	return int64(math.Round(v))
}
