//go:build linux

package record

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/record/library"
	"github.com/gpurec/gpurec/record/probe"
)

// simtorchDir is the output folder of `make simtorch`: PyTorch's allocator code without PyTorch.
const simtorchDir = "../build/simtorch"

// simtorch returns the absolute path of a test program that is linked with simtorch.
func simtorch(t *testing.T, name string) string {
	t.Helper()
	path, err := filepath.Abs(filepath.Join(simtorchDir, name))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(path); err != nil {
		testclass.Missing(t, "simtorch is not built: make simtorch")
	}
	return path
}

// allocatorEvent is an allocator event in simtorch's ledger, in the units of a recording.
type allocatorEvent struct {
	startNs, endNs      int64
	action              string
	ptr, bytes, stream  int64
	device              int32
	pool                int64
	allocated, reserved int64
}

// readAllocatorLedger returns the allocator events of a ledger since a time, by thread and in
// order.
func readAllocatorLedger(t *testing.T, path string, since int64) map[int32][]allocatorEvent {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	events := make(map[int32][]allocatorEvent)
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		f := strings.Split(lines.Text(), "\t")
		if f[0] != "event" {
			continue
		}
		n := make([]int64, len(f))
		for i := range f {
			n[i], _ = strconv.ParseInt(f[i], 0, 64) // the action is a word, not a number
		}
		e := allocatorEvent{
			startNs:   n[1],
			endNs:     n[2],
			action:    f[5],
			ptr:       n[6],
			bytes:     n[7],
			stream:    n[8],
			device:    int32(n[9]),
			allocated: n[12],
			reserved:  n[13],
		}
		if e.pool = n[11]; e.pool == 0 {
			e.pool = -n[10]
		}
		if e.startNs >= since {
			events[int32(n[4])] = append(events[int32(n[4])], e)
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	return events
}

// allocatorRows returns the recorded allocator events, by thread and in order.
func allocatorRows(t *testing.T, path string) map[int32][]format.Row {
	t.Helper()
	rec, err := format.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer rec.Close()
	rows := make(map[int32][]format.Row)
	if err := rec.Rows(
		func(r *format.Row) error { rows[r.Tid] = append(rows[r.Tid], *r); return nil },
		format.ClassAllocator,
	); err != nil {
		t.Fatal(err)
	}
	for _, list := range rows {
		slices.SortStableFunc(list, func(a, b format.Row) int { return int(a.StartNs - b.StartNs) })
	}
	return rows
}

// allocatorCount counts the results of compareAllocator.
type allocatorCount struct{ events, totals int }

// compareAllocator checks that a recording has exactly the allocator events of the ledger.
func compareAllocator(t *testing.T, path string, ledger map[int32][]allocatorEvent, hasPool bool) allocatorCount {
	t.Helper()
	checkAllocatorThreads(t, path, ledger)
	return compareAllocatorThreads(t, path, ledger, hasPool)
}

// checkAllocatorThreads checks that a recording has allocator events of no thread outside a ledger.
func checkAllocatorThreads[E any](t *testing.T, path string, ledger map[int32]E) {
	t.Helper()
	for tid := range allocatorRows(t, path) {
		if _, ok := ledger[tid]; !ok {
			t.Errorf("thread %d is not in the ledger", tid)
		}
	}
}

// compareAllocatorThreads compares like compareAllocator, but only the threads of the ledger.
func compareAllocatorThreads(
	t *testing.T,
	path string,
	ledger map[int32][]allocatorEvent,
	hasPool bool,
) allocatorCount {
	t.Helper()
	return compareAllocatorRows(t, allocatorRows(t, path), ledger, hasPool, metaOf(t, path).ClockOffsetNs)
}

// compareAllocatorRows compares rows with the threads of a ledger.
func compareAllocatorRows(
	t *testing.T,
	recorded map[int32][]format.Row,
	ledger map[int32][]allocatorEvent,
	hasPool bool,
	offset int64,
) (n allocatorCount) {
	t.Helper()
	wrong := 0
	for tid, events := range ledger {
		rows := recorded[tid]
		if len(rows) != len(events) {
			t.Errorf("thread %d: %d events recorded, %d in the ledger", tid, len(rows), len(events))
			continue
		}
		for i, e := range events {
			r := &rows[i]
			got := allocatorEvent{
				startNs:   e.startNs,
				endNs:     e.endNs,
				action:    r.Name,
				ptr:       r.Ptr,
				bytes:     r.Bytes,
				stream:    r.Stream,
				device:    r.Device,
				pool:      r.SrcPtr,
				allocated: r.AllocatedBytes,
				reserved:  r.ReservedBytes,
			}
			if r.Name == format.AllocatorOOM {
				got.ptr = int64(r.Value)
			}
			if r.AllocatedBytes == -1 && r.ReservedBytes == -1 { // before the offset of the statistics was found
				got.allocated, got.reserved = e.allocated, e.reserved
			} else {
				n.totals++
			}
			if !hasPool {
				e.pool = 0
			}
			if at := r.StartNs - offset; got != e || at < e.startNs || at > e.endNs || r.Kind != format.KindAllocator ||
				r.MemoryKind != format.MemoryTorch ||
				r.Flags != 0 {
				if wrong++; wrong <= 10 {
					t.Errorf(
						"thread %d event %d: recorded %+v at %d, flags %d; happened %+v",
						tid,
						i,
						got,
						at,
						r.Flags,
						e,
					)
				}
			}
			isFree := e.action == format.AllocatorFreeRequested || e.action == format.AllocatorFreeCompleted ||
				e.action == format.AllocatorSnapshot
			if isFree != (r.StackStatus == format.StackNone) {
				t.Fatalf("%s with stack status %s", e.action, r.StackStatus)
			}
			n.events++
		}
	}
	return n
}

// recordTensors records a simtorch program from before its first allocator event.
func recordTensors(
	t *testing.T,
	opt Options,
	env []string,
	name string,
	args ...string,
) (Result, map[int32][]allocatorEvent) {
	t.Helper()
	ledger := filepath.Join(t.TempDir(), "torch.tsv")
	p := startSim(t, append(env, "SIMTORCH_LEDGER="+ledger), simtorch(t, name), append(args, "--wait")...)
	p.expect("ready")
	opt.Pids = []int{p.pid()}
	s := start(t, opt)
	var since int64
	result := runWhile(t, s, func() {
		since = monotonic()
		p.step()
		p.expect("done")
	})
	p.finish()
	return result, readAllocatorLedger(t, ledger, since)
}

func TestAllocatorEventsEqualTheLedger(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	needKernel(t)
	events := faultScale(75_000, 150_000)
	for _, test := range []struct{ name, conf, stacks string }{
		{"default", "", probe.StacksFP}, {"default/auto", "", probe.StacksAuto}, {"expandable", "expandable_segments:True", probe.StacksFP},
	} {
		t.Run(test.name, func(t *testing.T) {
			opt := testOptions(t)
			opt.Stacks = test.stacks
			result, ledger := recordTensors(
				t,
				opt,
				[]string{"PYTORCH_CUDA_ALLOC_CONF=" + test.conf},
				"tensors",
				"--events",
				fmt.Sprint(events),
				"--threads",
				"4",
				"--streams",
				"3",
				"--devices",
				"2",
				"--seed",
				"5",
				"--rate",
				fmt.Sprint(events*2/5),
			)
			n := compareAllocator(t, result.Output, ledger, true)
			if counts := result.Meta.Calls["allocator"]; counts.Lost != 0 || counts.Seen != counts.Recorded ||
				int64(n.events) != counts.Recorded ||
				n.events < events {
				t.Errorf("%d events compared, counts %+v", n.events, counts)
			}
			if n.totals < n.events/2 {
				t.Errorf("the allocator's totals are known in %d of %d events", n.totals, n.events)
			}
			fact := allocatorFact(t, result.Output)
			if fact.Missing != "" || fact.Source != format.SourceTrace || fact.Limits != "" || fact.Conf != test.conf ||
				fact.BuildID == "" {
				t.Errorf("fact %+v", fact)
			}
			t.Logf("%d events equal, %d with totals; %+v", n.events, n.totals, result.Meta.Cost)
		})
	}
}

// TestRecordTraceOfPyTorch23 records a record_trace without a pool argument, as in PyTorch 2.3.
func TestRecordTraceOfPyTorch23(t *testing.T) {
	testclass.Root(t)
	needKernel(t)
	result, ledger := recordTensors(
		t,
		testOptions(t),
		nil,
		"other/tensors",
		"--events",
		"90000", // three seconds: the search for the totals begins late on a busy machine
		"--threads",
		"2",
		"--seed",
		"6",
		"--rate",
		"30000",
	)
	if n := compareAllocator(t, result.Output, ledger, false); n.events < 90_000 || n.totals == 0 {
		t.Errorf("compared %+v", n)
	}
}

func TestAllocatorOffRecordsNoEvents(t *testing.T) {
	testclass.Root(t)
	needKernel(t)
	opt := testOptions(t)
	opt.Allocator = library.AllocatorModeOff
	result, _ := recordTensors(t, opt, nil, "tensors", "--events", "5000", "--seed", "6")
	if rows := allocatorRows(t, result.Output); len(rows) != 0 || result.Meta.Calls["memory"].Recorded == 0 {
		t.Errorf("events of %d threads, calls %+v", len(rows), result.Meta.Calls)
	}
}

// allocatorFact returns the allocator note of a recording with one such note.
func allocatorFact(t *testing.T, path string) (fact format.AllocatorFact) {
	t.Helper()
	facts := allocatorFacts(t, path)
	if len(facts) != 1 {
		t.Fatalf("%d allocator notes", len(facts))
	}
	return facts[0]
}

// allocatorFacts returns the allocator notes of a recording.
func allocatorFacts(t *testing.T, path string) (facts []format.AllocatorFact) {
	t.Helper()
	for _, note := range factRows(t, path, format.KindNote) {
		if note.Name != format.NoteAllocator {
			continue
		}
		var fact format.AllocatorFact
		if err := json.Unmarshal([]byte(note.Message), &fact); err != nil {
			t.Fatal(err)
		}
		facts = append(facts, fact)
	}
	return facts
}
