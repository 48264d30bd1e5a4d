//go:build linux

package record

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/record/probe"
)

// firstCallProgram is a program that is recorded from its first call.
type firstCallProgram struct {
	name string
	line string // a command line of a shell; $CUDA, $TORCH and $SCRIPTS are folders
	// events says how the program's allocator events are recorded: by record_trace with or without
	// a pool, by reports, or "" for none.
	events string
}

// Sources of allocator events, see firstCallProgram.
const (
	withPool    = "pool"
	withoutPool = "no pool"
	byReports   = "reports"
)

// firstCallPrograms are the programs of simcuda and simtorch. selftest is none of them: its parts
// write ledgers of their own, or none.
var firstCallPrograms = []firstCallProgram{
	{"storm", "$CUDA/storm --calls 20000 --threads 2 --seed 9 --rate 20000", ""},
	{"leak", "$CUDA/leak --steps 20 --step-ms 0", ""},
	{"every", "$CUDA/every", ""},
	{"torchrun", "$CUDA/torchrun --calls 500", ""},
	{"works", "$CUDA/works --works 300 --processes 2 --threads 2 --seed 4", ""},
	{"watched", "$CUDA/watched wait", ""},
	{"verdicts", "$CUDA/verdicts --scenario process-per-job", ""},
	{"fork", "$CUDA/children fork", ""},
	{"vfork", "$CUDA/children vfork", ""},
	{"spawn", "$CUDA/children spawn", ""},
	{"exec", "$CUDA/children exec", ""},
	{"thread", "$CUDA/children thread", ""},
	{"call", "$CUDA/children call", ""},
	{"tensors", "$TORCH/tensors --events 5000 --threads 2 --devices 2 --seed 5 --rate 20000", withPool},
	{
		"expandable",
		"PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True $TORCH/tensors --events 3000 --seed 6 --rate 20000",
		withPool,
	},
	{"tensorleak", "$TORCH/tensorleak --steps 50 --step-ms 0", withPool},
	{"other", "$TORCH/other/tensors --events 3000 --seed 7 --rate 20000", withoutPool},
	{"renamed", "$TORCH/renamed/tensors --events 3000 --seed 8 --rate 20000", byReports},
	{"stripped", "$TORCH/stripped/tensorleak --steps 20 --step-ms 0", byReports},
	{"silent", "$TORCH/silent/tensorleak --steps 20 --step-ms 0", ""},
	{"leak_list.py", "python3 $SCRIPTS/leak_list.py --steps 20 --step-ms 0", withPool},
	{"leak_graph.py", "python3 $SCRIPTS/leak_graph.py --steps 20 --step-ms 0", withPool},
	{"leak_hook.py", "python3 $SCRIPTS/leak_hook.py --steps 20 --step-ms 0", withPool},
	{"no_leak.py", "python3 $SCRIPTS/no_leak.py --steps 20 --step-ms 0", withPool},
	{"oom_limit.py", "python3 $SCRIPTS/oom_limit.py", withPool},
	{"tensors.py", "python3 $SCRIPTS/tensors.py --events 2000 --threads 2 --seed 3", withPool},
}

// TestFirstCalls starts all programs of simcuda and simtorch one after the other, in one recording,
// and compares it with their ledgers: all calls, all allocator events and complete stacks, from the
// first call on, while busy processes take processor time. GPUREC_FIRST_CALL_RUNS is the number of
// repetitions. With it, each program is also recorded once by itself.
func TestFirstCalls(t *testing.T) {
	testclass.Root(t)
	needMulti(t)           // removing thousands of perf uprobes takes minutes
	simtorch(t, "tensors") // skips the test if simtorch is not built
	runs, err := strconv.Atoi(os.Getenv("GPUREC_FIRST_CALL_RUNS"))
	busy := 4
	if err != nil {
		runs, busy = 2, 2 // other tests run at the same time
	}
	for run := range runs {
		t.Run(fmt.Sprintf("all/%d", run), func(t *testing.T) {
			keepBusy(t, busy)
			compareFirstCalls(t, firstCallPrograms...)
		})
	}
	if err != nil {
		return
	}
	for _, program := range firstCallPrograms {
		t.Run(program.name, func(t *testing.T) { compareFirstCalls(t, program) })
	}
}

// keepBusy keeps processors busy until the test ends.
func keepBusy(t *testing.T, processes int) {
	t.Helper()
	for range processes {
		busy := exec.Command("sh", "-c", "while :; do :; done")
		if err := busy.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = busy.Process.Kill(); _ = busy.Wait() })
	}
}

// compareFirstCalls records programs that a shell starts one after the other.
func compareFirstCalls(t *testing.T, programs ...firstCallProgram) {
	t.Helper()
	dir := t.TempDir()
	opt := testOptions(t)
	opt.Stacks = probe.StacksAuto
	opt.KernelArgs = 1 // some functions are probed only then
	result := recordCommand(t, startFirstCalls(t, dir, programs), opt)
	calls := make(map[int32][]ledgerCall)
	events, reports := make(map[int32][]allocatorEvent), make(map[int32][]report)
	for _, p := range programs {
		ledger := filepath.Join(dir, p.name)
		maps.Copy(calls, readLedger(t, ledger+".cuda", 0))
		switch p.events {
		case withPool, withoutPool:
			for tid, thread := range readAllocatorLedger(t, ledger+".torch", 0) {
				for i := range thread {
					if p.events == withoutPool {
						thread[i].pool = 0
					}
				}
				events[tid] = thread
			}
		case byReports:
			of, _ := readReports(t, ledger+".torch", 0)
			maps.Copy(reports, of)
		}
	}
	n := compare(t, result.Output, calls)
	compared := compareAllocatorThreads(t, result.Output, events, true)
	nReports, _ := compareReports(t, result.Output, reports, 0)
	if total := result.Meta.Totals(); int64(n+compared.events+nReports) != total.Recorded || total.Lost != 0 {
		t.Errorf("%d calls, %d events and %d reports compared, counts %+v", n, compared.events, nReports, total)
	}
	if bad := badStacks(t, result.Output); len(bad) > 0 {
		t.Errorf("calls without a complete stack: %v", bad)
	}
	cost := result.Meta.Cost
	if cost.Holds == 0 || cost.Unheld != 0 {
		t.Errorf("%d holds, %d threads ran before they were covered", cost.Holds, cost.Unheld)
	}
	t.Logf("%d calls, %d events and %d reports equal; %d holds, %.1f ms",
		n, compared.events, nReports, cost.Holds, float64(cost.HeldNs)/1e6)
}

// startFirstCalls starts a shell that runs the programs. The ledgers of a program are in dir, with
// the program's name and the endings .cuda and .torch.
func startFirstCalls(t *testing.T, dir string, programs []firstCallProgram) *Command {
	t.Helper()
	var script strings.Builder
	for _, p := range programs {
		fmt.Fprintf(&script, "export SIMCUDA_LEDGER=%[1]s/%[2]s.cuda SIMTORCH_LEDGER=%[1]s/%[2]s.torch\n", dir, p.name)
		fmt.Fprintf(&script, "%s >/dev/null 2>&1 || { echo %s failed >&2; exit 1; }\n", p.line, p.name)
	}
	return startShell(t, dir, script.String())
}

// startShell starts a shell script as record -- COMMAND does. $CUDA, $TORCH and $SCRIPTS are folders
// with programs. Temporary files are in dir.
func startShell(t *testing.T, dir, script string) *Command {
	t.Helper()
	return startShellIn(t, simcudaDir, dir, script)
}

// startShellIn is startShell with another folder for $CUDA. The libcuda of a copy of simcuda is mapped by
// no process of another test, so gpurec probes it for all processes, before the command starts.
func startShellIn(t *testing.T, cuda, dir, script string) *Command {
	t.Helper()
	folder := func(path string) string {
		path, err := filepath.Abs(path)
		if err != nil {
			t.Fatal(err)
		}
		return path
	}
	for name, value := range map[string]string{
		"CUDA": folder(cuda), "TORCH": folder(simtorchDir), "SCRIPTS": folder("../examples/simtorch"),
		"LD_LIBRARY_PATH": folder(cuda), "SIMCUDA_TIME": "off", "SIMCUDA_STATE": filepath.Join(dir, "state"),
		"SIMCUDA_LEDGER_SYNC": "1", // some processes end by _exit
	} {
		t.Setenv(name, value)
	}
	command, err := StartCommand([]string{"/bin/sh", "-c", script}, format.Owner{})
	if err != nil {
		t.Fatal(err)
	}
	return command
}

// badStacks counts the calls without a complete stack, by status and cause of truncation. Stacks
// that are too deep for the unwinder, and calls that need no stack, are not counted.
func badStacks(t *testing.T, path string) map[string]int {
	t.Helper()
	causes := make(map[int32]string)
	for _, row := range factRows(t, path, format.KindStack) {
		if row.StackStatus == format.StackTruncated {
			causes[row.StackID] = row.Message
		}
	}
	bad := make(map[string]int)
	count := func(r *format.Row) {
		cause := causes[r.StackID]
		switch {
		case cause == format.TruncationDepth:
		case r.StackStatus == format.StackComplete, r.StackStatus == format.StackInferred && cause == "",
			r.StackStatus == format.StackParent && cause == "":
		default:
			bad[fmt.Sprintf("%s: %s %s", r.Name, r.StackStatus, cause)]++
		}
	}
	for _, rows := range recordedCalls(t, path) {
		for i := range rows {
			count(&rows[i])
		}
	}
	for _, rows := range allocatorRows(t, path) {
		for i := range rows {
			if !needsNoStack(rows[i].Name) {
				count(&rows[i])
			}
		}
	}
	return bad
}

// needsNoStack reports whether events of a caching allocator are recorded without a stack.
func needsNoStack(action string) bool {
	switch action {
	case format.AllocatorFreeRequested,
		format.AllocatorFreeCompleted,
		format.AllocatorSnapshot,
		format.AllocatorReportedFree:
		return true
	}
	return false
}
