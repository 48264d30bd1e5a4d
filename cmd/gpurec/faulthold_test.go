//go:build linux

package main

import (
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/record/privilege"
)

// TestFaultRecorderKilledWhileItHolds kills gpurec with signal 9 while it starts and holds programs
// that call CUDA at once. No process may stay stopped.
func TestFaultRecorderKilledWhileItHolds(t *testing.T) {
	testclass.Root(t)
	sim, watched := simcudaDir(), requireSimcuda(t, "watched", privilege.AttachAuto)
	gpurec, err := exec.LookPath("gpurec")
	must(t, err)
	times, stoppedOnce := faultTimes(t, 5, 100), 0
	for i := range times {
		dir := t.TempDir()
		recorder := exec.Command(gpurec, "record", "--nvml-interval", "0", "-o", filepath.Join(dir, "r.parquet"), "--",
			"/bin/sh", "-c", `while :; do "$0" wait; done`, watched)
		recorder.Env = append(os.Environ(), "LD_LIBRARY_PATH="+sim, "SIMCUDA_STATE="+dir+"/state",
			"SIMCUDA_LEDGER="+dir+"/ledger.tsv", "SIMCUDA_TIME=off", "GPUREC_TEST_HOLD="+dir)
		must(t, recorder.Start())
		if i%2 == 0 { // half of the kills come while programs run
			waitForFile(t, dir+"/ledger.tsv")
		}
		time.Sleep(rand.N(1500 * time.Millisecond))
		must(t, recorder.Process.Kill())
		_ = recorder.Wait()
		if len(processesOf(dir, "tT")) > 0 {
			stoppedOnce++
		}
		waitFor(t, "no process of the command is stopped", func() bool { return len(processesOf(dir, "tT")) == 0 })
		for _, pid := range processesOf(dir, "") {
			_ = exec.Command("kill", "-9", pid).Run() // the shell first, see processesOf
		}
		waitFor(t, "the command has ended", func() bool { return len(processesOf(dir, "")) == 0 })
	}
	t.Logf("killed %d times; %d times a process was stopped directly afterwards", times, stoppedOnce)
}

// processesOf returns the processes whose environment names the folder and whose state is one of
// states, "" for any state but zombie. Older processes come first.
func processesOf(dir, states string) (pids []string) {
	entries, _ := filepath.Glob("/proc/[0-9]*")
	for _, path := range entries {
		environ, err := os.ReadFile(path + "/environ")
		if err != nil || !strings.Contains(string(environ), "GPUREC_TEST_HOLD="+dir) {
			continue
		}
		stat, err := os.ReadFile(path + "/stat")
		_, rest, found := strings.Cut(string(stat), ") ")
		if err != nil || !found || rest[0] == 'Z' || states != "" && !strings.Contains(states, rest[:1]) {
			continue
		}
		pids = append(pids, filepath.Base(path))
	}
	return pids
}
