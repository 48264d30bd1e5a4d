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
	const tries, most = 2, 0.05 // one busy moment of the machine may change the rate between spans
	for try := 1; ; try++ {
		launches, recorded, estimated := recordSampledLaunches(t)
		if recorded <= 0.8*launches && math.Abs(estimated-launches) <= most*launches {
			return
		}
		if try == tries {
			t.Fatalf("%.0f launches, %.0f recorded, %.0f by estimate", launches, recorded, estimated)
		}
	}
}

// recordSampledLaunches records a program whose launches are sampled. It returns the launches of the ledger in the
// time of the recording, those with a row, and the estimate of kernels.
func recordSampledLaunches(t *testing.T) (launches, recorded, estimated float64) {
	t.Helper()
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
	must(t, eachLedgerCall(ledger, func(_, name string, endNs int64) {
		at := endNs + rec.Meta.ClockOffsetNs
		if (strings.HasPrefix(name, "cuLaunch") && !strings.HasPrefix(name, "cuLaunchHost") || strings.HasPrefix(name, "cuGraphLaunch")) &&
			rec.Meta.StartNs <= at &&
			at <= rec.Meta.EndNs {
			launches++
		}
	}))
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
	recorded, estimated = report.Totals.Recorded, report.Totals.Estimated
	t.Logf("%.0f launches, %.0f recorded in %.1f s, %.0f by estimate",
		launches, recorded, report.Quality.RecordedNs/1e9, estimated)
	return launches, recorded, estimated
}
