package activity_test

import (
	"math"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest/gpuprogram"
	"github.com/gpurec/gpurec/analyze/model/activity"
	"github.com/gpurec/gpurec/internal/testclass"
)

// TestMeansOfKernelsThatFillTheGPU runs streams whose kernels wait for each other. Their means are right, or unknown.
func TestMeansOfKernelsThatFillTheGPU(t *testing.T) {
	testclass.Unit(t)
	type label struct {
		op    activity.Op
		label int32
	}
	known := map[int]int{} // by streams
	for _, streams := range []int{0, 1, 3} {
		g := gpuprogram.Run(uint64(streams), gpuprogram.Plan{
			Operations: 40_000,
			Kernels:    5,
			PaceNs:     1000,
			Processes:  1,
			Threads:    1,
			MeanNs:     100_000,
			Idle:       1e-3,
			Waits:      0.01,
			Full:       true,
			Fills:      true,
			Streams:    streams,
		})
		truths := make(map[label][2]float64)
		for _, c := range g.Calls {
			if c.ID >= 0 {
				of := truths[label{c.Op, c.Label}]
				truths[label{c.Op, c.Label}] = [2]float64{
					of[0] + float64(g.Truth[c.ID].EndNs-g.Truth[c.ID].StartNs),
					of[1] + 1,
				}
			}
		}
		v := judge(t, g)
		for i := range v.result.Durations {
			d := &v.result.Durations[i]
			if d.Op != activity.OpKernel {
				continue
			}
			of := truths[label{d.Op, d.Label}]
			truth, e := of[0]/of[1], d.Estimate()
			t.Logf("%d streams, kernel %d: %.1f ± %.1f us, truth %.1f us, quality %d", streams, d.Label, e.MeanNs/1e3,
				e.ErrorNs/1e3, truth/1e3, e.Quality)
			if e.Quality == activity.Unknown {
				continue
			}
			known[streams]++
			if math.Abs(e.MeanNs-truth) > max(2*e.ErrorNs, 0.15*truth) {
				t.Errorf("%d streams: kernel %d takes %.0f ± %.0f ns, truth %.0f ns", streams, d.Label, e.MeanNs,
					2*e.ErrorNs, truth)
			}
		}
	}
	if known[0] < 5 {
		t.Errorf("%d of 5 kernels of one stream are known", known[0])
	}
}
