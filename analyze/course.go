package analyze

import (
	"slices"

	"github.com/gpurec/gpurec/analyze/query"
)

// courseSteps is at how many equal steps of the window a value's course is told.
const courseSteps = 20

// course follows a value: the most that it is in each step of a window.
type course struct {
	window query.Window
	most   []int64 // of the steps until now
	now    int64
}

// set notes that the value changes.
func (c *course) set(atNs, value int64) {
	c.advance(c.step(atNs))
	c.now = value
	if n := len(c.most); n > 0 {
		c.most[n-1] = max(c.most[n-1], value)
	}
}

// step returns how many steps have begun at a moment; 0 is before the window.
func (c *course) step(atNs int64) int {
	if atNs < c.window.FromNs {
		return 0
	}
	return min(courseSteps, 1+int(float64(atNs-c.window.FromNs)/float64(max(1, c.window.DurNs()))*courseSteps))
}

// advance begins steps, with the value as it is.
func (c *course) advance(steps int) {
	for len(c.most) < steps {
		c.most = append(c.most, c.now)
	}
}

// values are the course to the end of the window.
func (c *course) values() []int64 {
	c.advance(courseSteps)
	return c.most
}

// floorCourse is the course of the lowest live bytes of a group between checkpoints, which its verdict is judged by; nil if nothing
// ever stayed.
func (s *leakScan) floorCourse(g *leakGroup) any {
	var sum []int64
	for i := range g.climbs {
		for step, floor := range s.series(&g.climbs[i]) {
			if sum == nil {
				sum = make([]int64, checkpoints)
			}
			sum[min(step, checkpoints-1)] += floor
		}
	}
	if sum == nil || slices.Max(sum) == 0 {
		return nil
	}
	return sum
}

// course is the course of samples over a window: their average in each step, or the last one before it where there is none.
func (s *series) course(window query.Window) []float64 {
	steps := course{window: window}
	sums, weights := make([]float64, courseSteps), make([]float64, courseSteps)
	for i, at := range s.atNs {
		step := max(1, steps.step(at)) - 1
		sums[step] += s.values[i] * s.weights[i]
		weights[step] += s.weights[i]
	}
	last := s.values[0]
	for i := range sums {
		if weights[i] > 0 {
			last = sums[i] / weights[i]
		}
		sums[i] = last
	}
	return sums
}
