package stats

import (
	"math"
	"slices"
)

// Trend is how a series of equally spaced values moves.
type Trend struct {
	// Tau is Kendall's rank correlation with time, pairs that rise minus pairs that
	// fall over all pairs: 1 for a series that only rises, about 0 for one that
	// comes back.
	Tau float64
	// Slope is the Theil-Sen estimate, the median of the slopes of all pairs, per
	// step of the series: single jumps do not move it.
	Slope float64
	// Recent is how much the last quarter of the series rose.
	Recent float64
	// rises is how many values are higher than the one before.
	rises int
	// early and late are the slopes of its two halves.
	early, late float64
	Steps       int
}

// NewTrend measures a series; one of fewer than two values has no trend.
func NewTrend(series []int64) Trend {
	t := Trend{Steps: len(series)}
	if len(series) < 2 {
		return t
	}
	var rises, falls int
	slopes := make([]float64, 0, len(series)*(len(series)-1)/2)
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
	t.Tau = float64(rises-falls) / float64(len(slopes))
	slices.Sort(slopes)
	t.Slope = Median(slopes)
	last := len(series) - 1
	for i := range last {
		if series[i+1] > series[i] {
			t.rises++
		}
	}
	t.Recent = float64(series[last]) - float64(series[last-(last+3)/4])
	if last >= 2 {
		t.early, t.late = NewTrend(series[:last/2+1]).Slope, NewTrend(series[last/2:]).Slope
	}
	return t
}

// Rise returns the series from where it begins to rise: a leak may begin at any time, and
// what was level before says nothing about it. Level is what exceeds the first value by
// less than a twentieth of all that the series moves by; the last such value is kept.
func Rise(series []int64) []int64 {
	if len(series) == 0 {
		return series
	}
	level := series[0] + (slices.Max(series)-slices.Min(series))/20
	for i, v := range series {
		if v > level {
			return series[max(0, i-1):]
		}
	}
	return nil
}

// Slowing reports whether the second half of the series rose at less than half the
// slope of the first, by more than chance makes of blocks of that size that come one by
// one: twice the deviation of the difference of two Poisson numbers. A cache that fills
// with what is asked for at random does, as it misses less and less.
func (t Trend) Slowing(block float64) bool {
	half := float64(t.Steps / 2)
	return t.late < t.early/2 && (t.early-t.late)*half > 2*math.Sqrt(block*(t.early+t.late)*half)
}

// Lasting reports whether the series rose all along: tau at least 0.8, at least five
// times, and in its last quarter still at a quarter of the overall slope or more. Memory
// that is loaded in a few pieces fails the second test, a cache that is full the third.
func (t Trend) Lasting() bool {
	quarter := float64((t.Steps + 2) / 4)
	return t.rises >= minRises && t.Tau >= 0.8 && t.Slope > 0 && t.Recent >= t.Slope*quarter/4
}

// minRises is how often a series must rise to be called rising: five values in order
// come about by chance once in 120 times.
const minRises = 5

// Median returns the middle of sorted values, 0 for none.
func Median[T int64 | float64](sorted []T) T {
	n := len(sorted)
	switch {
	case n == 0:
		return 0
	case n%2 == 1:
		return sorted[n/2]
	}
	return sorted[n/2-1] + (sorted[n/2]-sorted[n/2-1])/2
}

// MinGrowth is the least growth that is called a leak: less is noise, or nobody's
// concern.
const MinGrowth = 1 << 20
