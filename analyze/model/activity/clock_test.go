package activity

import (
	"math/rand/v2"
	"testing"
)

// TestClock requires that the interval of a clock contains the true time, and is as narrow as the
// delays of the readers allow.
func TestClock(t *testing.T) {
	for name, c := range map[string]struct {
		samples     int
		delayNs     int64
		maxResidual int64
	}{
		"busy poller": {200_000, 1000, 1500},
		"1 kHz":       {10_000, 200_000, 12_000},
		"few samples": {500, 1_000_000, 500_000},
	} {
		t.Run(name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(1, 2))
			const startNs, lengthNs = int64(1_790_000_000_000_000_000), int64(10_000_000_000)
			gpuTime := func(ns int64) int64 { return (ns + 300_000 - (ns-startNs)*11/1_000_000) / resolutionNs * resolutionNs }
			var points clockPoints
			for i := range c.samples {
				endNs := startNs + lengthNs*int64(i)/int64(c.samples)
				points.add(gpuTime(endNs), endNs+r.Int64N(c.delayNs)-gpuTime(endNs))
			}
			clock := newClock(points.list)
			for range 10_000 {
				endNs := startNs + r.Int64N(lengthNs)
				if got := clock.Convert(gpuTime(endNs)); got.LoNs > endNs || got.HiNs < endNs {
					t.Fatalf("%d is not in [%d, %d] around it", endNs-startNs, got.LoNs-endNs, got.HiNs-endNs)
				}
			}
			if clock.ResidualNs() > c.maxResidual {
				t.Errorf("the residual is %d ns, want at most %d", clock.ResidualNs(), c.maxResidual)
			}
		})
	}
}

func TestNoClockWithoutPoints(t *testing.T) {
	if newClock(nil) != nil {
		t.Error("a clock without points")
	}
}
