//go:build linux

package record

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/record/probe"
)

// startAllocating starts simtorch's tensors without an end. It returns when the program has made many
// allocator events, and the program's allocator ledger.
func startAllocating(t *testing.T, folder string) (p *simProgram, ledger string) {
	t.Helper()
	ledger = filepath.Join(t.TempDir(), "torch.tsv")
	p = startSim(t, []string{"SIMTORCH_LEDGER=" + ledger, "SIMTORCH_LEDGER_SYNC=1"}, filepath.Join(folder, "tensors"),
		"--events", endless, "--threads", "2", "--devices", "2", "--seed", "9", "--rate", "10000")
	awaitLedger(t, ledger, 2<<20) // about 20,000 events
	return p, ledger
}

// copySimtorch copies a simtorch that no other process has mapped, and returns its folder.
func copySimtorch(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"libc10.so", "libc10_cuda.so", "tensors"} {
		copyFile(t, simtorch(t, name), filepath.Join(dir, name))
	}
	return dir
}

// countTotals returns the number of rows with the allocator's totals: gpurec has read its statistics.
func countTotals(rows map[int32][]format.Row) (n int) {
	for _, list := range rows {
		for i := range list {
			if list[i].AllocatedBytes >= 0 {
				n++
			}
		}
	}
	return n
}

// recordedSpan returns the events of a ledger from the first recorded event of all threads to the
// last one of each thread.
func recordedSpan(
	ledger map[int32][]allocatorEvent, rows map[int32][]format.Row, offsetNs int64,
) map[int32][]allocatorEvent {
	var from int64
	for _, list := range rows {
		if first := list[0].StartNs - offsetNs; from == 0 || first < from {
			from = first
		}
	}
	for tid, events := range ledger {
		list := rows[tid]
		ledger[tid] = slices.DeleteFunc(events, func(e allocatorEvent) bool {
			return e.endNs < from || len(list) == 0 || e.startNs > list[len(list)-1].StartNs-offsetNs
		})
	}
	return ledger
}

// TestEventsBeforeAttachingAreNotMissed attaches to a program that has made thousands of allocator
// events, and makes more meanwhile. Its allocator's statistics count all of them, but only those since
// the beginning of the recording can be missed.
func TestEventsBeforeAttachingAreNotMissed(t *testing.T) {
	testclass.Root(t)
	needKernel(t)
	for name, choose := range map[string]func(*Options, int){
		"pid":           func(opt *Options, pid int) { opt.Pids = []int{pid} },
		"pid/unwound":   func(opt *Options, pid int) { opt.Pids, opt.Stacks = []int{pid}, probe.StacksAuto },
		"pid/no others": func(opt *Options, pid int) { opt.Pids, opt.Children = []int{pid}, false },
		"every process": func(opt *Options, _ int) { opt.All = true },
		"name":          func(opt *Options, _ int) { opt.All, opt.Comm = true, "tensors" },
	} {
		t.Run(name, func(t *testing.T) {
			p, ledger := startAllocating(t, copySimtorch(t))
			opt := testOptions(t)
			choose(&opt, p.pid())
			s := start(t, opt)
			result := runWhile(t, s, func() { awaitLedger(t, ledger, 4<<20) })
			p.kill()
			for _, note := range lateNotes(t, result.Output) {
				if int(note.pid) == p.pid() {
					t.Errorf("note %+v", note)
				}
			}
			if !opt.All && result.Meta.Late != nil {
				t.Errorf("late %+v", result.Meta.Late)
			}
			rows := allocatorRows(t, result.Output)
			happened := readAllocatorLedger(t, ledger, 0)
			for tid := range rows {
				if _, ok := happened[tid]; !ok {
					delete(rows, tid) // of another process
				}
			}
			happened = recordedSpan(happened, rows, result.Meta.ClockOffsetNs)
			n := compareAllocatorThreads(t, result.Output, happened, true)
			if n.events < 5000 || countTotals(rows) < 1000 {
				t.Errorf("%d events, %d with the allocator's totals", n.events, countTotals(rows))
			}
		})
	}
}

// TestAllocatorLoadedAfterAttachingIsCounted attaches to a program that loads the allocator later, from
// an unexpected place. Its first events are missed, and counted.
func TestAllocatorLoadedAfterAttachingIsCounted(t *testing.T) {
	testclass.Root(t)
	needKernel(t)
	const tries = 5 // on a busy machine, the recorder may attach before the first event
	for range tries {
		if recordLateAllocator(t) > 0 {
			return
		}
	}
	t.Errorf("no events are missing in %d recordings", tries)
}

// recordLateAllocator records a program that loads its allocator later, and compares the number of missing events
// with the ledger. It returns this number.
func recordLateAllocator(t *testing.T) int64 {
	t.Helper()
	dir, ledger := copySimtorch(t), filepath.Join(t.TempDir(), "torch.tsv")
	scripts, err := filepath.Abs("../examples/simtorch")
	if err != nil {
		t.Fatal(err)
	}
	python, err := exec.LookPath("python3")
	if err != nil {
		testclass.Missing(t, err.Error())
	}
	p := startSim(t, []string{"SIMTORCH_LEDGER=" + ledger, "SIMTORCH_LEDGER_SYNC=1", "SIMTORCH_LIB=" + dir},
		python, "-c", fmt.Sprintf(`
import sys, time
print("ready", flush=True)
sys.stdin.read(1)
sys.path.insert(0, %q)
import simtorch as torch
torch.init()
while sys.stdin not in __import__("select").select([sys.stdin], [], [], 0.0002)[0]:
    tensors = [torch.empty(4096 << i, None) for i in range(4)]
torch.checkpoint()
`, scripts))
	p.expect("ready")
	opt := testOptions(t, p.pid())
	opt.WaitForLibrary = true
	s := start(t, opt)
	result := runWhile(t, s, func() {
		p.step()
		end := time.Now().Add(10 * time.Second)
		eventually(t, "missed events are counted", func() bool {
			return s.targets.Late().TotalMissed() > 0 || time.Now().After(end)
		})
		p.step()
		_ = p.cmd.Wait()
	})
	rows, missing := allocatorRows(t, result.Output), int64(0)
	for tid, events := range readAllocatorLedger(t, ledger, 0) {
		for _, e := range events {
			if len(rows[tid]) > 0 && e.endNs < rows[tid][0].StartNs-result.Meta.ClockOffsetNs &&
				isCountedByAllocator(e.action) {
				missing++
			}
		}
	}
	late := result.Meta.Late
	counted := int64(0)
	if late != nil {
		counted = late.Missed[format.RecordAllocator]
	}
	if counted != missing {
		t.Errorf("%d events are missing; the recording says %+v, %+v", missing, late, lateNotes(t, result.Output))
	}
	t.Logf("%d events are missing and counted", missing)
	return missing
}

// TestForkedAllocatorIsNotMissed records a program whose forked child continues with the statistics of
// the parent's allocator.
func TestForkedAllocatorIsNotMissed(t *testing.T) {
	testclass.Root(t)
	needKernel(t)
	dir := t.TempDir()
	ledger := filepath.Join(dir, "torch.tsv")
	program := strings.ReplaceAll(`
import os, sys
sys.path.insert(0, os.environ["SCRIPTS"])
import simtorch as torch
torch.init()
def work():
    for i in range(500):
        tensors = [torch.empty(4096 << i, None) for i in range(4)]
work()
child = os.fork()
work()
if child:
    os._exit(os.waitpid(child, 0)[1])
os._exit(0)
`, "'", `"`)
	script := "SIMTORCH_LEDGER_SYNC=1 SIMTORCH_LEDGER=" + ledger + " python3 -c '" + program + "'"
	result := recordCommand(t, startShell(t, dir, script), testOptions(t))
	events := readAllocatorLedger(t, ledger, 0)
	n := compareAllocator(t, result.Output, events, true)
	if late, notes := result.Meta.Late, lateNotes(t, result.Output); late != nil || len(notes) > 0 {
		t.Errorf("late %+v, notes %+v", late, notes)
	}
	if len(events) != 2 || n.events < 12_000 {
		t.Errorf("%d events of %d processes", n.events, len(events))
	}
}

// TestExitedProcessLeavesNoBeginning records a program whose allocator's statistics are not found
// before it exits. Another process may get its pid.
func TestExitedProcessLeavesNoBeginning(t *testing.T) {
	testclass.Root(t)
	needKernel(t)
	opt := testOptions(t)
	opt.Command = startSimCommand(t, nil, simtorch(t, "tensors"), "--events", "20", "--checkpoint", "1000000")
	s := start(t, opt)
	defer s.Close()
	opt.Command.Run()
	if end, err := s.Run(t.Context()); err != nil || end != EndProcesses {
		t.Errorf("ended because %q, %v", end, err)
	}
	if list := s.probes.AllocatorBeginnings(); len(list) > 0 {
		t.Errorf("beginnings %+v", list)
	}
	result, err := s.Finish()
	if err != nil {
		t.Fatal(err)
	}
	if n := len(allocatorRows(t, result.Output)); n != 1 {
		t.Errorf("events of %d threads", n)
	}
}
