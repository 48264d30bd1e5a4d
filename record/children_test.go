//go:build linux

package record

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/record/probe"
	"github.com/gpurec/gpurec/record/process"
)

// copySimcuda copies simcuda to a new folder, so that no other process has mapped the same library.
func copySimcuda(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"libcuda.so.1", "storm", "torchrun"} {
		data, err := os.ReadFile(filepath.Join(simcudaDir, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// simShell prepares a shell script in which $SIM is a folder with simcuda. All its programs write
// to one ledger. The returned function starts the script.
func simShell(t *testing.T, dir, script string) (*exec.Cmd, func(), string) {
	t.Helper()
	cmd, ledger := simCommand(t, []string{"SIM=" + dir, "LD_LIBRARY_PATH=" + dir}, "storm")
	cmd.Path, cmd.Args = "/bin/sh", []string{"sh", "-c", "read line; " + script}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stdin.Close()
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // the process group: the shell and its programs
		_ = cmd.Wait()
	})
	return cmd, func() { fmt.Fprintln(stdin, "go") }, ledger
}

// attemptsFromTheFirstCall is how often a test records children from their first call. If the recorder is late on a
// busy machine, it says so, and another attempt follows. Calls that are missing in silence fail the test at once.
const attemptsFromTheFirstCall = 3

// isLate reports whether a recording says that first calls are missing, and another attempt follows.
func isLate(t *testing.T, result Result, attempt int) bool {
	t.Helper()
	if result.Meta.Late == nil || attempt == attemptsFromTheFirstCall {
		return false
	}
	t.Logf("recorded again, because first calls are missing: %+v", *result.Meta.Late)
	return true
}

func TestChildrenAreRecordedFromTheirFirstCall(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	for attempt := 1; !recordFirstCallsOfChildren(t, attempt); attempt++ {
	}
}

// recordFirstCallsOfChildren returns false if another attempt must follow.
func recordFirstCallsOfChildren(t *testing.T, attempt int) bool {
	t.Helper()
	needKernel(t)
	cmd, begin, ledger := simShell(t, copySimcuda(t), `
		for seed in 1 2 3 4; do $SIM/storm --calls 5000 --threads 2 --seed $seed >/dev/null & done
		wait; sh -c 'exec $SIM/storm --calls 5000 --threads 1 --seed 5' >/dev/null`)
	opt := testOptions(t, cmd.Process.Pid)
	opt.WaitForLibrary = true // the shell does not load libcuda
	s := start(t, opt)
	result := runWhile(t, s, func() {
		begin()
		if err := cmd.Wait(); err != nil {
			t.Errorf("the recorded program failed: %v", err)
		}
	})
	if isLate(t, result, attempt) {
		return false
	}
	n := compare(t, result.Output, readLedger(t, ledger, 0))
	if n < 24000 {
		t.Errorf("only %d calls", n)
	}
	exits := 0
	for _, r := range factRows(t, result.Output, format.KindProcess) {
		exits += strings.Count(r.Message, `"exit_ns"`)
	}
	if exits < 6 { // the shell and five storms; short-lived shells may be missing
		t.Errorf("%d rows for exits of processes", exits)
	}
	t.Logf("%d calls of children equal the ledger", n)
	return true
}

func TestChildrenAreCompleteWithOtherUsersOfTheLibrary(t *testing.T) {
	testclass.Root(t)
	needKernel(t)
	dir := copySimcuda(t)
	neighbour, begin, _ := simShell(t, dir, `$SIM/storm --calls 1000000000 --threads 1 --seed 1 --rate 1000 >/dev/null`)
	begin()
	eventually(
		t,
		"the other process uses the library",
		func() bool { return len(process.Descendants([]int{neighbour.Process.Pid})) > 0 },
	)
	// The programs wait before their first call, as real programs do.
	cmd, begin, ledger := simShell(
		t,
		dir,
		`for seed in 1 2 3 4; do (sleep 2; exec $SIM/storm --calls 5000 --threads 2 --seed $seed) >/dev/null & done; wait`,
	)
	opt := testOptions(t, cmd.Process.Pid)
	opt.WaitForLibrary = true
	s := start(t, opt)
	if slices.Contains(s.probes.AttachedPids(), probe.EveryProcess) {
		t.Error("probes are attached that the other process hits, too")
	}
	result := runWhile(t, s, func() {
		begin()
		if err := cmd.Wait(); err != nil {
			t.Errorf("the recorded program failed: %v", err)
		}
	})
	if n := compare(t, result.Output, readLedger(t, ledger, 0)); n < 19000 {
		t.Errorf("only %d calls", n)
	}
}

func TestWithoutChildrenOnlyTheParentIsRecorded(t *testing.T) {
	testclass.Root(t)
	needKernel(t)
	p := startSim(t, nil, "storm", "--calls", "2000", "--threads", "1", "--seed", "1", "--wait")
	p.expect("ready")
	cmd, begin, _ := simShell(t, copySimcuda(t), `$SIM/storm --calls 5000 --threads 2 --seed 2 >/dev/null`)
	opt := testOptions(t, p.pid(), cmd.Process.Pid)
	opt.Children, opt.WaitForLibrary = false, true
	s := start(t, opt)
	var since int64
	result := runWhile(t, s, func() {
		since = monotonic()
		begin()
		p.step()
		p.expect("done")
		_ = cmd.Wait()
	})
	p.finish()
	compare(t, result.Output, readLedger(t, p.ledger, since))
}

func TestOtherProcessesAreNotRecorded(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	needKernel(t)
	neighbour := startSim(t, nil, "storm", "--calls", "1000000000", "--threads", "1", "--seed", "1", "--rate", "5000")
	eventually(
		t,
		"the other process makes calls",
		func() bool { info, err := os.Stat(neighbour.ledger); return err == nil && info.Size() > 1000 },
	)
	p := startSim(t, nil, "storm", "--calls", "5000", "--threads", "1", "--seed", "2", "--wait")
	p.expect("ready")
	s := start(t, testOptions(t, p.pid()))
	if slices.Contains(s.probes.AttachedPids(), probe.EveryProcess) {
		t.Error("probes are attached that the other process hits, too")
	}
	var since int64
	result := runWhile(t, s, func() {
		since = monotonic()
		p.step()
		p.expect("done")
	})
	p.finish()
	compare(t, result.Output, readLedger(t, p.ledger, since))
}

func TestAllRecordsEveryProcess(t *testing.T) {
	testclass.Root(t)
	needKernel(t)
	p := startSim(t, nil, "storm", "--calls", "3000", "--threads", "1", "--seed", "1", "--wait")
	p.expect("ready")
	opt := testOptions(t)
	opt.All = true
	s := start(t, opt)
	var since int64
	result := runWhile(t, s, func() {
		since = monotonic()
		p.step()
		p.expect("done")
		// A process that starts during the recording and is no child of another target.
		cmd, ledger := simCommand(
			t,
			[]string{"SIMCUDA_LEDGER=" + p.ledger},
			"storm",
			"--calls",
			"3000",
			"--threads",
			"1",
			"--seed",
			"2",
		)
		_ = ledger
		if out, err := cmd.Output(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})
	p.finish()
	if n := compareAmongOthers(t, result.Output, readLedger(t, p.ledger, since)); n < 5500 {
		t.Errorf("only %d calls", n)
	}
	if got := len(factRows(t, result.Output, format.KindProcess)); got < 2 {
		t.Errorf("%d rows of processes", got)
	}
}

func TestProcessesAreChosenByNameAndCgroup(t *testing.T) {
	testclass.Root(t)
	needKernel(t)
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	path := ""
	for line := range strings.Lines(string(own)) {
		if rest, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok {
			path = rest
		}
	}
	if _, err := process.FindCgroupRoot(); err != nil { // the machine has cgroup v1
		dir := t.TempDir()
		if err := syscall.Mount("none", dir, "cgroup2", 0, ""); err != nil {
			testclass.Missing(t, "cannot mount cgroup v2: "+err.Error())
		}
		defer syscall.Unmount(dir, 0)
	}
	for _, c := range []struct {
		name         string
		comm, cgroup string
		recorded     bool
	}{
		{"the name", "storm", "", true},
		{"another name", "leak", "", false},
		{"the cgroup", "", path, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			opt := testOptions(t)
			opt.All, opt.Comm, opt.Cgroup = true, c.comm, c.cgroup
			// Every library is probed in every process: one running process has mapped the library.
			p := startSim(t, nil, "storm", "--calls", "1000", "--threads", "1", "--seed", "1", "--wait")
			p.expect("ready")
			s := start(t, opt)
			var since int64
			result := runWhile(t, s, func() {
				since = monotonic()
				p.step()
				p.expect("done")
				later, _ := simCommand(
					t,
					[]string{"SIMCUDA_LEDGER=" + p.ledger},
					"storm",
					"--calls",
					"1000",
					"--threads",
					"1",
					"--seed",
					"2",
				)
				if err := later.Run(); err != nil {
					t.Error(err)
				}
			})
			p.finish()
			if !c.recorded {
				for tid := range readLedger(t, p.ledger, since) {
					if n := len(recordedCalls(t, result.Output)[tid]); n != 0 {
						t.Errorf("%d calls recorded of a process with another name", n)
					}
				}
				return
			}
			compareAmongOthers(t, result.Output, readLedger(t, p.ledger, since))
		})
	}
	if _, err := process.OpenCgroup("/does/not/exist"); err == nil {
		t.Error("a missing cgroup was opened without an error")
	}
}

func TestProcessInItsOwnNamespaces(t *testing.T) {
	testclass.Root(t)
	needKernel(t)
	// The process has its own mount and pid namespaces, as in a container. It is process 1 there,
	// and simcuda is at a path that exists only in its mount namespace.
	dir, err := filepath.Abs(simcudaDir)
	if err != nil {
		t.Fatal(err)
	}
	hidden := t.TempDir()
	cmd, ledger := simCommand(t, []string{"LD_LIBRARY_PATH=" + hidden}, "storm")
	script := fmt.Sprintf(
		`mount -t tmpfs none %[1]s && cp %[2]s/libcuda.so.1 %[2]s/storm %[1]s/ && exec %[1]s/storm --calls 5000 --threads 2 --seed 3 --wait`,
		hidden,
		dir,
	)
	unshare, err := exec.LookPath("unshare")
	if err != nil {
		testclass.Missing(t, err.Error())
	}
	cmd.Path, cmd.Args = unshare, []string{"unshare", "--mount", "--pid", "--fork", "--mount-proc", "sh", "-c", script}
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	p := &simProgram{t: t, stdin: stdin, stdout: bufio.NewReader(out)}
	if inner := p.expect("ready"); inner != "1" {
		t.Fatalf("the program has pid %s in its namespace, want 1", inner)
	}
	children := process.Descendants([]int{cmd.Process.Pid})
	if len(children) != 1 {
		t.Fatalf("children of unshare: %v", children)
	}
	s := start(t, testOptions(t, children[0]))
	var since int64
	result := runWhile(t, s, func() {
		since = monotonic()
		p.step()
		p.expect("done")
	})
	stdin.Close()
	// The ledger has pids of the namespace, the recording has pids of the host.
	happened := 0
	counted := countedCalls()
	for _, thread := range readLedger(t, ledger, since) {
		for _, c := range thread {
			if isCounted, probed := counted[c.name]; probed && !isCounted {
				happened++
			}
		}
	}
	total := result.Meta.Totals()
	if total.Lost != 0 || int(total.Recorded) != happened || happened < 4500 {
		t.Errorf("recorded %d of %d, lost %d", total.Recorded, happened, total.Lost)
	}
	named := false
	for _, r := range factRows(t, result.Output, format.KindStack) {
		named = named || strings.Contains(r.Stack, "cuLaunchKernel")
	}
	if !named {
		t.Error("no frame of the hidden library has a name")
	}
	if facts := factRows(
		t,
		result.Output,
		format.KindProcess,
	); len(facts) == 0 ||
		!strings.Contains(facts[0].Message, `"namespace_pids":["`+fmt.Sprint(children[0])+`","1"]`) {
		t.Errorf("process row: %+v", facts)
	}
}
