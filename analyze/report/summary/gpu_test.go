package summary_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest/gpuprogram"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report/summary"
	"github.com/gpurec/gpurec/internal/testclass"
)

// busyJob launches kernels of 50 µs. The host works for pauseNs after each step of 40 kernels.
func busyJob(full bool, pauseNs int64) *gpuprogram.Job {
	j := gpuprogram.NewJob(4, gpuprogram.Plan{Full: full})
	p := j.Process(0)
	th, stream := p.Thread(), p.Stream()
	th.Enter("train.py", "main")
	for range 300 {
		for range 40 {
			th.Launch(stream, "gemm", 64, 50_000)
		}
		th.Synchronize(stream)
		if pauseNs > 0 {
			th.Compute(pauseNs)
		}
	}
	return j
}

// busyPct returns the share of the recording in which the GPU ran operations of the job.
func busyPct(j *gpuprogram.Job, durNs int64) float64 {
	operations := slices.Clone(j.Operations)
	slices.SortFunc(operations, func(a, b gpuprogram.JobOperation) int { return int(a.StartNs - b.StartNs) })
	busyNs, doneNs := int64(0), int64(0)
	for _, w := range operations {
		busyNs += max(0, w.EndNs-max(w.StartNs, doneNs))
		doneNs = max(doneNs, w.EndNs)
	}
	return 100 * float64(busyNs) / float64(durNs)
}

// TestGPUBusy compares the bounds of the busy share with the truth, and the verdicts of a job with a busy GPU
// and of one whose host works most of the time.
func TestGPUBusy(t *testing.T) {
	testclass.Unit(t)
	for _, full := range []bool{false, true} {
		for _, c := range []struct {
			pauseNs int64
			verdict string
		}{{0, ", bound by the GPU"}, {6_000_000, ", bound by the host"}, {500_000, "%"}} {
			j := busyJob(full, c.pauseNs)
			r, err := summary.Run(j.Recording(t, 0).Timeline(), query.Options{})
			if err != nil {
				t.Fatal(err)
			}
			low, _, _ := r.FindNumber("gpu_busy_min_pct")
			high, _, _ := r.FindNumber("gpu_busy_max_pct")
			truth, text := busyPct(j, r.Window.DurNs()), ""
			for _, f := range r.Facts {
				if f.Key == "gpu_busy" {
					text, _ = f.Value.(string)
				}
			}
			t.Logf("full %v, pause %d: %q, truth %.1f%%", full, c.pauseNs, text, truth)
			if truth < low || truth > high || high-low > 15 || !strings.HasSuffix(text, c.verdict) {
				t.Errorf("full %v, pause %d: %q, %.1f to %.1f, truth %.1f", full, c.pauseNs, text, low, high, truth)
			}
		}
	}
}
