//go:build linux

package main

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/gpurec/gpurec/cmd/gpurec/message"

	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/record/privilege"
)

// TestReportOfRealRecordings records programs on simcuda and simtorch, writes their HTML reports,
// and loads them in a browser. Tests in the folder analyze cover the contents of the page.
func TestReportOfRealRecordings(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	t.Parallel()
	sim, torch, tools := simcudaDir(), "../../build/simtorch", "../../build/tools/puppeteer"
	browser := os.Getenv("CHROMIUM")
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil && browser == "" {
			browser = path
		}
	}
	for _, path := range []string{filepath.Join(sim, "leak"), filepath.Join(torch, "tensors"), tools, browser} {
		if _, err := os.Stat(path); err != nil || privilege.CheckAttach(privilege.AttachAuto) != nil {
			testclass.Missing(t, "the test needs root, simcuda, simtorch and the tools of scripts/viewers.sh")
		}
	}
	gpurec, err := exec.LookPath("gpurec") // this test binary: testscript.Main adds it to PATH
	must(t, err)
	torch, err = filepath.Abs(torch)
	must(t, err)
	programs := map[string][]string{
		"leak":    {filepath.Join(sim, "leak"), "--steps", "300"},
		"tensors": {filepath.Join(torch, "tensors"), "--events", "6000", "--threads", "2", "--rate", "3000"},
	}
	names := slices.Sorted(maps.Keys(programs))
	look := []string{"../../scripts/report_viewer.mjs", tools, browser, "--look"}
	for _, name := range names {
		recording, page := filepath.Join(t.TempDir(), name+".parquet"), filepath.Join(t.TempDir(), "report.html")
		cmd := exec.Command(
			gpurec,
			append(
				[]string{"record", "--max-overhead", "off", "--stacks", "fp", "-o", recording, "--"},
				programs[name]...)...)
		cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+sim+":"+torch, "SIMCUDA_KERNEL_US=500",
			"SIMCUDA_STATE="+filepath.Join(t.TempDir(), "state"))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("record: %v\n%s", err, out)
		}
		if code := runCommandLine(
			t.Context(),
			[]string{"analyze", "report", "-o", page, recording},
		); code != message.ExitOK {
			t.Fatalf("report: exit status %d", code)
		}
		if code := runCommandLine(
			t.Context(),
			[]string{"analyze", "report", "-o", page, recording},
		); code == message.ExitOK {
			t.Error("an existing report was replaced without --force")
		}
		if code := runCommandLine(
			t.Context(),
			[]string{"analyze", "report", "-o", page, "--force", "--fail-on", "growing>0", recording},
		); name == "leak" &&
			code != message.ExitFailOn {
			t.Errorf("--fail-on with a leak: exit status %d", code)
		}
		look = append(look, page)
	}
	out, err := exec.Command("node", look...).Output() // one browser for all pages: the browser start takes longest
	must(t, err)
	pages := json.NewDecoder(bytes.NewReader(out))
	for _, name := range names {
		var seen struct {
			Problems []string       `json:"problems"`
			ReadyMs  float64        `json:"ready_ms"`
			Panels   map[string]int `json:"panels"`
			Maps     int            `json:"maps"`
		}
		must(t, pages.Decode(&seen))
		t.Logf("%s: %+v", name, seen)
		for _, p := range seen.Problems {
			t.Errorf("%s: %s", name, p)
		}
		for _, panel := range []string{"memory", "flame", "activity", "gpus"} {
			if seen.Panels[panel] == 0 {
				t.Errorf("%s: panel %s is missing", name, panel)
			}
		}
		if seen.ReadyMs == 0 {
			t.Errorf("%s: the page was never drawn", name)
		}
		if name == "tensors" && seen.Maps == 0 {
			t.Error("the page has no address map")
		}
	}
}
