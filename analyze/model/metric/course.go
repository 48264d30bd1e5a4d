package metric

import "github.com/gpurec/gpurec/analyze/query"

// CourseSteps is at how many equal steps of the window a value's course is told.
const CourseSteps = 20

// Course follows a value: the most that it is in each step of a window.
type Course struct {
	Window query.Window
	most   []int64 // of the steps until now
	now    int64
}

// Set notes that the value changes.
func (c *Course) Set(atNs, value int64) {
	c.advance(c.step(atNs))
	c.now = value
	if n := len(c.most); n > 0 {
		c.most[n-1] = max(c.most[n-1], value)
	}
}

// step returns how many steps have begun at a moment; 0 is before the window.
func (c *Course) step(atNs int64) int {
	if atNs < c.Window.FromNs {
		return 0
	}
	return min(CourseSteps, 1+int(float64(atNs-c.Window.FromNs)/float64(max(1, c.Window.DurNs()))*CourseSteps))
}

// advance begins steps, with the value as it is.
func (c *Course) advance(steps int) {
	for len(c.most) < steps {
		c.most = append(c.most, c.now)
	}
}

// Values are the course to the end of the window.
func (c *Course) Values() []int64 {
	c.advance(CourseSteps)
	return c.most
}

// Course is the course of samples over a window: their average in each step, or the last one before
// it where there is none.
func (s *Series) Course(window query.Window) []float64 {
	steps := Course{Window: window}
	sums, weights := make([]float64, CourseSteps), make([]float64, CourseSteps)
	for i, at := range s.AtNs {
		step := max(1, steps.step(at)) - 1
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
