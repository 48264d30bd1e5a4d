package gpuprogram_test

import (
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest/gpuprogram"
	"github.com/gpurec/gpurec/analyze/model/activity"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/internal/testclass"
)

// TestJobIsRecorded compares the operations of a written job with its truth.
func TestJobIsRecorded(t *testing.T) {
	testclass.Unit(t)
	for _, full := range []bool{false, true} {
		j := gpuprogram.NewJob(3, gpuprogram.Plan{Full: full})
		p := j.Process(0)
		th, main, side := p.Thread(), p.Stream(), p.Stream()
		th.Enter("train.py", "main")
		th.Line(5)
		event := th.NewEvent()
		for step := range 300 {
			th.Step = step
			th.Line(10)
			th.Copy(main, activity.OpCopyToDevice, 1<<20, 40_000)
			for range 20 {
				th.Line(11)
				th.Launch(main, "gemm", 64, 30_000)
				th.Compute(2_000)
			}
			th.Line(12)
			th.RecordEvent(main, event)
			th.WaitEvent(side, event)
			th.Launch(side, "reduce", 8, 15_000)
			th.Line(13)
			th.SynchronizeDevice()
			th.Compute(100_000)
		}
		tl := j.Recording(t, 0).Timeline()
		truth := make(map[[2]int64]gpuprogram.JobOperation)
		for _, w := range j.Operations {
			truth[[2]int64{w.CallNs, int64(w.Pid)}] = w
		}
		operations, wrong := 0, 0
		r, err := activity.Of(tl, query.Window{FromNs: 0, ToNs: activity.UnknownNs})
		if err != nil {
			t.Fatal(err)
		}
		err = r.EachOperation(func(w *activity.Operation) {
			operations++
			want := truth[[2]int64{w.Call.StartNs, int64(w.Call.Pid)}]
			if w.StartQuality >= activity.Bounded && (want.StartNs < w.Start.LoNs || want.StartNs > w.Start.HiNs) ||
				w.EndQuality >= activity.Bounded && (want.EndNs < w.End.LoNs || want.EndNs > w.End.HiNs) {
				wrong++
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		d := r.Devices[0]
		idle := d.LastNs - d.FirstNs - j.IdleNs(0)
		t.Logf(
			"full %t: %d operations, %d wrong, busy %d..%d, truth about %d",
			full,
			operations,
			wrong,
			d.Busy.LoNs,
			d.Busy.HiNs,
			idle,
		)
		if operations != len(j.Operations) || wrong > 0 || d.Busy.HiNs < idle*9/10 || d.Busy.LoNs > idle {
			t.Errorf("%d operations of %d, %d wrong", operations, len(j.Operations), wrong)
		}
		copies := r.MeanOf(100, activity.OpCopyToDevice, 0) // the first label
		if copies == nil || full && (copies.IsLimited || copies.MeanNs < 35_000 || copies.MeanNs > 45_000) {
			t.Errorf("full %t: copies of 40 us take %+v", full, copies)
		}
		if n := len(tl.Calls); n == 0 || tl.SiteOfStack(3) != "main (train.py:11)" {
			t.Errorf("site %q", tl.SiteOfStack(2))
		}
	}
}
