package kernels_test

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/analyzetest/gpuprogram"
	"github.com/gpurec/gpurec/analyze/model/activity"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/render"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/kernels"
	"github.com/gpurec/gpurec/internal/testclass"
)

// timedRow is the GPU time of a row, as printed.
type timedRow struct{ sumNs, plusMinusNs, launches float64 }

// rowsOf returns the rows of a table by the text of some columns.
func rowsOf(t *testing.T, r *report.Report, name string, keys ...string) map[string]timedRow {
	t.Helper()
	rows := make(map[string]timedRow)
	for i := range r.Tables {
		table := &r.Tables[i]
		if table.Name != name {
			continue
		}
		for k := range table.Rows {
			row := &table.Rows[k]
			text := ""
			for _, key := range keys {
				text += fmt.Sprintln(table.Cell(row, key))
			}
			sum, _ := report.AsNumber(table.Cell(row, "gpu_sum_ns"))
			plusMinus, _ := report.AsNumber(table.Cell(row, "gpu_sum_plus_minus_ns"))
			launches, _ := report.AsNumber(table.Cell(row, "launches"))
			rows[text] = timedRow{sum, plusMinus, launches}
		}
	}
	if len(rows) == 0 {
		t.Fatalf("no rows in table %s", name)
	}
	return rows
}

// runKernels returns the report of a recording.
func runKernels(t *testing.T, recording *analyzetest.TestRecording, opt query.Options) *report.Report {
	t.Helper()
	r, err := kernels.Run(recording.Timeline(), opt)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// score counts rows that contain the truth.
type score struct{ right, rows int }

// compare compares the rows that have at least 1 % of the time with the truth.
func (s *score) compare(t *testing.T, rows map[string]timedRow, truth map[string]float64) {
	t.Helper()
	all := 0.0
	for _, ns := range truth {
		all += ns
	}
	for key, ns := range truth {
		if ns < all/100 {
			continue
		}
		s.rows++
		if row := rows[key]; math.Abs(row.sumNs-ns) <= row.plusMinusNs {
			s.right++
		} else {
			t.Logf(
				"%q: got %.0f ± %.0f, truth %.0f (%.1f%%)",
				key,
				row.sumNs,
				row.plusMinusNs,
				ns,
				100*(row.sumNs-ns)/ns,
			)
		}
	}
}

// training is a job with full queues: two processes with two streams each, a graph, and a kernel with one
// grid that two lines launch with different data.
func training(seed uint64, full bool) *gpuprogram.Job {
	j := gpuprogram.NewJob(seed, gpuprogram.Plan{Full: full})
	for device := range int32(2) {
		p := j.Process(device)
		th, main, side := p.Thread(), p.Stream(), p.Stream()
		th.Enter("train.py", "main")
		for range 150 {
			for layer := range int64(12) {
				th.Line(10)
				th.Launch(main, "gemm", 64, 60_000)
				th.Line(11)
				th.Launch(main, "gemm", 64, 25_000)
				th.Line(12)
				th.Launch(main, fmt.Sprintf("layer%d", layer), 8, 10_000+3_000*layer)
				th.Launch(side, "reduce", 16, 20_000+10_000*int64(device))
			}
			th.Line(13)
			th.LaunchGraph(main, 0x600, 150_000)
			th.Line(14)
			th.Launch(main, "optimizer", 32, 90_000)
			th.SynchronizeDevice()
			th.Compute(50_000)
		}
	}
	return j
}

// TestGPUTimesOfFullQueues compares the GPU times of kernels, lines, streams and graphs with the truth.
func TestGPUTimesOfFullQueues(t *testing.T) {
	testclass.Unit(t)
	for _, full := range []bool{false, true} {
		var s score
		for seed := range uint64(3) {
			j := training(seed, full)
			r := runKernels(t, j.Recording(t, 0), query.Options{})
			byKernel, byLine := make(map[string]float64), make(map[string]float64)
			byStream, byGraph := make(map[string]float64), make(map[string]float64)
			total := 0.0
			for _, w := range j.Operations {
				ns := float64(w.EndNs - w.StartNs)
				total += ns
				byStream[fmt.Sprintln(w.Pid)+fmt.Sprintln(query.StreamName(w.Stream))] += ns
				if w.Op == activity.OpGraph {
					byGraph[fmt.Sprintln(w.Pid)+"0x600\n"] += ns
					continue
				}
				byKernel[fmt.Sprintln(w.Kernel)] += ns
				byLine[fmt.Sprintln(w.Kernel)+fmt.Sprintln(w.Site)] += ns
			}
			s.compare(t, rowsOf(t, r, "kernels", "kernel"), byKernel)
			s.compare(t, rowsOf(t, r, "lines", "kernel", "site"), byLine)
			s.compare(t, rowsOf(t, r, "streams", "pid", "stream"), byStream)
			s.compare(t, rowsOf(t, r, "graphs", "pid", "graph"), byGraph)
			sum, _, _ := r.FindNumber("gpu_sum_ns")
			plusMinus, _, _ := r.FindNumber("gpu_sum_plus_minus_ns")
			known, _, _ := r.FindNumber("gpu_known_pct")
			t.Logf("full %v: %.2f ± %.2f ms, truth %.2f, %.1f%% known", full, sum/1e6, plusMinus/1e6, total/1e6, known)
			if math.Abs(sum-total) > plusMinus || known < 99 || plusMinus > total/10 {
				t.Errorf("full %v: %.0f ± %.0f, truth %.0f, %.1f%% known", full, sum, plusMinus, total, known)
			}
		}
		t.Logf("full %v: %d of %d rows are right", full, s.right, s.rows)
		if s.right*100 < s.rows*95 {
			t.Errorf("full %v: %d of %d rows are right", full, s.right, s.rows)
		}
	}
}

// TestLinesWithOneKernel launches one kernel with one grid from two lines with different data. Each line has
// its own mean.
func TestLinesWithOneKernel(t *testing.T) {
	testclass.Unit(t)
	for _, full := range []bool{false, true} {
		r := runKernels(t, training(7, full).Recording(t, 0), query.Options{})
		rows := rowsOf(t, r, "lines", "kernel", "site")
		for site, want := range map[string]float64{"main (train.py:10)": 60_000, "main (train.py:11)": 25_000} {
			row := rows["gemm\n"+site+"\n"]
			if mean := row.sumNs / row.launches; math.Abs(mean-want) > want/10 {
				t.Errorf("full %v, %s: mean %.0f, truth %.0f", full, site, mean, want)
			}
		}
	}
}

// TestGPUTimesOfEmptyQueues launches so slowly that no operation waits. The printed intervals contain the truth.
func TestGPUTimesOfEmptyQueues(t *testing.T) {
	testclass.Unit(t)
	for _, full := range []bool{false, true} {
		j := gpuprogram.NewJob(5, gpuprogram.Plan{Full: full})
		p := j.Process(0)
		th, stream := p.Thread(), p.Stream()
		th.Enter("slow.py", "loop")
		for i := range 2000 {
			kernel, ns := "short", int64(5_000)
			if i%3 == 0 {
				kernel, ns = "long", 40_000
			}
			th.Launch(stream, kernel, 8, ns)
			th.Compute(120_000)
			if i%50 == 49 {
				th.Synchronize(stream)
			}
		}
		truth := make(map[string]float64)
		for _, w := range j.Operations {
			truth[fmt.Sprintln(w.Kernel)] += float64(w.EndNs - w.StartNs)
		}
		r := runKernels(t, j.Recording(t, 0), query.Options{})
		var s score
		s.compare(t, rowsOf(t, r, "kernels", "kernel"), truth)
		if s.right != s.rows || s.rows != 2 {
			t.Errorf("full %v: %d of %d rows are right", full, s.right, s.rows)
		}
		times := analyzetest.ColumnTexts(t, r, "kernels", "gpu_times")
		if !slices.Equal(times, []string{"bounded", "bounded"}) {
			t.Errorf("full %v: %v", full, times)
		}
	}
}

// TestRandomProgramsContainTheTruth runs random programs with extra operations, lost calls and shared channels.
func TestRandomProgramsContainTheTruth(t *testing.T) {
	testclass.Unit(t)
	plan := gpuprogram.Plan{
		Operations: 20_000,
		Processes:  1,
		Threads:    1,
		Streams:    2,
		Kernels:    12,
		MeanNs:     20_000,
		PaceNs:     10_000,
		Idle:       0.02,
		Waits:      0.02,
	}
	var s score
	for seed := range uint64(6) {
		p := plan
		p.Full, p.Shared, p.Processes = seed%2 == 0, seed%3 == 0, 1+int(seed%2)
		g := gpuprogram.Run(seed, p)
		truth := make(map[string]float64)
		for _, c := range g.Calls {
			if c.Op == activity.OpKernel && c.ID >= 0 {
				truth[fmt.Sprintf("kernel%d\n", c.Label)] += float64(g.Truth[c.ID].EndNs - g.Truth[c.ID].StartNs)
			}
		}
		s.compare(t, rowsOf(t, runKernels(t, g.Record(t), query.Options{}), "kernels", "kernel"), truth)
	}
	t.Logf("%d of %d rows are right", s.right, s.rows)
	if s.right*100 < s.rows*95 {
		t.Errorf("%d of %d rows are right", s.right, s.rows)
	}
}

// TestKernelsAreInTheOrderOfTheirTime compares the order of rows with the truth, where two rows differ by
// more than their errors.
func TestKernelsAreInTheOrderOfTheirTime(t *testing.T) {
	testclass.Unit(t)
	j := training(11, false)
	r := runKernels(t, j.Recording(t, 0), query.Options{Top: 10})
	truth := make(map[string]float64)
	for _, w := range j.Operations {
		truth[w.Kernel] += float64(w.EndNs - w.StartNs)
	}
	rows := rowsOf(t, r, "kernels", "kernel")
	names := analyzetest.ColumnTexts(t, r, "kernels", "kernel")
	if len(names) != 10 {
		t.Fatalf("got %d rows", len(names))
	}
	for i, name := range names[1:] {
		a, b := rows[names[i]+"\n"], rows[name+"\n"]
		if a.sumNs < b.sumNs {
			t.Errorf("%s is before %s", names[i], name)
		}
		if cmp.Less(truth[names[i]], truth[name]) && a.sumNs-b.sumNs > math.Hypot(a.plusMinusNs, b.plusMinusNs) {
			t.Errorf("%s is before %s, truth %.0f and %.0f", names[i], name, truth[names[i]], truth[name])
		}
	}
}

// TestKernelsWithGPUTimesGolden compares the report with golden files.
func TestKernelsWithGPUTimesGolden(t *testing.T) {
	testclass.Unit(t)
	r := runKernels(t, training(1, true).Recording(t, 0), query.Options{Top: 6})
	analyzetest.CompareGolden(t, "gpu.table", analyzetest.RenderReport(t, r, render.Options{Width: 120}))
	analyzetest.CompareGolden(t, "gpu.json", analyzetest.RenderReport(t, r, render.Options{Format: "json"}))
}

// TestOnlyOneProcess filters by process. Only its GPU times are summed up.
func TestOnlyOneProcess(t *testing.T) {
	testclass.Unit(t)
	j := training(2, true)
	r := runKernels(t, j.Recording(t, 0), query.Options{Filter: query.Filter{Pids: []int32{101}}})
	var truth float64
	for _, w := range j.Operations {
		if w.Pid == 101 {
			truth += float64(w.EndNs - w.StartNs)
		}
	}
	sum, _, _ := r.FindNumber("gpu_sum_ns")
	if math.Abs(sum-truth) > truth/20 {
		t.Errorf("got %.0f, truth %.0f", sum, truth)
	}
}
