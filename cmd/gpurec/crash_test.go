//go:build linux

package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gpurec/gpurec/cmd/gpurec/message"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/record/privilege"
)

// TestKilledRecorderLosesAtMostFiveSeconds kills the recorder with SIGKILL, recovers the recording,
// and compares it with simcuda's ledger. The recovered file must have every call up to a time less
// than five seconds before the kill.
func TestKilledRecorderLosesAtMostFiveSeconds(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	t.Parallel()
	requireSimcuda(t, "storm", privilege.AttachAuto)
	dir := t.TempDir()
	ledger := filepath.Join(dir, "ledger.tsv")
	pid, begin := startWaitingStorm(t, ledger)
	output, ready := filepath.Join(dir, "r.parquet"), filepath.Join(dir, "ready")
	gpurec, err := exec.LookPath("gpurec") // this test binary: testscript.Main adds it to PATH
	must(t, err)
	recorder := exec.Command(
		gpurec,
		"record",
		"--max-overhead",
		"off",
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
	)
	recorder.Stderr = os.Stderr
	must(t, recorder.Start())
	waitForFile(t, ready)
	begin()
	waitFor(t, "a second segment of calls is on disk", func() bool {
		return len(segmentsOf(output, format.ClassCall)) >= 2
	})
	waitForCalls(t, ledger, 10_000) // these calls are not on disk yet
	must(t, recorder.Process.Signal(syscall.SIGKILL))
	killed := time.Now()
	_ = recorder.Wait()           // the error is always "signal: killed"
	waitForCalls(t, ledger, 1000) // the target process continues

	code := runCommandLine(t.Context(), []string{"recover", output + format.SegmentSuffix})
	if code != message.ExitOK {
		t.Fatalf("recover: exit status %d", code)
	}
	rec, err := format.Open(output)
	must(t, err)
	defer rec.Close()
	names := make(map[string]int)    // "tid name" -> calls recorded
	lastOf := make(map[string]int64) // tid -> end of its last recorded call; rows of a thread are in order
	var last int64
	must(t, rec.Rows(func(r *format.Row) error {
		tid := fmt.Sprint(r.Tid)
		names[tid+" "+r.Name]++
		lastOf[tid] = max(lastOf[tid], r.StartNs+r.DurNs)
		last = max(last, r.StartNs+r.DurNs)
		return nil
	}, format.ClassMemory, format.ClassCall))
	if gap := killed.Sub(time.Unix(0, last)); gap > 5*time.Second || rec.Meta.Complete != format.CompleteRecovered {
		t.Errorf("the last %v before the kill are lost; complete: %s", gap, rec.Meta.Complete)
	} else {
		t.Logf("the last %v before the kill are lost", gap)
	}
	missing := 0
	must(t, eachLedgerCall(ledger, func(c *ledgerCall) {
		// Up to the last recorded call of its thread, minus the time between a call and its record.
		if c.endNs+rec.Meta.ClockOffsetNs < lastOf[c.tid]-int64(50*time.Millisecond) {
			names[c.tid+" "+c.name]--
		}
	}))
	for call, left := range names {
		if left < 0 && !isUnrecorded(call) {
			missing -= left
		}
	}
	if missing > 0 {
		t.Errorf("%d calls before the last recorded call are missing", missing)
	}
}

// isUnrecorded reports whether gpurec only counts the calls of a function, or does not probe it.
func isUnrecorded(call string) bool {
	_, name, _ := strings.Cut(call, " ")
	for _, prefix := range []string{
		"cuDeviceGet",
		"cuDeviceTotalMem",
		"cuDriverGetVersion",
		"cuGetProcAddress",
		"cuCtxSetCurrent",
		"cuCtxGetCurrent",
		"cuCtxPushCurrent",
		"cuCtxPopCurrent",
		"cuCtxGetDevice",
		"cuStreamQuery",
		"cuEventQuery",
		"cuStreamIsCapturing",
		"cuStreamGetCaptureInfo",
		"cuThreadExchangeStreamCaptureMode",
		"cuMemGetAllocationGranularity",
		"cuMulticastGetGranularity",
	} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// ledgerCall is a call in a simcuda ledger. endNs is on CLOCK_MONOTONIC.
type ledgerCall struct {
	tid, name, result string
	endNs             int64
}

// eachLedgerCall yields every call in a simcuda ledger, those of a thread in their order. It skips the
// program's set-up: calls before the first kernel launch.
func eachLedgerCall(path string, yield func(*ledgerCall)) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	lines.Buffer(make([]byte, 1<<20), 1<<20)
	for begun := false; lines.Scan(); {
		f := strings.Split(lines.Text(), "\t")
		if len(f) != 22 {
			continue // skip the header line of the ledger
		}
		begun = begun || strings.HasPrefix(f[4], "cuLaunch")
		var endNs int64
		if _, err := fmt.Sscan(f[1], &endNs); err == nil && begun {
			yield(&ledgerCall{f[3], f[4], f[5], endNs})
		}
	}
	return lines.Err()
}
