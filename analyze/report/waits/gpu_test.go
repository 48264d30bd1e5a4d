package waits_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/analyzetest/gpuprogram"
	"github.com/gpurec/gpurec/analyze/model/activity"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/waits"
	"github.com/gpurec/gpurec/internal/testclass"
)

// TestWaitsNameTheirOperation compares the last operation of waits, and how long the GPU was busy after they began,
// with the truth.
func TestWaitsNameTheirOperation(t *testing.T) {
	testclass.Unit(t)
	for _, full := range []bool{false, true} {
		j := gpuprogram.NewJob(8, gpuprogram.Plan{Full: full})
		p := j.Process(0)
		th, main, side := p.Thread(), p.Stream(), p.Stream()
		th.Enter("train.py", "main")
		busyNs := map[string]int64{}
		wait := func(line int, site string, operation func(), wait func()) {
			th.Line(line)
			operation()
			fromNs := th.NowNs
			wait()
			endNs := int64(0)
			for _, w := range j.Operations {
				endNs = max(endNs, w.EndNs)
			}
			busyNs[site] += max(0, endNs-fromNs)
			j.Operations = j.Operations[:0]
		}
		for range 400 {
			wait(5, "main (train.py:5)", func() {
				for range 8 {
					th.Launch(main, "gemm", 64, 40_000)
				}
				th.Launch(main, "loss", 8, 15_000)
				th.Copy(main, activity.OpCopyToHost, 4, 2_000)
			}, func() { th.Synchronize(main) })
			wait(6, "main (train.py:6)", func() {
				for range 3 {
					th.Launch(main, "short", 8, 8_000)
					th.Launch(side, "reduce", 16, 60_000)
				}
			}, th.SynchronizeDevice)
			th.Line(7)
			th.Synchronize(main) // nothing was queued
			th.Compute(60_000)
		}
		r, err := waits.Run(j.Recording(t, 0).Timeline(), query.Options{})
		if err != nil {
			t.Fatal(err)
		}
		want := map[string]string{"main (train.py:5)": "loss", "main (train.py:6)": "reduce", "main (train.py:7)": ""}
		table := &r.Tables[0]
		for i := range table.Rows {
			row := &table.Rows[i]
			site := table.Cell(row, "site").(string)
			operation, _ := table.Cell(row, "last_operation").(string)
			low, known := report.AsNumber(table.Cell(row, "gpu_busy_min_ns"))
			high, _ := report.AsNumber(table.Cell(row, "gpu_busy_max_ns"))
			truth := float64(busyNs[site])
			t.Logf("full %v, %s: %q, %.2f to %.2f ms, truth %.2f", full, site, operation, low/1e6, high/1e6, truth/1e6)
			if !strings.HasPrefix(operation, want[site]) || want[site] == "" && operation != "" ||
				known != (want[site] != "") ||
				truth < low ||
				truth > high {
				t.Errorf("full %v, %s: %q, %.0f to %.0f, truth %.0f", full, site, operation, low, high, truth)
			}
			if full && low < truth/2 {
				t.Errorf("full %v, %s: the lower bound %.0f is far below %.0f", full, site, low, truth)
			}
		}
		names := analyzetest.ColumnTexts(t, r, "longest", "last_operation")
		if len(table.Rows) != 3 || !slices.Contains(names, "loss") || full && slices.Contains(names, "short") {
			t.Errorf("%d rows, longest waits for %v", len(table.Rows), slices.Compact(names))
		}
	}
}
