package stats

import (
	"math"
	"slices"
)

// Trend describes the movement of a series of equally spaced values.
type Trend struct {
	// Tau is Kendall's rank correlation with time: the rising pairs minus the falling pairs,
	// divided by all pairs. It is 1 for a series that only rises, and near 0 for one that returns
	// to its start.
	Tau float64
	// Slope is the Theil-Sen estimate per step: the median of the slopes of all pairs. Single jumps
	// do not change it.
	Slope float64
	// Recent is the increase over the last quarter of the series.
	Recent float64
	// rises is the number of values that are higher than the value before.
	rises int
	// early and late are the slopes of the two halves of the series.
	early, late float64
	Steps       int // number of values in the series
}

// NewTrend computes the trend of a series. A series of fewer than two values has no trend.
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

// CutBeforeRise returns the part of the series from where it starts to rise. A leak may start at
// any time, and the level part before says nothing about it. Values count as level while they
// exceed the first value by less than a twentieth of the series' range. The last level value is
// kept.
func CutBeforeRise(series []int64) []int64 {
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

// IsSlowing reports whether the second half of the series rose at less than half the slope of the
// first half. The difference must exceed twice the standard deviation of two Poisson counts of
// blocks of that size. A cache that fills with random requests slows this way, as it misses less
// and less.
func (t Trend) IsSlowing(block float64) bool {
	half := float64(t.Steps / 2)
	return t.late < t.early/2 && (t.early-t.late)*half > 2*math.Sqrt(block*(t.early+t.late)*half)
}

// RisesThroughout reports whether the series rose over its whole length. It needs a tau of at least
// 0.8, at least five rises, and in the last quarter at least a quarter of the overall slope. Memory
// loaded in a few pieces fails the second condition, a full cache the third.
func (t Trend) RisesThroughout() bool {
	quarter := float64((t.Steps + 2) / 4)
	return t.rises >= minRiseSteps && t.Tau >= 0.8 && t.Slope > 0 && t.Recent >= t.Slope*quarter/4
}

// minRiseSteps is the number of increases that a rising series needs. Five values are in rising
// order by chance once in 120 times.
const minRiseSteps = 5

// Median returns the median of sorted values, or 0 without values.
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

// MinLeakGrowthBytes is the growth, in bytes, from which memory counts as a leak. Smaller growth is
// noise.
const MinLeakGrowthBytes = 1 << 20
