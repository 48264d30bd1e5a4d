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

	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/record/privilege"
)

// TestRecorderDropsPrivileges checks that the recorder keeps only the capabilities that recording
// needs. With these it still records complete stacks of processes and libraries that start later.
// The command and the recording belong to another user, as under sudo.
func TestRecorderDropsPrivileges(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	sim := simcudaDir()
	requireSimcuda(t, "torchrun", privilege.AttachAuto)
	const targetUser, calls, workers = 65534, 500, 4
	dir, err := os.MkdirTemp("/tmp", "gpurec-privileges-") // not t.TempDir(): the other user needs access
	must(t, err)
	defer os.RemoveAll(dir)
	must(t, os.Chown(dir, targetUser, targetUser))
	// a private copy of simcuda: gpurec then records children from their first call
	must(t, os.CopyFS(filepath.Join(dir, "simcuda"), os.DirFS(sim)))
	must(t, os.Chmod(dir, 0o755))
	sim = filepath.Join(dir, "simcuda")
	output, ledger := filepath.Join(dir, "r.parquet"), filepath.Join(dir, "ledger.tsv")
	gpurec, err := exec.LookPath("gpurec") // this test binary: testscript.Main adds it to PATH
	must(t, err)
	recorder := exec.Command(
		gpurec,
		"record",
		"-o",
		output,
		"--max-overhead",
		"off",
		"--stacks",
		"full",
		"--nvml-interval",
		"0",
		"--",
		filepath.Join(sim, "torchrun"),
		"--calls",
		fmt.Sprint(calls),
		"--wait",
	)
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
	checkThreads(t, recorder.Process.Pid) // includes threads that started since the first check
	must(t, stdin.Close())
	must(t, recorder.Wait())

	var st syscall.Stat_t
	must(t, syscall.Stat(output, &st))
	if st.Uid != targetUser || st.Gid != targetUser || st.Mode&0o777 != 0o600 {
		t.Errorf("the recording belongs to %d:%d and has mode %o", st.Uid, st.Gid, st.Mode&0o777)
	}
	rec, err := format.Open(output)
	must(t, err)
	defer rec.Close()
	text, err := os.ReadFile(ledger)
	must(t, err)
	// gpurec does not probe the functions cuDeviceGet*
	made := int64(strings.Count(string(text), "\n") - 1 - strings.Count(string(text), "\tcuDeviceGet"))
	if total := rec.Meta.Totals(); total.Seen+total.Counted != made || made < (calls-2)*workers || total.Lost != 0 {
		t.Errorf("%d calls seen, %d only counted, %d made, %d lost", total.Seen, total.Counted, made, total.Lost)
	}
	unwound := make(map[int32]bool) // PIDs with a complete stack
	must(t, rec.Rows(func(r *format.Row) error {
		if r.StackStatus == format.StackComplete && strings.HasPrefix(r.Stack, "_start;") {
			unwound[r.Pid] = true
		}
		return nil
	}, format.ClassStack))
	if len(unwound) != workers {
		t.Errorf("%d of %d processes have a complete stack", len(unwound), workers)
	}
	if rec.Meta.Cost.BPFRuns == 0 {
		t.Error("the run times of the BPF programs were not measured")
	}
}

// checkThreads fails the test if a thread of process pid has capabilities other than those that the
// recording needs.
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
		// needed because the recorded process belongs to another user
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
		"CapAmb":     0,
		"NoNewPrivs": 1,
	}
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/status", pid))
	must(t, err)
	if len(threads) < 4 {
		t.Fatalf("the recorder has %d threads", len(threads))
	}
	for _, thread := range threads {
		// A thread that enables BPF run time statistics has CAP_SYS_ADMIN for a short time.
		for end := time.Now().Add(patience); ; time.Sleep(time.Millisecond) {
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

// readStatus returns the capability sets in the status file of a thread, without the bounding set, or
// nil if the thread has ended.
func readStatus(path string) map[string]uint64 {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	sets := make(map[string]uint64)
	for line := range strings.Lines(string(text)) {
		if name, value, _ := strings.Cut(
			line,
			":",
		); strings.HasPrefix(name, "Cap") && name != "CapBnd" ||
			name == "NoNewPrivs" {
			if n, err := strconv.ParseUint(strings.TrimSpace(value), 16, 64); err == nil {
				sets[name] = n
			}
		}
	}
	return sets
}
