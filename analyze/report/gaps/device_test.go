package gaps_test

import (
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/analyzetest/gpuprogram"
	"github.com/gpurec/gpurec/analyze/model/activity"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/gaps"
	"github.com/gpurec/gpurec/internal/testclass"
)

// record returns a training on one GPU: its steps wait for a copy, for a collective, and for Python.
func record(t testing.TB) *analyzetest.TestRecording {
	j := gpuprogram.NewJob(2, gpuprogram.Plan{Full: true})
	p := j.Process(0)
	th, main, side := p.Thread(), p.Stream(), p.Stream()
	th.Enter("train.py", "main")
	th.Line(5)
	event := th.NewEvent()
	th.Enter("train.py", "step")
	launch := func(line, n int, s *gpuprogram.JobStream, kernel string, gpuNs int64) {
		th.Line(line)
		for range n {
			th.Launch(s, kernel, 64, gpuNs)
			th.Compute(2000)
		}
	}
	for step := range 100 {
		th.Line(10)
		if step%3 == 0 { // else the streams have equal numbers of operations
			th.Copy(main, activity.OpCopyToDevice, 128<<10, 5_000)
		}
		th.Copy(main, activity.OpCopyToDevice, 8<<20, 400_000)
		launch(11, 30, main, "gemm", 40_000)
		th.Line(12)
		th.RecordEvent(main, event)
		th.WaitEvent(side, event)
		launch(13, 1, side, "ncclDevKernel_AllReduce_Sum_f32_RING_LL", 300_000)
		th.Line(14)
		th.RecordEvent(side, event)
		th.WaitEvent(main, event)
		launch(15, 10, main, "adam", 20_000)
		th.Line(16)
		th.Synchronize(main)
		th.Line(17)
		th.Compute(600_000)
	}
	return j.Recording(t, 0)
}

func run(t testing.TB, opt gaps.Options) *report.Report {
	t.Helper()
	r, err := gaps.RunWithOptions(record(t).Timeline(), opt)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestDeviceGapsLookAsBefore compares the report with golden files.
func TestDeviceGapsLookAsBefore(t *testing.T) {
	testclass.Unit(t)
	r := run(t, gaps.Options{Options: query.Options{Top: 6}})
	analyzetest.CompareGoldenReports(t, r, "device", 160)
}

// TestCausesOfDeviceGaps checks the causes of each kind, longest first.
func TestCausesOfDeviceGaps(t *testing.T) {
	testclass.Unit(t)
	r := run(t, gaps.Options{Options: query.Options{Top: 3}})
	want := [][2]string{
		{"step (train.py:10)", "host was outside CUDA"},
		{"step (train.py:10)", "only copies ran"},
		{"step (train.py:13)", "only collectives ran"},
	}
	lines, causes := analyzetest.ColumnTexts(t, r, "causes", "line"), analyzetest.ColumnTexts(t, r, "causes", "cause")
	for i, w := range want {
		if lines[i] != w[0] || causes[i] != w[1] {
			t.Errorf("cause %d: %s at %s, want %s at %s", i, causes[i], lines[i], w[1], w[0])
		}
	}
	if after := analyzetest.ColumnTexts(t, r, "causes", "after")[0]; after != "step (train.py:16)" {
		t.Errorf("after %s, want line 16", after)
	}
}

// TestDeviceGapsPassFilters checks that filters select operations.
func TestDeviceGapsPassFilters(t *testing.T) {
	testclass.Unit(t)
	all, ok, _ := run(t, gaps.Options{}).FindNumber("gpu_idle_pct")
	if !ok {
		t.Fatal("no gpu_idle_pct")
	}
	var side query.Options
	side.Streams = []int64{0x7001}
	one, _, _ := run(t, gaps.Options{Options: side}).FindNumber("gpu_idle_pct")
	if one < all+8 { // the collectives of the other stream count as idle time
		t.Errorf("idle %.1f%% with one stream, %.1f%% with all", one, all)
	}
	var other query.Options
	other.Pids = []int32{1}
	if r := run(t, gaps.Options{Options: other}); r.NoMatch == nil {
		t.Error("another process matches")
	}
}
