//go:build linux

package record

import (
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gpurec/gpurec/format"
	"github.com/gpurec/gpurec/internal/testclass"
	"github.com/gpurec/gpurec/record/clock"
)

// testBytes is half of the smallest size limit of the command line: it is reached sooner.
const testBytes = format.MinMaxBytes / 2

// diskUse measures the maximum total size of the files in a folder, until peak is called.
func diskUse(dir string) (peak func() int64) {
	stop, done := make(chan struct{}), make(chan int64)
	go func() {
		var most int64
		for !clock.Sleep(stop, 3*time.Millisecond) {
			var sum int64
			seen := make(map[uint64]bool) // a finished file has two names for a moment
			_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
				if err != nil || d.IsDir() {
					return nil // the file has been deleted
				}
				if info, err := d.Info(); err == nil && !seen[info.Sys().(*syscall.Stat_t).Ino] {
					seen[info.Sys().(*syscall.Stat_t).Ino] = true
					sum += info.Size()
				}
				return nil
			})
			most = max(most, sum)
		}
		done <- most
	}()
	return func() int64 { close(stop); return <-done }
}

// compareEnd checks that a recording has every call of the ledger that ended after the recording's
// start, column by column. A few calls that ended just before the start are allowed.
func compareEnd(t *testing.T, result Result, ledger map[int32][]ledgerCall) {
	t.Helper()
	counted, offset := countedCalls(), result.Meta.ClockOffsetNs
	recorded := recordedCalls(t, result.Output)
	early, rows := 0, 0
	for tid, calls := range ledger {
		calls = slices.DeleteFunc(
			calls,
			func(c ledgerCall) bool { return counted[c.name] || slices.Contains(notProbed, c.name) },
		)
		have := recorded[tid]
		rows += len(have)
		if len(have) > len(calls) {
			t.Fatalf("thread %d: %d calls recorded, %d in the ledger", tid, len(have), len(calls))
		}
		cut := len(calls) - len(have)
		for _, c := range calls[:cut] {
			if c.endNs+offset > result.Meta.StartNs {
				t.Fatalf("thread %d: %s ended %d ns after the recording's start and is "+
					"missing", tid, c.name, c.endNs+offset-result.Meta.StartNs)
			}
		}
		for i, c := range calls[cut:] {
			have[i].Context = 0 // the thread made its context current before the start
			if diff := difference(&have[i], &c, offset); diff != "" && !strings.HasPrefix(diff, "kernel ") {
				t.Fatalf("thread %d call %d %s: %s", tid, i, c.name, diff)
			}
			if c.endNs+offset <= result.Meta.StartNs {
				early++
			}
		}
	}
	total := result.Meta.Totals()
	if total.Seen != total.Recorded+total.Lost+total.Dropped || total.Lost != 0 || int64(rows) != total.Recorded ||
		total.Dropped == 0 {
		t.Errorf("counts %+v, %d rows", total, rows)
	}
	if early > rows/20 {
		t.Errorf("%d of %d calls ended before the recording's start", early, rows)
	}
	t.Logf("%d calls kept and equal, %d dropped; %d ended before the start", rows, total.Dropped, early)
}

func TestRingOfASizeKeepsTheLastCalls(t *testing.T) {
	testclass.Root(t)
	needKernel(t)
	const calls = 300_000
	p := startSim(t, nil, "storm", "--calls", fmt.Sprint(calls), "--threads", "3", "--seed", "5", "--wait")
	p.expect("ready")
	opt := testOptions(t, p.pid())
	opt.Ring, opt.MaxBytes = true, testBytes
	peak := diskUse(filepath.Dir(opt.Output))
	s := start(t, opt)
	var since int64
	result := runWhile(t, s, func() {
		since = monotonic()
		p.step()
		p.expect("done")
	})
	used := peak()
	p.finish()
	compareEnd(t, result, readLedger(t, p.ledger, since))
	if used > opt.MaxBytes || used < opt.MaxBytes/3 {
		t.Errorf("the recording took up to %d bytes on disk, the limit is %d", used, opt.MaxBytes)
	}
	if ring := result.Meta.Ring; ring == nil || ring.MaxBytes != opt.MaxBytes ||
		ring.AttachedNs >= result.Meta.StartNs ||
		ring.DroppedRows["memory"] == 0 ||
		ring.DroppedRows["call"] == 0 {
		t.Errorf("metadata: %+v", ring)
	}
	t.Logf("up to %d bytes on disk, final file %d bytes", used, result.Meta.Cost.FileBytes)
}

func TestRingOfATimeKeepsTheLastCalls(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	needKernel(t)
	p := startSim(t, nil, "storm", "--calls", "160000", "--threads", "2", "--seed", "6", "--rate", "20000", "--wait")
	p.expect("ready")
	opt := testOptions(t, p.pid())
	opt.Ring, opt.RingFor, opt.SegmentInterval = true, time.Second, 150*time.Millisecond
	s := start(t, opt)
	var since int64
	result := runWhile(t, s, func() {
		since = monotonic()
		p.step()
		p.expect("done")
	})
	p.finish()
	compareEnd(t, result, readLedger(t, p.ledger, since))
	if kept := time.Duration(
		result.Meta.EndNs - result.Meta.StartNs,
	); kept < time.Second ||
		kept > result.Elapsed/2 {
		t.Errorf("the ring has events of %v", kept)
	}
}

func TestRecordingEndsAtItsSize(t *testing.T) {
	testclass.Root(t, testclass.Gate)
	needKernel(t)
	p := startSim(t, nil, "storm", "--calls", "300000", "--threads", "3", "--seed", "8", "--wait")
	p.expect("ready")
	opt := testOptions(t, p.pid())
	opt.MaxBytes = testBytes
	peak := diskUse(filepath.Dir(opt.Output))
	s := start(t, opt)
	since := monotonic()
	p.step()
	if end, err := s.Run(t.Context()); end != EndSize || err != nil {
		t.Errorf("ended because %q, %v", end, err)
	}
	defer s.Close()
	result, err := s.Finish()
	if err != nil {
		t.Fatal(err)
	}
	if used := peak(); used > opt.MaxBytes || used < opt.MaxBytes/2 {
		t.Errorf("the recording took up to %d bytes on disk, the limit is %d", used, opt.MaxBytes)
	}
	p.expect("done")
	p.finish()
	total := result.Meta.Totals()
	if total.Seen != total.Recorded || total.Lost != 0 || total.Recorded < 80_000 ||
		result.Meta.MaxBytes != opt.MaxBytes {
		t.Errorf("counts %+v", total)
	}
	counted, offset := countedCalls(), result.Meta.ClockOffsetNs
	recorded := recordedCalls(t, result.Output)
	rows, open := 0, 0
	for tid, calls := range readLedger(t, p.ledger, since) {
		calls = slices.DeleteFunc(
			calls,
			func(c ledgerCall) bool { return counted[c.name] || slices.Contains(notProbed, c.name) },
		)
		for i := range recorded[tid] {
			r := &recorded[tid][i]
			if r.Flags&format.FlagOpen != 0 {
				open++
			} else if diff := difference(r, &calls[i], offset); diff != "" {
				t.Fatalf("thread %d call %d: %s", tid, i, diff)
			}
			if end := r.StartNs + r.DurNs; end > result.Meta.EndNs {
				t.Errorf("%s ends %d ns after the recording", r.Name, end-result.Meta.EndNs)
			}
		}
		rows += len(recorded[tid])
		if next := calls[len(recorded[tid])]; next.startNs+offset < result.Meta.EndNs-int64(time.Millisecond) {
			t.Errorf(
				"thread %d: %s is missing, %d ns before the end",
				tid,
				next.name,
				result.Meta.EndNs-next.startNs-offset,
			)
		}
	}
	if int64(rows) != total.Recorded || int64(open) != total.Open {
		t.Errorf("%d rows, %d open, counts %+v", rows, open, total)
	}
	notes := factRows(t, result.Output, format.KindNote)
	if !slices.ContainsFunc(notes, func(r format.Row) bool { return r.Name == "max_size" }) {
		t.Error("no note says why the recording ended")
	}
	t.Logf("%d calls until the end, %d of them open", rows, open)
}
