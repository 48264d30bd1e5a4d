//go:build linux

package main

import (
	"bufio"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/gpurec/gpurec/cmd/gpurec/message"
	"github.com/gpurec/gpurec/format"
	"golang.org/x/sys/unix"

	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/record/privilege"
)

// probedByPerf lists the probed functions. They are few because the kernel removes perf uprobes one
// by one.
var probedByPerf = []string{"cuMemAlloc_v2", "cuMemFree_v2", "cuMemcpyHtoD_v2", "cuStreamSynchronize", "cuLaunchKernel"}

// TestPerfInterruptFinishesFileFirst interrupts a recording by perf uprobes. When the file is
// finished and gpurec removes probes, the test interrupts gpurec again. The file must stay
// unchanged with every call of simcuda's ledger, and the exit status must be 0.
func TestPerfInterruptFinishesFileFirst(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	dir, env := simEnvironment(t)
	storm := exec.Command(
		filepath.Join(dir, "simcuda/storm"),
		"--calls",
		"20000",
		"--threads",
		"2",
		"--seed",
		"4",
		"--wait",
	)
	storm.Env = env
	stdin, err := storm.StdinPipe()
	must(t, err)
	stdout, err := storm.StdoutPipe()
	must(t, err)
	must(t, storm.Start())
	defer func() { _ = storm.Process.Kill(); _ = storm.Wait() }()
	lines := bufio.NewReader(stdout)
	expectLine(t, lines, "ready")
	r := startPerfRecorder(t, dir, env, "-p", fmt.Sprint(storm.Process.Pid))
	waitForFile(t, r.ready)
	var since unix.Timespec // start time after the program's set-up, which is not recorded
	must(t, unix.ClockGettime(unix.CLOCK_MONOTONIC, &since))
	_, err = stdin.Write([]byte("x"))
	must(t, err)
	expectLine(t, lines, "done")
	must(t, r.cmd.Process.Signal(os.Interrupt))
	waitForFile(t, r.output)
	r.interruptedAgain(message.ExitOK)
	must(t, storm.Process.Signal(syscall.Signal(0))) // the target process still runs
	stdin.Close()
	must(t, storm.Wait()) // the program has written its ledger

	if recorded := r.compareWithLedger(dir, since.Nano()); recorded < 5000 {
		t.Errorf("only %d calls recorded", recorded)
	}
}

// TestPerfInterruptKeepsCommandStatus records a command until it exits, and interrupts only the
// removal of probes. gpurec must exit with the status of the command.
func TestPerfInterruptKeepsCommandStatus(t *testing.T) {
	testclass.Root(t)
	dir, env := simEnvironment(t)
	script := filepath.Join(dir, "simcuda/storm") + " --calls 2000 --threads 1 --seed 4 && exit 7"
	r := startPerfRecorder(t, dir, env, "--", "sh", "-c", script)
	waitForFile(t, r.output)
	r.interruptedAgain(7)
	if recorded := r.compareWithLedger(dir, 0); recorded < 500 {
		t.Errorf("only %d calls recorded", recorded)
	}
}

// perfRecorder is a gpurec process that records with perf uprobes.
type perfRecorder struct {
	t             *testing.T
	cmd           *exec.Cmd
	stderr        messages
	output, ready string
}

// startPerfRecorder starts gpurec. target holds the arguments that select the process or the
// command.
func startPerfRecorder(t *testing.T, dir string, env []string, target ...string) *perfRecorder {
	t.Helper()
	gpurec, err := exec.LookPath("gpurec") // this test binary: testscript.Main adds it to PATH
	must(t, err)
	r := &perfRecorder{t: t, output: filepath.Join(dir, "r.parquet"), ready: filepath.Join(dir, "ready")}
	args := []string{
		"record",
		"--max-overhead",
		"off",
		"--attach",
		"perf",
		"--only",
		strings.Join(probedByPerf, ","),
		"-o",
		r.output,
		"--stacks",
		"fp",
		"--nvml-interval",
		"0",
		"--ready-file",
		r.ready,
	}
	r.cmd = exec.CommandContext(t.Context(), gpurec, append(args, target...)...)
	r.cmd.Env, r.cmd.Stderr = env, &r.stderr
	must(t, r.cmd.Start())
	return r
}

// interruptedAgain interrupts the removal of probes and fails the test unless gpurec exits with
// status.
func (r *perfRecorder) interruptedAgain(status int) {
	r.t.Helper()
	const finished = "the file is finished; removing"
	waitFor(r.t, "the file is finished, and probes are being removed", func() bool { return r.stderr.has(finished) })
	must(r.t, r.cmd.Process.Signal(os.Interrupt))
	_ = r.cmd.Wait() // the test checks the exit code below
	if code := r.cmd.ProcessState.ExitCode(); code != status {
		r.t.Errorf("exit status %d, want %d", code, status)
	}
	if want := "the kernel removes the remaining probes"; !r.stderr.has(want) {
		r.t.Errorf("gpurec did not print %q, but:\n%s", want, r.stderr.String())
	}
}

// recording opens the recording and fails the test if it is not complete.
func (r *perfRecorder) recording() *format.Recording {
	r.t.Helper()
	rec, err := format.Open(r.output)
	must(r.t, err)
	r.t.Cleanup(func() { rec.Close() })
	if rec.Meta.Complete != format.CompleteYes {
		r.t.Errorf("complete: %q", rec.Meta.Complete)
	}
	return rec
}

// compareWithLedger fails the test unless the recording has exactly the calls of simcuda's ledger
// after sinceNs (CLOCK_MONOTONIC) and after the program's set-up. It returns the number of recorded
// calls.
func (r *perfRecorder) compareWithLedger(dir string, sinceNs int64) (recorded int) {
	r.t.Helper()
	rec := r.recording()
	calls := make(map[string]int) // "tid name" -> calls in the ledger minus calls in the recording
	first := int64(math.MaxInt64)
	must(r.t, eachLedgerCall(filepath.Join(dir, "ledger.tsv"), func(c *ledgerCall) {
		if c.endNs > sinceNs && slices.Contains(probedByPerf, c.name) {
			calls[c.tid+" "+c.name]++
			first = min(first, c.endNs)
		}
	}))
	must(r.t, rec.Rows(func(row *format.Row) error {
		if row.StartNs+row.DurNs-rec.Meta.ClockOffsetNs >= first {
			calls[fmt.Sprint(row.Tid)+" "+row.Name]--
		}
		recorded++
		return nil
	}, format.ClassMemory, format.ClassCall))
	for call, n := range calls {
		if n != 0 {
			r.t.Errorf("%s: the ledger has %d calls more than the recording\n%s", call, n, r.stderr.String())
		}
	}
	if total := rec.Meta.Totals(); total.Recorded != total.Seen {
		r.t.Errorf("call counters: %+v", total)
	}
	return recorded
}

// simEnvironment returns a temporary folder and an environment for programs on simcuda, with a
// private copy of simcuda. gpurec probes a library that other processes share separately for each
// child, after the child may have made its first calls. simEnvironment skips the test without root
// or simcuda.
func simEnvironment(t *testing.T) (dir string, env []string) {
	t.Helper()
	requireSimcuda(t, "storm", privilege.AttachPerf)
	dir = t.TempDir()
	sim := filepath.Join(dir, "simcuda")
	must(t, os.CopyFS(sim, os.DirFS(simcudaDir())))
	return dir, append(
		os.Environ(),
		"LD_LIBRARY_PATH="+sim,
		"SIMCUDA_LEDGER="+filepath.Join(dir, "ledger.tsv"),
		"SIMCUDA_TIME=off",
		"SIMCUDA_STATE="+filepath.Join(dir, "state"),
	)
}

func expectLine(t *testing.T, lines *bufio.Reader, prefix string) {
	t.Helper()
	if line, err := lines.ReadString('\n'); err != nil || !strings.HasPrefix(line, prefix) {
		t.Fatalf("%q %v", line, err)
	}
}
