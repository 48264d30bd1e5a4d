package metric

import "github.com/gpurec/gpurec/analyze/query"

// HistorySteps is the number of equal time steps in which a history divides its window.
const HistorySteps = 20

// MaximumHistory records the maximum of a value in each step of a window.
type MaximumHistory struct {
	Window query.Window
	most   []int64 // maximum value of each time step so far
	now    int64   // value after the latest SetValue
}

// SetValue records that the value is `value` from atNs (Unix ns) on. Times must not decrease.
func (h *MaximumHistory) SetValue(atNs, value int64) {
	h.advanceTo(h.stepsBegunAt(atNs))
	h.now = value
	if n := len(h.most); n > 0 {
		h.most[n-1] = max(h.most[n-1], value)
	}
}

// stepsBegunAt returns how many steps have begun at atNs. 0 means before the window.
func (h *MaximumHistory) stepsBegunAt(atNs int64) int {
	if atNs < h.Window.FromNs {
		return 0
	}
	return min(HistorySteps, 1+int(float64(atNs-h.Window.FromNs)/float64(max(1, h.Window.DurNs()))*HistorySteps))
}

// advanceTo starts steps with the current value, until there are `steps` of them.
func (h *MaximumHistory) advanceTo(steps int) {
	for len(h.most) < steps {
		h.most = append(h.most, h.now)
	}
}

// StepMaxima returns the maximum of every step, to the end of the window.
func (h *MaximumHistory) StepMaxima() []int64 {
	h.advanceTo(HistorySteps)
	return h.most
}

// StepAverages returns the average of the samples in each step of a window. A step without samples
// has the value of the step before.
func (s *Series) StepAverages(window query.Window) []float64 {
	steps := MaximumHistory{Window: window}
	sums, weights := make([]float64, HistorySteps), make([]float64, HistorySteps)
	for i, at := range s.AtNs {
		step := max(1, steps.stepsBegunAt(at)) - 1
		sums[step] += s.Values[i] * s.Weights[i]
		weights[step] += s.Weights[i]
	}
	last := s.Values[0]
	for i := range sums {
		if weights[i] > 0 {
			last = sums[i] / weights[i]
		}
		sums[i] = last
	}
	return sums
}
