//go:build linux

package record

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/record/library"
)

// blockRows returns the rows of class block, in order.
func blockRows(t *testing.T, path string) (list []format.Row) {
	t.Helper()
	rec, err := format.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer rec.Close()
	if err := rec.Rows(
		func(r *format.Row) error { list = append(list, *r); return nil },
		format.ClassBlock,
	); err != nil {
		t.Fatal(err)
	}
	return list
}

// applyBlockRow applies a row of kind block.
func (b testBlocks) applyBlockRow(r *format.Row, segments map[int64]int64) {
	switch r.Name {
	case format.BlockSegment, format.BlockMappedRange:
		b.setPages(r.Ptr, segments[r.Ptr], false)
		b.setPages(r.Ptr, r.Bytes, true)
		segments[r.Ptr] = r.Bytes
	case format.BlockSegmentGone:
		b.setPages(r.Ptr, segments[r.Ptr], false)
		delete(segments, r.Ptr)
	case format.BlockAllocated, format.BlockAwaitsStream:
		b.blocks[r.Ptr] = testBlock{r.Name, r.Bytes, int64(r.Value), r.SrcPtr, r.Stream}
	case format.BlockGone:
		delete(b.blocks, r.Ptr)
	}
}

func TestPauseBetweenReadings(t *testing.T) {
	testclass.Unit(t)
	for _, c := range []struct{ cost, asked, want time.Duration }{
		{0, time.Second, time.Second},
		{10 * time.Millisecond, time.Second, time.Second},
		{40 * time.Millisecond, time.Second, 2 * time.Second},
		{40 * time.Millisecond, minReadingPause, 2 * time.Second},
		{time.Second, time.Second, maxReadingPause},
		{time.Second, time.Minute, time.Minute},
	} {
		if got := (&blockWatch{cost: c.cost}).pauseFor(c.asked); got != c.want {
			t.Errorf("a reading of %v, asked for one after %v: %v, want %v", c.cost, c.asked, got, c.want)
		}
	}
}

func TestThreadTime(t *testing.T) {
	testclass.Unit(t)
	used := threadTime(func() {
		for begin := time.Now(); time.Since(begin) < 20*time.Millisecond; {
		}
		time.Sleep(50 * time.Millisecond)
	})
	if used <= 0 || used > 30*time.Millisecond {
		t.Errorf("%v", used)
	}
}

// TestBlocksAtRegularTimes reads the blocks of a program with two devices, whose allocator events are not recorded. Each
// reading must equal the ledger.
func TestBlocksAtRegularTimes(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	needKernel(t)
	for _, conf := range []string{"", "expandable_segments:True"} {
		t.Run("conf="+conf, func(t *testing.T) {
			ledger := filepath.Join(t.TempDir(), "torch.tsv")
			env := []string{"SIMTORCH_LEDGER=" + ledger, "SIMTORCH_LEDGER_SYNC=1", "PYTORCH_CUDA_ALLOC_CONF=" + conf}
			p := startSim(t, env, simtorch(t, "tensors"), "--events", "100000000", "--threads", "2", "--streams", "2",
				"--devices", "2", "--rate", "4000", "--seed", fmt.Sprint(rand.IntN(1000)))
			defer p.kill()
			waitForLines(t, ledger, 2000)
			opt := testOptions(t, p.pid())
			opt.Allocator, opt.BlocksEvery = library.AllocatorModeOff, 50*time.Millisecond
			s := start(t, opt)
			result := runWhile(t, s, func() { waitForLines(t, ledger, countLines(ledger)+4000) })
			compareBlockRows(t, result.Output, ledger)
		})
	}
}

// compareBlockRows compares each reading of a recording with the ledger.
func compareBlockRows(t *testing.T, path, ledger string) {
	t.Helper()
	offset := metaOf(t, path).ClockOffsetNs
	for device, rows := range groupByDevice(blockRows(t, path)) {
		rows = slices.DeleteFunc(rows, func(r format.Row) bool { return r.Name == format.BlockTotals })
		have, segments := newTestBlocks(), make(map[int64]int64)
		read, refused := 0, 0
		for i := range rows {
			r := &rows[i]
			switch r.Name {
			case format.BlocksRefused:
				refused++
				t.Logf("device %d: %s", device, r.Message)
				continue
			case format.BlocksRead:
				if (r.Message == format.BlocksComplete) != (read%completeReadings == 0) {
					t.Errorf("device %d: reading %d says %q", device, read, r.Message)
				}
				if read++; r.Message == format.BlocksComplete {
					have, segments = newTestBlocks(), make(map[int64]int64)
				}
			}
			have.applyBlockRow(r, segments)
			if i+1 < len(rows) && rows[i+1].StartNs == r.StartNs {
				continue
			}
			diff := have.difference(ledgerBlocks(t, ledger, device, r.StartNs-offset, true))
			if diff != "" {
				t.Fatalf("device %d, reading %d: %s", device, read, diff)
			}
		}
		t.Logf("device %d: %d readings equal, %d refused, %d rows", device, read, refused, len(rows))
		if read < 5 || refused > read/5 {
			t.Errorf("device %d: %d readings and %d refused", device, read, refused)
		}
	}
}

func groupByDevice(rows []format.Row) map[int32][]format.Row {
	groups := make(map[int32][]format.Row)
	for _, r := range rows {
		groups[r.Device] = append(groups[r.Device], r)
	}
	return groups
}
