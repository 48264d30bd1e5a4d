//go:build linux

package record

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/record/library"
	"github.com/gpurec/gpurec/record/process"
)

// launcher is a shell without libcuda, with two grandchildren that use CUDA.
type launcher struct {
	cmd     *exec.Cmd
	workers []int
	ledger  string
	inputs  []*os.File // standard inputs of the two programs
}

// startLauncher starts a launcher, whose programs wait for step.
func startLauncher(t *testing.T, dir string) *launcher {
	t.Helper()
	work := t.TempDir()
	l := new(launcher)
	for _, name := range []string{"0", "1"} {
		fifo := filepath.Join(work, name)
		if err := syscall.Mkfifo(fifo, 0o600); err != nil {
			t.Fatal(err)
		}
		input, err := os.OpenFile(fifo, os.O_RDWR, 0) // O_RDWR: does not block without a reader
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { input.Close() })
		l.inputs = append(l.inputs, input)
	}
	cmd, begin, ledger := simShell(t, dir, `cd `+work+`
		for rank in 0 1; do
			sh -c "$SIM/storm --calls 5000 --threads 2 --seed $rank --wait <$rank >$rank.out; true" &
		done; wait; true`)
	l.cmd, l.ledger = cmd, ledger
	begin()
	for _, name := range []string{"0", "1"} {
		eventually(t, "worker "+name+" is ready", func() bool {
			out, _ := os.ReadFile(filepath.Join(work, name+".out"))
			return strings.HasPrefix(string(out), "ready")
		})
	}
	l.workers = library.FilterDriverUsers(process.Descendants([]int{cmd.Process.Pid}))
	if len(l.workers) != 2 || len(process.Descendants([]int{cmd.Process.Pid})) != 4 {
		t.Fatalf("workers %v", l.workers)
	}
	return l
}

// step lets the programs make their next calls.
func (l *launcher) step(t *testing.T) {
	t.Helper()
	for _, input := range l.inputs {
		if _, err := input.Write([]byte("x")); err != nil {
			t.Fatal(err)
		}
	}
}

// TestLauncherIsRecordedWithItsRunningChildren attaches to a launcher that does not use CUDA. All
// calls of its running descendants must be recorded from then on.
func TestLauncherIsRecordedWithItsRunningChildren(t *testing.T) {
	testclass.Root(t)
	needKernel(t)
	for _, c := range []struct {
		name      string
		neighbour bool // another process has mapped the library: no probes in every process
	}{{"alone", false}, {"with another user of the library", true}} {
		t.Run(c.name, func(t *testing.T) {
			dir := copySimcuda(t)
			if c.neighbour {
				startLauncher(t, dir)
			}
			l := startLauncher(t, dir)
			s := start(t, testOptions(t, l.cmd.Process.Pid))
			processes := s.Processes()
			for _, pid := range append(l.workers, l.cmd.Process.Pid) {
				if processes[pid] == "" {
					t.Errorf("process %d is not in the recording: %v", pid, processes)
				}
			}
			var since int64
			result := runWhile(t, s, func() {
				since = monotonic()
				l.step(t) // the programs make their calls
				l.step(t) // the programs exit
				if err := l.cmd.Wait(); err != nil {
					t.Errorf("the launcher failed: %v", err)
				}
			})
			if n := compare(t, result.Output, readLedger(t, l.ledger, since)); n < 9000 {
				t.Errorf("only %d calls", n)
			}
		})
	}
}

// TestLauncherWithoutItsChildrenIsRefused checks that the error names the children that use CUDA.
func TestLauncherWithoutItsChildrenIsRefused(t *testing.T) {
	testclass.Root(t)
	needKernel(t)
	l := startLauncher(t, copySimcuda(t))
	opt := testOptions(t, l.cmd.Process.Pid)
	opt.Children = false
	_, err := Start(opt)
	var of *process.Error
	if !errors.Is(err, process.ErrNoLibrary) || !errors.As(err, &of) || of.Pid != l.cmd.Process.Pid ||
		!slices.Equal(of.Children, l.workers) {
		t.Errorf("%v: %+v, workers %v", err, of, l.workers)
	}
}

// TestProcessIsSelectedByLongName selects a process by a name that is longer than the kernel's 15
// bytes.
func TestProcessIsSelectedByLongName(t *testing.T) {
	testclass.Root(t)
	needKernel(t)
	dir := copySimcuda(t)
	const name = "storm-of-a-long-name"
	path := filepath.Join(dir, name)
	if err := os.Rename(filepath.Join(dir, "storm"), path); err != nil {
		t.Fatal(err)
	}
	p := startSim(
		t,
		[]string{"LD_LIBRARY_PATH=" + dir},
		path,
		"--calls",
		"1000",
		"--threads",
		"1",
		"--seed",
		"1",
		"--wait",
	)
	p.expect("ready")
	opt := testOptions(t)
	opt.All, opt.Comm = true, name
	s := start(t, opt)
	if comm := s.Processes()[p.pid()]; comm != name[:15] {
		t.Errorf("process %d is %q: %v", p.pid(), comm, s.Processes())
	}
	var since int64
	result := runWhile(t, s, func() {
		since = monotonic()
		p.step()
		p.expect("done")
	})
	p.finish()
	if n := compareAmongOthers(t, result.Output, readLedger(t, p.ledger, since)); n < 900 {
		t.Errorf("only %d calls", n)
	}
}
