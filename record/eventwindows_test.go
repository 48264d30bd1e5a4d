//go:build linux

package record

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/record/library"
	"github.com/gpurec/gpurec/record/overhead"
	"github.com/gpurec/gpurec/record/privilege"
)

// eventWindows returns the options of a recording that samples events of allocators whatever they cost.
func eventWindows(t *testing.T, pid int) Options {
	opt := testOptions(t, pid)
	opt.Attach, opt.MaxOverheadPct, opt.governor = privilege.AttachMulti, 0.1, fastGovernor()
	return opt
}

// TestEventWindowsEqualTheLedger records events of allocators in windows. A window has all of its events, and there are
// no others. Readings of the blocks and of the statistics between equal the ledger.
func TestEventWindowsEqualTheLedger(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	needMulti(t)
	ledger := filepath.Join(t.TempDir(), "torch.tsv")
	env := []string{"SIMTORCH_LEDGER=" + ledger, "SIMTORCH_LEDGER_SYNC=1"}
	p := startSim(t, env, simtorch(t, "tensors"), "--events", "100000000", "--threads", "2", "--streams", "2",
		"--devices", "2", "--rate", "10000", "--seed", "7")
	defer p.kill()
	waitForLines(t, ledger, 2000)
	s := start(t, eventWindows(t, p.pid()))
	var begin, end int64
	result := runWhile(t, s, func() {
		begin = monotonic()
		for range 6 {
			eventually(
				t,
				"events are left out",
				func() bool { return s.probes.MissingKinds() == overhead.AllocatorEvents },
			)
			eventually(t, "events are recorded again", func() bool { return s.probes.MissingKinds() == 0 })
		}
		end = monotonic()
	})
	windows := recordedWindows(t, result.Output, format.SampledAllocator)
	offset, inside, outside := result.Meta.ClockOffsetNs, 0, 0
	rows := allocatorRows(t, result.Output)
	events := readAllocatorLedger(t, ledger, begin)
	for tid, list := range events {
		events[tid] = slices.DeleteFunc(list, func(e allocatorEvent) bool {
			from, to := within(windows, e.startNs+offset), within(windows, e.endNs+offset)
			isThere := from
			if from != to || e.endNs > end {
				isThere = hasRowWithin(rows[tid], e.startNs+offset, e.endNs+offset)
			}
			if isThere {
				inside++
			} else if e.endNs < end {
				outside++
			}
			return !isThere
		})
	}
	for tid, list := range rows {
		rows[tid] = slices.DeleteFunc(list, func(r format.Row) bool { return r.StartNs < begin+offset })
		for _, r := range rows[tid] {
			if !within(windows, r.StartNs) {
				t.Errorf("thread %d: an event at %d is outside of the windows", tid, r.StartNs)
			}
		}
	}
	compareAllocatorRows(t, rows, events, true, offset)
	counts := result.Meta.Calls["allocator"]
	if len(windows) < 6 || inside < 500 || outside < 500 || counts.Lost != 0 || counts.Seen != counts.Recorded {
		t.Errorf("%d windows with %d events, %d events left out, counts %+v", len(windows), inside, outside, counts)
	}
	compareBlockRows(t, result.Output, ledger)
	compareTotalsRows(t, result.Output, ledger)
}

// hasRowWithin reports whether a row began in a time, Unix ns.
func hasRowWithin(rows []format.Row, fromNs, toNs int64) bool {
	i, _ := slices.BinarySearchFunc(rows, fromNs, func(r format.Row, ns int64) int { return int(r.StartNs - ns) })
	return i < len(rows) && rows[i].StartNs <= toNs
}

// compareTotalsRows compares statistics of a recording with the ledger.
func compareTotalsRows(t *testing.T, path, ledger string) {
	t.Helper()
	offset, compared := metaOf(t, path).ClockOffsetNs, 0
	allocations := make(map[int32]float64)
	for _, r := range blockRows(t, path) {
		if r.Name != format.BlockTotals {
			continue
		}
		if r.Value < allocations[r.Device] || r.Bytes < r.AllocatedBytes || int64(r.Value) < r.Counter {
			t.Errorf("device %d: %+v", r.Device, r)
		}
		allocations[r.Device] = r.Value
		if compared++; compared > 20 {
			continue
		}
		want := int64(0)
		for _, b := range ledgerBlocks(t, ledger, r.Device, r.StartNs-offset, true).blocks {
			if b.use == format.BlockAllocated {
				want += b.bytes
			}
		}
		if r.AllocatedBytes != want {
			t.Errorf("device %d: %d bytes allocated at %d, want %d", r.Device, r.AllocatedBytes, r.StartNs-offset, want)
		}
	}
	if compared < 5 {
		t.Errorf("%d rows with statistics", compared)
	}
}

// TestUnreadableAllocatorIsNotSampled records a program whose allocator cannot be read from outside. All of its events
// are recorded, and a warning says so.
func TestUnreadableAllocatorIsNotSampled(t *testing.T) {
	testclass.Root(t)
	needMulti(t)
	ledger := filepath.Join(t.TempDir(), "torch.tsv")
	env := []string{"SIMTORCH_LEDGER=" + ledger, "SIMTORCH_LEDGER_SYNC=1", "SIMTORCH_BROKEN=totals"}
	p := startSim(t, env, simtorch(t, "tensors"), "--events", "100000000", "--threads", "1", "--rate", "10000")
	defer p.kill()
	waitForLines(t, ledger, 1000)
	opt := eventWindows(t, p.pid())
	warnings := make(chan string, 16)
	opt.Warn = func(text string) { warnings <- text }
	s := start(t, opt)
	result := runWhile(t, s, func() {
		for limit := time.After(20 * time.Second); ; {
			select {
			case text := <-warnings:
				if strings.Contains(text, "all events of PyTorch's allocator are recorded") {
					return
				}
			case <-limit:
				t.Error("no warning")
				return
			}
		}
	})
	if windows := recordedWindows(t, result.Output, format.SampledAllocator); len(windows) != 1 {
		t.Errorf("%d windows", len(windows))
	}
}

// TestFullAllocatorIsNotSampled checks that --allocator=full records every event.
func TestFullAllocatorIsNotSampled(t *testing.T) {
	testclass.Root(t)
	needMulti(t)
	opt := eventWindows(t, 0)
	opt.Allocator = library.AllocatorModeFull
	result, ledger := recordTensors(
		t,
		opt,
		nil,
		"tensors",
		"--events",
		fmt.Sprint(20_000),
		"--threads",
		"2",
		"--rate",
		"10000",
	)
	compareAllocator(t, result.Output, ledger, true)
}
