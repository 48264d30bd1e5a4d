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
func (c *MaximumHistory) SetValue(atNs, value int64) {
	c.advanceTo(c.stepsBegunAt(atNs))
	c.now = value
	if n := len(c.most); n > 0 {
		c.most[n-1] = max(c.most[n-1], value)
	}
}

// stepsBegunAt returns how many steps have begun at atNs. 0 means before the window.
func (c *MaximumHistory) stepsBegunAt(atNs int64) int {
	if atNs < c.Window.FromNs {
		return 0
	}
	return min(HistorySteps, 1+int(float64(atNs-c.Window.FromNs)/float64(max(1, c.Window.DurNs()))*HistorySteps))
}

// advanceTo starts steps with the current value, until there are `steps` of them.
func (c *MaximumHistory) advanceTo(steps int) {
	for len(c.most) < steps {
		c.most = append(c.most, c.now)
	}
}

// StepMaxima returns the maximum of every step, to the end of the window.
func (c *MaximumHistory) StepMaxima() []int64 {
	c.advanceTo(HistorySteps)
	return c.most
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
