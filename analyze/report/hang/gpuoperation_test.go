package hang_test

import (
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/analyzetest/gpuprogram"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/hang"
	"github.com/gpurec/gpurec/internal/testclass"
)

// stuckJob returns a training in which one kernel never ends, and the truth about that kernel.
func stuckJob(
	t *testing.T,
	seed uint64,
	full bool,
	kernel string,
) (*analyzetest.TestRecording, gpuprogram.JobOperation, int64) {
	j := gpuprogram.NewJob(seed, gpuprogram.Plan{Full: full})
	random := j.Random()
	p := j.Process(0)
	th, main := p.Thread(), p.Stream()
	th.Enter("train.py", "train")
	for range 50 + random.IntN(50) {
		for k := range 4 + random.IntN(8) {
			th.Line(10 + k)
			th.Launch(main, "layer", int32(8+k), 20_000)
		}
		th.Line(30)
		th.Synchronize(main)
		th.Compute(100_000)
	}
	th.Line(40 + random.IntN(9))
	th.Launch(main, kernel, 64, 3600*analyzetest.Second)
	truth := j.Operations[len(j.Operations)-1]
	behind := int64(random.IntN(5))
	for range behind {
		th.Launch(main, "layer", 8, 20_000)
	}
	th.Line(50)
	th.Synchronize(main)
	return j.Recording(t, truth.StartNs+30*analyzetest.Second), truth, behind
}

func TestHangNamesTheStuckKernel(t *testing.T) {
	testclass.Unit(t)
	for seed := range uint64(gpuprogram.Seeds(5)) {
		recording, truth, behind := stuckJob(t, seed, seed%2 == 0, "softmax_backward")
		r := newHangReport(t, recording, hang.Options{})
		table := tableNamed(r, "gpu_operations")
		if table == nil || len(table.Rows) != 1 {
			t.Fatalf("seed %d: no operation", seed)
		}
		row := &table.Rows[0]
		since := recording.Meta.EndNs - truth.StartNs
		off := table.Cell(row, "running_ns").(int64) - since
		within := table.Cell(row, "running_error_ns").(int64) + 3*analyzetest.Us
		if table.Cell(row, "operation") != "softmax_backward" || table.Cell(row, "number") != truth.Number ||
			table.Cell(row, "site") != truth.Site || table.Cell(row, "behind") != behind || max(off, -off) > within {
			t.Errorf("seed %d: %v, truth %+v, %d behind, off by %d ns", seed, row.Cells, truth, behind, off)
		}
		if text := firstFact(r, "gpu_operation"); !strings.Contains(text, "softmax_backward") ||
			!strings.Contains(text, truth.Site) {
			t.Errorf("seed %d: %q", seed, text)
		}
	}
}

// tableNamed returns a table of a report, or nil.
func tableNamed(r *report.Report, name string) *report.Table {
	for i := range r.Tables {
		if r.Tables[i].Name == name {
			return &r.Tables[i]
		}
	}
	return nil
}

// firstFact returns a fact of a report as text.
func firstFact(r *report.Report, key string) string {
	for _, f := range r.Facts {
		if f.Key == key {
			text, _ := f.Value.(string)
			return text
		}
	}
	return ""
}

func TestHangReportWithGPUTimes(t *testing.T) {
	testclass.Unit(t)
	recording, _, _ := stuckJob(t, 1, true, "ncclDevKernel_AllReduce_Sum_bf16_RING_LL")
	analyzetest.CompareGoldenReports(t, newHangReport(t, recording, hang.Options{}), "hanggpu", 150)
}

// TestHangWithoutStuckOperation checks that a process that waits on the host is not called stuck on the GPU.
func TestHangWithoutStuckOperation(t *testing.T) {
	testclass.Unit(t)
	j := gpuprogram.NewJob(1, gpuprogram.Plan{Full: true})
	p := j.Process(0)
	th, main := p.Thread(), p.Stream()
	th.Enter("train.py", "train")
	for range 200 {
		th.Launch(main, "layer", 8, 20_000)
		th.Synchronize(main)
	}
	r := newHangReport(t, j.Recording(t, th.NowNs+40*analyzetest.Second), hang.Options{})
	if n := len(tableNamed(r, "gpu_operations").Rows); n != 0 {
		t.Errorf("%d unfinished operations", n)
	}
	if text := firstFact(r, "gpu_operation"); !strings.Contains(text, "has finished all operations") {
		t.Errorf("%q", text)
	}
}
