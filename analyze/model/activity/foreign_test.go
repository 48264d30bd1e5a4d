package activity_test

import (
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest/gpuprogram"
	"github.com/gpurec/gpurec/analyze/model/activity"
	"github.com/gpurec/gpurec/internal/testclass"
)

// TestForeignWords reads a program with the words of another program of the same kind. The recorder
// trusts such words if they change at the rate of the calls. At most 1 % of the operations may have times from
// them: chance pairs short streams.
func TestForeignWords(t *testing.T) {
	testclass.Unit(t)
	for _, plan := range []gpuprogram.Plan{
		{Streams: 1, Full: true, Waits: 0.02, PaceNs: 10_000, MeanNs: 20_000},
		{Streams: 1, Waits: 0.02, PaceNs: 10_000, MeanNs: 20_000},
		{Streams: 1, Waits: 0.001, PaceNs: 10_000, MeanNs: 20_000},
		{Streams: 1, Waits: 0.001, PaceNs: 100_000, MeanNs: 10_000},
		{Streams: 3, Waits: 0.01, PaceNs: 10_000, MeanNs: 20_000},
		{Streams: 1, NoWaits: true, PaceNs: 10_000, MeanNs: 20_000, Idle: 0.05},
	} {
		plan.Operations, plan.Processes, plan.Threads, plan.Kernels = 20_000, 1, 1, 10
		operations, timed := 0, 0
		for seed := range uint64(gpuprogram.Seeds(5)) {
			g, other := gpuprogram.Run(seed, plan), gpuprogram.Run(seed+1000, plan)
			g.Samples, g.Channels = other.Samples, other.Channels
			operations += len(g.Truth)
			_, err := activity.Compute(g.Replay, g.Channels, activity.Options{
				OnOperation: func(w *activity.Operation) {
					if w.StartQuality >= activity.Bounded {
						timed++
					}
				},
				Gaps: g.Gaps, EndNs: g.EndNs,
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		if timed > operations/100 {
			t.Errorf("%+v: %d of %d operations have times from words of another program", plan, timed, operations)
		}
	}
}
