//go:build linux

package main

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/record/privilege"
)

// TestLaunchesAreEstimated records a program with a small --max-overhead, so that most launches are
// left out. The estimated number of launches must be within 5 % of those in simcuda's ledger.
func TestLaunchesAreEstimated(t *testing.T) {
	testclass.Root(t)
	requireSimcuda(t, "storm", privilege.AttachMulti)
	if privilege.AttachAuto.ResolveForKernel() != privilege.AttachMulti {
		testclass.Missing(t, "sampling launches needs Linux 6.6")
	}
	dir := t.TempDir()
	ledger, output := filepath.Join(dir, "ledger.tsv"), filepath.Join(dir, "r.parquet")
	ready := filepath.Join(dir, "ready")
	pid, begin := startWaitingStorm(t, ledger)
	gpurec, err := exec.LookPath("gpurec") // this test binary: testscript.Main adds it to PATH
	must(t, err)
	recorder := exec.Command(
		gpurec,
		"record",
		"--max-overhead",
		"2%",
		"--keep-returns", // so that launches that failed are known
		"-p",
		fmt.Sprint(pid),
		"-o",
		output,
		"--stacks",
		"fp",
		"--nvml-interval",
		"0",
		"--ready-file",
		ready,
		"-d",
		"10s",
	)
	recorder.Stderr = os.Stderr
	must(t, recorder.Start())
	waitForFile(t, ready)
	begin()
	must(t, recorder.Wait())

	rec, err := format.Open(output)
	must(t, err)
	defer rec.Close()
	launches := countRunLaunches(
		t, ledger, rec.Meta.StartNs-rec.Meta.ClockOffsetNs, rec.Meta.EndNs-rec.Meta.ClockOffsetNs,
	)
	out, err := exec.Command(gpurec, "analyze", "kernels", "--format", "json", output).Output()
	must(t, err)
	var report struct {
		Totals struct {
			Recorded  float64 `json:"launches"`
			Estimated float64 `json:"estimated_launches"`
		} `json:"totals"`
		Quality struct {
			RecordedNs float64 `json:"launches_recorded_ns"`
		} `json:"quality"`
	}
	must(t, json.Unmarshal(out, &report))
	recorded, estimated := report.Totals.Recorded, report.Totals.Estimated
	t.Logf("%.0f launches, %.0f recorded in %.1f s, %.0f by estimate (%+.1f %%)",
		launches, recorded, report.Quality.RecordedNs/1e9, estimated, 100*(estimated/launches-1))
	const most = 0.05
	if recorded > 0.8*launches || math.Abs(estimated-launches) > most*launches {
		t.Errorf("%.0f launches, %.0f recorded, %.0f by estimate", launches, recorded, estimated)
	}
}

// countRunLaunches returns the launches that the report kernels counts: kernel launches that neither
// failed nor were captured, and no graph launches. fromNs and toNs are on CLOCK_MONOTONIC.
func countRunLaunches(t *testing.T, ledger string, fromNs, toNs int64) (launches float64) {
	t.Helper()
	capturing := make(map[string]bool) // by thread: storm's threads capture only their own calls
	must(t, eachLedgerCall(ledger, func(c *ledgerCall) {
		switch {
		case c.name == "cuStreamBeginCapture_v2":
			capturing[c.tid] = true
		case c.name == "cuStreamEndCapture":
			capturing[c.tid] = false
		case strings.HasPrefix(c.name, "cuLaunchHost"):
		case strings.HasPrefix(c.name, "cuLaunch") && c.result == "0" && !capturing[c.tid] &&
			fromNs <= c.endNs && c.endNs <= toNs:
			launches++
		}
	}))
	return launches
}
