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

	"github.com/gpurec/gpurec/record/privilege"
)

// probedByPerf are functions enough to compare, and few: perf uprobes go one by one.
var probedByPerf = []string{"cuMemAlloc_v2", "cuMemFree_v2", "cuMemcpyHtoD_v2", "cuStreamSynchronize", "cuLaunchKernel"}

// TestInterruptedByPerfTheFileIsFinishedFirst interrupts a recording by perf uprobes, and again
// as soon as the file is there, while probes are being taken away: the file stays as it is,
// with every call of simcuda's ledger, and the exit status is that of a recording that ended well.
func TestInterruptedByPerfTheFileIsFinishedFirst(t *testing.T) {
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
	var since unix.Timespec // the program's set-up is not recorded
	must(t, unix.ClockGettime(unix.CLOCK_MONOTONIC, &since))
	_, err = stdin.Write([]byte("x"))
	must(t, err)
	expectLine(t, lines, "done")
	must(t, r.cmd.Process.Signal(os.Interrupt))
	waitForFile(t, r.output)
	r.interruptedAgain(message.ExitOK)
	must(t, storm.Process.Signal(syscall.Signal(0))) // the target goes on
	stdin.Close()
	must(t, storm.Wait()) // its ledger is written

	if recorded := r.compareWithLedger(dir, since.Nano()); recorded < 5000 {
		t.Errorf("only %d calls", recorded)
	}
}

// TestInterruptedByPerfExitsWithTheCommandsStatus has a command end by itself: what is
// interrupted then is only the removal of probes.
func TestInterruptedByPerfExitsWithTheCommandsStatus(t *testing.T) {
	dir, env := simEnvironment(t)
	script := filepath.Join(dir, "simcuda/storm") + " --calls 2000 --threads 1 --seed 4 && exit 7"
	r := startPerfRecorder(t, dir, env, "--", "sh", "-c", script)
	waitForFile(t, r.output)
	r.interruptedAgain(7)
	if recorded := r.compareWithLedger(dir, 0); recorded < 500 {
		t.Errorf("only %d calls", recorded)
	}
}

// perfRecorder is gpurec as a process of its own.
type perfRecorder struct {
	t             *testing.T
	cmd           *exec.Cmd
	stderr        messages
	output, ready string
}

func startPerfRecorder(t *testing.T, dir string, env []string, what ...string) *perfRecorder {
	t.Helper()
	gpurec, err := exec.LookPath("gpurec") // this test binary, put there by testscript.Main
	must(t, err)
	r := &perfRecorder{t: t, output: filepath.Join(dir, "r.parquet"), ready: filepath.Join(dir, "ready")}
	args := []string{
		"record",
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
	r.cmd = exec.CommandContext(t.Context(), gpurec, append(args, what...)...)
	r.cmd.Env, r.cmd.Stderr = env, &r.stderr
	must(t, r.cmd.Start())
	return r
}

// interruptedAgain interrupts the removal of probes and expects an exit status.
func (r *perfRecorder) interruptedAgain(status int) {
	r.t.Helper()
	const finished = "the file is finished; removing"
	waitFor(r.t, "the file is finished, and probes are being removed", func() bool { return r.stderr.has(finished) })
	must(r.t, r.cmd.Process.Signal(os.Interrupt))
	_ = r.cmd.Wait() // as below
	if code := r.cmd.ProcessState.ExitCode(); code != status {
		r.t.Errorf("exit status %d, want %d", code, status)
	}
	if want := "the kernel removes the remaining probes"; !r.stderr.has(want) {
		r.t.Errorf("gpurec did not print %q, but:\n%s", want, r.stderr.String())
	}
}

// recording opens the file, which has to be complete.
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

// compareWithLedger fails unless what came after a time, on CLOCK_MONOTONIC and behind the
// program's set-up, is recorded exactly, and returns how many calls are.
func (r *perfRecorder) compareWithLedger(dir string, sinceNs int64) (recorded int) {
	r.t.Helper()
	rec := r.recording()
	calls := make(map[string]int) // "tid name" -> calls in the ledger, less those recorded
	first := int64(math.MaxInt64)
	must(r.t, eachLedgerCall(filepath.Join(dir, "ledger.tsv"), func(tid, name string, endNs int64) {
		if endNs > sinceNs && slices.Contains(probedByPerf, name) {
			calls[tid+" "+name]++
			first = min(first, endNs)
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
		r.t.Errorf("books: %+v", total)
	}
	return recorded
}

// simEnvironment is what programs on simcuda need, with a copy of it that nobody else uses: what
// other processes use too is probed for each child on its own, when it may have made its first
// calls. It skips where nothing can be attached.
func simEnvironment(t *testing.T) (dir string, env []string) {
	t.Helper()
	if _, err := os.Stat(
		filepath.Join(simcudaDir(), "storm"),
	); err != nil ||
		privilege.Check(privilege.AttachPerf) != nil {
		if os.Getenv("GPUREC_MUST_RUN") == "1" {
			t.Fatal("must run, but simcuda is not built or attaching is not permitted")
		}
		t.Skip("attaching needs root and simcuda")
	}
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
