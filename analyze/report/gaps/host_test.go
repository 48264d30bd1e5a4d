package gaps_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/analyzetest/gpuprogram"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/gaps"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

const ms = analyzetest.Ms

// hostJob is a training loop that is late for several reasons.
func hostJob(r *gpuprogram.HostRecorder) *gpuprogram.Job {
	j := gpuprogram.NewJob(4, gpuprogram.Plan{Full: true})
	if r != nil {
		j.RecordHost(*r)
	}
	p := j.Process(0)
	p.Throttle("/kubepods/pod1", 2)
	t, stream := p.Thread(), p.Stream()
	t.Enter("/app/train.py", "main")
	for i := range 60 {
		t.Line(7)
		t.BlockIn(20*ms, format.WaitFact{Reason: format.ReasonPoll}, gpuprogram.DataLoaderFrames()...)
		t.Line(8)
		t.Block(4*ms, format.WaitFact{Reason: format.ReasonGIL, OwnerPid: 100, OwnerTid: 1002, Owner: "logger"})
		t.Line(9)
		t.Block(3*ms, format.WaitFact{Reason: format.ReasonFile, Target: "/data/shard-01.bin"})
		if i%3 == 0 {
			t.Line(10)
			t.Collect(12 * ms)
		}
		t.Line(11)
		t.Work(5 * ms)
		if i%5 == 0 {
			t.Block(9*ms, format.WaitFact{Reason: format.ReasonThrottled})
		}
		launch := func() {
			t.Line(20)
			t.Compute(30_000)
			t.Launch(stream, "gemm", 64, 200_000)
		}
		for range 40 {
			launch()
		}
		t.Line(21)
		t.Synchronize(stream)
	}
	return j
}

// TestHostGoldens compares the report of a program whose host is late, with and without GPU times.
func TestHostGoldens(t *testing.T) {
	testclass.Unit(t)
	for _, timed := range []bool{true, false} {
		recording := hostJob(new(gpuprogram.HostRecorder)).Recording(t, 0)
		name := "host_timed"
		if !timed {
			name = "host_untimed"
			recording.RemoveRows(func(r *format.Row) bool {
				return r.Kind == format.KindProgress || r.Kind == format.KindChannel
			})
		}
		r, err := gaps.Run(recording.Timeline(), query.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for i := range r.Tables {
			r.Tables[i].Rows = r.Tables[i].Rows[:min(12, len(r.Tables[i].Rows))]
		}
		analyzetest.CompareGoldenReports(t, r, name, 180)
		if n, ok, _ := r.FindNumber("host_explained_pct"); !ok || n < 90 {
			t.Errorf("timed=%t: %.1f%% of the late host is explained", timed, n)
		}
		causes := analyzetest.ColumnTexts(t, r, "host", "cause")
		lines := analyzetest.ColumnTexts(t, r, "host", "line")
		for want, line := range map[string]string{
			"waited for the DataLoader": "main (train.py:7)", "waited for the GIL": "main (train.py:8)",
			"waited for a file": "main (train.py:9)", "collected garbage": "main (train.py:10)",
			"ran on the CPU": "main (train.py:11)",
		} {
			if i := slices.Index(causes, want); i < 0 || lines[i] != line {
				t.Errorf("timed=%t: %q is not at %s: %v %v", timed, want, line, causes, lines)
			}
		}
		evidence := strings.Join(analyzetest.ColumnTexts(t, r, "host", "evidence"), "\n")
		for _, want := range []string{"held by logger (thread 1002)", "/data/shard-01.bin", "/kubepods/pod1"} {
			if !strings.Contains(evidence, want) {
				t.Errorf("timed=%t: no evidence %q:\n%s", timed, want, evidence)
			}
		}
	}
}

// TestNoHostTableWithoutRows checks that a recording without rows of class host has no columns about it.
func TestNoHostTableWithoutRows(t *testing.T) {
	testclass.Unit(t)
	r, err := gaps.Run(hostJob(nil).Recording(t, 0).Timeline(), query.Options{})
	if err != nil {
		t.Fatal(err)
	}
	for _, table := range r.Tables {
		if table.Name == "host" || slices.ContainsFunc(table.Columns, isHostColumn) {
			t.Errorf("table %s is about the host", table.Name)
		}
	}
	if _, ok, _ := r.FindNumber("host_explained_pct"); ok {
		t.Error("there is a total about the host")
	}
}

func isHostColumn(c report.Column) bool { return c.Key == "host" }
