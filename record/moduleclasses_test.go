//go:build linux

package record

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/record/probe"
)

// modulePath returns the classes of the modules in a stack, outermost first. A class that could not be read is "?".
func modulePath(frames []format.Frame) string {
	var classes []string
	for i := range slices.Backward(frames) {
		f := &frames[i]
		if f.SelfClass != "" {
			classes = append(classes, f.SelfClass)
		} else if strings.HasSuffix(f.Func, "._wrapped_call_impl") && strings.HasSuffix(f.File, "torch/nn/modules/module.py") {
			classes = append(classes, "?")
		}
	}
	return strings.Join(classes, " > ")
}

// moduleLedger has the launches and the class path of each gridDimX, from testdata/modules/train.py.
type moduleLedger map[int32]struct {
	launches int
	path     string
}

func readModuleLedger(t *testing.T, path string) moduleLedger {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var written map[string][2]json.RawMessage
	if err := json.Unmarshal(text, &written); err != nil {
		t.Fatal(err)
	}
	ledger := make(moduleLedger)
	for number, value := range written {
		n, err := strconv.Atoi(number)
		var classes []string
		entry := ledger[int32(n)]
		for _, err := range []error{err, json.Unmarshal(value[0], &entry.launches), json.Unmarshal(value[1], &classes)} {
			if err != nil {
				t.Fatal(err)
			}
		}
		entry.path = strings.Join(classes, " > ")
		ledger[int32(n)] = entry
	}
	return ledger
}

// compareModules compares the class path of every launch with the ledger. It returns the launches and the wrong ones.
func compareModules(t *testing.T, recording string, pid int32, ledger moduleLedger) (launches, wrong int) {
	t.Helper()
	stacks, seen := recordedStacks(t, recording), make(map[int32]int)
	for _, rows := range callsOf(t, recording, pid) {
		for _, r := range rows {
			if r.Name != "cuLaunchKernel" {
				continue
			}
			launches++
			seen[r.GridX]++
			if got := modulePath(stacks[r.StackID]); got != ledger[r.GridX].path {
				if wrong++; wrong <= 3 {
					t.Logf("a launch in %q is recorded in %q (%s)", ledger[r.GridX].path, got, r.StackStatus)
				}
			}
		}
	}
	for number, want := range ledger {
		if seen[number] != want.launches {
			t.Errorf("%d launches in %q, the ledger has %d", seen[number], want.path, want.launches)
		}
	}
	return launches, wrong
}

// moduleProgram is a run of testdata/modules/train.py.
type moduleProgram struct {
	name, ledger string
	pid          int32
	running      *simProgram
}

// everyModuleStyle tells to test each way to call a module with each interpreter, and not one of them in turn.
var everyModuleStyle = os.Getenv("GPUREC_SEEDS") != ""

// startModulePrograms starts train.py with each interpreter, and one way or each way to call a module.
func startModulePrograms(t *testing.T, styles []string, args ...string) []*moduleProgram {
	t.Helper()
	dir, _ := buildChains(t)
	script, err := filepath.Abs("testdata/modules/train.py")
	if err != nil {
		t.Fatal(err)
	}
	found := pythons(t)
	var programs []*moduleProgram
	for i, python := range slices.Sorted(maps.Keys(found)) {
		for k, style := range styles {
			if k != i%len(styles) && !everyModuleStyle {
				continue
			}
			p := &moduleProgram{name: python + "/" + style, ledger: filepath.Join(t.TempDir(), "ledger.json")}
			all := []string{script, filepath.Join(dir, "chains.so"), p.ledger, "--style", style}
			p.running = startSim(t, []string{"PYTHONDONTWRITEBYTECODE=1"}, found[python], append(all, args...)...)
			programs = append(programs, p)
		}
	}
	for _, p := range programs {
		p.running.expect("ready")
		p.pid = int32(p.running.pid())
	}
	return programs
}

// recordModulePrograms records all programs in one recording, until they are done.
func recordModulePrograms(t *testing.T, stacks string, programs []*moduleProgram) Result {
	t.Helper()
	var pids []int
	for _, p := range programs {
		pids = append(pids, int(p.pid))
	}
	opt := testOptions(t, pids...)
	opt.ModuleClasses = true
	opt.Stacks = stacks
	result := runWhile(t, start(t, opt), func() {
		for _, p := range programs {
			p.running.step()
		}
		for _, p := range programs {
			p.running.expect("done")
		}
	})
	for _, p := range programs {
		p.running.finish()
	}
	if total := result.Meta.Totals(); total.Lost != 0 || total.Seen != total.Recorded {
		t.Errorf("counts %+v", total)
	}
	return result
}

// TestModuleClassesAreRight compares the classes of the modules around every launch with the program's own ledger, on each
// CPython and each way to call a module.
func TestModuleClassesAreRight(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	needKernel(t)
	programs := startModulePrograms(t, []string{"wrapped", "call", "cell"}, "--steps", "40")
	result := recordModulePrograms(t, probe.StacksFull, programs)
	for _, p := range programs {
		t.Run(p.name, func(t *testing.T) {
			ledger := readModuleLedger(t, p.ledger)
			launches, wrong := compareModules(t, result.Output, p.pid, ledger)
			t.Logf("%d launches in %d class paths, %d wrong", launches, len(ledger), wrong)
			if wrong > 0 || len(ledger) < 20 {
				t.Error(fmt.Errorf("%d of %d launches are in the wrong modules", wrong, launches))
			}
		})
	}
}

// TestModuleClassesAreInferred compares the classes of launches whose stacks are inferred. Frames and lines of different
// classes are the same, so that only checks find a second class: a few launches of the first steps may be wrong.
func TestModuleClassesAreInferred(t *testing.T) {
	testclass.Root(t)
	needKernel(t)
	programs := startModulePrograms(t, []string{"wrapped"}, "--steps", "200", "--stable")
	result := recordModulePrograms(t, probe.StacksAuto, programs)
	for _, p := range programs {
		t.Run(p.name, func(t *testing.T) {
			launches, wrong := compareModules(t, result.Output, p.pid, readModuleLedger(t, p.ledger))
			t.Logf("%d launches, %d wrong", launches, wrong)
			if wrong*20 > launches {
				t.Errorf("%d of %d launches are in the wrong modules", wrong, launches)
			}
		})
	}
}

// TestNoModuleClasses checks that stacks have no classes by default.
func TestNoModuleClasses(t *testing.T) {
	testclass.Root(t)
	needKernel(t)
	programs := startModulePrograms(t, []string{"wrapped"}, "--steps", "10")[:1]
	opt := testOptions(t, int(programs[0].pid))
	opt.Stacks = probe.StacksFull
	result := runWhile(t, start(t, opt), func() {
		programs[0].running.step()
		programs[0].running.expect("done")
	})
	for id, frames := range recordedStacks(t, result.Output) {
		for _, f := range frames {
			if f.SelfClass != "" {
				t.Errorf("stack %d has class %s", id, f.SelfClass)
			}
		}
	}
}

// BenchmarkModuleClasses measures the BPF time of a launch in modules, with and without their classes, and of a program
// without modules. It reports the least mean of several runs in turn.
func BenchmarkModuleClasses(b *testing.B) {
	if testing.Short() {
		b.Skip("takes a minute")
	}
	stats, err := ebpf.EnableStats(unix.BPF_STATS_RUN_TIME)
	if err != nil {
		b.Skip(err)
	}
	defer stats.Close()
	cases := []struct {
		stacks    string
		noModules bool
	}{{probe.StacksFull, false}, {probe.StacksAuto, false}, {probe.StacksFull, true}, {probe.StacksAuto, true}}
	for _, c := range cases {
		b.Run(fmt.Sprintf("%s,noModules=%v", c.stacks, c.noModules), func(b *testing.B) {
			best := map[bool]float64{}
			for range 2 * b.N {
				for _, without := range []bool{false, true} {
					ns := meanLaunchNs(b, c.stacks, c.noModules, without)
					if best[without] == 0 || ns < best[without] {
						best[without] = ns
					}
				}
			}
			b.ReportMetric(best[false], "ns/launch")
			b.ReportMetric(best[true], "ns/launch-without-classes")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// meanLaunchNs returns the mean BPF time of a launch in a run of testdata/chains/train_sim.py, in nanoseconds.
func meanLaunchNs(b *testing.B, stacks string, noModules, withoutClasses bool) float64 {
	b.Helper()
	dir, err := chainPrograms()
	if err != nil {
		b.Skip(err)
	}
	simcuda, err := filepath.Abs(simcudaDir)
	if err != nil {
		b.Fatal(err)
	}
	cmd := exec.Command("python3", "testdata/chains/train_sim.py", filepath.Join(dir, "chains.so"),
		filepath.Join(b.TempDir(), "stacks.json"), "--seconds", "3")
	if !noModules {
		cmd.Args = append(cmd.Args, "--modules", "testdata/modules")
	}
	cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+simcuda, "SIMCUDA_TIME=off", "PYTHONDONTWRITEBYTECODE=1",
		"SIMCUDA_STATE="+filepath.Join(b.TempDir(), "state"))
	stdin, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	out := bufio.NewReader(stdout)
	expect := func() {
		if _, err := out.ReadString('\n'); err != nil {
			b.Fatal(err)
		}
	}
	expect()
	opt := DefaultOptions()
	opt.Pids, opt.Output = []int{cmd.Process.Pid}, filepath.Join(b.TempDir(), "r.parquet")
	opt.Stacks, opt.MaxOverheadPct, opt.NVMLInterval, opt.ModuleClasses = stacks, 0, 0, !withoutClasses
	var mean float64
	recordSession(b, opt, func(s *Session) {
		fmt.Fprint(stdin, "x")
		expect()
		used, err := s.probes.Objects.LaunchEnter.Stats()
		if err != nil {
			b.Fatal(err)
		}
		mean = float64(used.Runtime) / float64(max(used.RunCount, 1))
	})
	stdin.Close()
	_ = cmd.Wait()
	return mean
}

// recordSession runs do during a recording.
func recordSession(b *testing.B, opt Options, do func(*Session)) {
	b.Helper()
	s, err := Start(opt)
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	ended := make(chan error, 1)
	go func() {
		_, err := s.Run(ctx)
		ended <- err
	}()
	do(s)
	cancel()
	_, finished := s.Finish()
	if err := errors.Join(<-ended, finished, s.Close()); err != nil {
		b.Error(err)
	}
}
