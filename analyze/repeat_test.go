package analyze_test

import (
	"bytes"
	"crypto/sha256"
	"io"
	"runtime"
	"testing"

	"github.com/gpurec/gpurec/analyze"
	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/analyzetest/gpuprogram"
	"github.com/gpurec/gpurec/analyze/export/digest"
	"github.com/gpurec/gpurec/analyze/export/html"
	"github.com/gpurec/gpurec/analyze/export/perfetto"
	"github.com/gpurec/gpurec/analyze/model/activity"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/render"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

// mixedJob returns a recording of two processes with several streams, short and long copies, collectives, GPU times
// and rows about the host.
func mixedJob(t *testing.T) *analyzetest.TestRecording {
	j := gpuprogram.NewJob(9, gpuprogram.Plan{})
	for rank := range int32(2) {
		p := j.Process(rank)
		th, main, side := p.Thread(), p.DefaultStream(), p.Stream()
		th.Enter("train.py", "main")
		event := th.NewEvent()
		for step := range 16 {
			th.Line(10)
			th.Copy(main, activity.OpCopyToDevice, 12, 1000)
			th.Copy(main, activity.OpCopyToDevice, 1<<20, 40_000)
			for layer := range 8 {
				th.Line(11)
				th.Launch(main, "gemm", 64, 60_000)
				th.Line(12)
				th.Launch(main, "tanh", 64, 15_000)
				if layer%4 == 3 {
					th.Launch(side, "ncclDevKernel_AllReduce_Sum_f32_RING_LL", 8, 50_000)
				}
			}
			th.Line(13)
			th.RecordEvent(side, event)
			th.WaitEvent(main, event)
			th.Launch(main, "adam", 32, 20_000)
			th.Copy(main, activity.OpCopyToHost, 4, 2000)
			th.Line(14)
			th.Synchronize(main)
			th.Compute(int64(100_000 + 10_000*(step%5)))
		}
	}
	return j.Recording(t, 0)
}

// answers returns a checksum of each report and export of a recording.
func answers(t *testing.T, rec *format.Recording) map[string][32]byte {
	t.Helper()
	sums := make(map[string][32]byte)
	read := func() *timeline.Timeline {
		tl, err := timeline.Open(rec)
		if err != nil {
			t.Fatal(err)
		}
		return tl
	}
	for _, r := range analyze.Reports {
		result, err := r.Run(read(), query.Options{})
		if err != nil {
			t.Fatal(r.Name, err)
		}
		sums[r.Name] = sha256.Sum256(analyzetest.RenderReport(t, result, render.Options{Format: "json"}))
	}
	for name, write := range map[string]func(*timeline.Timeline, io.Writer) error{
		"page": func(tl *timeline.Timeline, out io.Writer) error {
			_, err := html.WritePage(tl, out, html.Options{})
			return err
		},
		"perfetto": func(tl *timeline.Timeline, out io.Writer) error {
			_, err := perfetto.WriteTrace(tl, out, perfetto.Options{})
			return err
		},
		"digest": func(tl *timeline.Timeline, out io.Writer) error {
			_, err := digest.Write(tl, out, "md", 20_000, digest.Options{})
			return err
		},
	} {
		var out bytes.Buffer
		if err := write(read(), &out); err != nil {
			t.Fatal(name, err)
		}
		sums[name] = sha256.Sum256(out.Bytes())
	}
	return sums
}

// TestOneFileOneAnswer requires the same bytes of each report and export in ten runs, on 1, 2 and 8 processors.
func TestOneFileOneAnswer(t *testing.T) {
	testclass.Unit(t)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(0))
	for name, recording := range map[string]*analyzetest.TestRecording{
		"job": mixedJob(t),
		"random program": gpuprogram.Run(3, gpuprogram.Plan{
			Operations: 700, Processes: 2, Threads: 2, Streams: 4, Shared: true, Ordered: true, Kernels: 6, MeanNs: 20_000,
			PaceNs: 10_000, Idle: 0.05, Waits: 0.02, Extra: 0.02, Sampled: true, Short: 0.5, AnyPlace: true,
		}).Record(t),
	} {
		rec := recording.WriteAndOpen()
		var first map[string][32]byte
		for run := range 10 {
			runtime.GOMAXPROCS([...]int{1, 2, 8}[run%3])
			sums := answers(t, rec)
			if first == nil {
				first = sums
			}
			for what, sum := range sums {
				if sum != first[what] {
					t.Errorf("%s: %s has other bytes in run %d", name, what, run+1)
				}
			}
		}
	}
}
