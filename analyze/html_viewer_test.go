package analyze

import (
	"cmp"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/gpurec/gpurec/format"
)

// viewed is what scripts/report_viewer.mjs saw of a page.
type viewed struct {
	Problems []string       `json:"problems"`
	ReadyMs  float64        `json:"ready_ms"`
	Panels   map[string]int `json:"panels"`
	Frames   int            `json:"frames"`
	Tables   int            `json:"tables"`
	Filters  int            `json:"filters"`
	Maps     int            `json:"maps"`
}

// chromium finds a browser, or skips.
func chromium(t *testing.T) string {
	t.Helper()
	for _, name := range []string{os.Getenv("CHROMIUM"), "chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	skip(t, "there is no Chromium: scripts/viewers.sh installs one, or CHROMIUM names it")
	return ""
}

// inChromium opens a page in a browser, tries what is in it, and fails for each thing that does not work.
func inChromium(t *testing.T, tl *Timeline) viewed {
	t.Helper()
	tools, browser := tool(t, "puppeteer"), chromium(t)
	path := filepath.Join(t.TempDir(), "report.html")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tl.HTML(file, HTMLOptions{Name: "run.parquet"}); err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	var v viewed
	lines := node(t, "../scripts/report_viewer.mjs", tools, browser, path)
	if len(lines) != 1 {
		t.Fatalf("%d lines", len(lines))
	}
	if err := json.Unmarshal(lines[0], &v); err != nil {
		t.Fatal(err)
	}
	for _, p := range v.Problems {
		t.Error(p)
	}
	t.Logf("%s", lines[0])
	return v
}

// loadMs is how long a page may take to be there and drawn.
const loadMs = 2000

func TestChromiumShowsTheReport(t *testing.T) {
	tp := training(t)
	for i := range int64(60) {
		tp.nvml(0, i*second, metricGPUBusy, float64(i))
		tp.nvml(0, i*second, metricPower, float64(300_000+i*1000))
	}
	v := inChromium(t, tp.timeline())
	for _, panel := range []string{"memory", "flame", "activity", "gpus"} {
		if v.Panels[panel] == 0 {
			t.Errorf("panel %s is not there", panel)
		}
	}
	if v.Tables < 10 || v.Frames < 5 {
		t.Errorf("%d tables, %d frames", v.Tables, v.Frames)
	}
}

func TestChromiumRunsNothingOfARecording(t *testing.T) {
	inChromium(t, hostilePage(t).timeline())
}

// TestChromiumLoadsALargeReport has a million events, with GPUREC_BENCH_LARGE ten.
func TestChromiumLoadsALargeReport(t *testing.T) {
	n := 1_000_000
	if os.Getenv("GPUREC_BENCH_LARGE") != "" {
		n = 10_000_000
	}
	rec, err := format.Open(benchRecording(t, n))
	if err != nil {
		t.Fatal(err)
	}
	defer rec.Close()
	tl, err := New(rec)
	if err != nil {
		t.Fatal(err)
	}
	v := inChromium(t, tl)
	if limit := cmp.Or(v.ReadyMs, 1e9); limit > loadMs {
		t.Errorf("the page was there after %.0f ms", v.ReadyMs)
	}
}
