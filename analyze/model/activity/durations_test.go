package activity

import (
	"testing"

	"github.com/gpurec/gpurec/internal/testclass"
)

// TestEstimatesThatSayNothing has the numbers of a loop on an H100: a tanh that equations have only together with another
// kernel, and a few launches that waited long in the queue.
func TestEstimatesThatSayNothing(t *testing.T) {
	testclass.Unit(t)
	for _, c := range []struct {
		name        string
		duration    Duration
		limitNs     int64
		isEstimated bool
		isLimited   bool
	}{
		{"close estimate", Duration{MeanNs: 20_000, ErrorNs: 1500, IsEstimated: true}, 45_000_000, true, false},
		{"error of 600 times the mean", Duration{MeanNs: 16_400, ErrorNs: 10_900_000, IsEstimated: true}, 45_000_000, false, false},
		{"limit below the error", Duration{MeanNs: 16_400, ErrorNs: 10_900_000, IsEstimated: true}, 40_000, true, true},
		{"error of gaps", Duration{MeanNs: 300, ErrorNs: 700, IsEstimated: true}, 45_000_000, true, false},
	} {
		l := limits{list: []int64{c.limitNs, c.limitNs, c.limitNs, c.limitNs, c.limitNs}}
		d := c.duration
		d.applyLimits(&l)
		if d.IsEstimated != c.isEstimated || d.IsLimited != c.isLimited {
			t.Errorf("%s: %+v, want estimated %t, limited %t", c.name, d, c.isEstimated, c.isLimited)
		}
	}
}
