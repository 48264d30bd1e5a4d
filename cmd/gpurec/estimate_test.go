//go:build linux

package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/record/privilege"
)

// TestLaunchesAreEstimated records a program with a small --max-overhead, so that most launches are
// left out. The estimated number of launches must be within 5 % of those in simcuda's ledger.
func TestLaunchesAreEstimated(t *testing.T) {
	sim := simcudaDir()
	if _, err := os.Stat(
		filepath.Join(sim, "storm"),
	); err != nil ||
		privilege.CheckAttach(privilege.AttachMulti) != nil ||
		privilege.AttachAuto.ResolveForKernel() != privilege.AttachMulti {
		if os.Getenv("GPUREC_MUST_RUN") == "1" {
			t.Fatal("GPUREC_MUST_RUN=1, but simcuda is not built or uprobe_multi is not possible")
		}
		t.Skip("needs root, simcuda and Linux 6.6")
	}
	dir := t.TempDir()
	ledger, output, ready := filepath.Join(
		dir,
		"ledger.tsv",
	), filepath.Join(
		dir,
		"r.parquet",
	), filepath.Join(
		dir,
		"ready",
	)
	storm := exec.Command(
		filepath.Join(sim, "storm"),
		"--calls",
		"100000000",
		"--threads",
		"2",
		"--rate",
		"20000",
		"--wait",
	)
	storm.Env = append(os.Environ(), "LD_LIBRARY_PATH="+sim, "SIMCUDA_LEDGER="+ledger, "SIMCUDA_LEDGER_SYNC=1",
		"SIMCUDA_TIME=off", "SIMCUDA_STATE="+dir+"/state")
	stdin, err := storm.StdinPipe()
	must(t, err)
	stdout, err := storm.StdoutPipe()
	must(t, err)
	must(t, storm.Start())
	defer func() { _ = storm.Process.Kill(); _ = storm.Wait() }()
	if line, err := bufio.NewReader(stdout).ReadString('\n'); err != nil || !strings.HasPrefix(line, "ready") {
		t.Fatalf("%q %v", line, err)
	}
	gpurec, err := exec.LookPath("gpurec") // this test binary: testscript.Main adds it to PATH
	must(t, err)
	recorder := exec.Command(
		gpurec,
		"record",
		"--max-overhead",
		"2%",
		"-p",
		fmt.Sprint(storm.Process.Pid),
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
	_, err = stdin.Write([]byte("x"))
	must(t, err)
	must(t, recorder.Wait())

	rec, err := format.Open(output)
	must(t, err)
	defer rec.Close()
	launches := 0
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
	recorded, estimated := report.Totals.Recorded, report.Totals.Estimated
	t.Logf(
		"%d launches, %.0f recorded in %.1f s, %.0f by estimate",
		launches,
		recorded,
		report.Quality.RecordedNs/1e9,
		estimated,
	)
	if recorded > 0.8*float64(launches) || math.Abs(estimated-float64(launches)) > 0.05*float64(launches) {
		t.Errorf("%d launches, %.0f recorded, %.0f by estimate", launches, recorded, estimated)
	}
}
