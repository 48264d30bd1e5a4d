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
)

// viewed is what scripts/report_viewer.mjs saw of a page.
type viewed struct {
	Problems []string       `json:"problems"`
	ReadyMs  float64        `json:"ready_ms"`
	Panels   map[string]int `json:"panels"`
	Frames   int            `json:"frames"`
	Tables   int            `json:"tables"`
}

// pageOf writes the page of a recording.
func pageOf(t *testing.T, tl *timeline.Timeline) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "report.html")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Write(tl, file, Options{Name: "run.parquet"}); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

// loadMs bounds how long a page may take to be there and drawn, also on a busy machine.
const loadMs = 30_000

// TestChromiumShowsReports opens all pages in one browser, for it is the browser that takes long.
// In two of them everything is tried, one of which has names that are not to be trusted; one of a
// million events, with GPUREC_BENCH_LARGE ten, is looked at.
func TestChromiumShowsReports(t *testing.T) {
	tools, browser := viewers.Tool(t, "puppeteer"), viewers.Chromium(t)
	tp := analyzetest.Training(t)
	for i := range int64(60) {
		tp.NVML(0, i*analyzetest.Second, catalog.MetricGPUBusy, float64(i))
		tp.NVML(0, i*analyzetest.Second, catalog.MetricPower, float64(300_000+i*1000))
	}
	n := 1_000_000
	if os.Getenv("GPUREC_BENCH_LARGE") != "" {
		n = 10_000_000
	}
	rec, err := format.Open(analyzetest.BenchRecording(t, n))
	if err != nil {
		t.Fatal(err)
	}
	defer rec.Close()
	large, err := timeline.Open(rec)
	if err != nil {
		t.Fatal(err)
	}
	lines := viewers.Node(
		t,
		analyzetest.InRoot(t, "scripts", "report_viewer.mjs"),
		tools,
		browser,
		pageOf(t, tp.Timeline()),
		pageOf(t, analyzetest.HostilePage(t).Timeline()),
		"--look",
		pageOf(t, large),
	)
	for i, c := range []struct {
		name           string
		panels         []string
		tables, frames int
	}{
		{"training", []string{"memory", "flame", "activity", "gpus"}, 10, 5},
		{"hostile", []string{"memory", "flame", "activity"}, 10, 5},
		{"large", []string{"memory", "flame", "activity"}, 10, 1000},
	} {
		t.Run(c.name, func(t *testing.T) {
			if i >= len(lines) {
				t.Fatal("the page was not opened")
			}
			t.Logf("%s", lines[i])
			var v viewed
			if err := json.Unmarshal(lines[i], &v); err != nil {
				t.Fatal(err)
			}
			for _, p := range v.Problems {
				t.Error(p)
			}
			for _, panel := range c.panels {
				if v.Panels[panel] == 0 {
					t.Errorf("panel %s is not there", panel)
				}
			}
			if v.Tables < c.tables || v.Frames < c.frames {
				t.Errorf("%d tables, %d frames", v.Tables, v.Frames)
			}
			if limit := cmp.Or(v.ReadyMs, 1e9); limit > loadMs {
				t.Errorf("the page was there after %.0f ms", v.ReadyMs)
			}
		})
	}
}
