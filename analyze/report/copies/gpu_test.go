package copies_test

import (
	"math"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/analyzetest/gpuprogram"
	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/model/activity"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/render"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/copies"
	"github.com/gpurec/gpurec/internal/testclass"
)

// copyJob copies in bursts of known bandwidth: 4 MiB at 50 bytes/ns to the device, 1 MiB at 25 bytes/ns to
// the host, and 64 MiB at 1000 bytes/ns on the device.
func copyJob(full bool) *gpuprogram.Job {
	j := gpuprogram.NewJob(9, gpuprogram.Plan{Full: full})
	p := j.Process(0)
	th, stream := p.Thread(), p.Stream()
	th.Enter("load.py", "main")
	for range 400 {
		th.Line(3)
		for range 6 {
			th.Copy(stream, activity.OpCopyToDevice, 4<<20, 4<<20/50)
		}
		th.Line(4)
		for range 9 {
			th.Launch(stream, "gemm", 8, 20_000)
			th.Copy(stream, activity.OpCopyOnDevice, 64<<20, 64<<20/1000)
		}
		th.Line(5)
		for range 4 {
			th.Copy(stream, activity.OpCopyToHost, 1<<20, 1<<20/25)
		}
		th.Synchronize(stream)
		th.Compute(30_000)
	}
	return j
}

// rate returns a bandwidth in bytes/ns; 0 if it is unknown.
func rate(table *report.Table, row *report.Row, key string) float64 {
	v, _ := table.Cell(row, key).(catalog.MetricValue)
	return v.Value / 1e9
}

// TestBandwidthOnTheGPU compares GPU times and bandwidths with the truth.
func TestBandwidthOnTheGPU(t *testing.T) {
	testclass.Unit(t)
	for _, full := range []bool{false, true} {
		j := copyJob(full)
		truth := make(map[string]float64)
		for _, w := range j.Operations {
			name := map[activity.Op]string{
				activity.OpCopyToDevice: "HtoD", activity.OpCopyOnDevice: "DtoD", activity.OpCopyToHost: "DtoH",
			}[w.Op]
			truth[name] += float64(w.EndNs - w.StartNs)
		}
		want := map[string]float64{"HtoD": 50, "DtoD": 1000, "DtoH": 25}
		r, err := copies.Run(j.Recording(t, 0).Timeline(), query.Options{})
		if err != nil {
			t.Fatal(err)
		}
		table := &r.Tables[1]
		if len(table.Rows) != 3 {
			t.Fatalf("%d rows, want 3", len(table.Rows))
		}
		for i := range table.Rows {
			row := &table.Rows[i]
			direction := table.Cell(row, "direction").(string)
			sum, known := report.AsNumber(table.Cell(row, "gpu_sum_ns"))
			plusMinus, _ := report.AsNumber(table.Cell(row, "gpu_sum_plus_minus_ns"))
			low := rate(table, row, "gpu_bandwidth_min_bytes_per_second")
			high := rate(table, row, "gpu_bandwidth_max_bytes_per_second")
			t.Logf(
				"full %v, %s: %.1f ± %.1f ms, truth %.1f; %.1f to %.1f bytes/ns, truth %.0f; %v",
				full,
				direction,
				sum/1e6,
				plusMinus/1e6,
				truth[direction]/1e6,
				low,
				high,
				want[direction],
				table.Cell(row, "gpu_times"),
			)
			if !known || math.Abs(sum-truth[direction]) > plusMinus {
				t.Errorf("full %v, %s: %.0f ± %.0f, truth %.0f", full, direction, sum, plusMinus, truth[direction])
			}
			if low > want[direction] || high < want[direction] {
				t.Errorf("full %v, %s: %.1f to %.1f bytes/ns, truth %.0f", full, direction, low, high, want[direction])
			}
			if full && direction == "DtoD" && high > 1.5*low {
				t.Errorf("full %v, %s: the bounds %.1f and %.1f are far apart", full, direction, low, high)
			}
		}
	}
}

// TestCopiesWithGPUTimesGolden compares the report with a golden file.
func TestCopiesWithGPUTimesGolden(t *testing.T) {
	testclass.Unit(t)
	r, err := copies.Run(copyJob(true).Recording(t, 0).Timeline(), query.Options{})
	if err != nil {
		t.Fatal(err)
	}
	analyzetest.CompareGolden(t, "gpu.table", analyzetest.RenderReport(t, r, render.Options{Width: 140}))
}
