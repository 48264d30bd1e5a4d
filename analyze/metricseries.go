package analyze

import (
	"cmp"
	"slices"

	"github.com/gpurec/gpurec/analyze/stats"
)

// series are the samples of one metric of one device, or of a process on it, in order of time.
type series struct {
	atNs   []int64
	values []float64
	// weights are how much time each sample stands for, ns: halfway to its neighbours.
	weights []float64
}

// gapFactor is how many usual distances between samples may lie between two of them: beyond, nobody looked.
const gapFactor = 5

// weigh fills in the weights. NVML is asked at regular times, more or less: what matters is that a burst of samples does not
// count more than the time in which it was taken, and that a hole counts for nothing.
func (s *series) weigh() {
	n := len(s.values)
	s.weights = make([]float64, n)
	if n == 1 {
		s.weights[0] = 1
		return
	}
	steps := make([]int64, n-1)
	for i := range steps {
		steps[i] = s.atNs[i+1] - s.atNs[i]
	}
	usual := slices.Sorted(slices.Values(steps))
	longest := gapFactor * stats.Median(usual)
	for i, step := range steps {
		half := float64(min(step, longest)) / 2
		s.weights[i] += half
		s.weights[i+1] += half
	}
	if s.totalNs() == 0 { // all at one time
		for i := range s.weights {
			s.weights[i] = 1
		}
	}
}

// totalNs is the time that the samples stand for.
func (s *series) totalNs() float64 {
	var sum float64
	for _, w := range s.weights {
		sum += w
	}
	return sum
}

// mean is the average over time.
func (s *series) mean() float64 {
	var sum float64
	for i, v := range s.values {
		sum += v * s.weights[i]
	}
	return sum / s.totalNs()
}

// share is the share of the time in which the value is as asked for, in percent.
func (s *series) share(is func(float64) bool) float64 {
	var sum float64
	for i, v := range s.values {
		if is(v) {
			sum += s.weights[i]
		}
	}
	return 100 * sum / s.totalNs()
}

// quantile is the least value below or at which the metric was for that share of the time.
func (s *series) quantile(q float64) float64 {
	order := make([]int, len(s.values))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Or(cmp.Compare(s.values[a], s.values[b]), cmp.Compare(a, b)) })
	var sum float64
	for _, i := range order {
		if sum += s.weights[i]; sum >= q*s.totalNs()*(1-1e-12) {
			return s.values[i]
		}
	}
	return s.values[order[len(order)-1]]
}

// grown is how much a counter rose. One that fell was reset, by a new driver: what it counted until then is kept.
func (s *series) grown() float64 {
	var sum float64
	for i := 1; i < len(s.values); i++ {
		if d := s.values[i] - s.values[i-1]; d >= 0 {
			sum += d
		} else {
			sum += s.values[i]
		}
	}
	return sum
}

func (s *series) last() float64 { return s.values[len(s.values)-1] }
