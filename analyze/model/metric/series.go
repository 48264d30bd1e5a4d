package metric

import (
	"cmp"
	"slices"

	"github.com/gpurec/gpurec/analyze/stats"
)

// Series are the samples of one metric of one device, or of a process on it, in order of time.
type Series struct {
	AtNs   []int64
	Values []float64
	// Weights are how much time each sample stands for, ns: halfway to its neighbours.
	Weights []float64
}

// gapFactor is how many usual distances between samples may lie between two of them: beyond, nobody looked.
const gapFactor = 5

// Weigh fills in the weights. NVML is asked at regular times, more or less: what matters is that a
// burst of samples does not count more than the time in which it was taken, and that a hole counts
// for nothing.
func (s *Series) Weigh() {
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
	longest := gapFactor * stats.Median(usual)
	for i, step := range steps {
		half := float64(min(step, longest)) / 2
		s.Weights[i] += half
		s.Weights[i+1] += half
	}
	if s.TotalNs() == 0 { // all at one time
		for i := range s.Weights {
			s.Weights[i] = 1
		}
	}
}

// TotalNs is the time that the samples stand for.
func (s *Series) TotalNs() float64 {
	var sum float64
	for _, w := range s.Weights {
		sum += w
	}
	return sum
}

// Mean is the average over time.
func (s *Series) Mean() float64 {
	var sum float64
	for i, v := range s.Values {
		sum += v * s.Weights[i]
	}
	return sum / s.TotalNs()
}

// Share is the share of the time in which the value is as asked for, in percent.
func (s *Series) Share(is func(float64) bool) float64 {
	var sum float64
	for i, v := range s.Values {
		if is(v) {
			sum += s.Weights[i]
		}
	}
	return 100 * sum / s.TotalNs()
}

// Quantile is the least value below or at which the metric was for that share of the time.
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
		if sum += s.Weights[i]; sum >= q*s.TotalNs()*(1-1e-12) {
			return s.Values[i]
		}
	}
	return s.Values[order[len(order)-1]]
}

// Grown is how much a counter rose. One that fell was reset, by a new driver: what it counted until then is kept.
func (s *Series) Grown() float64 {
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

func (s *Series) Last() float64 { return s.Values[len(s.Values)-1] }
