//go:build linux

package record

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/record/probe"
)

// recordLate records a shell script without holding it. The recorder looks for libraries only after
// the script has written to a ledger.
func recordLate(t *testing.T, opt Options, dir, script, ledger string) Result {
	t.Helper()
	opt.Command, opt.HoldMax = startShellIn(t, copySimcuda(t), dir, script), 0
	s := start(t, opt)
	defer s.Close()
	opt.Command.Run()
	awaitLedger(t, ledger, 10_000)
	if end, err := s.Run(t.Context()); err != nil || end != EndProcesses {
		t.Errorf("ended because %q, %v", end, err)
	}
	result, err := s.Finish()
	if err != nil {
		t.Fatal(err)
	}
	if status, err := opt.Command.Wait(t.Context()); status != 0 || err != nil {
		t.Errorf("status %d, %v", status, err)
	}
	if result.Meta.Cost.Holds != 0 {
		t.Errorf("%d holds", result.Meta.Cost.Holds)
	}
	return result
}

// lateNote is a note of kind NoteBeginning.
type lateNote struct {
	format.Beginning
	pid     int32
	startNs int64
}

// lateNotes returns the last note about each library of each process.
func lateNotes(t *testing.T, path string) (notes []lateNote) {
	t.Helper()
	for _, row := range factRows(t, path, format.KindNote) {
		if row.Name != format.NoteBeginning {
			continue
		}
		n := lateNote{pid: row.Pid, startNs: row.StartNs}
		if err := json.Unmarshal([]byte(row.Message), &n.Beginning); err != nil {
			t.Fatal(err)
		}
		notes = slices.DeleteFunc(notes, func(o lateNote) bool { return o.pid == n.pid && o.Library == n.Library })
		notes = append(notes, n)
	}
	return notes
}

// TestMissingAllocatorEventsAreCounted records the allocator of a program that is not held and loads
// a library in an unexpected place. The number of missing events is known from the allocator's
// own statistics.
func TestMissingAllocatorEventsAreCounted(t *testing.T) {
	testclass.Root(t)
	needKernel(t)
	dir := t.TempDir()
	for _, name := range []string{"libc10.so", "libc10_cuda.so", "tensors"} {
		copyFile(t, simtorch(t, name), filepath.Join(dir, name))
	}
	ledger := filepath.Join(dir, "torch.tsv")
	script := fmt.Sprintf(`SIMTORCH_LEDGER=%[1]s SIMTORCH_LEDGER_SYNC=1 SIMCUDA_LEDGER=%[2]s/cuda.tsv \
		%[2]s/tensors --events 30000 --threads 2 --devices 2 --seed 4 --rate 15000 >/dev/null`, ledger, dir)
	result := recordLate(t, testOptions(t), dir, script, ledger)
	compare(t, result.Output, readLedger(t, filepath.Join(dir, "cuda.tsv"), 0)) // libcuda is found in time
	recorded, missing, pid := allocatorRows(t, result.Output), int64(0), int32(0)
	offset := result.Meta.ClockOffsetNs
	happened := readAllocatorLedger(t, ledger, 0)
	for tid, events := range happened {
		rows := recorded[tid]
		if len(rows) == 0 {
			t.Fatalf("thread %d: no events", tid)
		}
		pid = rows[0].Pid
		for i, e := range events {
			if e.endNs >= rows[0].StartNs-offset {
				happened[tid] = events[i:]
				break
			}
			if isCountedByAllocator(e.action) {
				missing++
			}
		}
	}
	if n := compareAllocator(t, result.Output, happened, true); n.events < 20_000 {
		t.Errorf("only %d events", n.events)
	}
	late, notes := result.Meta.Late, lateNotes(t, result.Output)
	if missing < 10 || late == nil || late.Missed["allocator"] != missing || late.Processes != 0 {
		t.Errorf("%d events are missing; the recording says %+v, %+v", missing, late, notes)
	}
	if len(notes) != 1 || notes[0].Missed != missing || notes[0].pid != pid || filepath.Dir(notes[0].Library) != dir {
		t.Errorf("notes %+v, process %d", notes, pid)
	}
	t.Logf("%d events are missing and counted", missing)
}

// isCountedByAllocator reports whether the statistics of PyTorch's allocator count an action.
func isCountedByAllocator(action string) bool {
	switch action {
	case format.AllocatorSegmentMap, format.AllocatorSegmentUnmap, format.AllocatorSnapshot, format.AllocatorOOM:
		return false
	}
	return true
}

// TestMissingCallsAreNoted records a program that is not held and loads libcuda from an unexpected
// place. The recording says from when it is complete, and that earlier calls are unknown.
func TestMissingCallsAreNoted(t *testing.T) {
	testclass.Root(t)
	needKernel(t)
	dir := copySimcuda(t)
	ledger := filepath.Join(dir, "ledger.tsv")
	script := fmt.Sprintf("SIMCUDA_LEDGER=%s %s/storm --calls 20000 --threads 2 --seed 3 --rate 10000 >/dev/null",
		ledger, dir)
	opt := testOptions(t)
	opt.Stacks = probe.StacksAuto
	result := recordLate(t, opt, dir, script, ledger)
	notes, late := lateNotes(t, result.Output), result.Meta.Late
	if len(notes) != 1 || notes[0].Missed != format.UnknownMissed ||
		notes[0].Library != filepath.Join(dir, "libcuda.so.1") ||
		late == nil ||
		late.Processes != 1 ||
		late.CompleteNs != notes[0].startNs {
		t.Fatalf("notes %+v, meta %+v", notes, late)
	}
	compareFrom(t, result, readLedger(t, ledger, 0), notes[0].startNs)
	total, noTable := result.Meta.Totals(), 0
	bad := badStacks(t, result.Output)
	for what, n := range bad {
		// Nested calls have the stack of the call around them. A stack by frame pointers has another
		// reason: a second thread used the unwinder.
		isParent := strings.Contains(what, ": "+format.StackParent)
		if !isParent && !strings.Contains(what, ": "+format.StackFramePointer) {
			noTable += n
		}
	}
	if total.Recorded < 1000 || total.NoTable != int64(noTable) {
		t.Errorf("calls without a complete stack: %v, counts %+v", bad, total)
	}
	t.Logf("%d calls recorded, %d without unwind tables", total.Recorded, noTable)
}

// TestHoldIsNotInDurations records a call that loads a library: its thread is held within the call.
func TestHoldIsNotInDurations(t *testing.T) {
	testclass.Root(t)
	needKernel(t)
	dir := t.TempDir()
	ledger := filepath.Join(dir, "ledger.tsv")
	opt := testOptions(t)
	opt.Stacks = probe.StacksAuto
	result := recordCommand(t, startShell(t, dir, "SIMCUDA_LEDGER="+ledger+" exec $CUDA/children nested"), opt)
	var happened, recorded int64
	for _, calls := range readLedger(t, ledger, 0) {
		for _, c := range calls {
			if c.name == "cuInit" {
				happened = c.endNs - c.startNs
			}
		}
	}
	for _, rows := range recordedCalls(t, result.Output) {
		for _, r := range rows {
			if r.Name == "cuInit" {
				recorded = r.DurNs
			}
		}
	}
	cost := result.Meta.Cost
	if cost.Holds != 2 || cost.Unheld != 0 || recorded <= 0 || happened == 0 {
		t.Fatalf("%d holds; duration %d ns, ledger %d ns", cost.Holds, recorded, happened)
	}
	// The first hold is before the call.
	if held := happened - recorded; held < 1e6 || held > cost.HeldNs {
		t.Errorf("the call took %d ns, %d ns are recorded, held %d ns in all", happened, recorded, cost.HeldNs)
	}
	if bad := badStacks(t, result.Output); len(bad) > 0 {
		t.Errorf("calls without a complete stack: %v", bad)
	}
	t.Logf("cuInit took %d ns with a hold, %d ns are recorded", happened, recorded)
}

// TestHoldTooShortIsNoted records a program whose hold ends before it is covered.
func TestHoldTooShortIsNoted(t *testing.T) {
	testclass.Root(t)
	needKernel(t)
	dir := t.TempDir()
	ledger := filepath.Join(dir, "ledger.tsv")
	opt := testOptions(t)
	opt.Stacks, opt.HoldMax = probe.StacksAuto, 1 // 1 ns
	script := "SIMCUDA_LEDGER=" + ledger + " $CUDA/storm --calls 20000 --seed 1 --rate 20000 >/dev/null"
	result := recordCommand(t, startShellIn(t, copySimcuda(t), dir, script), opt)
	notes, late := lateNotes(t, result.Output), result.Meta.Late
	if result.Meta.Cost.Unheld == 0 || len(notes) == 0 || notes[0].Library != "" || late == nil || late.Processes != 1 {
		t.Errorf("%d threads ran too early, notes %+v, meta %+v", result.Meta.Cost.Unheld, notes, late)
	}
	if _, err := os.Stat(ledger); err != nil {
		t.Error(err)
	}
	compare(t, result.Output, readLedger(t, ledger, 0)) // libcuda is found before the program starts
}

// TestHeldProcessesAreNotLate records a command and its children while another process uses the same
// libcuda, so that each process gets probes of its own. Processes have mapped libcuda before that, but
// they have made no call.
func TestHeldProcessesAreNotLate(t *testing.T) {
	testclass.Root(t)
	needKernel(t)
	other := startSim(t, []string{"SIMCUDA_LEDGER_SYNC=1"}, "storm", "--calls", endless, "--rate", "100")
	defer other.kill()
	awaitLedger(t, other.ledger, 100)
	dir := t.TempDir()
	ledger := filepath.Join(dir, "ledger.tsv")
	result := recordCommand(t, startShell(t, dir, "export SIMCUDA_LEDGER="+ledger+`
		for how in fork vfork spawn exec thread; do $CUDA/children $how || exit 1; done`), testOptions(t))
	n := compare(t, result.Output, readLedger(t, ledger, 0))
	if late, notes := result.Meta.Late, lateNotes(t, result.Output); late != nil || len(notes) > 0 {
		t.Errorf("late %+v, notes %+v", late, notes)
	}
	if cost := result.Meta.Cost; n < 500 || cost.Holds < 8 || cost.Unheld != 0 {
		t.Errorf("%d calls; %d holds, %d threads ran before they were covered", n, cost.Holds, cost.Unheld)
	}
}
