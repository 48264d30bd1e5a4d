package changepoint

import (
	"cmp"
	"math"
	"slices"
)

// noise describes the values of a series around its levels.
type noise struct {
	// scale is the standard deviation that a normal distribution with these differences has. It includes
	// slow wandering over up to an eighth of the series.
	scale float64
	// dependence is the number of samples that tell as much as one independent sample, at least 1.
	dependence float64
}

const (
	// keptShare is the share of differences whose mean is the scale: the smallest ones. A median would be
	// too coarse for values that are whole numbers, such as temperatures.
	keptShare = 0.7
	// keptScale is this mean for the differences of independent normal values with standard deviation 1.
	keptScale = 0.6699
)

// scaleOf returns the standard deviation of normal values with these absolute differences. It sorts them.
func scaleOf(differences []float64) float64 {
	slices.Sort(differences)
	kept := differences[:int(math.Ceil(keptShare*float64(len(differences))))]
	sum := 0.0
	for _, d := range kept {
		sum += d
	}
	return sum / float64(max(1, len(kept))) / keptScale
}

// estimateNoise computes the noise from the differences of values that lie 1, 2, 4 … samples apart. A few
// changes of the level hardly move the scale of these differences. A steady slope does not move it.
func estimateNoise(values []float64) noise {
	n := len(values)
	// Values are independent from this share of the largest scale on. Few values give a less exact scale.
	reached := 0.8 - 1.5/math.Sqrt(float64(max(1, n)))
	var lags []int
	var scales []float64
	differences := make([]float64, 0, n)
	for lag := 1; lag <= max(1, n/8); lag *= 2 {
		differences = differences[:0]
		for i := lag; i < n; i++ {
			differences = append(differences, values[i]-values[i-lag])
		}
		center := medianOf(differences)
		for i, d := range differences {
			differences[i] = math.Abs(d - center)
		}
		lags, scales = append(lags, lag), append(scales, scaleOf(differences))
	}
	e := noise{dependence: 1}
	if len(scales) == 0 {
		return e
	}
	e.scale = slices.Max(scales)
	for i, s := range scales {
		if s >= reached*e.scale {
			e.dependence = float64(2*lags[i] - 1)
			break
		}
	}
	return e
}

// ranksOf returns the ranks of values, from 1. Equal values have their average rank.
func ranksOf(values []float64) []float64 {
	order := make([]int, len(values))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(values[a], values[b]) })
	ranks := make([]float64, len(values))
	for from := 0; from < len(order); {
		to := from + 1
		for to < len(order) && values[order[to]] == values[order[from]] {
			to++
		}
		for _, i := range order[from:to] {
			ranks[i] = float64(from+to+1) / 2
		}
		from = to
	}
	return ranks
}
