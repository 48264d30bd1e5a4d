package html

import (
	"cmp"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/gpurec/gpurec/analyze/analyzetest"
	"github.com/gpurec/gpurec/analyze/analyzetest/viewers"
	"github.com/gpurec/gpurec/analyze/catalog"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
)

// viewerResult is the output of scripts/report_viewer.mjs for one page.
type viewerResult struct {
	Problems []string       `json:"problems"`
	ReadyMs  float64        `json:"ready_ms"`
	Panels   map[string]int `json:"panels"`
	Frames   int            `json:"frames"`
	Tables   int            `json:"tables"`
}

// pageFile writes the page of a recording to a file and returns its path.
func pageFile(t *testing.T, tl *timeline.Timeline) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "report.html")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := WritePage(tl, file, Options{Name: "run.parquet"}); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

// maxLoadMs is the longest time in which a page must be loaded and drawn, also on a busy machine.
const maxLoadMs = 300_000

// TestChromiumShowsReports opens six pages in one browser, because a browser takes long to start.
// It tests all controls of a normal page, of a page with hostile names, of those with GPU times and class host, and
// of a job of ranks. It only checks that a page of a million events is drawn; with GPUREC_BENCH_LARGE set, ten million.
func TestChromiumShowsReports(t *testing.T) {
	testclass.Browser(t)
	tools, browser := viewers.ToolPath(t, "puppeteer"), viewers.ChromiumPath(t)
	recording := analyzetest.TrainingRecording(t)
	for i := range int64(60) {
		recording.AddNVMLSample(0, i*analyzetest.Second, catalog.MetricGPUUtilization, float64(i))
		recording.AddNVMLSample(0, i*analyzetest.Second, catalog.MetricPower, float64(300_000+i*1000))
	}
	n := 1_000_000
	if os.Getenv("GPUREC_BENCH_LARGE") != "" {
		n = 10_000_000
	}
	rec, err := format.Open(analyzetest.BenchRecordingPath(t, n))
	if err != nil {
		t.Fatal(err)
	}
	defer rec.Close()
	large, err := timeline.Open(rec)
	if err != nil {
		t.Fatal(err)
	}
	lines := viewers.RunNode(
		t,
		analyzetest.RepositoryPath(t, "scripts", "report_viewer.mjs"),
		tools,
		browser,
		pageFile(t, recording.Timeline()),
		pageFile(t, analyzetest.HostilePageRecording(t).Timeline()),
		pageFile(t, trainingOnGPUs(t).Timeline()),
		pageFile(t, analyzetest.HostRecording(t).Timeline()),
		pageFile(t, lateJob(t, 100).Timeline()),
		"--look",
		pageFile(t, large),
	)
	for i, c := range []struct {
		name           string
		panels         []string
		tables, frames int
	}{
		{"training", []string{"memory", "flame", "activity", "gpus"}, 10, 5},
		{"hostile", []string{"memory", "flame", "activity"}, 10, 5},
		{"GPU times", []string{"flame", "activity", "busy", "steps"}, 10, 5},
		{"class host", []string{"flame", "activity"}, 10, 2}, // the first metric is that of calls
		{"ranks", []string{"flame", "activity", "busy", "steps", "ranks"}, 30, 3},
		{"large", []string{"memory", "flame", "activity"}, 10, 1000},
	} {
		t.Run(c.name, func(t *testing.T) {
			if i >= len(lines) {
				t.Fatal("the browser did not open the page")
			}
			t.Logf("%s", lines[i])
			var v viewerResult
			if err := json.Unmarshal(lines[i], &v); err != nil {
				t.Fatal(err)
			}
			for _, p := range v.Problems {
				t.Error(p)
			}
			for _, panel := range c.panels {
				if v.Panels[panel] == 0 {
					t.Errorf("panel %s is missing or empty", panel)
				}
			}
			if v.Tables < c.tables || v.Frames < c.frames {
				t.Errorf("%d tables, %d frames", v.Tables, v.Frames)
			}
			if readyMs := cmp.Or(v.ReadyMs, 1e9); readyMs > maxLoadMs {
				t.Errorf("the page was ready after %.0f ms", v.ReadyMs)
			}
		})
	}
}
