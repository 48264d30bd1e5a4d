//go:build linux

package record

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/record/probe"
)

// recordCommand records a held command from its first instruction to its end.
func recordCommand(t *testing.T, command *Command, opt Options) Result {
	t.Helper()
	opt.Command = command
	s := start(t, opt)
	defer s.Close()
	command.Run()
	if end, err := s.Run(t.Context()); err != nil || end != EndProcesses {
		t.Errorf("ended because %q, %v", end, err)
	}
	result, err := s.Finish()
	if err != nil {
		t.Fatal(err)
	}
	if status, err := command.Wait(t.Context()); status != 0 || err != nil {
		t.Errorf("status %d, %v", status, err)
	}
	return result
}

// withoutStack returns how many calls of a recording have no stack.
func withoutStack(t *testing.T, path string) (n int) {
	t.Helper()
	for _, rows := range recordedCalls(t, path) {
		for _, r := range rows {
			if r.StackID == 0 && r.Flags&format.FlagUnreadable == 0 {
				n++
			}
		}
	}
	return n
}

// TestHoldsAreNotNoticed checks that a program, its parent, its tracer and its timers notice nothing
// of holds: examples/simcuda/watched.c.
func TestHoldsAreNotNoticed(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	needKernel(t)
	for mode, want := range map[string]string{
		"wait":  "watched wait: 0",
		"trace": "watched trace: 0",
		"timer": "watched timer: 0",
		"stop":  "watched stop: 2", // its own stop and continuation

		"signal": "watched signal: 0",
		"kill":   "watched kill: 0",
	} {
		t.Run(mode, func(t *testing.T) {
			out, err := os.Create(filepath.Join(t.TempDir(), "out"))
			if err != nil {
				t.Fatal(err)
			}
			defer out.Close()
			stdout := os.Stdout
			os.Stdout = out
			command := startSimCommand(t, nil, "watched", mode)
			os.Stdout = stdout
			result := recordCommand(t, command, testOptions(t))
			said, err := os.ReadFile(out.Name())
			if err != nil || strings.TrimSpace(string(said)) != want {
				t.Errorf("the program says %q, want %q, error %v", said, want, err)
			}
			if cost := result.Meta.Cost; cost.Holds == 0 || cost.Unheld > 0 && mode != "kill" {
				t.Errorf("%d holds, %d threads ran before they were covered", cost.Holds, cost.Unheld)
			}
			if missing := withoutStack(t, result.Output); missing > 0 {
				t.Errorf("%d calls have no stack", missing)
			}
			t.Logf("%d holds, %.1f ms", result.Meta.Cost.Holds, float64(result.Meta.Cost.HeldNs)/1e6)
		})
	}
}

// runHeld runs a program that prints something, recorded and held, and returns its output. The
// recording must have all calls of its ledger.
func runHeld(t *testing.T, line string) string {
	t.Helper()
	dir := t.TempDir()
	out, ledger := filepath.Join(dir, "out"), filepath.Join(dir, "ledger.tsv")
	opt := testOptions(t)
	opt.Stacks = probe.StacksAuto
	command := startShell(t, dir, "export SIMCUDA_LEDGER="+ledger+"\n"+line+" >"+out+" 2>&1")
	result := recordCommand(t, command, opt)
	if n := compare(t, result.Output, readLedger(t, ledger, 0)); n < 100 {
		t.Errorf("only %d calls", n)
	}
	if bad := badStacks(t, result.Output); len(bad) > 0 {
		t.Errorf("calls without a complete stack: %v", bad)
	}
	if cost := result.Meta.Cost; cost.Holds == 0 || cost.Unheld != 0 {
		t.Errorf("%d holds, %d threads ran before they were covered", cost.Holds, cost.Unheld)
	}
	return readText(t, out)
}

// runAlone runs a program without gpurec and returns its output.
func runAlone(t *testing.T, line string) string {
	t.Helper()
	dir, err := filepath.Abs(simcudaDir)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("/bin/sh", "-c", line)
	cmd.Env = append(os.Environ(), "CUDA="+dir, "LD_LIBRARY_PATH="+dir, "SIMCUDA_TIME=off",
		"SIMCUDA_STATE="+filepath.Join(t.TempDir(), "state"))
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", line, err, out)
	}
	return string(out)
}

func readText(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Numbers that differ between two runs of a program under a debugger: addresses, processes, times.
var changingNumbers = regexp.MustCompile(`0x[0-9a-f]+|\b\d{3,}\b|si_[us]time=\d+( /\*[^*]*\*/)?`)

// linesWith returns the lines of an output that have one of the words, without changing numbers.
func linesWith(output string, words ...string) (lines []string) {
	for line := range strings.Lines(output) {
		if slices.ContainsFunc(words, func(w string) bool { return strings.Contains(line, w) }) {
			lines = append(lines, changingNumbers.ReplaceAllString(strings.TrimSpace(line), "N"))
		}
	}
	return lines
}

// TestDebuggersDoNotNoticeHolds checks that programs that trace a held program, and shells that
// control jobs, see what they see without gpurec.
func TestDebuggersDoNotNoticeHolds(t *testing.T) {
	testclass.Root(t)
	needKernel(t)
	for _, test := range []struct {
		tool, line string
		words      []string // of the lines to compare
		want       int      // number of such lines
	}{
		{"strace", "strace -f -e trace=exit_group $CUDA/children fork", []string{"--- ", "+++ "}, 3},
		{
			"gdb", `gdb -q -batch -nx -ex 'set breakpoint pending on' -ex 'set debuginfod enabled off' -ex 'break process_init' ` +
				`-ex run -ex 'info breakpoints' -ex continue --args $CUDA/children call`,
			[]string{"Breakpoint 1", "already hit", "Program ", "exited", "Thread ", "stopped"},
			3,
		},
		{
			// The job must still run when the shell brings it to the foreground.
			"bash", `bash -c 'set -m; { $CUDA/children fork; sleep 3; } & jobs; fg; echo status $?; jobs; echo end'`,
			[]string{"children", "status", "Stopped", "end"},
			4,
		},
	} {
		t.Run(test.tool, func(t *testing.T) {
			if _, err := exec.LookPath(test.tool); err != nil {
				testclass.Missing(t, err.Error())
			}
			alone, held := linesWith(
				runAlone(t, test.line),
				test.words...), linesWith(
				runHeld(t, test.line),
				test.words...)
			slices.Sort(alone) // lines of several processes have no order
			slices.Sort(held)
			if !slices.Equal(alone, held) || len(held) < test.want {
				t.Errorf("held:\n%s\nwithout gpurec:\n%s", strings.Join(held, "\n"), strings.Join(alone, "\n"))
			}
		})
	}
}

// TestDebuggersAttachToRecordedPrograms checks that debuggers attach to a program that was held, and
// detach. The recording stays complete.
func TestDebuggersAttachToRecordedPrograms(t *testing.T) {
	testclass.Root(t)
	needKernel(t)
	for tool, args := range map[string][]string{
		"gdb":    {"-q", "-batch", "-nx", "-ex", "set debuginfod enabled off", "-ex", "detach", "-p"},
		"strace": {"-f", "-o", "/dev/null", "-p"},
	} {
		t.Run(tool, func(t *testing.T) {
			path, err := exec.LookPath(tool)
			if err != nil {
				testclass.Missing(t, err.Error())
			}
			command := startSimCommand(
				t,
				nil,
				"storm",
				"--calls",
				"20000",
				"--threads",
				"2",
				"--seed",
				"9",
				"--rate",
				"10000",
			)
			ledger := os.Getenv("SIMCUDA_LEDGER")
			ended := make(chan error, 1)
			go func() {
				for { // the program runs when its ledger grows
					if info, err := os.Stat(ledger); err == nil && info.Size() > 0 {
						break
					}
					time.Sleep(time.Millisecond)
				}
				debugger := exec.Command(path, append(args, strconv.Itoa(command.Pid()))...)
				ended <- debugger.Run()
			}()
			result := recordCommand(t, command, testOptions(t))
			if err := <-ended; err != nil {
				t.Errorf("%s: %v", tool, err)
			}
			if n := compare(t, result.Output, readLedger(t, ledger, 0)); n < 19000 {
				t.Errorf("only %d calls", n)
			}
		})
	}
}

// stateOf returns the state of a process's main thread, as in /proc/PID/stat.
func stateOf(pid int) string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return ""
	}
	_, rest, _ := strings.Cut(string(text), ") ")
	return rest[:min(1, len(rest))]
}

// TestHeldThreadsRunOn checks that a held thread continues when the recording ends, and when the hold
// has lasted HoldMax.
func TestHeldThreadsRunOn(t *testing.T) {
	testclass.Root(t)
	needKernel(t)
	for _, test := range []struct {
		name   string
		max    time.Duration
		finish bool // the recording ends while the thread is held
	}{{"end of the recording", time.Minute, true}, {"hold-max", 300 * time.Millisecond, false}} {
		t.Run(test.name, func(t *testing.T) {
			command := startSimCommand(t, nil, "children", "call")
			opt := testOptions(t)
			opt.Command, opt.HoldMax = command, test.max
			s := start(t, opt)
			defer s.Close()
			command.Run()
			// No goroutine takes requests: s.Run is not called.
			eventually(t, "the thread is held", func() bool {
				return len(s.holds.requests()) > 0 && stateOf(command.Pid()) == "t"
			})
			if !test.finish {
				if status, err := command.Wait(t.Context()); status != 0 || err != nil {
					t.Errorf("status %d, %v", status, err)
				}
			}
			result, err := s.Finish()
			if err != nil {
				t.Fatal(err)
			}
			if status, err := command.Wait(t.Context()); status != 0 || err != nil {
				t.Errorf("status %d, %v", status, err)
			}
			if unheld := result.Meta.Cost.Unheld; test.finish != (unheld == 0) {
				t.Errorf("%d threads ran before they were covered", unheld)
			}
		})
	}
}

// TestAttachedProcessesAreNotHeld checks that a process that was attached to, and its children, are
// never held, also next to a command that is.
func TestAttachedProcessesAreNotHeld(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	needKernel(t)
	attached, begin, ledger := simShell(
		t,
		copySimcuda(t),
		`sleep 0.2; exec $SIM/storm --calls 3000 --threads 1 --seed 2 >/dev/null`,
	)
	command := startSimCommand(t, nil, "children", "call")
	opt := testOptions(t, attached.Process.Pid)
	opt.Command, opt.WaitForLibrary = command, true
	s := start(t, opt)
	defer s.Close()
	begin()
	command.Run()
	if end, err := s.Run(t.Context()); err != nil || end != EndProcesses {
		t.Errorf("ended because %q, %v", end, err)
	}
	result, err := s.Finish()
	if err != nil {
		t.Fatal(err)
	}
	if err := attached.Wait(); err != nil {
		t.Errorf("the attached program failed: %v", err)
	}
	happened := readLedger(t, ledger, 0)
	recorded := recordedCalls(t, result.Output)
	for tid, calls := range happened {
		if len(calls) > 1000 && len(recorded[tid]) == 0 {
			t.Errorf("no call of thread %d is recorded, of %d", tid, len(calls))
		}
	}
	if cost := result.Meta.Cost; cost.Holds != 1 || len(happened) < 2 {
		t.Errorf("%d holds, want 1 of the command; %d threads of the attached program", cost.Holds, len(happened))
	}
}
