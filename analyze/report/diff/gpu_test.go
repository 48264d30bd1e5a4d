package diff_test

import (
	"math"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest/gpuprogram"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/diff"
	"github.com/gpurec/gpurec/analyze/report/kernels"
	"github.com/gpurec/gpurec/internal/testclass"
)

// kernelSide returns one side of a comparison of kernels. gemm runs for gemmNs.
func kernelSide(t *testing.T, seed uint64, gemmNs int64) *diff.Side {
	t.Helper()
	j := gpuprogram.NewJob(seed, gpuprogram.Plan{Full: true})
	p := j.Process(0)
	th, stream := p.Thread(), p.Stream()
	th.Enter("train.py", "main")
	for range 300 {
		th.Line(1)
		for range 4 {
			th.Launch(stream, "gemm", 64, gemmNs)
			th.Launch(stream, "softmax", 8, 30_000)
			th.Launch(stream, "norm", 8, 12_000)
		}
		th.Synchronize(stream)
		th.Compute(20_000)
	}
	side, err := diff.NewSide(j.Recording(t, 0).Timeline(), kernels.Run, query.Options{}, diff.Divisor{})
	if err != nil {
		t.Fatal(err)
	}
	return side
}

// TestOnlyRealChangesOfGPUTimeAreChanges compares two recordings in which one of three kernels became slower.
// The others differ by less than their errors, so they have no change.
func TestOnlyRealChangesOfGPUTimeAreChanges(t *testing.T) {
	testclass.Unit(t)
	r, err := diff.Run(kernelSide(t, 1, 40_000), kernelSide(t, 2, 48_000), query.Options{})
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for i := range r.Tables {
		table := &r.Tables[i]
		if table.Name != "kernels" && table.Name != "lines" {
			continue
		}
		for k := range table.Rows {
			seen++
			row := &table.Rows[k]
			name := table.Cell(row, "kernel").(string)
			change, changed := report.AsNumber(table.Cell(row, "gpu_sum_ns_change"))
			plusMinus, known := report.AsNumber(table.Cell(row, "gpu_sum_ns_change_plus_minus"))
			was, _ := report.AsNumber(table.Cell(row, "gpu_sum_ns_before"))
			t.Logf("%s %s: %.0f, change %.0f ± %.0f", table.Name, name, was, change, plusMinus)
			if changed != (name == "gemm") || !known || plusMinus <= 0 {
				t.Errorf("%s: change %.0f ± %.0f of %.0f", name, change, plusMinus, was)
			}
			if name == "gemm" && (k != 0 || math.Abs(change-0.2*was) > plusMinus) {
				t.Errorf("row %d: gemm changed by %.0f ± %.0f, want %.0f", k, change, plusMinus, 0.2*was)
			}
		}
	}
	if seen != 6 {
		t.Errorf("%d rows, want 6", seen)
	}
}
