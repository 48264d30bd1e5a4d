package changepoint

import (
	"math"
	"slices"
)

// Outliers are the samples of a series that are far from their neighbors.
type Outliers struct {
	Count int
	// Worst is the value of the sample that is the farthest from its neighbors, WorstNs its time, and Usual
	// the median of its neighbors.
	Worst, Usual float64
	WorstNs      int64
	// PeriodNs is the time between outliers that come at regular times, in ns; 0 if they do not.
	PeriodNs int64
}

const (
	// hampelReach is the number of neighbors of a sample on each side.
	hampelReach = 7
	// hampelScales is how many standard deviations an outlier is away from the median of its neighbors.
	hampelScales = 6
)

// FindOutliers finds outliers with a Hampel identifier: samples that are more than six standard deviations,
// and more than the limits, away from the median of their neighbors. The deviation is the larger one of the
// neighbors and of the whole series.
func FindOutliers(s *Series, l *Limits) (o Outliers) {
	n := len(s.Values)
	if n < MinSamples {
		return o
	}
	global := estimateNoise(s.divide(4 * MaxParts).Values).scale
	window := newMedianWindow(s.Values)
	var times []int64
	for i, v := range s.Values {
		window.moveTo(i)
		usual := window.median()
		away := math.Abs(v - usual)
		if away < l.smallest(usual) || away <= hampelScales*global || away <= hampelScales*window.scale(usual) {
			continue
		}
		o.Count++
		if len(times) < MaxParts {
			times = append(times, s.AtNs[i])
		}
		if away > math.Abs(o.Worst-o.Usual) {
			o.Worst, o.Usual, o.WorstNs = v, usual, s.AtNs[i]
		}
	}
	o.PeriodNs = periodOf(times)
	return o
}

// periodOf returns the usual distance of times if most distances equal it, or 0.
func periodOf(times []int64) int64 {
	const minTimes, minShare, tolerance = 4, 0.7, 0.2
	if len(times) < minTimes {
		return 0
	}
	distances := make([]int64, 0, len(times))
	for i := 1; i < len(times); i++ {
		distances = append(distances, times[i]-times[i-1])
	}
	slices.Sort(distances)
	usual, like := distances[len(distances)/2], 0
	for _, d := range distances {
		if math.Abs(float64(d-usual)) <= tolerance*float64(usual) {
			like++
		}
	}
	if float64(like) < minShare*float64(len(distances)) {
		return 0
	}
	return usual
}

// medianWindow has the sorted values around an index that moves on.
type medianWindow struct {
	values   []float64
	sorted   []float64
	from, to int
}

func newMedianWindow(values []float64) *medianWindow {
	return &medianWindow{values: values, sorted: make([]float64, 0, 2*hampelReach+1)}
}

// moveTo moves the window to index i. Indexes must not decrease.
func (w *medianWindow) moveTo(i int) {
	for w.to < min(len(w.values), i+hampelReach+1) {
		at, _ := slices.BinarySearch(w.sorted, w.values[w.to])
		w.sorted = slices.Insert(w.sorted, at, w.values[w.to])
		w.to++
	}
	for w.from < i-hampelReach {
		at, _ := slices.BinarySearch(w.sorted, w.values[w.from])
		w.sorted = slices.Delete(w.sorted, at, at+1)
		w.from++
	}
}

func (w *medianWindow) median() float64 { return w.sorted[len(w.sorted)/2] }

// scale returns the standard deviation of the window: 1.4826 median absolute deviations.
func (w *medianWindow) scale(median float64) float64 {
	var away [2*hampelReach + 1]float64
	for i, v := range w.sorted {
		away[i] = math.Abs(v - median)
	}
	return 1.4826 * medianOf(away[:len(w.sorted)])
}
