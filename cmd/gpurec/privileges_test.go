//go:build linux

package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gpurec/gpurec/format"
	"golang.org/x/sys/unix"

	"github.com/gpurec/gpurec/record/privilege"
)

// TestRecorderDropsPrivileges: once it is ready, no thread of the recorder has more than
// it needs, and processes that are started then, with libraries that they load then, are
// recorded call by call with complete stacks nevertheless. The command is another user's,
// as under sudo, and so is the recording.
func TestRecorderDropsPrivileges(t *testing.T) {
	sim := simcudaDir()
	if _, err := os.Stat(filepath.Join(sim, "torchrun")); err != nil || privilege.Check(privilege.AttachAuto) != nil {
		if os.Getenv("GPUREC_MUST_RUN") == "1" {
			t.Fatal("must run, but simcuda is not built or attaching is not permitted")
		}
		t.Skip("attaching needs root and simcuda")
	}
	const nobody, calls, workers = 65534, 500, 4
	dir, err := os.MkdirTemp("/tmp", "gpurec-privileges-") // where nobody gets
	must(t, err)
	defer os.RemoveAll(dir)
	must(t, os.Chown(dir, nobody, nobody))
	// nobody else uses it: children are recorded from their first call
	must(t, os.CopyFS(filepath.Join(dir, "simcuda"), os.DirFS(sim)))
	must(t, os.Chmod(dir, 0o755))
	sim = filepath.Join(dir, "simcuda")
	output, ledger := filepath.Join(dir, "r.parquet"), filepath.Join(dir, "ledger.tsv")
	gpurec, err := exec.LookPath("gpurec") // this test binary, put there by testscript.Main
	must(t, err)
	recorder := exec.Command(gpurec, "record", "-o", output, "--stacks", "full", "--nvml-interval", "0", "--",
		filepath.Join(sim, "torchrun"), "--calls", fmt.Sprint(calls), "--wait")
	recorder.Env = append(os.Environ(), "SUDO_UID=65534", "SUDO_GID=65534", "LD_LIBRARY_PATH="+sim,
		"SIMCUDA_LEDGER="+ledger, "SIMCUDA_KERNEL_US=3000", "SIMCUDA_STATE="+dir+"/state")
	recorder.Stderr = os.Stderr
	stdin, err := recorder.StdinPipe()
	must(t, err)
	stdout, err := recorder.StdoutPipe()
	must(t, err)
	must(t, recorder.Start())
	defer func() { _ = recorder.Process.Kill(); _ = recorder.Wait() }()
	lines := bufio.NewScanner(stdout)
	expect := func(word string) {
		t.Helper()
		if !lines.Scan() || !strings.HasPrefix(lines.Text(), word) {
			t.Fatalf("%q instead of %q", lines.Text(), word)
		}
	}
	expect("ready")
	checkThreads(t, recorder.Process.Pid)
	_, err = stdin.Write([]byte("x"))
	must(t, err)
	expect("done")
	checkThreads(t, recorder.Process.Pid) // those that came since as well
	must(t, stdin.Close())
	must(t, recorder.Wait())

	var st syscall.Stat_t
	must(t, syscall.Stat(output, &st))
	if st.Uid != nobody || st.Gid != nobody || st.Mode&0o777 != 0o600 {
		t.Errorf("the recording belongs to %d:%d and has mode %o", st.Uid, st.Gid, st.Mode&0o777)
	}
	rec, err := format.Open(output)
	must(t, err)
	defer rec.Close()
	text, err := os.ReadFile(ledger)
	must(t, err)
	// those are not probed
	made := int64(strings.Count(string(text), "\n") - 1 - strings.Count(string(text), "\tcuDeviceGet"))
	if total := rec.Meta.Totals(); total.Seen+total.Counted != made || made < (calls-2)*workers || total.Lost != 0 {
		t.Errorf("saw %d calls and counted %d of %d, lost %d", total.Seen, total.Counted, made, total.Lost)
	}
	unwound := make(map[int32]bool) // which needs links, tables and names of what came later
	must(t, rec.Rows(func(r *format.Row) error {
		if r.StackStatus == format.StackComplete && strings.HasPrefix(r.Stack, "_start;") {
			unwound[r.Pid] = true
		}
		return nil
	}, format.ClassStack))
	if len(unwound) != workers {
		t.Errorf("stacks of %d processes of %d are complete", len(unwound), workers)
	}
	if rec.Meta.Cost.BPFRuns == 0 {
		t.Error("run times of the programs were not measured")
	}
}

// checkThreads fails the test if a thread of the process has a capability that its
// recording does not need.
func checkThreads(t *testing.T, pid int) {
	t.Helper()
	bits := func(capabilities ...uint) (sum uint64) {
		for _, c := range capabilities {
			sum |= 1 << c
		}
		return sum
	}
	effective := bits(
		unix.CAP_BPF,
		unix.CAP_PERFMON,
		unix.CAP_SYS_PTRACE,
		unix.CAP_CHECKPOINT_RESTORE,
		unix.CAP_DAC_READ_SEARCH,
		// the last four because of the other user
		unix.CAP_KILL,
		unix.CAP_CHOWN,
		unix.CAP_DAC_OVERRIDE,
		unix.CAP_FOWNER,
	)
	permitted := effective | bits(unix.CAP_SYS_ADMIN)
	want := map[string]uint64{
		"CapInh":     0,
		"CapPrm":     permitted,
		"CapEff":     effective,
		"CapBnd":     permitted,
		"CapAmb":     0,
		"NoNewPrivs": 1,
	}
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	must(t, err)
	if len(threads) < 4 {
		t.Fatalf("%d threads", len(threads))
	}
	for _, thread := range threads {
		// One that switches measuring of run times on has the capability for that moment.
		for end := time.Now().Add(time.Second); ; time.Sleep(time.Millisecond) {
			have := readStatus(thread)
			if have == nil || fmt.Sprint(have) == fmt.Sprint(want) {
				break
			}
			if time.Now().After(end) {
				t.Errorf("%s: %x, not %x", thread, have, want)
				break
			}
		}
	}
}

// readStatus returns the capability sets in a thread's status, nil if it has ended.
func readStatus(path string) map[string]uint64 {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	sets := make(map[string]uint64)
	for line := range strings.Lines(string(text)) {
		if name, value, _ := strings.Cut(line, ":"); strings.HasPrefix(name, "Cap") || name == "NoNewPrivs" {
			if n, err := strconv.ParseUint(strings.TrimSpace(value), 16, 64); err == nil {
				sets[name] = n
			}
		}
	}
	return sets
}
