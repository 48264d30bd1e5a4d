package activity_test

import (
	"cmp"
	"fmt"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest/gpuprogram"
	"github.com/gpurec/gpurec/analyze/model/activity"
	"github.com/gpurec/gpurec/internal/testclass"
)

// TestLogEqualsReplay compares the operations of the log with those of a replay, for programs with operations of all
// kinds.
func TestLogEqualsReplay(t *testing.T) {
	testclass.Unit(t)
	for i, plan := range []gpuprogram.Plan{
		{Streams: 4, Threads: 3},
		{Streams: 4, Shared: true},
		{Streams: 3, Processes: 3},
		{Streams: 3, Extra: 0.05},
		{Streams: 3, Lost: true},
		{Streams: 3, Sampled: true},
		{Streams: 3, Threads: 2, Ordered: true, NoReturns: true},
		{Streams: 2, Idle: 1e-4, Waits: 0.005},
		{Streams: 3, HalfTimed: true},
		{Streams: 3, Hidden: 0.01},
		{Streams: 3, Brief: true},
		{Streams: 2, Parts: 7},
		{Streams: 3, Early: 0.3},
		{Streams: 2, Short: 0.5, AnyPlace: true},
		{Streams: 2, EndWords: true, MeanNs: 150_000, Waits: 0.05},
	} {
		t.Run(fmt.Sprintf("plan %d", i), func(t *testing.T) { compareLog(t, plan) })
	}
}

// compareLog compares the operations of a program.
func compareLog(t *testing.T, plan gpuprogram.Plan) {
	plan.Operations, plan.Processes = cmp.Or(plan.Operations, 10_000), cmp.Or(plan.Processes, 1)
	plan.Threads, plan.Kernels = cmp.Or(plan.Threads, 1), 20
	plan.PaceNs, plan.MeanNs = 10_000, cmp.Or(plan.MeanNs, 20_000)
	plan.Idle, plan.Waits = cmp.Or(plan.Idle, 0.05), cmp.Or(plan.Waits, 0.02)
	type entry struct {
		operation activity.Operation
		hold      activity.Hold
	}
	for seed := range uint64(gpuprogram.Seeds(1)) {
		g := gpuprogram.Run(seed, plan)
		var logged []entry
		replayed := 0
		err := activity.OperationsTwice(g.Replay, g.Channels, activity.Options{Gaps: g.Gaps, EndNs: g.EndNs},
			func(isReplay bool, w activity.Operation, h activity.Hold) {
				switch e := (entry{w, h}); {
				case !isReplay:
					logged = append(logged, e)
				case replayed < len(logged) && logged[replayed] != e:
					t.Fatalf("seed %d, entry %d:\nlog    %+v\nreplay %+v", seed, replayed, logged[replayed], e)
				default:
					replayed++
				}
			})
		if err != nil {
			t.Fatal(err)
		}
		if replayed != len(logged) || replayed < plan.Operations/4 {
			t.Errorf("seed %d: %d entries of the log, %d of the replay", seed, len(logged), replayed)
		}
	}
}

// TestWithoutLog reads the operations of a program whose log is too long for memory, and cannot be written to a file.
func TestWithoutLog(t *testing.T) {
	testclass.Unit(t)
	t.Setenv("TMPDIR", t.TempDir()+"/missing")
	compareLog(t, gpuprogram.Plan{Streams: 4, Operations: 200_000})
}
