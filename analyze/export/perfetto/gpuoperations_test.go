package perfetto

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/analyzetest/gpuprogram"
	"github.com/gpurec/gpurec/analyze/analyzetest/viewers"
	"github.com/gpurec/gpurec/analyze/model/activity"
	"github.com/gpurec/gpurec/internal/testclass"
)

// tracedJob returns a job with kernels and copies on two streams, and its recording.
func tracedJob(t *testing.T, full bool) (*gpuprogram.Job, *analyzetest.TestRecording) {
	j := gpuprogram.NewJob(5, gpuprogram.Plan{Full: full})
	p := j.Process(0)
	th, main, side := p.Thread(), p.Stream(), p.Stream()
	th.Enter("train.py", "train")
	for step := range 200 {
		th.Line(10)
		th.Copy(main, activity.OpCopyToDevice, 1<<20, 40_000)
		for range 10 {
			th.Line(11)
			th.Launch(main, "gemm", 64, 30_000)
		}
		if step%2 == 0 {
			th.Line(12)
			th.Launch(side, "reduce", 8, 15_000)
		}
		th.Line(13)
		th.SynchronizeDevice()
		th.Compute(2_000_000) // a clock needs some time to be fitted
	}
	return j, j.Recording(t, 0)
}

// TestTraceShowsGPUTimes compares the slices of GPU lanes with the truth.
func TestTraceShowsGPUTimes(t *testing.T) {
	testclass.Unit(t)
	for _, full := range []bool{true, false} {
		j, recording := tracedJob(t, full)
		var out bytes.Buffer
		if _, err := WriteTrace(recording.Timeline(), &out, Options{}); err != nil {
			t.Fatal(err)
		}
		truth := make(map[string][]gpuprogram.JobOperation) // by kernel, in order
		for _, w := range j.Operations {
			truth[w.Kernel] = append(truth[w.Kernel], w)
		}
		seen := make(map[string]int)
		busyNs, trueNs := int64(0), int64(0)
		for _, s := range decode(t, out.Bytes()).slices {
			if !strings.Contains(s.track, "(GPU time)") {
				continue
			}
			kernel := s.name
			if strings.HasPrefix(kernel, "copy HtoD") {
				kernel = ""
			}
			want := truth[kernel][seen[kernel]]
			seen[kernel]++
			if s.depth != 0 || s.instant {
				t.Fatalf("%+v overlaps another operation, or is an instant", s)
			}
			if off := s.startNs + recording.Meta.ClockOffsetNs - want.StartNs; full &&
				max(off, -off) > 60*analyzetest.Us {
				t.Errorf("%s began %d ns away from the truth", s.name, off)
			}
			if kernel == "gemm" { // nothing bounds the ends of the others from near
				busyNs += s.durNs
				trueNs += want.EndNs - want.StartNs
			}
		}
		t.Logf(
			"full %t: %d gemm, %d reduce, %d copies, %d ns busy, truth %d",
			full,
			seen["gemm"],
			seen["reduce"],
			seen[""],
			busyNs,
			trueNs,
		)
		if seen["gemm"] != 2000 || seen["reduce"] != 100 || seen[""] != 200 {
			t.Errorf("%v operations", seen)
		}
		if share := float64(busyNs) / float64(trueNs); share < 0.9 || share > 1.2 {
			t.Errorf("slices are %.2f of the true time", share)
		}
	}
}

// TestTracePartsHaveGPUTimes compares the operations of a trace in parts with those of a whole one.
func TestTracePartsHaveGPUTimes(t *testing.T) {
	testclass.Unit(t)
	_, recording := tracedJob(t, true)
	list, _ := inParts(t, recording.Timeline(), 700)
	operations, parts := 0, len(list)
	for _, b := range list {
		for _, s := range decode(t, b.Bytes()).slices {
			if strings.Contains(s.track, "(GPU time)") && s.name == "gemm" {
				operations++
			}
		}
	}
	if operations < 2000 || operations > 2000+parts*2 {
		t.Errorf("%d operations in %d parts", operations, parts)
	}
}

func TestPerfettoReadsGPUTimes(t *testing.T) {
	testclass.Browser(t)
	_, recording := tracedJob(t, true)
	path := filepath.Join(t.TempDir(), "run.pftrace")
	var out bytes.Buffer
	if _, err := WriteTrace(recording.Timeline(), &out, Options{}); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, out.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	results := viewers.QueryPerfetto(
		t,
		path,
		viewers.PerfettoErrorsQuery,
		`select count(*) n from slice s join track t on s.track_id = t.id where t.name glob '*(GPU time)' and s.name = 'gemm'`,
		`select count(*) n from flow`,
		`select count(*) n from flow f join slice i on f.slice_in = i.id join slice o on f.slice_out = o.id
			where o.name = 'cuLaunchKernel' and i.name in ('gemm', 'reduce') and i.ts > o.ts`,
		`select count(*) n from slice s join args a on s.arg_set_id = a.arg_set_id
			where a.key = 'debug.start_known' and a.string_value = 'measured'`,
	)
	if len(results[0]) != 0 {
		t.Errorf("trace_processor complains: %v", results[0])
	}
	for i, want := range map[int]float64{1: 2000, 2: 2300, 3: 2100} {
		if got := results[i][0]["n"].(float64); got != want {
			t.Errorf("query %d: %v, want %v", i, got, want)
		}
	}
	if n := results[4][0]["n"].(float64); n < 1500 {
		t.Errorf("%v starts are measured", n)
	}
}
