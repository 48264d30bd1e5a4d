package stats

import (
	"math"
	"slices"
)

// SlopeMargin returns the half width of the 95 % confidence interval of Trend.Slope, after Sen (1968). It assumes that the
// errors of the values are independent. It is infinite for fewer than four values.
func SlopeMargin(series []int64) float64 {
	n := len(series)
	if n < 4 {
		return math.Inf(1)
	}
	slopes := make([]float64, 0, n*(n-1)/2)
	for i, a := range series {
		for j := i + 1; j < n; j++ {
			slopes = append(slopes, (float64(series[j])-float64(a))/float64(j-i))
		}
	}
	slices.Sort(slopes)
	const quantile = 1.96
	width := quantile * math.Sqrt(float64(n*(n-1)*(2*n+5))/18)
	low := max(0, int(math.Floor((float64(len(slopes))-width)/2)))
	high := min(len(slopes)-1, int(math.Ceil((float64(len(slopes))+width)/2)))
	middle := Median(slopes)
	return max(middle-slopes[low], slopes[high]-middle)
}
