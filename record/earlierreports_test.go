//go:build linux

package record

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gpurec/gpurec/analyze/model/state"
	"github.com/gpurec/gpurec/analyze/model/timeline"
	"github.com/gpurec/gpurec/analyze/query"
	analysis "github.com/gpurec/gpurec/analyze/report"
	"github.com/gpurec/gpurec/analyze/report/allocator"
	"github.com/gpurec/gpurec/analyze/report/leaks"
	"github.com/gpurec/gpurec/analyze/report/memory"
	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/record/probe"
)

// openTimeline opens a recording until the end of the test.
func openTimeline(t *testing.T, path string) *timeline.Timeline {
	t.Helper()
	rec, err := format.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = rec.Close() })
	tl, err := timeline.Open(rec)
	if err != nil {
		t.Fatal(err)
	}
	return tl
}

// TestModelFromTheFirstEvent attaches to a running program with two devices, three threads, streams and private pools.
// After the first event and at random times, the blocks and segments of the model must be those of the ledger. Driver
// memory must be the segments, and each free must have an allocation.
func TestModelFromTheFirstEvent(t *testing.T) {
	testclass.Root(t)
	needKernel(t)
	for _, conf := range []string{"", "expandable_segments:True"} {
		t.Run("conf="+conf, func(t *testing.T) {
			ledger := filepath.Join(t.TempDir(), "torch.tsv")
			env := []string{"SIMTORCH_LEDGER=" + ledger, "SIMTORCH_LEDGER_SYNC=1", "PYTORCH_CUDA_ALLOC_CONF=" + conf}
			p := startSim(t, env, simtorch(t, "tensors"), "--events", "100000000", "--threads", "3", "--streams", "2",
				"--devices", "2", "--rate", "6000", "--seed", fmt.Sprint(rand.IntN(1000)))
			defer p.kill()
			waitForLines(t, ledger, 3000)
			result := recordEarlierBlocks(t, p, ledger, testOptions(t, p.pid()))
			offset, events := metaOf(t, result.Output).ClockOffsetNs, 0
			for device, fact := range allocatorStates(t, result.Output) {
				if fact.Refused != "" {
					t.Logf("device %d: %s", device, fact.Refused)
					continue
				}
				rows := eventsInOrder(t, result.Output, device)
				events += len(rows)
				for _, i := range []int{0, 1, 2, rand.IntN(len(rows)), rand.IntN(len(rows)), len(rows) - 1} {
					at := rows[i].StartNs
					got := modelBlocks(t, openTimeline(t, result.Output), device, at)
					if diff := got.difference(ledgerBlocks(t, ledger, device, at-offset, false)); diff != "" {
						t.Errorf("device %d, after event %d of %d: %s", device, i, len(rows), diff)
					}
				}
			}
			checkFrees(t, openTimeline(t, result.Output), conf != "")
			checkDriverMemory(t, openTimeline(t, result.Output))
			t.Logf("%d events", events)
		})
	}
}

// modelBlocks returns the blocks and segments of an allocator in the model at a time, Unix ns.
func modelBlocks(t *testing.T, tl *timeline.Timeline, device int32, atNs int64) testBlocks {
	t.Helper()
	list, err := state.ReadAllocators(tl, atNs)
	if err != nil {
		t.Fatal(err)
	}
	b := newTestBlocks()
	for i := range list {
		if list[i].Device != device {
			continue
		}
		for _, r := range list[i].Ranges {
			b.setPages(r.Ptr, r.Bytes, true)
		}
		for _, block := range list[i].Blocks {
			use := format.BlockAllocated
			if block.Awaiting {
				use = format.BlockAwaitsStream
			}
			b.blocks[block.Ptr] = testBlock{use, 0, block.Requested, block.Pool, block.Stream}
		}
	}
	return b
}

// checkFrees checks the counters of replays. An attach during a failed growth of an expandable segment misses the
// mapping of its pages, but not the unmapping.
func checkFrees(t *testing.T, tl *timeline.Timeline, isExpandable bool) {
	t.Helper()
	driver, err := state.ReadMemory(tl, 0)
	if err != nil {
		t.Fatal(err)
	}
	allocators, err := state.ReadAllocators(tl, 0)
	if err != nil {
		t.Fatal(err)
	}
	for i := range allocators {
		if a := &allocators[i]; a.UnmatchedFrees != 0 || a.LostFrees != 0 || a.Disagreed != 0 {
			t.Errorf("device %d: %d unmatched frees, %d lost, %d totals differ", a.Device, a.UnmatchedFrees,
				a.LostFrees, a.Disagreed)
		}
	}
	if driver.UnmatchedFrees != 0 && !isExpandable || driver.LostFrees != 0 {
		t.Errorf("driver: %d unmatched frees, %d lost", driver.UnmatchedFrees, driver.LostFrees)
	}
}

// checkDriverMemory checks that the driver's memory was that of the segments when each state was read.
func checkDriverMemory(t *testing.T, tl *timeline.Timeline) {
	t.Helper()
	for _, s := range tl.Facts.EarlierStates {
		driver, err := state.ReadMemory(tl, s.AtNs)
		if err != nil {
			t.Fatal(err)
		}
		var live, mapped int64
		blocks := make(map[int64]int64)
		for _, a := range driver.Live {
			blocks[a.Ptr] = a.Bytes
			if a.Device == s.Device && a.Kind == format.MemoryPhysical {
				live += a.Bytes
			}
		}
		for i := range s.Segments {
			if g := &s.Segments[i]; g.IsExpandable {
				mapped += g.Bytes
			} else if blocks[g.Ptr] != g.Bytes {
				t.Errorf("device %d: segment of %d bytes, driver memory of %d", s.Device, g.Bytes, blocks[g.Ptr])
			}
		}
		if live != mapped {
			t.Errorf("device %d: %d bytes of physical memory, %d mapped", s.Device, live, mapped)
		}
	}
}

// lastInputs is a program that keeps the last 2,000 inputs, and one in which a line leaks next to it.
const lastInputs = `import sys
sys.path.insert(0, %q)
import simtorch as torch

def load_input():
    return torch.empty(96 << 10, None)

def remember():
    return torch.empty(32 << 10, None)  # the leak

def main():
    loop = torch.Loop(__doc__)
    inputs = [load_input() for _ in range(2000)]
    kept = []
    for step in loop:
        inputs.append(load_input())
        del inputs[0]
        if %s:
            kept.append(remember())
            loop.leaked += kept[-1].bytes
    loop.finish(__file__, leaks=True)

main()
`

// TestLeaksInTheMiddle attaches in the middle of programs that leak, and of one that replaces old memory by new.
func TestLeaksInTheMiddle(t *testing.T) {
	testclass.Root(t)
	needKernel(t)
	examples, err := filepath.Abs("../examples/simtorch")
	if err != nil {
		t.Fatal(err)
	}
	python, err := exec.LookPath("python3")
	if err != nil {
		testclass.Missing(t, "no python3")
	}
	for name, c := range map[string]struct {
		script string // text, or a name in examples
		site   string // of the only leak; "": none
	}{
		"a list of losses":           {"leak_list.py", "compute_loss"},
		"a hook":                     {"leak_hook.py", "Attention"},
		"no leak":                    {"no_leak.py", ""},
		"the last inputs":            {fmt.Sprintf(lastInputs, examples, "False"), ""},
		"the last inputs and a leak": {fmt.Sprintf(lastInputs, examples, "True"), "remember"},
	} {
		t.Run(name, func(t *testing.T) {
			script := filepath.Join(examples, c.script)
			if strings.Contains(c.script, "\n") {
				script = filepath.Join(t.TempDir(), "inputs.py")
				if err := os.WriteFile(script, []byte(c.script), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			ledger := filepath.Join(t.TempDir(), "torch.tsv")
			env := []string{"SIMTORCH_LEDGER=" + ledger, "SIMTORCH_LEDGER_SYNC=1"}
			p := startSim(t, env, python, script, "--steps", "1000000", "--step-ms", "10")
			defer p.kill()
			waitForLines(t, ledger, 6000)
			opt := testOptions(t, p.pid())
			opt.Stacks = probe.StacksAuto
			result := runWhile(t, start(t, opt), func() { time.Sleep(11 * time.Second) })
			checkLeaksInTheMiddle(t, openTimeline(t, result.Output), c.site)
		})
	}
}

// checkLeaksInTheMiddle checks the reports leaks, allocator and memory of a recording with one leak, or none.
func checkLeaksInTheMiddle(t *testing.T, tl *timeline.Timeline, site string) {
	t.Helper()
	r, err := leaks.Run(tl, query.Options{})
	if err != nil {
		t.Fatal(err)
	}
	number := func(r *analysis.Report, key string) int64 {
		n, _, _ := r.FindNumber(key)
		return int64(n)
	}
	var growing []string
	table := &r.Tables[0]
	column := func(key string) int {
		return slices.IndexFunc(table.Columns, func(c analysis.Column) bool { return c.Key == key })
	}
	for _, row := range table.Rows {
		if row.Cells[column("verdict")] == "growing" {
			growing = append(growing, fmt.Sprint(row.Cells[column("site")]))
		}
	}
	if n := len(growing); n > 1 || (n == 1) != (site != "") || n == 1 && !strings.HasPrefix(growing[0], site) {
		t.Errorf("growing: %q, want %q", growing, site)
	}
	if explained := number(r, "explained_growth_pct"); site != "" && explained < 90 {
		t.Errorf("%d %% of %d bytes explained", explained, number(r, "total_growth_bytes"))
	}
	known := number(r, "earlier_live_bytes") + number(r, "live_bytes")
	if allocated := number(r, "allocator_allocated_bytes"); allocated != known {
		t.Errorf("%d bytes known of %d allocated", known, allocated)
	}
	for _, run := range []func(*timeline.Timeline, query.Options) (*analysis.Report, error){allocator.Run, memory.Run} {
		if r, err = run(tl, query.Options{}); err != nil {
			t.Fatal(err)
		}
		if n := cmp.Or(r.Quality.UnmatchedFrees, r.Quality.AllocatorUnmatchedFrees); n != 0 {
			t.Errorf("%s: %d unmatched frees", r.Command, n)
		}
	}
}
