package pprof

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/analyzetest/gpuprogram"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report/kernels"
	"github.com/gpurec/gpurec/internal/testclass"
)

// gpuJob is a job with full queues, two lines and a graph.
func gpuJob() *gpuprogram.Job {
	j := gpuprogram.NewJob(3, gpuprogram.Plan{Full: true})
	p := j.Process(0)
	th, stream := p.Thread(), p.Stream()
	th.Enter("train.py", "main")
	for range 600 {
		th.Line(20)
		th.Enter("model.py", "forward")
		th.Line(5)
		th.Launch(stream, "gemm", 64, 60_000)
		th.Line(6)
		th.Launch(stream, "gemm", 64, 20_000)
		th.Leave()
		th.Line(21)
		th.LaunchGraph(stream, 0x77, 100_000)
		th.Line(22)
		th.Launch(stream, "tail", 8, 10_000)
		th.Launch(stream, "tail", 8, 10_000)
		th.Synchronize(stream)
	}
	return j
}

// TestPprofReadsGPUTimes compares the values that the pprof program reads with the truth, and their sum with
// that of the report.
func TestPprofReadsGPUTimes(t *testing.T) {
	testclass.Browser(t)
	j := gpuJob()
	tl := j.Recording(t, 0).Timeline()
	p := profileOf(t, tl, Options{Type: "gpu-time"})
	r, err := kernels.Run(tl, query.Options{})
	if err != nil {
		t.Fatal(err)
	}
	want, _, _ := r.FindNumber("gpu_sum_ns")
	if got := float64(sums(p)[1]); math.Abs(got-want) > 100 {
		t.Errorf("the profile has %.0f ns, the report %.0f", got, want)
	}
	truth := make(map[string]float64)
	for _, w := range j.Operations {
		truth[w.Site] += float64(w.EndNs - w.StartNs)
	}
	traces := string(pprof(t, "-traces", "-lines", "-unit=ns", profileFile(t, p)))
	for site, ns := range truth {
		var line int
		if _, err := fmt.Sscanf(site[strings.IndexByte(site, ':')+1:], "%d", &line); err != nil {
			t.Fatal(err)
		}
		got := 0.0
		for _, trace := range strings.Split(traces, "-----------+") {
			var value float64
			for _, text := range strings.Split(trace, "\n") {
				if number, _, ok := strings.Cut(strings.TrimSpace(text), "ns "); ok && value == 0 {
					_, _ = fmt.Sscan(number, &value)
				}
				function, _, _ := strings.Cut(site, " ")
				if strings.Contains(text, function+" (") && strings.HasSuffix(text, fmt.Sprintf(":%d", line)) {
					got += value
				}
			}
		}
		if math.Abs(got-ns) > ns/20 {
			t.Errorf("%s: %.0f ns, truth %.0f\n%s", site, got, ns, traces)
		}
	}
}

// TestGPUTimesSayTheirError reads the comment of the profile.
func TestGPUTimesSayTheirError(t *testing.T) {
	testclass.Unit(t)
	p := profileOf(t, gpuJob().Recording(t, 0).Timeline(), Options{Type: "gpu-time"})
	if text := strings.Join(p.Comments, "\n"); !strings.Contains(text, "GPU time: ") || !strings.Contains(text, "±") {
		t.Errorf("comments %q", text)
	}
}

// TestNoGPUTimesIsAnError asks for GPU times that the recording does not have.
func TestNoGPUTimesIsAnError(t *testing.T) {
	testclass.Unit(t)
	tl := analyzetest.WorkloadRecording(t).Timeline()
	if _, _, _, err := BuildProfile(tl, Options{Type: "gpu-time"}); !errors.Is(err, NoGPUTimesError{}) {
		t.Errorf("got %v", err)
	}
}
