package changepoint

import (
	"math"
	"slices"
)

// Series are samples in order of time. The distances between them may differ. All values must be finite.
type Series struct {
	AtNs   []int64 // Unix ns
	Values []float64
}

// Limits are the smallest differences of a series that matter.
type Limits struct {
	// MinChange is the smallest difference of two levels, in units of the values.
	MinChange float64
	// MinShare is the smallest difference as a share of the larger level, 0 to 1.
	MinShare float64
}

// matters reports whether the difference of two levels reaches the limits.
func (l *Limits) matters(from, to float64) bool {
	d := math.Abs(to - from)
	return d >= l.MinChange && d >= l.MinShare*max(math.Abs(from), math.Abs(to)) && d > 0
}

// smallest returns the smallest difference from a level that matters.
func (l *Limits) smallest(level float64) float64 { return max(l.MinChange, l.MinShare*math.Abs(level)) }

// MaxParts is the largest number of parts into which Find divides a series.
const MaxParts = 512

// divide returns the medians of at most `most` equal parts of the time of a series. Parts without samples
// are left out. A series that is short enough is returned as it is.
func (s *Series) divide(most int) *Series {
	n := len(s.AtNs)
	if n <= most {
		return s
	}
	parts := &Series{}
	fromNs, spanNs := s.AtNs[0], float64(s.AtNs[n-1]-s.AtNs[0]+1)
	partOf := func(i int) int { return int(float64(s.AtNs[i]-fromNs) / spanNs * float64(most)) }
	var values []float64
	for from := 0; from < n; {
		to, part := from+1, partOf(from)
		for to < n && partOf(to) == part {
			to++
		}
		values = append(values[:0], s.Values[from:to]...)
		parts.AtNs = append(parts.AtNs, s.AtNs[from]+(s.AtNs[to-1]-s.AtNs[from])/2)
		parts.Values = append(parts.Values, medianOf(values))
		from = to
	}
	return parts
}

// medianOf returns the median, and sorts the values. It returns 0 without values.
func medianOf(values []float64) float64 {
	n := len(values)
	if n == 0 {
		return 0
	}
	slices.Sort(values)
	if n%2 == 1 {
		return values[n/2]
	}
	return values[n/2-1] + (values[n/2]-values[n/2-1])/2
}

// median returns the median of a part of the values.
func (s *Series) median(from, to int) float64 { return medianOf(slices.Clone(s.Values[from:to])) }

// isFlat reports whether no two values of a series differ by an amount that matters. Of few values, the
// highest and the lowest fiftieth do not count.
func (s *Series) isFlat(l *Limits) bool {
	low, high := math.Inf(1), math.Inf(-1)
	for _, v := range s.Values {
		low, high = min(low, v), max(high, v)
	}
	if !l.matters(low, high) {
		return true
	}
	n := len(s.Values)
	if n > MaxParts {
		return false
	}
	sorted := slices.Sorted(slices.Values(s.Values))
	return !l.matters(sorted[n/50], sorted[n-1-n/50])
}
