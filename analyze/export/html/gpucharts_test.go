package html

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/analyzetest/gpuprogram"
	model "github.com/gpurec/gpurec/analyze/model/steps"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	"github.com/gpurec/gpurec/analyze/render"
	"github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/gaps"
	"github.com/gpurec/gpurec/analyze/report/steps"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

// trainingOnGPUs returns a training of two processes, each on a GPU of its own, with GPU times. Some steps of
// the first one take longer, for two reasons. Calls of about a tenth of the time are lost.
func trainingOnGPUs(t testing.TB) *analyzetest.TestRecording {
	j := gpuprogram.NewJob(5, gpuprogram.Plan{Full: true})
	type rank struct {
		th     *gpuprogram.JobThread
		stream *gpuprogram.JobStream
	}
	var ranks []rank
	for device := range int32(2) {
		p := j.Process(device)
		r := rank{p.Thread(), p.Stream()}
		r.th.Enter("train.py", "main")
		ranks = append(ranks, r)
	}
	for step := range 120 {
		for i, r := range ranks {
			r.th.Line(10)
			if i == 0 && step%40 == 30 {
				r.th.Compute(9 * analyzetest.Ms)
			}
			for range 20 {
				r.th.Launch(r.stream, "gemm", 64, 60_000)
				r.th.Compute(3000)
			}
			r.th.Line(11)
			if i == 0 && step == 100 {
				r.th.Launch(r.stream, "reduce", 64, 8*analyzetest.Ms)
			} else {
				r.th.Launch(r.stream, "reduce", 64, 30_000)
			}
			r.th.Line(12)
			r.th.Launch(r.stream, "adam", 64, 40_000)
			r.th.Line(13)
			r.th.Synchronize(r.stream)
			r.th.Compute(200_000)
		}
	}
	recording := j.Recording(t, 0)
	span := recording.Meta.EndNs - recording.Meta.StartNs
	recording.AddRow(format.Row{
		Kind:    format.KindLost,
		Name:    "launch",
		StartNs: recording.Meta.StartNs + span/2,
		DurNs:   span / 10,
		Value:   9,
		Device:  -1,
	})
	return recording
}

// chartsOf decodes the data of the charts of a page.
func chartsOf(t *testing.T, page string) (d struct {
	Texts []string
	Busy  []struct {
		Title       string
		From, To    float64
		Lo, Mid, Hi []*float64
		Most        []*float64 `json:"qmax"`
	}
	Steps []struct {
		Title    string
		Median   int64
		T        []float64
		Ns       []int64
		N        []int
		Outliers []struct {
			T       float64
			Ns      int64
			N, C, D int
		}
	}
},
) {
	t.Helper()
	data, err := json.Marshal(chartDataOf(t, page))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(data, &d); err != nil {
		t.Fatal(err)
	}
	return d
}

// tablesOf returns the tables of a report as gpurec analyze --format json prints them.
func tablesOf(t *testing.T, r *report.Report, err error) (tables map[string][]map[string]any) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	if err := render.WriteReport(&text, r, render.Options{Format: "json"}); err != nil {
		t.Fatal(err)
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal(text.Bytes(), &all); err != nil {
		t.Fatal(err)
	}
	tables = make(map[string][]map[string]any)
	for name, value := range all {
		var rows []map[string]any
		if json.Unmarshal(value, &rows) == nil {
			tables[name] = rows
		}
	}
	return tables
}

// meanOf returns the mean of the known values, and whether there are any.
func meanOf(values []*float64) (mean float64, ok bool) {
	n := 0.0
	for _, v := range values {
		if v != nil {
			mean, n = mean+*v, n+1
		}
	}
	return mean / n, n > 0
}

// maxOf returns the largest known value.
func maxOf(values []*float64) (most float64) {
	for _, v := range values {
		if v != nil {
			most = max(most, *v)
		}
	}
	return most
}

// TestBusyChartAgreesWithGaps compares the chart of the busy time with the report gaps: ten parts of the chart
// are one slice of the report.
func TestBusyChartAgreesWithGaps(t *testing.T) {
	testclass.Unit(t)
	tl := trainingOnGPUs(t).Timeline()
	page := pageText(t, tl, Options{})
	charts := chartsOf(t, page).Busy
	r, err := gaps.Run(tl, query.Options{})
	tables := tablesOf(t, r, err)
	if len(charts) != 2 || len(tables["slices"]) != 40 {
		t.Fatalf("%d charts, %d slices", len(charts), len(tables["slices"]))
	}
	unknown := 0
	for i, row := range tables["slices"] {
		c, from, to := &charts[i/20], i%20*10, i%20*10+10
		if want := fmt.Sprint("GPU ", row["device"], ", process ", row["pid"]); !strings.HasPrefix(c.Title, want) {
			t.Fatalf("title %q, want %q", c.Title, want)
		}
		if at := c.From + (c.To-c.From)*float64(i%20)/20; math.Abs(at-row["at_ns"].(float64)/1e9) > 2e-5 {
			t.Errorf("slice %d begins at %v, in the report at %v", i, at, row["at_ns"])
		}
		lo, ok := meanOf(c.Lo[from:to])
		if _, known := row["busy_min_pct"].(float64); known != ok {
			t.Errorf("slice %d: known %v, in the report %v", i, ok, row["busy_min_pct"])
		}
		if !ok {
			unknown++
		}
		if !ok || slices.Contains(c.Lo[from:to], nil) {
			continue // the mean of parts of different length
		}
		if most := maxOf(c.Most[from:to]); math.Abs(most-row["queue_max"].(float64)) > 1e-3 {
			t.Errorf("slice %d: queue of %v, in the report %v", i, most, row["queue_max"])
		}
		mid, _ := meanOf(c.Mid[from:to])
		hi, _ := meanOf(c.Hi[from:to])
		wantLo, wantMid, wantHi := row["busy_min_pct"].(float64), row["busy_pct"].(float64), row["busy_max_pct"].(float64)
		// the bounds of a slice may be wider
		if lo < wantLo-0.01 || lo > wantLo+1 || math.Abs(mid-wantMid) > 0.01 || hi > wantHi+0.01 || hi < wantHi-1 {
			t.Errorf("slice %d: %v, %v, %v; in the report %v, %v, %v", i, lo, mid, hi, wantLo, wantMid, wantHi)
		}
	}
	if unknown == 0 {
		t.Error("no slice is unknown, though calls are lost")
	}
	for i, row := range tables["devices"] {
		want := fmt.Sprintf("busy for %.1f%% (%.1f%% to %.1f%%)", 100-row["idle_pct"].(float64),
			100-row["idle_max_pct"].(float64), 100-row["idle_min_pct"].(float64))
		if !strings.Contains(page, want) {
			t.Errorf("device %d: the page lacks %q", i, want)
		}
	}
}

// TestStepChartAgreesWithSteps compares the charts of steps with the report steps.
func TestStepChartAgreesWithSteps(t *testing.T) {
	testclass.Unit(t)
	tl := trainingOnGPUs(t).Timeline()
	charts := chartsOf(t, pageText(t, tl, Options{}))
	r, err := steps.Run(tl, query.Options{})
	tables := tablesOf(t, r, err)
	if len(charts.Steps) != 2 || len(tables["steps"]) != 2 {
		t.Fatalf("%d charts, %d processes", len(charts.Steps), len(tables["steps"]))
	}
	outliers := make(map[string]map[string]any)
	for _, row := range tables["outliers"] {
		outliers[fmt.Sprint(row["pid"], " ", row["step"])] = row
	}
	causes := make(map[string]bool)
	for i, row := range tables["steps"] {
		c := &charts.Steps[i]
		pid := fmt.Sprint(row["pid"])
		if !strings.HasPrefix(c.Title, pid) {
			t.Errorf("chart %d is of %q, in the report %s", i, c.Title, pid)
		}
		if n := len(
			c.T,
		) + len(
			c.Outliers,
		); float64(n) != row["steps"] || len(c.N) != len(c.T) ||
			len(c.Ns) != len(c.T) {
			t.Errorf("%s: %d steps, in the report %v", pid, n, row["steps"])
		}
		all := slices.Clone(c.Ns)
		for _, o := range c.Outliers {
			all = append(all, o.Ns)
			w := outliers[fmt.Sprint(pid, " ", o.N)]
			if w == nil || w["duration_ns"] != float64(o.Ns) || math.Abs(w["at_ns"].(float64)/1e9-o.T) > 2e-5 ||
				w["cause"] != charts.Texts[o.C] || w["detail"] != charts.Texts[o.D] {
				t.Errorf("outlier %+v, %q; in the report %v", o, charts.Texts[o.D], w)
			}
			causes[charts.Texts[o.C]] = true
		}
		if float64(len(c.Outliers)) != row["outliers"] {
			t.Errorf("%s: %d outliers, in the report %v", pid, len(c.Outliers), row["outliers"])
		}
		if float64(c.Median) != row["p50_ns"] || float64(slices.Max(all)) != row["max_ns"] {
			t.Errorf("%s: median %d, longest %d; in the report %v, %v", pid, c.Median, slices.Max(all), row["p50_ns"],
				row["max_ns"])
		}
		if !slices.IsSorted(c.T) {
			t.Errorf("%s: steps are not in order of time", pid)
		}
	}
	if !causes["outside CUDA"] || !causes["slow kernel"] {
		t.Errorf("causes %v", causes)
	}
}

// TestGPUChartsNameThePartThatWasRead checks the sentences about a recording that is only read in part.
func TestGPUChartsNameThePartThatWasRead(t *testing.T) {
	testclass.Unit(t)
	tl := trainingOnGPUs(t).Timeline()
	b := newTestBuilder(t, tl, 2000)
	notes := strings.Join(append(b.newBusyNotes(), b.newStepsNotes()...), "\n")
	for _, want := range []string{
		"The recording has more than 500,000 calls, so this chart and the section Gaps show only the first ",
		"gpurec analyze gaps reads all calls.",
		"The recording has more than 500,000 calls, so this section has no GPU times",
		"gpurec analyze steps reads all calls.",
	} {
		if !strings.Contains(notes, want) {
			t.Errorf("%q lacks %q", notes, want)
		}
	}
	busy := b.newBusyData()
	if len(busy) == 0 || busy[0].Until == nil || *busy[0].Until < busy[0].To {
		t.Errorf("busy data %+v", busy)
	}
	all := newTestBuilder(t, tl, 0)
	if notes := append(
		all.newBusyNotes(),
		all.newStepsNotes()...); strings.Contains(
		strings.Join(notes, ""),
		"500,000",
	) {
		t.Errorf("all was read: %q", notes)
	}
}

// newTestBuilder returns a pageBuilder that has read the data of the charts of GPU times and steps.
func newTestBuilder(t *testing.T, tl *timeline.Timeline, maxTimedCalls int64) *pageBuilder {
	t.Helper()
	b := &pageBuilder{t: tl, opt: &Options{Options: query.Options{MaxTimedCalls: maxTimedCalls}}}
	if err := b.readIdleTimes(); err != nil {
		t.Fatal(err)
	}
	if _, err := b.runSteps(tl, b.opt.Options); err != nil {
		t.Fatal(err)
	}
	return b
}

// TestPageWithGPUTimesIsDeterministic checks that the pages of one recording are equal.
func TestPageWithGPUTimesIsDeterministic(t *testing.T) {
	testclass.Unit(t)
	recording := trainingOnGPUs(t)
	want := pageText(t, recording.Timeline(), Options{})
	for range 3 {
		if pageText(t, recording.Timeline(), Options{}) != want {
			t.Fatal("pages of one recording differ")
		}
	}
}

// TestPageWithoutGPUTimesNamesTheReason checks the sentences in place of the charts.
func TestPageWithoutGPUTimesNamesTheReason(t *testing.T) {
	testclass.Unit(t)
	recording := analyzetest.NewTestRecording(t)
	for i := range int64(3) {
		recording.AddLaunch(i*analyzetest.Second, analyzetest.Us, fmt.Sprint("kernel", i), 0, 0)
	}
	page := pageText(t, recording.Timeline(), Options{})
	for _, want := range []string{
		"The window has no GPU times. gpurec record --gpu-time auto records them.",
		"No sequence of launches repeats in the window.",
	} {
		if !strings.Contains(page, `<p class="nothing">`+want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if strings.Contains(page, `data-chart="busy"`) || strings.Contains(page, `data-chart="steps"`) {
		t.Error("the page has an empty chart")
	}
}

// TestSelectedStepsKeepExtremes checks that the shortest and the longest step of each part remain.
func TestSelectedStepsKeepExtremes(t *testing.T) {
	testclass.Unit(t)
	r := rand.New(rand.NewPCG(1, 1))
	for range 20 {
		var all []model.Step
		without := make(map[int]bool)
		at, left := int64(0), 0
		for i := range 500 + r.IntN(3000) {
			ns := 1 + r.Int64N(1000)
			all = append(all, model.Step{BeginNs: at, EndNs: at + ns, IsCut: r.IntN(50) == 0})
			without[i] = r.IntN(50) == 0
			if !without[i] && !all[i].IsCut {
				left++
			}
			at += ns
		}
		if got := selectSteps(all, without, left); len(got) != left {
			t.Fatalf("%d of %d steps", len(got), left)
		}
		got := selectSteps(all, without, 100)
		if len(got) > 100 || len(got) < 80 || !slices.IsSorted(got) {
			t.Fatalf("%d steps, sorted: %v", len(got), slices.IsSorted(got))
		}
		shortest, longest := int64(math.MaxInt64), int64(0)
		for i := range all {
			if !all[i].IsCut && !without[i] {
				shortest, longest = min(shortest, all[i].DurNs()), max(longest, all[i].DurNs())
			}
		}
		var kept []int64
		for _, i := range got {
			if all[i].IsCut || without[i] {
				t.Fatalf("step %d is cut or an outlier", i)
			}
			kept = append(kept, all[i].DurNs())
		}
		if slices.Min(kept) != shortest || slices.Max(kept) != longest {
			t.Errorf("kept %d to %d ns of %d to %d ns", slices.Min(kept), slices.Max(kept), shortest, longest)
		}
	}
}

// TestEveryCauseHasAColour checks that the script knows all causes of outliers.
func TestEveryCauseHasAColour(t *testing.T) {
	testclass.Unit(t)
	_, colours, _ := strings.Cut(readAsset("web/bundle.js"), "causeColours = {")
	colours, _, _ = strings.Cut(colours, "}")
	if n := strings.Count(colours, `"--c`); n != len(steps.Causes) {
		t.Errorf("%d colours, %d causes", n, len(steps.Causes))
	}
	for _, cause := range steps.Causes {
		if !strings.Contains(colours, `"`+cause+`": `) {
			t.Errorf("%q has no colour", cause)
		}
	}
}
