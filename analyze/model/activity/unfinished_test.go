package activity_test

import (
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/analyzetest/gpuprogram"
	"github.com/gpurec/gpurec/analyze/model/activity"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/internal/testclass"
)

// TestUnfinishedIsTheStuckOperation writes programs in which one kernel never ends, with operations behind it.
func TestUnfinishedIsTheStuckOperation(t *testing.T) {
	testclass.Unit(t)
	for seed := range uint64(gpuprogram.Seeds(5)) {
		for _, full := range []bool{false, true} {
			j := gpuprogram.NewJob(seed, gpuprogram.Plan{Full: full})
			random := j.Random()
			p := j.Process(0)
			th, main, side := p.Thread(), p.Stream(), p.Stream()
			th.Enter("train.py", "main")
			steps, kernels := 40+random.IntN(100), 5+random.IntN(20)
			for range steps {
				th.Copy(main, activity.OpCopyToDevice, 1<<16, 8_000)
				for k := range kernels {
					th.Line(10 + k)
					th.Launch(main, "layer", int32(8+k), 20_000)
				}
				th.Launch(side, "side", 4, 9_000)
				th.Line(50)
				th.SynchronizeDevice()
				th.Compute(50_000)
			}
			th.Copy(main, activity.OpCopyToDevice, 1<<16, 8_000) // no later copy shows its end
			for range random.IntN(10) {                          // the queue before the stuck kernel
				th.Launch(main, "layer", 8, 20_000)
			}
			th.Line(60)
			th.Launch(main, "stuck", 8, 3600*analyzetest.Second)
			truth := j.Operations[len(j.Operations)-1]
			behind := random.IntN(30)
			for range behind {
				th.Launch(main, "layer", 8, 20_000)
			}
			th.Synchronize(main)
			tl := j.Recording(t, truth.StartNs+20*analyzetest.Second).Timeline()
			a, err := activity.Of(tl, query.Window{FromNs: 0, ToNs: activity.UnknownNs})
			if err != nil {
				t.Fatal(err)
			}
			list, err := a.Unfinished(j.EndNs)
			if err != nil {
				t.Fatal(err)
			}
			if len(list) != 1 {
				t.Errorf("seed %d full %t: %d unfinished operations, want 1: %+v", seed, full, len(list), list)
				continue
			}
			w := &list[0]
			if name := a.Labels[w.Call.Label].Kernel; name != "stuck" || w.Behind != int64(behind) ||
				w.LikelyNumber != truth.Number || w.Start.LoNs > truth.StartNs || w.Start.HiNs < truth.StartNs {
				t.Errorf("seed %d full %t: %s, %d behind, number %d, start %+v; truth: %d behind, %+v",
					seed, full, name, w.Behind, w.LikelyNumber, w.Start, behind, truth)
			}
		}
	}
}
