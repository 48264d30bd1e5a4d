package metric

import (
	"cmp"
	"slices"

	"github.com/gpurec/gpurec/analyze/stats"
)

// Series are the samples of one metric of a device, or of a process on a device, in order of time.
type Series struct {
	AtNs   []int64
	Values []float64
	// Weights are the time that each sample represents, in ns: up to halfway to its neighbors.
	Weights []float64
}

// samplingGapFactor limits the time that a sample represents: at most this many median sample
// distances. A longer distance is a gap in sampling.
const samplingGapFactor = 5

// ComputeWeights computes the weights. The recorder reads NVML at roughly regular times. With
// weights, a burst of samples counts only for the time it covers, and a gap in sampling counts for
// nothing.
func (s *Series) ComputeWeights() {
	n := len(s.Values)
	s.Weights = make([]float64, n)
	if n == 1 {
		s.Weights[0] = 1
		return
	}
	steps := make([]int64, n-1)
	for i := range steps {
		steps[i] = s.AtNs[i+1] - s.AtNs[i]
	}
	usual := slices.Sorted(slices.Values(steps))
	longest := samplingGapFactor * stats.Median(usual)
	for i, step := range steps {
		half := float64(min(step, longest)) / 2
		s.Weights[i] += half
		s.Weights[i+1] += half
	}
	if s.CoveredNs() == 0 { // all samples have the same time
		for i := range s.Weights {
			s.Weights[i] = 1
		}
	}
}

// CoveredNs returns the time that all samples represent, in ns.
func (s *Series) CoveredNs() float64 {
	var sum float64
	for _, w := range s.Weights {
		sum += w
	}
	return sum
}

// Mean returns the average of the values over time.
func (s *Series) Mean() float64 {
	var sum float64
	for i, v := range s.Values {
		sum += v * s.Weights[i]
	}
	return sum / s.CoveredNs()
}

// SharePct returns the share of the time in which the predicate holds for the value, in percent.
func (s *Series) SharePct(is func(float64) bool) float64 {
	var sum float64
	for i, v := range s.Values {
		if is(v) {
			sum += s.Weights[i]
		}
	}
	return 100 * sum / s.CoveredNs()
}

// Quantile returns the smallest value that the metric does not exceed for the share q (0 to 1) of
// the time.
func (s *Series) Quantile(q float64) float64 {
	order := make([]int, len(s.Values))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(
		order,
		func(a, b int) int { return cmp.Or(cmp.Compare(s.Values[a], s.Values[b]), cmp.Compare(a, b)) },
	)
	var sum float64
	for _, i := range order {
		if sum += s.Weights[i]; sum >= q*s.CoveredNs()*(1-1e-12) {
			return s.Values[i]
		}
	}
	return s.Values[order[len(order)-1]]
}

// CounterIncrease returns the increase of a counter. A decrease means that a new driver reset the
// counter; the increase before the reset is kept.
func (s *Series) CounterIncrease() float64 {
	var sum float64
	for i := 1; i < len(s.Values); i++ {
		if d := s.Values[i] - s.Values[i-1]; d >= 0 {
			sum += d
		} else {
			sum += s.Values[i]
		}
	}
	return sum
}

// LastValue returns the value of the newest sample. The series must not be empty.
func (s *Series) LastValue() float64 { return s.Values[len(s.Values)-1] }
