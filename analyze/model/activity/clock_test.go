package activity

import (
	"math/rand/v2"
	"testing"

	"github.com/gpurec/gpurec/internal/testclass"
)

// TestClock requires that the interval of a clock contains the true time, and is as narrow as the
// delays of the readers allow.
func TestClock(t *testing.T) {
	testclass.Unit(t)
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

// TestClockAfterAPause has the points of a recording on a busy machine: the reader was late each time before a pause, and
// less and less. No clock drifts as fast, so the line through these points is too steep.
func TestClockAfterAPause(t *testing.T) {
	testclass.Unit(t)
	const startNs = int64(1_790_000_000_000_000_000)
	var points clockPoints
	for atNs, delayNs := range map[int64]int64{
		0: 336_000, 33_600_000: 329_000, 59_500_000: 224_000,
		2_200_000_000: 39_000, 2_300_000_000: 30_000, 2_540_000_000: 6000,
	} {
		points.list = append(points.list, clockPoint{startNs + atNs, delayNs})
	}
	clock := newClock(points.list)
	for ns := startNs; ns < startNs+2_540_000_000; ns += 1_000_000 {
		if got := clock.Convert(ns); got.LoNs > ns || got.HiNs < ns {
			t.Fatalf("%d ns is not in [%d, %d] around it", ns-startNs, got.LoNs-ns, got.HiNs-ns)
		}
	}
}

func TestNoClockWithoutPoints(t *testing.T) {
	testclass.Unit(t)
	if newClock(nil) != nil {
		t.Error("a clock without points")
	}
}

// TestClockOfDisturbedReaders requires that intervals contain the true time, where the rate and the delay of
// the readers change every moment and some delays are long.
func TestClockOfDisturbedReaders(t *testing.T) {
	testclass.Unit(t)
	const startNs = int64(1_790_000_000_000_000_000)
	for seed := range uint64(150) {
		r := rand.New(rand.NewPCG(seed, 2))
		lengthNs, driftPPM := 200_000_000+r.Int64N(2_000_000_000), r.Int64N(25)-12
		gpuTime := func(ns int64) int64 {
			return (ns + 300_000 - (ns-startNs)*driftPPM/1_000_000) / resolutionNs * resolutionNs
		}
		var points clockPoints
		var timesNs []int64
		for ns := startNs; ns < startNs+lengthNs; {
			untilNs := ns + r.Int64N(400_000_000)
			gapNs, delayNs, leastNs := int64(
				1,
			)<<(12+r.IntN(12)), int64(
				1,
			)<<(8+r.IntN(12)), int64(
				r.IntN(2),
			)*(transportNs-100)
			for ns < untilNs {
				ns += 1 + r.Int64N(gapNs)
				seenNs := ns + leastNs + r.Int64N(delayNs)
				if r.IntN(20) == 0 {
					seenNs += int64(r.ExpFloat64() * 500_000)
				}
				points.add(gpuTime(ns), seenNs-gpuTime(ns))
				timesNs = append(timesNs, ns)
			}
		}
		clock := newClock(points.list)
		for _, ns := range timesNs {
			if got := clock.Convert(gpuTime(ns)); got.LoNs > ns || got.HiNs < ns {
				t.Fatalf("seed %d: %d is not in [%d, %d] around it", seed, ns-startNs, got.LoNs-ns, got.HiNs-ns)
			}
		}
	}
}
